//! Requests for work whose clients send no Idempotency-Key, and send the same again when they were cut off.
//!
//! Each is given a key here. An equal request of the same key and subject gets the same one if the earlier one was not
//! answered: its connection ended before the end of the answer was handed over, its gateway is gone, or the client itself
//! says that it repeats. So it finds its run. An equal request after an answer is another question, and a new run.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use deskgate_protocol::canonical::Sha256Digest;
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::access::Caller;
use super::admission::digest_of;
use super::refusal::Refusal;
use crate::store::Store;

/// How often a gateway says which requests are under way.
const SIGN_OF_LIFE_INTERVAL: Duration = Duration::from_secs(1);
/// After so long without that a request counts as cut off.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(3);
/// Ends that may wait to be written. One that is dropped makes its request count as cut off a little later.
const END_CAPACITY: usize = 4096;

/// The keys of requests that are under way, each with how many connections ask for it.
type OpenRequests = HashMap<String, usize>;

/// Gives keys to requests without one.
#[derive(Clone)]
pub struct UnkeyedRequests {
    store: Store,
    open: Arc<Mutex<OpenRequests>>,
    ends: mpsc::Sender<(String, bool)>,
}

/// A request that is under way. Dropped before it is [answered](Self::answered), it counts as cut off.
pub struct UnansweredRequest {
    key: String,
    open: Arc<Mutex<OpenRequests>>,
    ends: mpsc::Sender<(String, bool)>,
    is_answered: bool,
}

impl UnkeyedRequests {
    /// None so far, and the task that writes down how they end, until `stop`.
    pub fn new(store: Store, stop: CancellationToken) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (ends, ended) = mpsc::channel(END_CAPACITY);
        let requests = Self { store, open: Arc::default(), ends };
        let (store, open) = (requests.store.clone(), requests.open.clone());
        (requests, async move {
            let mut ended = ended;
            stop.run_until_cancelled(note(&store, &open, &mut ended)).await;
            // Those that were answered until now are no longer repeated.
            let mut ends = Vec::new();
            while let Ok(end) = ended.try_recv() {
                ends.push(end);
            }
            if !ends.is_empty() {
                write(&store, &mut ends).await;
            }
        })
    }

    /// Begins a request. `call` and `fingerprint`: what is asked; `is_retry`: the client says that it repeats.
    ///
    /// # Errors
    /// [`Refusal::StoreUnavailable`] or [`Refusal::Internal`]: the database does not answer, or refuses the statement.
    pub async fn begin(
        &self,
        caller: &Caller,
        call: &str,
        fingerprint: Sha256Digest,
        is_retry: bool,
    ) -> Result<UnansweredRequest, Refusal> {
        let asked = [&caller.key_id().to_string(), caller.subject(), call, &fingerprint.to_string()];
        let fresh = format!("unkeyed-{}", uuid::Uuid::now_v7().simple());
        let digest = digest_of(&asked);
        let key = self.store.key_of_unkeyed(digest, &fresh, is_retry, SILENCE_TIMEOUT).await?;
        *lock(&self.open).entry(key.clone()).or_default() += 1;
        Ok(UnansweredRequest { key, open: self.open.clone(), ends: self.ends.clone(), is_answered: false })
    }
}

impl UnansweredRequest {
    /// The key that the request was given.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The end of its answer was handed over to the connection.
    pub fn answered(&mut self) {
        self.is_answered = true;
    }
}

impl Drop for UnansweredRequest {
    fn drop(&mut self) {
        if let Entry::Occupied(mut open) = lock(&self.open).entry(self.key.clone()) {
            *open.get_mut() -= 1;
            if *open.get() == 0 {
                open.remove();
            }
        }
        // When too many wait, silence says the same.
        let _ = self.ends.try_send((std::mem::take(&mut self.key), self.is_answered));
    }
}

async fn note(store: &Store, open: &Mutex<OpenRequests>, ended: &mut mpsc::Receiver<(String, bool)>) {
    let mut signs = tokio::time::interval(SIGN_OF_LIFE_INTERVAL);
    signs.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut ends = Vec::new();
    loop {
        tokio::select! {
            _ = ended.recv_many(&mut ends, END_CAPACITY) => write(store, &mut ends).await,
            _ = signs.tick() => {
                if !ends.is_empty() {
                    write(store, &mut ends).await;
                }
                let keys: Vec<_> = lock(open).keys().cloned().collect();
                if !keys.is_empty() && let Err(error) = store.see_unkeyed(&keys).await {
                    tracing::warn!(%error, "which requests without a key are under way could not be written down");
                }
            }
        }
    }
}

async fn write(store: &Store, ends: &mut Vec<(String, bool)>) {
    let (keys, answered): (Vec<_>, Vec<_>) = ends.drain(..).unzip();
    if !keys.is_empty()
        && let Err(error) = store.end_unkeyed(&keys, &answered).await
    {
        tracing::warn!(%error, "how requests without a key ended could not be written down");
    }
}

fn lock(open: &Mutex<OpenRequests>) -> MutexGuard<'_, OpenRequests> {
    // No code panics while it holds the lock.
    open.lock().unwrap_or_else(PoisonError::into_inner)
}
