//! Task groups: every long-running task is spawned, stopped and awaited here.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Between a panic and the first new start of a task.
const FIRST_RESTART_PAUSE: Duration = Duration::from_secs(1);
/// The longest such pause; it doubles from panic to panic.
const MAX_RESTART_PAUSE: Duration = Duration::from_secs(60);

/// A group of long tasks that stop together.
#[derive(Clone)]
pub struct Tasks {
    tracker: TaskTracker,
    stop: CancellationToken,
    broken: CancellationToken,
}

impl Tasks {
    /// An empty group. `broken` is cancelled when a task panics, because a gateway that works in part is of no use.
    pub fn new(broken: CancellationToken) -> Self {
        Self { tracker: TaskTracker::new(), stop: CancellationToken::new(), broken }
    }

    /// Spawns a task that ends by itself or when it sees [`Tasks::stopping`].
    pub fn spawn(&self, name: &'static str, work: impl Future<Output = ()> + Send + 'static) {
        self.tracker.spawn(or_broken(name, self.broken.clone(), work));
    }

    /// Cancelled when the group stops.
    pub fn stopping(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Stops every task and waits for them, at most `patience`. False if some are still running.
    pub async fn stop(&self, patience: Duration) -> bool {
        self.stop.cancel();
        self.tracker.close();
        tokio::time::timeout(patience, self.tracker.wait()).await.is_ok()
    }
}

/// Runs `work`, and cancels `broken` when it panics: what its owner cannot do without ends the program instead of leaving it
/// half working.
pub async fn or_broken(name: &'static str, broken: CancellationToken, work: impl Future<Output = ()>) {
    // Nothing of the task's state is looked at after its panic.
    if AssertUnwindSafe(work).catch_unwind().await.is_err() {
        tracing::error!(task = name, "a task ended in a panic; the program stops");
        broken.cancel();
    }
}

/// Runs what `make` makes until it ends by itself, and makes it anew each time it panics: for what the rest of a program
/// can do without for a moment.
pub async fn restarting<F: Future<Output = ()>>(name: &'static str, make: impl FnMut() -> F) {
    restart_after(FIRST_RESTART_PAUSE, name, make).await;
}

async fn restart_after<F: Future<Output = ()>>(mut pause: Duration, name: &'static str, mut make: impl FnMut() -> F) {
    while AssertUnwindSafe(async { make().await }).catch_unwind().await.is_err() {
        tracing::error!(task = name, restart_in_s = pause.as_secs(), "a task ended in a panic; it is started again");
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(MAX_RESTART_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test]
    async fn a_task_that_panics_is_started_again_until_it_ends_by_itself() {
        let starts = AtomicU32::new(0);
        restart_after(Duration::from_millis(1), "sample", || async {
            assert!(starts.fetch_add(1, Ordering::SeqCst) >= 2, "the first two panic");
        })
        .await;
        assert_eq!(starts.load(Ordering::SeqCst), 3);
    }

    #[tokio::test]
    async fn a_panic_of_what_is_needed_breaks_the_program_and_an_ordinary_end_does_not() {
        let broken = CancellationToken::new();
        or_broken("sample", broken.clone(), async {}).await;
        assert!(!broken.is_cancelled());
        or_broken("sample", broken.clone(), async { panic!("on purpose") }).await;
        assert!(broken.is_cancelled());
    }
}
