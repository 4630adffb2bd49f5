//! Nothing runs unowned: every long task is spawned here, told to stop here and awaited here.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The long tasks of one gateway.
#[derive(Clone, Default)]
pub struct Tasks {
    tracker: TaskTracker,
    stop: CancellationToken,
}

impl Tasks {
    /// Spawns a task that ends by itself or when it sees [`Tasks::stopping`]. A panic in it is
    /// logged with its name, and stops the gateway: a half-working one helps nobody.
    pub fn spawn(&self, name: &'static str, work: impl Future<Output = ()> + Send + 'static) {
        let task = self.tracker.spawn(work);
        let stop = self.stop.clone();
        self.tracker.spawn(async move {
            if let Err(error) = task.await {
                tracing::error!(task = name, %error, "a task ended in a panic; the gateway stops");
                stop.cancel();
            }
        });
    }

    /// Cancelled when the gateway stops.
    pub fn stopping(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Tells every task to stop and waits for them, at most `patience`. False when some are left.
    pub async fn stop(&self, patience: Duration) -> bool {
        self.stop.cancel();
        self.tracker.close();
        tokio::time::timeout(patience, self.tracker.wait()).await.is_ok()
    }
}
