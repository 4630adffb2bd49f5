//! Waiting for what may not be there.

use tokio::sync::watch;

/// Returns at the next change. Never, while there is nothing to watch, or nothing to come any more.
pub(super) async fn changed<T>(watched: &mut Option<watch::Receiver<T>>) {
    let gone = match watched {
        Some(watched) => watched.changed().await.is_err(),
        None => true,
    };
    if gone {
        std::future::pending().await
    }
}
