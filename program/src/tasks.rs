//! Task groups: every long-running task is spawned, stopped and awaited here.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// A group of long-running tasks that stop together.
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
        let broken = self.broken.clone();
        self.tracker.spawn(async move {
            // The task's state is not used after a panic.
            if AssertUnwindSafe(work).catch_unwind().await.is_err() {
                tracing::error!(task = name, "a task ended in a panic; the gateway stops");
                broken.cancel();
            }
        });
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
