//! The answers of a successful run, as a business backend gets them.

use deskgate_protocol::VERSION;
use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::management::PublishEndpoint;
use serde_json::{Value, json};

use crate::support::gateway::{DeviceFixture, TestGateway, work};

#[tokio::test]
async fn a_submission_is_answered_with_202_a_location_and_the_whole_record() {
    let gateway = TestGateway::new().await;
    let body = json!({
        "input": { "text": "Größe?", "order": 7, "nested": { "list": [1, null] } },
        "metadata": { "customer": "7" },
        "queue_ttl_s": 60,
        "max_duration_s": 30,
    });
    let reply = gateway.submission("first").json(&body).send().await;
    reply.assert_envelope();
    let run_id = reply.run_id();
    assert_eq!(reply.header("location"), Some(format!("/api/v1/runs/{run_id}").as_str()));
    assert_eq!(reply.header("content-type"), Some("application/json"));
    assert_eq!(reply.header("idempotency-replayed"), None);
    let record = reply.json();
    let (created_at, expires_at) = (moment(&record["created_at"]), moment(&record["queue_expires_at"]));
    assert_eq!(expires_at.0.duration_since(created_at.0).as_secs(), 60);
    let expected = json!({
        "run_id": run_id,
        "endpoint_id": gateway.device.endpoint,
        "endpoint_version": 1,
        "phase": "accepted",
        "state": "waiting_for_device",
        "state_reason": {
            "code": "device_offline",
            "message": "The device that executes this service is not connected. The run starts when it is back.",
        },
        "attempt": 0,
        "input": body["input"],
        "metadata": { "customer": "7" },
        "last_sequence": 1,
        "created_at": record["created_at"],
        "queue_expires_at": record["queue_expires_at"],
        "links": { "self": format!("/api/v1/runs/{run_id}"), "events": format!("/api/v1/runs/{run_id}/events") },
    });
    assert_eq!(record, expected);

    let mut read = gateway.read(run_id).await.json();
    assert_eq!(read["queue_position"].take(), 0, "it is the first in the queue");
    read.as_object_mut().expect("an object").remove("queue_position");
    assert_eq!(read, expected, "what was answered is what is stored");
    gateway.stop().await;
}

/// A timestamp as callers see it: RFC 3339, UTC, milliseconds, `Z`.
fn moment(value: &Value) -> deskgate_protocol::Timestamp {
    let text = value.as_str().expect("a text");
    assert_eq!((text.len(), text.ends_with('Z')), (24, true), "{text}");
    text.parse().expect("a timestamp")
}

#[tokio::test]
async fn the_list_has_the_published_and_enabled_services_of_the_own_application_only() {
    let gateway = TestGateway::new().await;
    let device = &gateway.device;
    let other_app = device.application("other").await;
    device.service(&other_app, "foreign").await;
    DeviceFixture::pair(gateway.store()).await;
    let second = device.service(&device.app, "second").await;
    let reply = gateway.ask("GET", "/api/v1/agent-endpoints").send().await;
    reply.assert_envelope();
    let endpoint = |id, name| {
        json!({
            "id": id, "name": name, "description": "Answers questions.", "version": 1, "caller_schema": false, "takes_files": false,
            "tool_name": format!("ask_{name}"), "read_only": false,
            "device": { "connected": false },
        })
    };
    assert_eq!(
        (reply.status, reply.json()),
        (200, json!({ "endpoints": [endpoint(device.endpoint, "invoices"), endpoint(second, "second")] }))
    );

    device.connect().await;
    let listed = gateway.ask("GET", "/api/v1/agent-endpoints").send().await.json();
    assert_eq!(listed["endpoints"][0]["device"]["connected"], true);
    moment(&listed["endpoints"][0]["device"]["last_seen_at"]);

    device.allow(false).await;
    assert_eq!(gateway.ask("GET", "/api/v1/agent-endpoints").send().await.json(), json!({ "endpoints": [] }));
    gateway.stop().await;
}

#[tokio::test]
async fn an_unchanged_record_is_answered_with_304_and_a_changed_one_is_not() {
    let gateway = TestGateway::new().await;
    let run_id = gateway.submit("one").await;
    let path = format!("/api/v1/runs/{run_id}");
    let etag = gateway.read(run_id).await.header("etag").expect("an ETag").to_owned();
    assert!(etag.starts_with("W/\"") && etag.ends_with('"'), "{etag}");
    for sent in [etag.clone(), format!("\"other\", {etag}"), "*".to_owned(), etag["W/".len()..].to_owned()] {
        let unchanged = gateway.ask("GET", &path).header("If-None-Match", &sent).send().await;
        unchanged.assert_envelope();
        assert_eq!((unchanged.status, unchanged.text.as_str()), (304, ""), "{sent}");
        assert_eq!(unchanged.header("etag"), Some(etag.as_str()));
    }
    let other = gateway.ask("GET", &path).header("If-None-Match", "W/\"other\"").send().await;
    assert_eq!(other.status, 200);

    let (session, _) = gateway.device.connect().await;
    gateway.device.claim(session, 1).await;
    let changed = gateway.ask("GET", &path).header("If-None-Match", &etag).send().await;
    assert_eq!(changed.status, 200);
    assert_ne!(changed.header("etag"), Some(etag.as_str()));
    gateway.stop().await;
}

#[tokio::test]
async fn the_identifier_of_a_request_is_echoed_when_it_is_usable_and_made_otherwise() {
    let gateway = TestGateway::new().await;
    let list = || gateway.ask("GET", "/api/v1/agent-endpoints");
    let echoed = list().header("X-Request-Id", "trace-7/a").send().await;
    assert_eq!(echoed.header("x-request-id"), Some("trace-7/a"));
    for unusable in ["".to_owned(), "with space".to_owned(), "x".repeat(129), "é".to_owned()] {
        let made = list().header("X-Request-Id", &unusable).send().await;
        let id = made.header("x-request-id").expect("one is made");
        assert!(id.starts_with("req_") && id.len() == 36, "{id}");
    }
    let first = list().send().await;
    let second = list().send().await;
    assert_ne!(first.header("x-request-id"), second.header("x-request-id"));
    let refused = gateway.call("GET", "/nowhere").header("X-Request-Id", "mine").send().await;
    assert_eq!((refused.header("x-request-id"), &refused.json()["request_id"]), (Some("mine"), &json!("mine")));
    gateway.stop().await;
}

#[tokio::test]
async fn a_preflight_of_a_browser_gets_no_permission() {
    let gateway = TestGateway::new().await;
    let preflight = gateway
        .call("OPTIONS", "/api/v1/agent-endpoints")
        .header("Origin", "https://evil.example")
        .header("Access-Control-Request-Method", "GET")
        .header("Access-Control-Request-Headers", "authorization");
    preflight.send().await.assert_envelope();
    let list = gateway.ask("GET", "/api/v1/agent-endpoints").header("Origin", "https://evil.example");
    list.send().await.assert_envelope();
    gateway.stop().await;
}

#[tokio::test]
async fn http2_without_asking_first_is_understood() {
    let gateway = TestGateway::new().await;
    let submitted = gateway.submission("by-http2").send_by_http2().await;
    assert_eq!(submitted.status, 202, "{submitted:?}");
    submitted.assert_envelope();
    let read = gateway.ask("GET", submitted.header("location").expect("given")).send_by_http2().await;
    assert_eq!(read.json()["run_id"], submitted.json()["run_id"]);
    gateway.stop().await;
}

#[tokio::test]
async fn a_run_keeps_the_version_it_was_accepted_for() {
    let gateway = TestGateway::new().await;
    let (device, early) = (&gateway.device, gateway.submit("early").await);
    let request = PublishEndpoint {
        app_id: device.app.id,
        endpoint_id: device.endpoint,
        version: 2,
        name: "invoices".to_owned(),
        description: "Better.".to_owned(),
        definition_sha256: Sha256Digest::of(b"the second version"),
        data: Default::default(),
    };
    device.desktop.publish(request).await.expect("published");
    let late = gateway.submission("late").json(&work("later")).send().await;
    assert_eq!(late.json()["endpoint_version"], 2);
    assert_eq!(gateway.read(early).await.json()["endpoint_version"], 1);
    let (session, _) = device.connect().await;
    let offered: Vec<_> = device.claim(session, 2).await.into_iter().map(|offer| offer.definition_sha256).collect();
    assert_eq!(offered, [Sha256Digest::of(b"invoices"), Sha256Digest::of(b"the second version")]);
    assert_eq!(late.header("gateway-version"), Some(VERSION));
    gateway.stop().await;
}
