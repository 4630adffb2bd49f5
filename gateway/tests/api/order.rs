//! Which refusal a request gets when several things are wrong with it.

use deskgate_gateway::domain::CallerLimits;
use deskgate_protocol::management::Scope;
use serde_json::json;

use crate::support::gateway::{DeviceFixture, TestGateway, work};
use crate::support::until;

#[tokio::test]
async fn the_checks_come_in_the_order_of_the_contract() {
    let gateway = TestGateway::with(CallerLimits { waiting_runs_per_application: 1, ..CallerLimits::default() }).await;
    let (device, address) = (&gateway.device, gateway.gateway.addresses().http);
    let existing = gateway.submit("used").await;
    device.allow(false).await;
    let no_write = device.restricted_key(|key| key.scopes = vec![Scope::RunsRead]).await;
    let foreign = gateway.runs_of(DeviceFixture::pair(gateway.store()).await.endpoint);
    let own = gateway.runs_of(device.endpoint);
    let unknown_and_bad = json!({ "model": 1, "input": 2 });

    // Everything is wrong at first; each step puts one thing right.
    let call = gateway.call("POST", &format!("{own}?token=x"));
    assert_eq!(call.clone().send().await.code(), "credential_in_url");
    let call = call.to(address, &own);
    assert_eq!(call.clone().send().await.code(), "credential_missing");
    let call = call.key("nonsense");
    assert_eq!(call.clone().send().await.code(), "credential_invalid");
    let call = call.key(&no_write.text).header("X-Gateway-Subject", "a b");
    assert_eq!(call.clone().send().await.code(), "insufficient_scope");
    let call = call.key(&device.app.key);
    assert_eq!(call.clone().send().await.code(), "subject_invalid");
    let call = call.subject("anna");
    assert_eq!(call.clone().send().await.code(), "idempotency_key_missing");
    let call = call.header("Idempotency-Key", "a b");
    assert_eq!(call.clone().send().await.code(), "idempotency_key_invalid");
    let call = call.header("Idempotency-Key", "used");
    assert_eq!(call.clone().send().await.code(), "unsupported_media_type");
    let call = call.text("x".repeat(2_000_000));
    assert_eq!(call.clone().send().await.code(), "payload_too_large");
    let call = call.text("{");
    assert_eq!(call.clone().send().await.code(), "malformed_json");
    // The same on services that exist for others only, or not at all.
    for path in [&foreign, "/api/v1/agent-endpoints/nonsense/runs"] {
        assert_eq!(call.clone().to(address, path).send().await.code(), "malformed_json");
    }
    let call = call.json(&unknown_and_bad);
    assert_eq!(call.clone().send().await.code(), "unknown_field");
    let call = call.json(&json!({ "input": 2 }));
    assert_eq!(call.clone().send().await.code(), "invalid_input");
    let call = call.json(&work("another"));
    let reused = call.clone().send().await;
    assert_eq!(
        (reused.code().as_str(), &reused.json()["existing_run_id"]),
        ("idempotency_key_reused", &json!(existing))
    );
    let call = call.header("Idempotency-Key", "fresh");
    assert_eq!(call.clone().to(address, &foreign).send().await.code(), "not_found");
    assert_eq!(call.clone().send().await.code(), "access_paused");
    device.allow(true).await;
    assert_eq!(call.clone().send().await.code(), "queue_full");
    let (session, _) = device.connect().await;
    device.claim(session, 1).await;
    until("there is room", async || call.clone().send().await.status == 202).await;
    gateway.stop().await;
}

#[tokio::test]
async fn reading_checks_key_scope_subject_and_then_the_run() {
    let gateway = TestGateway::new().await;
    let no_read = gateway.device.restricted_key(|key| key.scopes = vec![Scope::RunsWrite]).await;
    let call = gateway.call("GET", "/api/v1/runs/nonsense?wait=x");
    assert_eq!(call.clone().send().await.code(), "credential_missing");
    let call = call.key(&no_read.text).subject("");
    assert_eq!(call.clone().send().await.code(), "insufficient_scope");
    let call = call.key(&gateway.device.app.key);
    assert_eq!(call.clone().send().await.code(), "subject_invalid");
    let call = call.subject("anna");
    assert_eq!(call.send().await.code(), "not_found");
    gateway.stop().await;
}
