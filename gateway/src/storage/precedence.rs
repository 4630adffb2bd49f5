//! Who goes first: submissions, and then the bytes of files.
//!
//! A file on its way takes a processor and more, and whoever submits a run meanwhile would wait for it. So bytes pause while a
//! submission is under way. They never stop: each pause lets `STEP_BYTES` through.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread::available_parallelism;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::sleep;

/// Bytes that pass between two pauses.
const STEP_BYTES: usize = 256 * 1024;
/// Milliseconds of a pause on one processor; on more it is shorter.
const ONE_PROCESSOR_PAUSE_MS: u64 = 32;
static PAUSE: LazyLock<Duration> = LazyLock::new(|| {
    let processors = available_parallelism().map_or(1, |count| count.get() as u64);
    Duration::from_millis((ONE_PROCESSOR_PAUSE_MS / processors).max(1))
});

/// Lets submissions go before bytes. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Precedence(Arc<Passing>);

#[derive(Debug, Default)]
struct Passing {
    /// Submissions under way.
    first: AtomicUsize,
    /// Bytes that ever passed.
    bytes: AtomicUsize,
    /// Held by who pauses: all transfers together pass no more than one alone.
    turn: Mutex<()>,
}

/// A submission under way, until it is dropped.
#[derive(Debug)]
pub struct GoesFirst(Arc<Passing>);

impl Precedence {
    /// Goes before all bytes.
    #[must_use]
    pub fn go_first(&self) -> GoesFirst {
        self.0.first.fetch_add(1, Ordering::Relaxed);
        GoesFirst(Arc::clone(&self.0))
    }

    /// Returns when so many bytes may pass.
    pub(super) async fn pass(&self, bytes: usize) {
        let before = self.0.bytes.fetch_add(bytes, Ordering::Relaxed);
        let is_step = before / STEP_BYTES != before.wrapping_add(bytes) / STEP_BYTES;
        let somebody_is_first = || self.0.first.load(Ordering::Relaxed) > 0;
        if is_step && somebody_is_first() {
            let _turn = self.0.turn.lock().await;
            // Nobody may be, once others have paused.
            if somebody_is_first() {
                sleep(*PAUSE).await;
            }
        }
    }
}

impl Drop for GoesFirst {
    fn drop(&mut self) {
        self.0.first.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn bytes_pause_while_a_submission_is_under_way_and_pass_all_the_same() {
        let precedence = Precedence::default();
        assert!(precedence.pass(STEP_BYTES).now_or_never().is_some(), "nobody goes first");
        let first = precedence.go_first();
        assert!(precedence.pass(STEP_BYTES - 1).now_or_never().is_some(), "not every piece pauses");
        assert!(precedence.pass(1).now_or_never().is_none());
        let began = std::time::Instant::now();
        let passing: Vec<_> =
            (0..8).map(|_| precedence.clone()).map(|all| async move { all.pass(STEP_BYTES).await }).collect();
        futures_util::future::join_all(passing).await;
        assert!(began.elapsed() >= *PAUSE * 8, "many pass no faster than one");
        drop(first);
        assert!(precedence.pass(STEP_BYTES).now_or_never().is_some());
    }
}
