//! Waiting for a state, with an overall deadline.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

/// The longest wait before a test fails. It is generous: only a fault reaches it.
pub const WAIT_TIMEOUT: Duration = Duration::from_secs(120);
const STATE_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Repeats `look` until it succeeds. Its error describes what it saw instead; the last one is shown after
/// [`WAIT_TIMEOUT`].
pub async fn until<T>(what: &str, look: impl AsyncFnMut() -> Result<T, String>) -> T {
    until_within(WAIT_TIMEOUT, what, look).await
}

/// As [`until`], with a limit of its own.
pub async fn until_within<T>(limit: Duration, what: &str, mut look: impl AsyncFnMut() -> Result<T, String>) -> T {
    let deadline = Instant::now() + limit;
    let mut seen = "nothing yet".to_owned();
    loop {
        match timeout_at(deadline, look()).await {
            Ok(Ok(found)) => return found,
            Ok(Err(other)) => seen = other,
            Err(_) => {}
        }
        assert!(Instant::now() < deadline, "waited {limit:?} for {what}; last seen: {seen}");
        sleep(STATE_POLL_INTERVAL).await;
    }
}
