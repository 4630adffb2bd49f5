//! The rate of a key, and the headers that report it.

use std::num::NonZeroU32;

use deskgate_gateway::domain::CallerLimits;
use deskgate_gateway::domain::rates::Rate;
use deskgate_protocol::management::Scope;
use deskgate_protocol::{EndpointId, VERSION};
use serde_json::json;

use crate::support::call::{ExpectedProblem, TestRequest};
use crate::support::gateway::TestGateway;
use crate::support::until;

async fn strict() -> TestGateway {
    let rate = Rate { per_second: NonZeroU32::MIN, burst: NonZeroU32::new(5).expect("not zero") };
    TestGateway::with(CallerLimits { rate, ..CallerLimits::default() }).await
}

/// Uses up the key's rate, and then sends the call.
async fn when_nothing_is_left(gateway: &TestGateway, call: impl Fn() -> TestRequest, expected: &str) {
    until(expected, async || {
        while gateway.ask("GET", "/api/v1/agent-endpoints").send().await.status != 429 {}
        call().send().await.code() == expected
    })
    .await;
}

#[tokio::test]
async fn every_answer_to_a_key_says_what_it_has_left_and_one_too_many_is_refused() {
    let gateway = strict().await;
    let ask = || gateway.ask("GET", "/api/v1/agent-endpoints");
    let first = ask().send().await;
    assert_eq!(first.header("ratelimit-policy"), Some("\"key\";q=5;w=5"));
    assert_eq!(first.header("ratelimit"), Some("\"key\";r=4;t=1"));
    let unknown = ask().key("nonsense").send().await;
    assert_eq!((unknown.status, unknown.header("ratelimit")), (401, None), "only a valid key has a rate");
    let refused = loop {
        let reply = ask().send().await;
        if reply.status != 200 {
            break reply;
        }
    };
    let detail = "This key has made too many requests. Wait, as Retry-After says, and try again.";
    refused.assert_problem(&ExpectedProblem::new(429, "rate_limited", "Rate limited", detail).retryable());
    assert_eq!((refused.header("retry-after"), refused.header("ratelimit")), (Some("1"), Some("\"key\";r=0;t=5")));
    let other = gateway.device.restricted_key(|_| {}).await.text;
    assert_eq!(ask().key(&other).send().await.status, 200, "each key has a rate of its own");
    until("the rate has room again", async || ask().send().await.status == 200).await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_replay_finds_its_run_whatever_the_rate_is_and_new_work_is_refused_last() {
    let gateway = strict().await;
    let run_id = gateway.submit("before").await;
    when_nothing_is_left(&gateway, || gateway.submission("new"), "rate_limited").await;
    when_nothing_is_left(&gateway, || gateway.submission("before"), "").await;
    assert_eq!(gateway.submission("before").send().await.run_id(), run_id);
    let nowhere = gateway.runs_of(EndpointId::new());
    let address = gateway.gateway.addresses().http;
    when_nothing_is_left(&gateway, || gateway.submission("new").to(address, &nowhere), "not_found").await;
    when_nothing_is_left(&gateway, || gateway.submission("new").text("{"), "malformed_json").await;
    for path in ["/api/v1/runs", "/api/v1/capabilities", &format!("/api/v1/runs/{run_id}")] {
        when_nothing_is_left(&gateway, || gateway.ask("GET", path), "rate_limited").await;
    }
    assert_eq!(gateway.database.value("SELECT count(*) FROM runs").await, "1", "nothing else was accepted");
    gateway.stop().await;
}

#[tokio::test]
async fn a_repeated_opening_stop_or_reset_finds_what_it_made_whatever_the_rate_is() {
    let gateway = strict().await;
    let opening = |key: &str, name: &str| {
        let body = json!({ "endpoint_id": gateway.device.endpoint, "conversation_key": name });
        gateway.ask("POST", "/api/v1/conversations").header("Idempotency-Key", key).json(&body)
    };
    let opened = opening("open", "case").send().await.json();
    let id = opened["conversation_id"].as_str().expect("a text");
    let run_id = gateway.submit("one").await;
    let stop = |key: &str| gateway.ask("POST", &format!("/api/v1/runs/{run_id}/stop")).header("Idempotency-Key", key);
    let reset = |key: &str, generation: u32| {
        let call = gateway.ask("POST", &format!("/api/v1/conversations/{id}/reset")).header("Idempotency-Key", key);
        call.json(&json!({ "expected_generation": generation }))
    };
    let stopped = stop("stop").send().await.json();
    let resetting = reset("reset", 1).send().await.json();
    // More than the burst and what comes back while these are answered: none of them needs the rate.
    for _ in 0..30 {
        let again = [opening("open", "case").send().await, stop("stop").send().await, reset("reset", 1).send().await];
        assert!(again.iter().all(|reply| reply.header("idempotency-replayed") == Some("true")), "{again:?}");
        assert_eq!(again[0].json()["conversation_id"], opened["conversation_id"]);
        assert_eq!(again[1].json()["operation_id"], stopped["operation_id"]);
        assert_eq!(again[2].json()["operation_id"], resetting["operation_id"]);
    }
    let mut made = 1;
    while opening(&format!("new-{made}"), &format!("case-{made}")).send().await.code() != "rate_limited" {
        made += 1;
    }
    let conversations = gateway.database.value("SELECT count(*) FROM conversations").await;
    assert_eq!(conversations, made.to_string(), "who is refused made nothing");
    let tries = std::cell::Cell::new(0);
    let fresh = || format!("fresh-{}", tries.replace(tries.get() + 1));
    when_nothing_is_left(&gateway, || opening(&fresh(), "case"), "rate_limited").await;
    when_nothing_is_left(&gateway, || stop(&fresh()), "rate_limited").await;
    when_nothing_is_left(&gateway, || reset(&fresh(), 1), "rate_limited").await;
    when_nothing_is_left(&gateway, || reset(&fresh(), 7), "generation_mismatch").await;
    when_nothing_is_left(&gateway, || opening("open", "another case"), "idempotency_key_reused").await;
    gateway.stop().await;
}

#[tokio::test]
async fn any_key_learns_the_versions_limits_and_events_of_this_gateway() {
    let gateway = strict().await;
    let key = gateway.device.restricted_key(|key| key.scopes = vec![Scope::EndpointsRead]).await.text;
    let reply = gateway.ask("GET", "/api/v1/capabilities").key(&key).send().await;
    reply.assert_envelope();
    let told = reply.json();
    assert_eq!((&told["api_versions"], &told["server_version"]), (&json!(["v1"]), &json!(VERSION)));
    let limits = json!({
        "requests_per_second": 1, "burst": 5, "failed_authentications_per_minute": 120, "waiting_runs_per_application": 10_000,
        "streams_per_application": 1000, "waits_per_application": 1000, "bodies_per_key": 256, "body_bytes_per_key": 33_554_432,
        "input_text_bytes": 262_144, "data_bytes": 262_144, "schema_bytes": 32_768, "schema_depth": 20, "schema_properties": 500,
        "body_bytes": 1_048_576, "webhook_body_bytes": 262_144, "head_bytes": 32_768, "body_seconds": 30, "head_seconds": 10,
        "queue_ttl_seconds": 604_800, "max_duration_seconds": 86_400, "wait_seconds": 60, "page_entries": 100,
        "retention_seconds": 2_592_000, "uploads_per_key": 8, "file_bytes": 67_108_864, "run_files": 16, "run_file_bytes": 134_217_728,
        "run_artifacts": 16, "run_artifact_bytes": 268_435_456, "stored_bytes_per_application": 5_368_709_120_u64,
        "unused_file_seconds": 86_400,
    });
    assert_eq!(told["limits"], limits);
    assert!(told["event_types"].as_array().is_some_and(|types| types.contains(&json!("run.accepted"))), "{told}");
    assert!(told["features"].as_array().is_some_and(|features| features.contains(&json!("run_lists"))), "{told}");
    let anonymous = gateway.call("GET", "/api/v1/capabilities").subject("anna").send().await;
    assert_eq!(anonymous.code(), "credential_missing");
    assert_eq!(gateway.ask("GET", "/api/v1/capabilities").subject("").send().await.code(), "subject_invalid");
    gateway.stop().await;
}
