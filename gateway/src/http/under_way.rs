//! What is under way on one connection, and how long there was nothing.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

/// The requests under way on a connection.
#[derive(Clone, Debug, Default)]
pub(super) struct UnderWay(watch::Sender<usize>);

/// One request, until it is dropped.
#[derive(Debug)]
pub(super) struct OneMore(UnderWay);

impl UnderWay {
    /// One more request.
    pub(super) fn enter(&self) -> OneMore {
        self.0.send_modify(|count| *count += 1);
        OneMore(self.clone())
    }

    /// Waits until nothing was under way for so long.
    pub(super) async fn idle(&self, time: Duration) {
        let mut count = self.0.subscribe();
        loop {
            let busy = *count.borrow_and_update() > 0;
            let time = if busy { Duration::MAX } else { time };
            // Also a request that came and went between two looks is a change.
            if timeout(time, count.changed()).await.is_err() {
                return;
            }
        }
    }
}

impl Drop for OneMore {
    fn drop(&mut self) {
        self.0.0.send_modify(|count| *count -= 1);
    }
}
