//! Reads of one kind that are asked for while others are under way: they wait, and share the next statement.
//!
//! A read never joins a statement that has begun, so what it finds is at least as new as its question. What is found is not
//! decoded here: a record that cannot be read fails for those who asked for it.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt;
use tokio::sync::oneshot;

use super::{Error, with_timeout};

/// Statements of one kind that are under way at the same time. With one alone the processor would be idle while an answer
/// is on its way.
const MAX_STATEMENTS: usize = 4;
/// Reads in one statement: a record may be a megabyte.
const MAX_SHARED_READS: usize = 16;

/// Reads of values `V` by keys `K`.
pub(super) struct SharedReads<K, V>(Arc<Mutex<Queue<K, V>>>);

struct Queue<K, V> {
    waiting: VecDeque<Read<K, V>>,
    /// Statements that are under way.
    statements: usize,
}

struct Read<K, V> {
    key: K,
    reply: oneshot::Sender<Result<Option<V>, Error>>,
}

impl<K, V> Clone for SharedReads<K, V> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K, V> Default for SharedReads<K, V> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Queue { waiting: VecDeque::new(), statements: 0 })))
    }
}

impl<K, V> SharedReads<K, V>
where
    K: Clone + Eq + Hash + Send + 'static,
    V: Clone + Send + 'static,
{
    /// The value of a key, if there is one. `statement` reads those of several keys.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub(super) async fn read<F, Found>(&self, key: K, statement: F) -> Result<Option<V>, Error>
    where
        F: Fn(Vec<K>) -> Found + Send + Sync + 'static,
        Found: Future<Output = Result<HashMap<K, V>, Error>> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let begins = {
            let mut queue = self.lock();
            queue.waiting.push_back(Read { key, reply });
            let begins = queue.statements < MAX_STATEMENTS;
            queue.statements += usize::from(begins);
            begins
        };
        if begins {
            // Not the task of the one who asks: it may end before the others have their answers.
            tokio::spawn(self.clone().work_off(statement));
        }
        let given_up = |_| Error::Unavailable("the read was given up".to_owned());
        with_timeout(async { answer.await.map_err(given_up)? }).await
    }

    async fn work_off<F, Found>(self, statement: F)
    where
        F: Fn(Vec<K>) -> Found + Send + Sync + 'static,
        Found: Future<Output = Result<HashMap<K, V>, Error>> + Send + 'static,
    {
        while let Some(reads) = self.next() {
            let mut keys: Vec<K> = Vec::with_capacity(reads.len());
            for read in &reads {
                if !keys.contains(&read.key) {
                    keys.push(read.key.clone());
                }
            }
            // A panic ends these reads, and not the ones behind them.
            match AssertUnwindSafe(async { statement(keys).await }).catch_unwind().await {
                Ok(found) => answer(reads, found),
                Err(_) => drop(reads),
            }
        }
    }

    /// The next reads that share a statement. `None`: there are none, and this one is no longer under way.
    fn next(&self) -> Option<Vec<Read<K, V>>> {
        let mut queue = self.lock();
        // Whoever has gone, or has waited too long, needs no answer.
        queue.waiting.retain(|read| !read.reply.is_closed());
        if queue.waiting.is_empty() {
            queue.statements -= 1;
            return None;
        }
        let count = queue.waiting.len().min(MAX_SHARED_READS);
        Some(queue.waiting.drain(..count).collect())
    }

    fn lock(&self) -> MutexGuard<'_, Queue<K, V>> {
        // No code panics while it holds the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn answer<K: Eq + Hash, V: Clone>(reads: Vec<Read<K, V>>, found: Result<HashMap<K, V>, Error>) {
    match found {
        Ok(found) => reads.into_iter().for_each(|Read { key, reply }| {
            let _ = reply.send(Ok(found.get(&key).cloned()));
        }),
        Err(error) => {
            let text = error.to_string();
            let mut error = Some(error);
            for Read { reply, .. } in reads {
                let _ = reply.send(Err(error.take().unwrap_or_else(|| Error::Unavailable(text.clone()))));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::join_all;
    use tokio::sync::mpsc;
    use tokio::task::JoinHandle;

    use super::*;

    type Found = Result<HashMap<u32, u32>, Error>;
    /// The keys of a statement that began, and its answer.
    type Begun = mpsc::UnboundedReceiver<(Vec<u32>, oneshot::Sender<Found>)>;

    type Asked = JoinHandle<Result<Option<u32>, String>>;

    /// Reads, with what asks for a key; each statement answers when it may.
    fn reads() -> (SharedReads<u32, u32>, impl Fn(u32) -> Asked, Begun) {
        let (reads, (begins, begun)) = (SharedReads::default(), mpsc::unbounded_channel());
        let asked = reads.clone();
        let ask = move |key| {
            let (reads, begins) = (asked.clone(), begins.clone());
            let statement = move |keys| {
                let (end, ended) = oneshot::channel();
                begins.send((keys, end)).expect("the test is there");
                async { ended.await.expect("a test that drops it means a panic") }
            };
            tokio::spawn(async move { reads.read(key, statement).await.map_err(|error| error.to_string()) })
        };
        (reads, ask, begun)
    }

    fn squares(keys: &[u32]) -> HashMap<u32, u32> {
        keys.iter().filter(|key| **key < 10).map(|key| (*key, key * key)).collect()
    }

    #[tokio::test]
    async fn what_is_asked_meanwhile_shares_the_next_statement_and_joins_none_that_has_begun() {
        let (reads, ask, mut begun) = reads();
        let (mut asked, mut ends) = (Vec::new(), Vec::new());
        for key in 0..4 {
            asked.push(ask(key));
            let (keys, end) = begun.recv().await.expect("nobody waits while few are under way");
            assert_eq!(keys, [key]);
            ends.push(end);
        }
        let gone = ask(5);
        let others: Vec<_> = [1, 3, 3, 11].into_iter().map(&ask).collect();
        while reads.lock().waiting.len() < 5 {
            tokio::task::yield_now().await;
        }
        gone.abort();
        assert!(gone.await.is_err_and(|error| error.is_cancelled()));
        ends.remove(1).send(Ok(squares(&[1]))).expect("it waits");
        let (shared, end_shared) = begun.recv().await.expect("a statement");
        assert_eq!(shared, [1, 3, 11]);
        assert_eq!(asked.remove(1).await.expect("no panic"), Ok(Some(1)));
        end_shared.send(Ok(squares(&shared))).expect("it waits");
        let answers: Vec<_> = join_all(others).await.into_iter().map(|answer| answer.expect("no panic")).collect();
        assert_eq!(answers, [Ok(Some(1)), Ok(Some(9)), Ok(Some(9)), Ok(None)]);
    }

    #[tokio::test]
    async fn a_statement_that_fails_or_panics_fails_its_own_reads_and_the_next_ones_are_answered() {
        let (reads, ask, mut begun) = reads();
        let gone = ask(7);
        let (_, end) = begun.recv().await.expect("a statement");
        gone.abort();
        assert!(gone.await.is_err_and(|error| error.is_cancelled()));
        end.send(Ok(HashMap::new())).expect("it waits, whoever has gone");
        for round in 0..2 * MAX_STATEMENTS {
            let asked = ask(5);
            let (_, end) = begun.recv().await.expect("a statement");
            match round % 2 {
                0 => end.send(Err(Error::Unavailable("it is gone".to_owned()))).expect("it waits"),
                _ => drop(end),
            }
            assert!(asked.await.expect("no panic").is_err());
        }
        let asked = ask(5);
        let (keys, end) = begun.recv().await.expect("a statement");
        end.send(Ok(squares(&keys))).expect("it waits");
        assert_eq!(asked.await.expect("no panic"), Ok(Some(25)));
        while reads.lock().statements > 0 {
            tokio::task::yield_now().await;
        }
    }
}
