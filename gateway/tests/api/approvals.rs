//! What callers see of approvals and of runs whose outcome is unknown; the device is played by the store's own calls.

use deskgate_gateway::notify::Topic;
use deskgate_gateway::ops::health_check::send_request;
use deskgate_gateway::store::attempts::{AttemptUpdate, RecordOutcome};
use deskgate_gateway::store::leases::SessionKey;
use deskgate_protocol::{ApprovalId, RunId};
use serde_json::{Value, json};

use crate::conversations::{report, start};
use crate::store::{closed, opened, succeeded};
use crate::support::gateway::TestGateway;
use crate::support::stream::{EventStreamReader, events};
use crate::support::until;

async fn started(gateway: &TestGateway) -> (SessionKey, RunId) {
    gateway.submit("one").await;
    let (session, _) = gateway.device.connect().await;
    (session, start(gateway, session).await)
}

async fn write(gateway: &TestGateway, session: SessionKey, run_id: RunId, what: AttemptUpdate) {
    assert_eq!(report(gateway, session, run_id, what).await, RecordOutcome::Done);
}

async fn listed(gateway: &TestGateway, filter: &str) -> Vec<Value> {
    let page = gateway.ask("GET", &format!("/api/v1/runs?{filter}")).send().await.json();
    page["data"].as_array().expect("a page").iter().map(|run| run["run_id"].clone()).collect()
}

#[tokio::test]
async fn a_stream_shows_a_request_its_answer_and_the_end_without_arguments() {
    let gateway = TestGateway::new().await;
    let (replica, _dir) = gateway.replica().await;
    let (session, run_id) = started(&gateway).await;
    let id = ApprovalId::new();
    let here = EventStreamReader::open(gateway.ask("GET", &events(run_id))).await;
    let there = EventStreamReader::open(gateway.ask("GET", "").to(replica.addresses().http, &events(run_id))).await;
    for what in [opened(1, id), closed(2, id), succeeded(3)] {
        write(&gateway, session, run_id, what).await;
    }
    for mut stream in [here, there] {
        let shown = stream.rest().await;
        let names: Vec<_> = shown.iter().map(|sent| sent.event.as_str()).collect();
        let expected =
            ["run.accepted", "run.started", "run.awaiting_approval", "run.approval_resolved", "run.succeeded"];
        assert_eq!(names[1..], expected);
        let asked = shown[3].data["data"].as_object().expect("an object");
        assert_eq!(asked.keys().collect::<Vec<_>>(), ["approval_id", "tool", "expires_at"]);
        assert_eq!(shown[4].data["data"], json!({ "approval_id": id, "resolution": "approved" }));
    }
    replica.stop().await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_run_that_awaits_approval_says_so_wherever_it_is_read() {
    let gateway = TestGateway::new().await;
    let (session, run_id) = started(&gateway).await;
    let before = gateway.read(run_id).await;
    let path = format!("/api/v1/runs/{run_id}?wait=10");
    let waiting = tokio::spawn(gateway.ask("GET", &path).send());
    until("it waits", async || gateway.store().notifier().watchers(Topic::Run(run_id)) == 1).await;
    let id = ApprovalId::new();
    write(&gateway, session, run_id, opened(1, id)).await;
    let run = waiting.await.expect("no panic").json();
    assert_eq!((&run["phase"], &run["state"]), (&json!("started"), &json!("awaiting_approval")));
    assert_eq!(run["state_reason"]["code"], "approval_pending");
    let etag = before.header("etag").expect("a validator");
    let reread = gateway.ask("GET", &format!("/api/v1/runs/{run_id}")).header("If-None-Match", etag).send().await;
    assert_eq!(reread.status, 200, "it has changed");
    assert_eq!(listed(&gateway, "state=awaiting_approval").await, [json!(run_id)]);
    assert_eq!(listed(&gateway, "phase=started").await, [json!(run_id)]);
    assert!(listed(&gateway, "state=running").await.is_empty());
    let metrics = send_request(gateway.gateway.addresses().ops.expect("a listener"), "/metrics").await.expect("there");
    for line in ["deskgate_runs_awaiting_approval 1", "deskgate_queue_depth{state=\"awaiting_approval\"} 1"] {
        assert!(metrics.contains(line), "{metrics}");
    }

    // While the device is away nothing is different: the request waits there.
    gateway.store().end_session(session).await.expect("ended");
    assert_eq!(gateway.read(run_id).await.json()["state_reason"]["code"], "approval_pending");
    write(&gateway, session, run_id, closed(2, id)).await;
    let run = gateway.read(run_id).await.json();
    assert_eq!((&run["state"], run.get("state_reason")), (&json!("running"), None));
    assert!(listed(&gateway, "state=awaiting_approval").await.is_empty());
    gateway.stop().await;
}

#[tokio::test]
async fn a_run_that_its_device_does_not_know_the_end_of_is_started_and_its_reason_is_told() {
    let gateway = TestGateway::new().await;
    let (session, run_id) = started(&gateway).await;
    write(&gateway, session, run_id, AttemptUpdate::Unknown).await;
    let run = gateway.read(run_id).await.json();
    assert_eq!((&run["phase"], &run["state"]), (&json!("started"), &json!("awaiting_reconciliation")));
    assert_eq!(run["state_reason"]["code"], "outcome_unknown");
    assert_eq!(listed(&gateway, "state=awaiting_reconciliation").await, [json!(run_id)]);
    let asked = gateway.ask("POST", &format!("/api/v1/runs/{run_id}/stop")).header("Idempotency-Key", "s").send().await;
    assert_eq!(asked.json()["state"], "pending", "its device has to confirm it");
    write(&gateway, session, run_id, AttemptUpdate::RunAgain).await;
    let address = asked.header("location").expect("an address");
    let operation = gateway.ask("GET", address).send().await.json();
    assert_eq!(operation["outcome"], json!({ "code": "stopped", "run_state": "cancelled" }));
    gateway.stop().await;
}
