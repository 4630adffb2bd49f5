//! The requests under way on one connection, and how long it has been idle.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

/// The requests under way on a connection. A request only counts; it notifies no task.
#[derive(Clone, Debug)]
pub(super) struct ActiveRequests(Arc<Mutex<RequestCount>>);

#[derive(Debug)]
struct RequestCount {
    requests: usize,
    /// The requests that ever began.
    begun: u64,
    /// Whether no further request can come.
    ended: bool,
    /// Whether the peer is still sending what nobody reads.
    unread: bool,
    /// When the last one ended, or the connection began.
    since: Instant,
}

/// One request, until it is dropped.
#[derive(Debug)]
pub(super) struct RequestGuard(ActiveRequests);

impl Default for ActiveRequests {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(RequestCount {
            requests: 0,
            begun: 0,
            ended: false,
            unread: false,
            since: Instant::now(),
        })))
    }
}

impl ActiveRequests {
    /// Counts one more request.
    pub(super) fn enter(&self) -> RequestGuard {
        let mut count = self.count();
        count.requests += 1;
        count.begun += 1;
        drop(count);
        RequestGuard(self.clone())
    }

    /// How many ever began; one more when no further request can come.
    pub(super) fn begun(&self) -> u64 {
        self.count().begun
    }

    /// Whether the connection is idle, and a request may still come.
    pub(super) fn is_quiet(&self) -> bool {
        let count = self.count();
        count.requests == 0 && !count.ended
    }

    /// Marks the end of requests: the connection has ended, or became something else (RFC 9110, section 7.8).
    pub(super) fn end(&self) {
        let mut count = self.count();
        count.ended = true;
        count.begun += 1;
    }

    /// Notes that the peer is still sending what nobody reads, so the connection can have no other request.
    pub(super) fn leave_unread(&self) {
        self.count().unread = true;
    }

    /// Whether the peer is still sending what nobody reads.
    pub(super) fn has_unread(&self) -> bool {
        self.count().unread
    }

    /// Waits until the connection was idle for so long.
    pub(super) async fn idle(&self, time: Duration) {
        loop {
            let quiet_since = Some(self.count()).filter(|count| count.requests == 0).map(|count| count.since);
            match quiet_since {
                Some(since) if since.elapsed() >= time => return,
                Some(since) => sleep_until(since + time).await,
                // A request under way now ends later than this, so the idle time cannot be over before then.
                None => sleep(time).await,
            }
        }
    }

    fn count(&self) -> MutexGuard<'_, RequestCount> {
        // No code panics while it holds the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        let mut count = self.0.count();
        count.requests -= 1;
        count.since = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEST_TIMEOUT: Duration = Duration::from_millis(100);

    #[tokio::test]
    async fn a_connection_is_not_idle_before_so_long_after_its_last_request() {
        let under_way = ActiveRequests::default();
        let first = under_way.enter();
        let waiting = tokio::spawn({
            let under_way = under_way.clone();
            async move { under_way.idle(TEST_TIMEOUT).await }
        });
        sleep(TEST_TIMEOUT * 2).await;
        assert!(!waiting.is_finished(), "a request is under way");
        drop(first);
        sleep(TEST_TIMEOUT / 2).await;
        // A request that came and went between two polls counts too.
        drop(under_way.enter());
        let last = Instant::now();
        waiting.await.expect("no panic");
        assert!(last.elapsed() >= TEST_TIMEOUT, "after {:?}", last.elapsed());
    }

    #[tokio::test]
    async fn a_connection_on_which_nothing_was_asked_is_idle_too() {
        let began = Instant::now();
        ActiveRequests::default().idle(TEST_TIMEOUT).await;
        assert!(began.elapsed() >= TEST_TIMEOUT);
    }
}
