//! Waiting for changes of an optional watch channel.

use tokio::sync::watch;

/// Returns at the next change; never, if there is no channel or its sender is gone.
pub(super) async fn changed<T>(watched: &mut Option<watch::Receiver<T>>) {
    let gone = match watched {
        Some(watched) => watched.changed().await.is_err(),
        None => true,
    };
    if gone {
        std::future::pending().await
    }
}
