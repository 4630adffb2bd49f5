//! Stops through the public API; the device is played by the store's own calls.

use deskgate_gateway::store::attempts::{AttemptUpdate, RecordOutcome};
use deskgate_gateway::store::operations::OrderSelection;
use deskgate_protocol::control::{Order, RevokeCode};
use deskgate_protocol::operation::OutcomeCode;
use deskgate_protocol::run::{Effects, EventType, Outcome, Usage};
use deskgate_protocol::{ApprovalId, OperationId, RunId};
use serde_json::{Value, json};

use crate::conversations::{TestConversation, report, start};
use crate::store::{opened, succeeded};
use crate::support::call::{ExpectedProblem, TestRequest, TestResponse, not_found};
use crate::support::gateway::{LONG_LEASE, TestGateway};

fn stop(gateway: &TestGateway, run_id: RunId, key: &str) -> TestRequest {
    gateway.ask("POST", &format!("/api/v1/runs/{run_id}/stop")).header("Idempotency-Key", key)
}

async fn again(gateway: &TestGateway, asked: &TestResponse) -> Value {
    let reply = gateway.ask("GET", asked.header("location").expect("an address")).send().await;
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.json()
}

fn id(asked: &TestResponse) -> OperationId {
    assert_eq!(asked.status, 202, "{asked:?}");
    asked.json()["operation_id"].as_str().expect("a text").parse().expect("an identifier")
}

fn outcome(operation: &Value) -> (&str, &str, &str) {
    let text = |value: &'_ Value| value.as_str().map_or("", |text| Box::leak(text.to_owned().into_boxed_str()));
    (text(&operation["state"]), text(&operation["outcome"]["code"]), text(&operation["outcome"]["run_state"]))
}

fn cancelled(seq: u64) -> AttemptUpdate {
    AttemptUpdate::End {
        seq,
        outcome: Outcome::Cancelled { effects: Effects::None, usage: Usage::default() },
        is_checked: false,
        receipt: None,
    }
}

async fn events(gateway: &TestGateway, run_id: RunId) -> Vec<EventType> {
    let events = gateway.store().events_after(run_id, 0, 100).await.expect("read");
    events.into_iter().map(|event| event.kind).collect()
}

#[tokio::test]
async fn what_has_not_started_is_cancelled_at_once_and_never_starts() {
    let gateway = TestGateway::new().await;
    let talk = TestConversation::open(&gateway, "case").await;
    let waiting = talk.message("one", 1).send().await.run_id();
    let asked = stop(&gateway, waiting, "stop").json(&json!({ "reason": "no longer needed" })).send().await;
    assert_eq!(outcome(&asked.json()), ("completed", "stopped", "cancelled"));
    assert_eq!(asked.json()["target"], json!({ "run_id": waiting }));
    let run = gateway.read(waiting).await.json();
    assert_eq!((&run["state"], &run["stop"]["operation_id"]), (&json!("cancelled"), &asked.json()["operation_id"]));
    assert_eq!(run["stop"]["requested_by"], "application");
    assert_eq!(talk.stands().await.0, "idle");
    assert_eq!(events(&gateway, waiting).await, [EventType::RunAccepted, EventType::RunCancelled]);

    // The offer is on its way: the device's answer comes too late.
    let offered = gateway.submit("two").await;
    let (session, _) = gateway.device.connect().await;
    assert_eq!(gateway.device.claim(session, 9).await.len(), 1, "a cancelled run is not offered");
    assert_eq!(outcome(&stop(&gateway, offered, "stop").send().await.json()), ("completed", "stopped", "cancelled"));
    let revoked = RecordOutcome::Revoked(RevokeCode::AlreadyFinal);
    assert_eq!(report(&gateway, session, offered, AttemptUpdate::Start).await, revoked);
    assert!(
        gateway.store().deliver(session, OrderSelection::New).await.expect("delivered").is_empty(),
        "nobody has to be told"
    );
    gateway.stop().await;
}

#[tokio::test]
async fn a_started_run_is_cancelling_until_the_executor_confirms_it() {
    let gateway = TestGateway::new().await;
    let talk = TestConversation::open(&gateway, "case").await;
    talk.message("one", 1).send().await.run_id();
    let (session, _) = gateway.device.connect().await;
    let run_id = start(&gateway, session).await;
    let asked = stop(&gateway, run_id, "stop").send().await;
    assert_eq!(outcome(&asked.json()), ("pending", "", ""));
    let run = gateway.read(run_id).await.json();
    assert_eq!((&run["state"], &run["state_reason"]["code"]), (&json!("cancelling"), &json!("stop_requested")));
    for key in ["stop", "another"] {
        let repeated = stop(&gateway, run_id, key).send().await;
        assert_eq!(id(&repeated), id(&asked), "the same open operation");
        assert_eq!(repeated.header("idempotency-replayed").is_some(), key == "stop");
    }
    assert_eq!(
        gateway.store().deliver(session, OrderSelection::New).await.expect("delivered"),
        [(id(&asked), Order::Stop { run_id })]
    );
    assert_eq!(outcome(&again(&gateway, &asked).await), ("delivered", "", ""));
    assert_eq!(report(&gateway, session, run_id, cancelled(1)).await, RecordOutcome::Done);
    assert_eq!(outcome(&again(&gateway, &asked).await), ("completed", "stopped", "cancelled"));
    assert_eq!(
        (talk.stands().await.0.as_str(), gateway.read(run_id).await.json()["state"].as_str()),
        ("idle", Some("cancelled"))
    );
    use EventType::{RunAccepted, RunCancelled, RunCancelling, RunStarted};
    assert_eq!(events(&gateway, run_id).await, [RunAccepted, RunStarted, RunCancelling, RunCancelled]);

    let late = stop(&gateway, run_id, "late").send().await;
    assert_eq!(outcome(&late.json()), ("completed", "already_final", "cancelled"));
    assert_ne!(id(&late), id(&asked));
    assert_eq!(gateway.read(run_id).await.json()["stop"]["operation_id"], asked.json()["operation_id"]);
    gateway.stop().await;
}

#[tokio::test]
async fn what_a_stopped_run_may_have_changed_is_said_by_its_last_event() {
    let gateway = TestGateway::new().await;
    gateway.submit("started").await;
    let (session, _) = gateway.device.connect().await;
    let started = start(&gateway, session).await;
    let queued = gateway.submit("queued").await;
    for run_id in [started, queued] {
        stop(&gateway, run_id, &run_id.to_string()).send().await;
    }
    let outcome = Outcome::Cancelled { effects: Effects::Possible, usage: Usage::default() };
    let end = AttemptUpdate::End { seq: 1, outcome, is_checked: false, receipt: None };
    assert_eq!(report(&gateway, session, started, end).await, RecordOutcome::Done);
    for (run_id, effects) in [(started, "possible"), (queued, "none")] {
        let run = gateway.read(run_id).await.json();
        assert_eq!((&run["state"], run.get("error")), (&json!("cancelled"), None));
        let after = run["last_sequence"].as_u64().expect("a number") - 1;
        let path = format!("/api/v1/runs/{run_id}/events?after={after}");
        let last = gateway.ask("GET", &path).header("Accept", "application/json").send().await.json();
        assert_eq!(last["data"].as_array().map(Vec::len), Some(1), "{last}");
        assert_eq!(
            (&last["data"][0]["type"], &last["data"][0]["data"]["effects"]),
            (&json!("run.cancelled"), &json!(effects))
        );
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_run_that_ends_before_the_stop_takes_hold_keeps_its_end() {
    let gateway = TestGateway::new().await;
    gateway.submit("one").await;
    let (session, _) = gateway.device.connect().await;
    let run_id = start(&gateway, session).await;
    let asked = stop(&gateway, run_id, "stop").send().await;
    assert_eq!(report(&gateway, session, run_id, succeeded(1)).await, RecordOutcome::Done);
    assert_eq!(outcome(&again(&gateway, &asked).await), ("completed", "already_final", "succeeded"));
    assert!(gateway.store().deliver(session, OrderSelection::New).await.expect("delivered").is_empty());
    gateway.stop().await;
}

#[tokio::test]
async fn a_stop_is_fenced_by_the_attempt_it_names() {
    let gateway = TestGateway::new().await;
    gateway.submit("one").await;
    let (session, _) = gateway.device.connect().await;
    let run_id = start(&gateway, session).await;
    let detail = "The run is in attempt 1. Read it and decide whether it is still to be stopped.";
    let problem =
        ExpectedProblem::new(409, "attempt_mismatch", "Attempt mismatch", detail).with(json!({ "current_attempt": 1 }));
    for attempt in [0, 2] {
        let body = json!({ "expected_attempt": attempt });
        stop(&gateway, run_id, "stop").json(&body).send().await.assert_problem(&problem);
    }
    assert_eq!(gateway.read(run_id).await.json()["state"], "running", "a refusal stores nothing");
    let asked = stop(&gateway, run_id, "stop").json(&json!({ "expected_attempt": 1 })).send().await;
    assert_eq!(asked.json()["state"], "pending");
    let reused = stop(&gateway, run_id, "stop").json(&json!({ "expected_attempt": 2 })).send().await;
    assert_eq!(
        (reused.code().as_str(), &reused.json()["existing_operation_id"]),
        ("idempotency_key_reused", &asked.json()["operation_id"])
    );
    gateway.stop().await;
}

#[tokio::test]
async fn a_run_that_its_device_forgot_ends_by_a_stop_and_nobody_claims_what_it_changed() {
    let gateway = TestGateway::new().await;
    let talk = TestConversation::open(&gateway, "case").await;
    let id_of_request = ApprovalId::new();
    use EventType::{RunApprovalResolved, RunCancelled, RunCancelling, RunReconciled};
    // The device answers before the run was missed; it came back without it, while a request was open or not.
    for (key, asks, lost, expected) in [
        ("one", false, false, &[RunCancelling, RunCancelled][..]),
        ("two", false, true, &[RunCancelling, RunReconciled, RunCancelled]),
        ("three", true, true, &[RunCancelling, RunApprovalResolved, RunReconciled, RunCancelled]),
    ] {
        talk.message(key, 1).send().await.run_id();
        let (session, _) = gateway.device.connect().await;
        let run_id = start(&gateway, session).await;
        let seen: Vec<_> =
            asks.then(|| opened(1, id_of_request)).into_iter().chain(lost.then_some(AttemptUpdate::Lose)).collect();
        for what in &seen {
            assert_eq!(report(&gateway, session, run_id, what.clone()).await, RecordOutcome::Done);
        }
        let asked = stop(&gateway, run_id, key).send().await;
        let done =
            |session| gateway.store().operation_done(session, id(&asked), OutcomeCode::OutcomeUnknown, LONG_LEASE);
        let (stale, session) = (session, gateway.device.connect().await.0);
        done(stale).await.expect("written");
        assert_eq!(again(&gateway, &asked).await["state"], "pending", "an older session changes nothing");
        assert_eq!(talk.stands().await.0, "busy");
        for _ in 0..2 {
            done(session).await.expect("written");
        }
        assert_eq!(outcome(&again(&gateway, &asked).await), ("completed", "outcome_unknown", "cancelled"));
        assert_eq!(gateway.read(run_id).await.json()["state"], "cancelled");
        assert_eq!(talk.stands().await.0, "idle", "the next message finds it free");
        let stored = gateway.store().events_after(run_id, 0, 100).await.expect("read");
        assert_eq!(events(&gateway, run_id).await[2 + seen.len()..], *expected);
        assert_eq!(stored.last().expect("some").data, json!({ "effects": "possible" }));
        // A report of the same run, under the same key, comes too late.
        let late = report(&gateway, session, run_id, succeeded(1 + u64::from(asks))).await;
        assert_eq!(late, RecordOutcome::Revoked(RevokeCode::AlreadyFinal));
        assert_eq!(report(&gateway, session, run_id, AttemptUpdate::Lose).await, RecordOutcome::Done);
        assert_eq!(gateway.read(run_id).await.json()["state"], "cancelled");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_stop_that_is_confirmed_without_the_runs_end_is_completed_and_claims_no_end() {
    let gateway = TestGateway::new().await;
    let (session, _) = gateway.device.connect().await;
    for (key, code) in [("one", OutcomeCode::Stopped), ("two", OutcomeCode::AlreadyFinal)] {
        gateway.submit(key).await;
        let run_id = start(&gateway, session).await;
        let asked = stop(&gateway, run_id, "stop").send().await;
        for _ in 0..2 {
            gateway.store().operation_done(session, id(&asked), code, LONG_LEASE).await.expect("written");
        }
        assert_eq!(
            outcome(&again(&gateway, &asked).await),
            ("completed", "outcome_unknown", "awaiting_reconciliation")
        );
        assert_eq!(gateway.read(run_id).await.json()["state"], "awaiting_reconciliation");
        let events = gateway.store().events_after(run_id, 0, 100).await.expect("read");
        let last = events.last().expect("it was accepted");
        assert_eq!(last.kind, EventType::RunAwaitingReconciliation);
        assert!(last.data["reason"].as_str().is_some_and(|reason| reason.contains("says that this run ended")));
        // Its end counts at any time; the result of the operation stays.
        assert_eq!(report(&gateway, session, run_id, cancelled(1)).await, RecordOutcome::Done);
        assert_eq!(gateway.read(run_id).await.json()["state"], "cancelled");
        assert_eq!(
            outcome(&again(&gateway, &asked).await),
            ("completed", "outcome_unknown", "awaiting_reconciliation")
        );
    }
    gateway.stop().await;
}

#[tokio::test]
async fn removing_the_device_completes_the_stop_of_a_run_whose_end_got_lost() {
    let gateway = TestGateway::new().await;
    gateway.submit("one").await;
    let (session, _) = gateway.device.connect().await;
    let run_id = start(&gateway, session).await;
    let first = stop(&gateway, run_id, "first").send().await;
    gateway.store().operation_done(session, id(&first), OutcomeCode::AlreadyFinal, LONG_LEASE).await.expect("written");
    let second = stop(&gateway, run_id, "second").send().await;
    assert_ne!(id(&second), id(&first), "the next stop is a new one");
    assert_eq!(gateway.read(run_id).await.json()["state"], "awaiting_reconciliation");
    gateway.store().revoke_device(gateway.device.device_id, LONG_LEASE).await.expect("revoked");
    assert_eq!(outcome(&again(&gateway, &second).await), ("completed", "outcome_unknown", "failed"));
    gateway.stop().await;
}

#[tokio::test]
async fn a_stop_that_is_repeated_while_its_run_is_deleted_is_told_that_the_run_is_gone() {
    let gateway = TestGateway::new().await;
    let run_id = gateway.submit("one").await;
    assert_eq!(stop(&gateway, run_id, "stop").send().await.status, 202);
    let run = run_id.uuid();
    let deleting = gateway.database.begin().await;
    deleting
        .execute(&format!(
            "LOCK TABLE control_operations IN ACCESS EXCLUSIVE MODE;
             INSERT INTO purged_runs (run_id, app_id, subject, endpoint_id, forget_at)
             SELECT run_id, app_id, subject, endpoint_id, now() + interval '1 hour' FROM runs WHERE run_id = '{run}';
             DELETE FROM control_operations WHERE run_id = '{run}';
             DELETE FROM runs WHERE run_id = '{run}';"
        ))
        .await;
    let repeated = stop(&gateway, run_id, "stop").send();
    let purge = async {
        gateway.database.waits_for_a_lock("operations::read").await;
        deleting.commit().await;
    };
    let (repeated, ()) = tokio::join!(repeated, purge);
    assert_eq!((repeated.status, repeated.code().as_str()), (410, "run_purged"), "{repeated:?}");
    gateway.stop().await;
}

#[tokio::test]
async fn what_was_to_be_stopped_while_the_device_was_lost_is_still_to_be_stopped_when_it_is_back() {
    let gateway = TestGateway::new().await;
    gateway.submit("one").await;
    let (session, _) = gateway.device.connect().await;
    let run_id = start(&gateway, session).await;
    let asked = stop(&gateway, run_id, "stop").send().await;
    gateway.database.execute("UPDATE devices SET lease_expires_at = now() - interval '1 second'").await;
    gateway.store().suspend_lost_runs().await.expect("suspended");
    assert_eq!(gateway.read(run_id).await.json()["state"], "awaiting_reconciliation");

    let (session, held) = gateway.device.connect().await;
    assert!(held.iter().any(|run| run.run_id == run_id && run.stopping));
    assert_eq!(report(&gateway, session, run_id, AttemptUpdate::Reconcile).await, RecordOutcome::Done);
    assert_eq!(gateway.read(run_id).await.json()["state"], "cancelling");
    assert_eq!(gateway.store().deliver(session, OrderSelection::New).await.expect("delivered").len(), 1);
    // It was cut off before it did anything: no second execution, and nothing to wait for.
    assert_eq!(report(&gateway, session, run_id, AttemptUpdate::Cancel { held: 1 }).await, RecordOutcome::Done);
    assert_eq!(report(&gateway, session, run_id, AttemptUpdate::Cancel { held: 1 }).await, RecordOutcome::Done);
    assert_eq!(outcome(&again(&gateway, &asked).await), ("completed", "stopped", "cancelled"));
    gateway.stop().await;
}

#[tokio::test]
async fn an_operation_is_seen_by_its_subject_with_the_scope_of_its_target() {
    use deskgate_protocol::management::Scope::{ConversationsRead, RunsRead, RunsWrite};
    let gateway = TestGateway::new().await;
    let run_id = gateway.submit("one").await;
    let asked = stop(&gateway, run_id, "stop").send().await;
    let reset = TestConversation::open(&gateway, "case").await.reset("reset", 1).send().await;
    let other = gateway.device.application("shipping").await;
    let read = |asked: &TestResponse| gateway.ask("GET", asked.header("location").expect("an address"));
    for (asked, needed, useless) in [(&asked, RunsRead, ConversationsRead), (&reset, ConversationsRead, RunsRead)] {
        read(asked).subject("berta").send().await.assert_problem(&not_found());
        read(asked).key(&other.key).send().await.assert_problem(&not_found());
        for (scope, status) in [(needed, 200), (useless, 403), (RunsWrite, 403)] {
            let key = gateway.device.restricted_key(|key| key.scopes = vec![scope]).await;
            assert_eq!(read(asked).key(&key.text).send().await.status, status, "{scope}");
        }
    }
    for path in
        ["/api/v1/control-operations/run_1".to_owned(), format!("/api/v1/control-operations/{}", OperationId::new())]
    {
        gateway.ask("GET", &path).send().await.assert_problem(&not_found());
    }
    stop(&gateway, run_id, "x").subject("berta").send().await.assert_problem(&not_found());
    stop(&gateway, RunId::new(), "x").send().await.assert_problem(&not_found());
    gateway.stop().await;
}

#[tokio::test]
async fn a_stop_says_what_is_wrong_with_its_body() {
    let gateway = TestGateway::new().await;
    let run_id = gateway.submit("one").await;
    for (body, pointer) in [
        (json!({ "expected_attempt": -1 }), "/expected_attempt"),
        (json!({ "expected_attempt": 2_147_483_648_u32 }), "/expected_attempt"),
        (json!({ "expected_attempt": "1" }), "/expected_attempt"),
        (json!({ "expected_attempt": null }), "/expected_attempt"),
        (json!({ "reason": 7 }), "/reason"),
        (json!({ "reason": "x".repeat(501) }), "/reason"),
        (json!({ "reason": "a\u{0}" }), "/reason"),
    ] {
        let reply = stop(&gateway, run_id, "x").json(&body).send().await;
        assert_eq!((reply.status, reply.code().as_str()), (422, "invalid_input"), "{reply:?}");
        assert_eq!(reply.json()["errors"][0]["pointer"], pointer);
    }
    let unknown = stop(&gateway, run_id, "x").json(&json!({ "force": true })).send().await;
    assert_eq!(unknown.code(), "unknown_field");
    let reply = stop(&gateway, run_id, "x").without("Idempotency-Key").send().await;
    assert_eq!(reply.code(), "idempotency_key_missing");
    gateway.stop().await;
}
