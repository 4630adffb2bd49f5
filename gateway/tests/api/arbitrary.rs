//! Arbitrary requests, straight at the router.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use request::judge;
use tokio::runtime::Handle;
use tokio::time::timeout;
use tower::ServiceExt;

use crate::support::gateway::{TestGateway, cipher};
use crate::support::server::storage;

#[path = "../../../fuzz/bend.rs"]
mod bend;
#[path = "../../../fuzz/request.rs"]
mod request;
#[path = "../../../fuzz/target.rs"]
mod target;

/// Sends a request to the router and judges the answer. Requests that ask to wait do wait, and of a stream, which may
/// go on for ever, the head is judged.
fn thrown(runtime: &Handle, router: &Router, request: Request<Body>) -> Result<(), TestCaseError> {
    let method = request.method().to_string();
    let answered = runtime.block_on(async {
        let response = timeout(Duration::from_secs(1), router.clone().oneshot(request)).await.ok()?;
        let (head, body) = response.expect("it never fails").into_parts();
        let is_stream = head.headers.get("content-type").is_some_and(|form| form == "text/event-stream");
        let body = if is_stream { Body::empty() } else { body };
        Some((head, body.collect().await.expect("a body").to_bytes()))
    });
    let Some((head, body)) = answered else { return Ok(()) };
    judge(&method, head.status.as_u16(), &head.headers, &body).map_err(TestCaseError::fail)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_is_thrown_at_the_router_is_answered_with_a_proper_document() {
    let gateway = TestGateway::new().await;
    let limits = deskgate_gateway::http::server::ListenerLimits::default();
    let api = crate::support::server::api(gateway.store(), limits, Default::default(), Default::default());
    let router = deskgate_gateway::http::router(api);
    let key = gateway.device.app.key.clone();
    let run_id = gateway.submit("one").await;
    let endpoint = gateway.device.endpoint;

    let method = prop_oneof![
        6 => prop::sample::select(vec!["GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"])
            .prop_map(str::to_owned),
        1 => "[A-Z]{1,12}",
    ];
    let segment = prop_oneof![
        prop::sample::select(vec![
            "api".to_owned(),
            "v1".to_owned(),
            "runs".to_owned(),
            "agent-endpoints".to_owned(),
            String::new(),
            run_id.to_string(),
            endpoint.to_string(),
            "%ff".to_owned(),
            "%00".to_owned(),
            "..".to_owned(),
        ]),
        "[!$&-;=@-Z_a-z~]{0,40}",
    ];
    let path = prop_oneof![
        3 => prop::collection::vec(segment, 0..6).prop_map(|segments| format!("/{}", segments.join("/"))),
        1 => Just(format!("/api/v1/runs/{run_id}")),
        2 => Just(format!("/api/v1/agent-endpoints/{endpoint}/runs")),
        1 => Just("/api/v1/agent-endpoints".to_owned()),
    ];
    let query =
        prop_oneof![3 => Just(String::new()), 1 => "\\?[!$&-;=?-Z_a-z~]{0,40}", 1 => Just("?wait=0".to_owned())];
    let name = prop_oneof![
        prop::sample::select(vec![
            "authorization",
            "x-gateway-subject",
            "idempotency-key",
            "content-type",
            "content-length",
            "if-none-match",
            "x-request-id",
            "traceparent",
            "expect",
            "accept",
            "host",
            "transfer-encoding",
            "cookie",
        ])
        .prop_map(str::to_owned),
        "[a-z][a-z0-9-]{0,20}",
    ];
    let value = prop_oneof![
        2 => prop::collection::vec(any::<u8>().prop_filter("allowed in a header", |byte| {
            *byte == b'\t' || (*byte >= 32 && *byte != 127)
        }), 0..60),
        1 => Just(format!("Bearer {key}").into_bytes()),
        1 => Just(b"application/json".to_vec()),
        1 => Just(b"anna".to_vec()),
    ];
    let headers = prop::collection::vec((name, value), 0..8);
    let json =
        any::<i64>().prop_map(|n| serde_json::json!({ "input": { "text": "x", "n": n } }).to_string().into_bytes());
    let body = prop_oneof![
        2 => prop::collection::vec(any::<u8>(), 0..200),
        2 => "[\\[\\]{}\":,0-9a-z\\\\ ]{0,200}".prop_map(String::into_bytes),
        2 => json,
    ];
    let credentials = any::<bool>();

    let strategy = (method, path, query, headers, body, credentials);
    let mut runner = TestRunner::new(Config { cases: 600, failure_persistence: None, ..Config::default() });
    let runtime = Handle::current();
    tokio::task::block_in_place(|| {
        let outcome = runner.run(&strategy, |(method, path, query, headers, body, credentials)| {
            let mut request =
                Request::builder().method(method.as_str()).uri(format!("{path}{query}")).header("host", "x");
            for (name, value) in headers {
                request = request.header(name, value);
            }
            if credentials {
                request = request
                    .header("authorization", format!("Bearer {key}"))
                    .header("x-gateway-subject", "anna")
                    .header("idempotency-key", "any")
                    .header("content-type", "application/json");
            }
            let Ok(request) = request.body(Body::from(body)) else { return Ok(()) };
            thrown(&runtime, &router, request)
        });
        outcome.unwrap_or_else(|error| panic!("{error}"));
    });
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_mean_something_are_answered_properly_however_they_are_bent() {
    let gateway = TestGateway::new().await;
    let (router, names) = target::furnish(gateway.store(), cipher(), storage()).await;
    let runtime = Handle::current();
    tokio::task::block_in_place(|| {
        bend::throw("router", 1200, |bytes| match request::request(bytes, &names) {
            Some(request) => thrown(&runtime, &router, request),
            None => Ok(()),
        });
    });
    gateway.stop().await;
}
