//! What the tests stand on: a real database, a real gateway on a real port, and callers.

pub(crate) mod authority;
pub(crate) mod call;
pub(crate) mod certificate;
pub(crate) mod cluster;
pub(crate) mod door;
pub(crate) mod issuer;
pub(crate) mod raw;
pub(crate) mod stream;
pub(crate) mod tap;
#[path = "../../support/template.rs"]
pub(crate) mod template;
pub(crate) mod world;

use std::time::{Duration, Instant};

/// Asks again until the answer is yes. A state that never comes fails the test.
pub(crate) async fn until(what: &str, mut reached: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !reached().await {
        assert!(began.elapsed() < Duration::from_secs(30), "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
