//! Whole requests at the router of the public listener, on a real store. See `fuzz/README.md`.

#![no_main]

use std::sync::LazyLock;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use deskgate_gateway::encryption::DataCipher;
use deskgate_gateway::storage::StoragePlace;
use deskgate_gateway::{Gateway, Settings};
use http_body_util::BodyExt;
use libfuzzer_sys::fuzz_target;
use request::{Names, judge, request};
use tokio::runtime::Runtime;
use tokio::time::timeout;
use tower::ServiceExt;

#[path = "../request.rs"]
mod request;
#[path = "../target.rs"]
mod target;

/// The router that gets every request. It lives as long as the fuzzer.
struct Target {
    runtime: Runtime,
    router: Router,
    names: Names,
    _gateway: Gateway,
    _folder: tempfile::TempDir,
}

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let runtime = Runtime::new().expect("a runtime");
    let folder = tempfile::tempdir().expect("a temporary directory");
    let (gateway, router, names) = runtime.block_on(async {
        let settings = Settings::built_in(folder.path().to_owned(), ([127, 0, 0, 1], 0).into());
        let gateway = Gateway::start(settings).await.expect("the gateway starts");
        let seal = DataCipher::load_or_create(&folder.path().join("seal-of-the-target")).expect("made");
        let storage = StoragePlace::in_state_dir(folder.path()).open().expect("opened");
        let (router, names) = target::furnish(gateway.store(), seal, storage).await;
        (gateway, router, names)
    });
    Target { runtime, router, names, _gateway: gateway, _folder: folder }
});

fuzz_target!(|bytes: &[u8]| {
    let Target { runtime, router, names, .. } = &*TARGET;
    let Some(request) = request(bytes, names) else { return };
    let method = request.method().to_string();
    let answered = runtime.block_on(async {
        // A request that asks to wait is given up; of a stream, which may never end, only the head is judged.
        let response = timeout(Duration::from_secs(1), router.clone().oneshot(request)).await.ok()?;
        let (head, body) = response.expect("it never fails").into_parts();
        let is_stream = head.headers.get("content-type").is_some_and(|form| form == "text/event-stream");
        let body = if is_stream { Body::empty() } else { body };
        Some((head, body.collect().await.expect("a body").to_bytes()))
    });
    let Some((head, body)) = answered else { return };
    judge(&method, head.status.as_u16(), &head.headers, &body).unwrap_or_else(|wrong| panic!("{wrong}"));
});
