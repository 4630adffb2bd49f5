//! A stream of HTTP/2 whose peer must read what is sent on it.
//!
//! While the peer's window is full, the body of an answer is not polled, and does not notice what would end it: a
//! revoked key, a gateway that stops. The connection does not show it either: the peer reads it, and answers its pings.
//! So each stream has a timer beside it, and is reset when its body waits too long.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

use futures_util::task::AtomicWaker;
use tokio::time::sleep;

/// Since when the body of an answer has data that the peer does not read.
#[derive(Debug, Default)]
pub(super) struct StreamTimer {
    since: Mutex<Option<Instant>>,
    taker: AtomicWaker,
}

tokio::task_local! {
    static CURRENT_TIMER: Arc<StreamTimer>;
}

impl StreamTimer {
    /// The timer of the stream on which this task answers; none on HTTP/1.1, where a connection has one answer at a
    /// time.
    pub(super) fn current() -> Option<Arc<Self>> {
        CURRENT_TIMER.try_with(Arc::clone).ok()
    }

    /// The peer reads. Returns the waker that signals new data.
    pub(super) fn taking(self: &Arc<Self>, taker: &Waker) -> Waker {
        self.taker.register(taker);
        *self.since() = None;
        Waker::from(self.clone())
    }

    /// There is data to send, now or at the next poll.
    pub(super) fn offer(&self) {
        // Data that was offered before waits for longer.
        self.since().get_or_insert_with(Instant::now);
    }

    fn since(&self) -> MutexGuard<'_, Option<Instant>> {
        // No code panics while it holds the lock.
        self.since.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until nothing was read for so long; notices it after twice the time at the latest.
    async fn lasts(&self, patience: Duration) {
        loop {
            let waited = self.since().map_or(Duration::ZERO, |since| since.elapsed());
            match patience.checked_sub(waited) {
                Some(left) if !left.is_zero() => sleep(left).await,
                _ => return,
            }
        }
    }
}

impl Wake for StreamTimer {
    fn wake(self: Arc<Self>) {
        self.offer();
        self.taker.wake();
    }
}

/// Runs the streams of HTTP/2 connections, each with its timer.
#[derive(Clone, Copy, Debug)]
pub(super) struct StreamExecutor {
    /// How long a peer may read nothing of the data.
    pub(super) patience: Duration,
}

impl<F> hyper::rt::Executor<F> for StreamExecutor
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, stream: F) {
        let patience = self.patience;
        tokio::spawn(async move {
            let stall = Arc::new(StreamTimer::default());
            tokio::select! {
                _ = CURRENT_TIMER.scope(stall.clone(), stream) => {}
                // An unfinished stream is reset when it is dropped.
                () = stall.lasts(patience) => tracing::debug!("a stream was reset: its peer takes nothing"),
            }
        });
    }
}
