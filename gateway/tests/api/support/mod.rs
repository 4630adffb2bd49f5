//! The tests' environment: a real database, a real gateway on a real port, and callers.

pub(crate) mod authority;
pub(crate) mod call;
pub(crate) mod certificate;
pub(crate) mod cluster;
pub(crate) mod gateway;
pub(crate) mod issuer;
pub(crate) mod raw;
pub(crate) mod server;
pub(crate) mod stream;
pub(crate) mod tap;
#[path = "../../support/template.rs"]
pub(crate) mod template;

use std::time::{Duration, Instant};

/// How long anything may take before the test fails. Generous: it is only reached when something is wrong.
const WAIT_TIMEOUT: Duration = Duration::from_secs(120);

/// Asks again until the answer is yes. A state that never comes fails the test.
pub(crate) async fn until(what: &str, mut reached: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !reached().await {
        assert!(began.elapsed() < WAIT_TIMEOUT, "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
