//! A result that anybody may ask for, looked up once for all who ask at about the same time.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

/// The last result. A caller that has to wait waits for the current look-up, or for the one after it.
pub(super) struct SingleFlight<T> {
    good_for: Duration,
    /// When the look-up that found it began.
    last: Mutex<Option<(Instant, T)>>,
}

impl<T: Clone> SingleFlight<T> {
    /// A cache whose results are valid for so long after their look-up began.
    pub(super) fn new(good_for: Duration) -> Self {
        Self { good_for, last: Mutex::new(None) }
    }

    /// The last result, if it is recent or its look-up began after this call; otherwise what `look` finds.
    pub(super) async fn get(&self, look: impl Future<Output = T>) -> T {
        let came = Instant::now();
        let mut last = self.last.lock().await;
        if let Some((began, answer)) = last.as_ref()
            && (*began >= came || began.elapsed() < self.good_for)
        {
            return answer.clone();
        }
        let began = Instant::now();
        let answer = look.await;
        *last = Some((began, answer.clone()));
        answer
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::join_all;

    use super::*;

    /// The number of look-ups for a hundred callers that ask while one is under way.
    async fn looks(lately: &SingleFlight<usize>) -> usize {
        let looks = AtomicUsize::new(0);
        let look = async || {
            // All other callers arrive meanwhile.
            tokio::task::yield_now().await;
            looks.fetch_add(1, Ordering::Relaxed)
        };
        join_all((0..100).map(|_| lately.get(look()))).await;
        looks.into_inner()
    }

    #[tokio::test]
    async fn whoever_asks_shortly_after_a_look_causes_no_other() {
        let lately = SingleFlight::new(Duration::from_secs(3600));
        assert_eq!(looks(&lately).await, 1);
        assert_eq!(looks(&lately).await, 0);
    }

    #[tokio::test]
    async fn many_who_wait_for_a_slow_look_share_the_one_behind_it() {
        let lately = SingleFlight::new(Duration::ZERO);
        for _ in 0..2 {
            // The first look-up began before the others arrived, and its result is too old for them.
            let looks = looks(&lately).await;
            assert!((1..=2).contains(&looks), "{looks}");
        }
    }

    #[tokio::test]
    async fn whoever_gives_up_leaves_the_look_to_the_next() {
        let lately = SingleFlight::new(Duration::ZERO);
        let impatient = tokio::time::timeout(Duration::ZERO, lately.get(std::future::pending())).await;
        assert!(impatient.is_err());
        assert_eq!(lately.get(async { 7 }).await, 7);
    }
}
