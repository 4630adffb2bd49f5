//! Waiting for a change while reading a run.

use std::time::{Duration, Instant};

use deskgate_gateway::notify::Topic;
use deskgate_gateway::store::Store;
use deskgate_gateway::store::attempts::{AttemptRecord, AttemptUpdate};
use serde_json::json;

use crate::store::events;
use crate::support::call::ExpectedProblem;
use crate::support::gateway::{LONG_LEASE, TestGateway};
use crate::support::until;

#[tokio::test]
async fn a_change_ends_the_wait_on_every_replica() {
    let gateway = TestGateway::new().await;
    let (replica, _dir) = gateway.replica().await;
    let run_id = gateway.submit("one").await;
    let (session, _) = gateway.device.connect().await;
    gateway.device.claim(session, 1).await;
    let path = format!("/api/v1/runs/{run_id}?wait=60");
    let began = Instant::now();
    let here = tokio::spawn(gateway.ask("GET", &path).send());
    let there = tokio::spawn(gateway.ask("GET", &path).to(replica.addresses().http, &path).send());
    // The change must not come before they wait.
    let waits = |store: &Store| store.notifier().watchers(Topic::Run(run_id)) == 1;
    until("both readers wait", async || waits(gateway.store()) && waits(replica.store())).await;
    assert!(!here.is_finished() && !there.is_finished());
    let start = AttemptRecord { run_id, attempt: 1, what: AttemptUpdate::Start };
    gateway.store().record(session, &[start], LONG_LEASE).await.expect("stored");
    // One that had registered and not yet read waits for the change after that.
    let mut number = 0;
    until("both are answered", async || {
        number += 1;
        let more = AttemptRecord { run_id, attempt: 1, what: events(number, 1) };
        gateway.store().record(session, &[more], LONG_LEASE).await.expect("stored");
        here.is_finished() && there.is_finished()
    })
    .await;
    for waiting in [here, there] {
        assert_eq!(waiting.await.expect("no panic").json()["state"], "running");
    }
    assert!(began.elapsed() < Duration::from_secs(20), "long before the time is up");
    replica.stop().await;
    gateway.stop().await;
}

#[tokio::test]
async fn without_a_change_the_record_comes_when_the_time_is_up() {
    let gateway = TestGateway::new().await;
    let run_id = gateway.submit("one").await;
    let began = Instant::now();
    let reply = gateway.ask("GET", &format!("/api/v1/runs/{run_id}?wait=1")).send().await;
    assert_eq!((reply.status, &reply.json()["run_id"]), (200, &json!(run_id)));
    assert!(began.elapsed() >= Duration::from_secs(1));
    gateway.stop().await;
}

#[tokio::test]
async fn a_final_run_is_answered_at_once() {
    let gateway = TestGateway::new().await;
    let run_id = gateway.submit("one").await;
    gateway.store().revoke_device(gateway.device.device_id, LONG_LEASE).await.expect("stored");
    let began = Instant::now();
    let reply = gateway.ask("GET", &format!("/api/v1/runs/{run_id}?wait=60")).send().await;
    assert_eq!(reply.json()["phase"], "final");
    assert!(began.elapsed() < Duration::from_secs(20));
    gateway.stop().await;
}

#[tokio::test]
async fn a_wait_that_is_no_number_from_0_to_60_is_refused() {
    let gateway = TestGateway::new().await;
    let run_id = gateway.submit("one").await;
    for query in
        ["wait=61", "wait=-1", "wait=", "wait=1.5", "wait=1s", "wait=99999999999999999999", "wait=%31%", "wait"]
    {
        let reply = gateway.ask("GET", &format!("/api/v1/runs/{run_id}?{query}")).send().await;
        assert_eq!(reply.code(), "invalid_input", "{query}");
    }
    let detail = "wait is a whole number from 0 to 60.";
    let errors = json!([{ "pointer": "?wait", "code": "invalid_value", "detail": detail }]);
    let problem = ExpectedProblem::new(422, "invalid_input", "Invalid input", detail).with(json!({ "errors": errors }));
    gateway.ask("GET", &format!("/api/v1/runs/{run_id}?wait=61")).send().await.assert_problem(&problem);
    let other = gateway.ask("GET", &format!("/api/v1/runs/{run_id}?waiting=1")).send().await;
    assert_eq!(other.code(), "invalid_input");
    assert_eq!(gateway.ask("GET", &format!("/api/v1/runs/{run_id}?wait=0")).send().await.status, 200);
    gateway.stop().await;
}
