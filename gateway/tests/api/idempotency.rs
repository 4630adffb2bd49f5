//! The same request again: the same run, whatever happened in between.

use std::collections::HashSet;

use deskgate_protocol::RunId;
use deskgate_protocol::management::Scope;
use serde_json::json;
use tokio::task::JoinSet;

use crate::conversations::{self, TestConversation};
use crate::store::{failed, succeeded};
use crate::support::gateway::{TestGateway, work};

async fn stored_runs(gateway: &TestGateway) -> String {
    gateway.database.value("SELECT count(*) FROM runs").await
}

#[tokio::test]
async fn key_order_white_space_and_notation_do_not_make_it_another_request() {
    let gateway = TestGateway::new().await;
    let one = r#"{"input":{"text":"a\u00e9","n":1,"deep":{"x":1,"y":[1,2]}},"metadata":{"k":"v"},"queue_ttl_s":60}"#;
    let same = "  {\"queue_ttl_s\":60.0 ,\r\n\t\"metadata\":{\"k\":\"\\u0076\"}, \
                \"input\":{\"deep\":{\"y\":[1.0, 2e0],\"x\":1},\"n\":1.0,\"text\":\"aé\"}} ";
    let first = gateway.submission("one").text(one).send().await;
    let again = gateway.submission("one").text(same).send().await;
    assert_eq!(first.run_id(), again.run_id());
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    assert_eq!(again.header("location"), first.header("location"));
    for different in [
        r#"{"input":{"text":"a\u00e9","n":1,"deep":{"x":1,"y":[2,1]}},"metadata":{"k":"v"},"queue_ttl_s":60}"#,
        r#"{"input":{"text":"a\u00e9","n":1,"deep":{"x":1,"y":[1,2]}},"metadata":{"k":"v"}}"#,
        r#"{"input":{"text":"ae\u0301","n":1,"deep":{"x":1,"y":[1,2]}},"metadata":{"k":"v"},"queue_ttl_s":60}"#,
    ] {
        assert_eq!(gateway.submission("one").text(different).send().await.code(), "idempotency_key_reused");
    }
    assert_eq!(stored_runs(&gateway).await, "1");
    gateway.stop().await;
}

#[tokio::test]
async fn a_repetition_gets_the_current_record_also_after_access_was_paused() {
    let gateway = TestGateway::new().await;
    let run_id = gateway.submit("one").await;
    let (session, _) = gateway.device.connect().await;
    gateway.device.claim(session, 1).await;
    gateway.device.allow(false).await;
    let again = gateway.submission("one").send().await;
    assert_eq!((again.status, again.header("idempotency-replayed")), (202, Some("true")));
    let record = again.json();
    assert_eq!((&record["attempt"], record["state_reason"]["code"].as_str()), (&json!(0), Some("device_paused")));
    assert_eq!(record, gateway.read(run_id).await.json());
    gateway.stop().await;
}

#[tokio::test]
async fn a_repetition_under_a_key_that_may_not_read_shows_how_far_the_run_is_and_not_what_came_of_it() {
    let gateway = TestGateway::new().await;
    let (session, _) = gateway.device.connect().await;
    let writer = gateway.device.restricted_key(|key| key.scopes.retain(|scope| *scope != Scope::RunsRead)).await;
    let talk = TestConversation::open(&gateway, "thread-1").await;
    for (number, end, state) in [(1, succeeded(1), "succeeded"), (2, failed(1), "failed")] {
        let run = gateway.submission(&format!("run-{number}"));
        // Only one message at a time, so that the first is the conversation's.
        let message = talk.message(&format!("message-{number}"), 1);
        for call in [run, message] {
            let fresh = call.clone().key(&writer.text).send().await;
            let run_id = conversations::start(&gateway, session).await;
            assert_eq!(fresh.run_id(), run_id);
            conversations::report(&gateway, session, run_id, end.clone()).await;
            let told = call.clone().key(&writer.text).send().await;
            assert_eq!((told.status, told.header("idempotency-replayed")), (202, Some("true")));
            let (told, fresh) = (told.json(), fresh.json());
            assert_eq!(told["state"], state, "{told}");
            for hidden in ["result", "error", "usage", "receipt", "stop"] {
                assert!(told[hidden].is_null(), "{hidden} in {told}");
            }
            assert_eq!(told["input"], fresh["input"]);
            let read = call.send().await.json();
            assert_eq!(read, gateway.read(run_id).await.json());
            assert!(read["result"].is_object() || read["error"].is_object(), "{read}");
        }
    }
    gateway.stop().await;
}

#[tokio::test]
async fn another_subject_service_or_application_may_use_the_same_key() {
    let gateway = TestGateway::new().await;
    let (device, address) = (&gateway.device, gateway.gateway.addresses().http);
    let second = device.service(&device.app, "second").await;
    let other_app = device.application("other").await;
    let of_other_app = device.service(&other_app, "invoices").await;
    let calls = [
        gateway.submission("same"),
        gateway.submission("same").subject("berta"),
        // Parts that could run into each other when they are put in a row.
        gateway.submission("ame").subject("annas"),
        gateway.submission("same").to(address, &gateway.runs_of(second)),
        gateway.submission("same").key(&other_app.key).to(address, &gateway.runs_of(of_other_app)),
    ];
    let mut runs = HashSet::new();
    for call in &calls {
        assert!(runs.insert(call.clone().send().await.run_id()));
    }
    for call in calls {
        assert!(!runs.insert(call.send().await.run_id()), "each finds its own again");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn sixty_four_twins_at_once_make_one_run() {
    let gateway = TestGateway::new().await;
    let (replica, _dir) = gateway.replica().await;
    let mut twins = JoinSet::new();
    for number in 0..64 {
        let address = if number % 2 == 0 { &gateway.gateway } else { &replica }.addresses().http;
        twins.spawn(gateway.submission("twin").to(address, &gateway.runs_of(gateway.device.endpoint)).send());
    }
    let replies = twins.join_all().await;
    let runs: HashSet<RunId> = replies.iter().map(|reply| reply.run_id()).collect();
    let fresh = replies.iter().filter(|reply| reply.header("idempotency-replayed").is_none()).count();
    assert_eq!((runs.len(), fresh, stored_runs(&gateway).await.as_str()), (1, 1, "1"));
    assert_eq!(gateway.database.value("SELECT count(*) FROM run_events").await, "1");
    replica.stop().await;
    gateway.stop().await;
}

#[tokio::test]
async fn twins_with_different_bodies_make_one_run_and_conflicts() {
    let gateway = TestGateway::new().await;
    let mut twins = JoinSet::new();
    for number in 0..16 {
        twins.spawn(gateway.submission("twin").json(&work(&format!("body {number}"))).send());
    }
    let replies = twins.join_all().await;
    let accepted: Vec<_> = replies.iter().filter(|reply| reply.status == 202).collect();
    assert_eq!(accepted.len(), 1);
    for other in replies.iter().filter(|reply| reply.status != 202) {
        assert_eq!(other.code(), "idempotency_key_reused");
        assert_eq!(other.json()["existing_run_id"], accepted[0].json()["run_id"]);
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_rejection_stores_nothing_and_leaves_its_key_free() {
    let gateway = TestGateway::new().await;
    gateway.device.allow(false).await;
    assert_eq!(gateway.submission("one").send().await.code(), "access_paused");
    assert_eq!(gateway.submission("one").json(&json!({ "input": 1 })).send().await.code(), "invalid_input");
    assert_eq!(gateway.submission("one").subject("").send().await.code(), "subject_invalid");
    assert_eq!(stored_runs(&gateway).await, "0");
    assert_eq!(gateway.database.value("SELECT count(*) FROM run_events").await, "0");
    gateway.device.allow(true).await;
    let accepted = gateway.submission("one").json(&work("another body than before")).send().await;
    assert_eq!((accepted.status, accepted.header("idempotency-replayed")), (202, None));
    gateway.stop().await;
}
