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

fn stop(world: &TestGateway, run_id: RunId, key: &str) -> TestRequest {
    world.ask("POST", &format!("/api/v1/runs/{run_id}/stop")).header("Idempotency-Key", key)
}

async fn again(world: &TestGateway, asked: &TestResponse) -> Value {
    let reply = world.ask("GET", asked.header("location").expect("an address")).send().await;
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
    AttemptUpdate::End { seq, outcome: Outcome::Cancelled { effects: Effects::None, usage: Usage::default() } }
}

async fn events(world: &TestGateway, run_id: RunId) -> Vec<EventType> {
    let events = world.store().events_after(run_id, 0, 100).await.expect("read");
    events.into_iter().map(|event| event.kind).collect()
}

#[tokio::test]
async fn what_has_not_started_is_cancelled_at_once_and_never_starts() {
    let world = TestGateway::new().await;
    let talk = TestConversation::open(&world, "case").await;
    let waiting = talk.message("one", 1).send().await.run_id();
    let asked = stop(&world, waiting, "stop").json(&json!({ "reason": "no longer needed" })).send().await;
    assert_eq!(outcome(&asked.json()), ("completed", "stopped", "cancelled"));
    assert_eq!(asked.json()["target"], json!({ "run_id": waiting }));
    let run = world.read(waiting).await.json();
    assert_eq!((&run["state"], &run["stop"]["operation_id"]), (&json!("cancelled"), &asked.json()["operation_id"]));
    assert_eq!(run["stop"]["requested_by"], "application");
    assert_eq!(talk.stands().await.0, "idle");
    assert_eq!(events(&world, waiting).await, [EventType::RunAccepted, EventType::RunCancelled]);

    // The offer is on its way: the device's answer comes too late.
    let offered = world.submit("two").await;
    let (session, _) = world.desk.connect().await;
    assert_eq!(world.desk.claim(session, 9).await.len(), 1, "a cancelled run is not offered");
    assert_eq!(outcome(&stop(&world, offered, "stop").send().await.json()), ("completed", "stopped", "cancelled"));
    let revoked = RecordOutcome::Revoked(RevokeCode::AlreadyFinal);
    assert_eq!(report(&world, session, offered, AttemptUpdate::Start).await, revoked);
    assert!(
        world.store().deliver(session, OrderSelection::New).await.expect("delivered").is_empty(),
        "nobody has to be told"
    );
    world.stop().await;
}

#[tokio::test]
async fn a_started_run_is_cancelling_until_the_executor_confirms_it() {
    let world = TestGateway::new().await;
    let talk = TestConversation::open(&world, "case").await;
    talk.message("one", 1).send().await.run_id();
    let (session, _) = world.desk.connect().await;
    let run_id = start(&world, session).await;
    let asked = stop(&world, run_id, "stop").send().await;
    assert_eq!(outcome(&asked.json()), ("pending", "", ""));
    let run = world.read(run_id).await.json();
    assert_eq!((&run["state"], &run["state_reason"]["code"]), (&json!("cancelling"), &json!("stop_requested")));
    for key in ["stop", "another"] {
        let repeated = stop(&world, run_id, key).send().await;
        assert_eq!(id(&repeated), id(&asked), "the same open operation");
        assert_eq!(repeated.header("idempotency-replayed").is_some(), key == "stop");
    }
    assert_eq!(
        world.store().deliver(session, OrderSelection::New).await.expect("delivered"),
        [(id(&asked), Order::Stop { run_id })]
    );
    assert_eq!(outcome(&again(&world, &asked).await), ("delivered", "", ""));
    assert_eq!(report(&world, session, run_id, cancelled(1)).await, RecordOutcome::Done);
    assert_eq!(outcome(&again(&world, &asked).await), ("completed", "stopped", "cancelled"));
    assert_eq!(
        (talk.stands().await.0.as_str(), world.read(run_id).await.json()["state"].as_str()),
        ("idle", Some("cancelled"))
    );
    use EventType::{RunAccepted, RunCancelled, RunCancelling, RunStarted};
    assert_eq!(events(&world, run_id).await, [RunAccepted, RunStarted, RunCancelling, RunCancelled]);

    let late = stop(&world, run_id, "late").send().await;
    assert_eq!(outcome(&late.json()), ("completed", "already_final", "cancelled"));
    assert_ne!(id(&late), id(&asked));
    assert_eq!(world.read(run_id).await.json()["stop"]["operation_id"], asked.json()["operation_id"]);
    world.stop().await;
}

#[tokio::test]
async fn what_a_stopped_run_may_have_changed_is_said_by_its_last_event() {
    let world = TestGateway::new().await;
    world.submit("started").await;
    let (session, _) = world.desk.connect().await;
    let started = start(&world, session).await;
    let queued = world.submit("queued").await;
    for run_id in [started, queued] {
        stop(&world, run_id, &run_id.to_string()).send().await;
    }
    let outcome = Outcome::Cancelled { effects: Effects::Possible, usage: Usage::default() };
    let end = AttemptUpdate::End { seq: 1, outcome };
    assert_eq!(report(&world, session, started, end).await, RecordOutcome::Done);
    for (run_id, effects) in [(started, "possible"), (queued, "none")] {
        let run = world.read(run_id).await.json();
        assert_eq!((&run["state"], run.get("error")), (&json!("cancelled"), None));
        let after = run["last_sequence"].as_u64().expect("a number") - 1;
        let path = format!("/api/v1/runs/{run_id}/events?after={after}");
        let last = world.ask("GET", &path).header("Accept", "application/json").send().await.json();
        assert_eq!(last["data"].as_array().map(Vec::len), Some(1), "{last}");
        assert_eq!(
            (&last["data"][0]["type"], &last["data"][0]["data"]["effects"]),
            (&json!("run.cancelled"), &json!(effects))
        );
    }
    world.stop().await;
}

#[tokio::test]
async fn a_run_that_ends_before_the_stop_takes_hold_keeps_its_end() {
    let world = TestGateway::new().await;
    world.submit("one").await;
    let (session, _) = world.desk.connect().await;
    let run_id = start(&world, session).await;
    let asked = stop(&world, run_id, "stop").send().await;
    assert_eq!(report(&world, session, run_id, succeeded(1)).await, RecordOutcome::Done);
    assert_eq!(outcome(&again(&world, &asked).await), ("completed", "already_final", "succeeded"));
    assert!(world.store().deliver(session, OrderSelection::New).await.expect("delivered").is_empty());
    world.stop().await;
}

#[tokio::test]
async fn a_stop_is_fenced_by_the_attempt_it_names() {
    let world = TestGateway::new().await;
    world.submit("one").await;
    let (session, _) = world.desk.connect().await;
    let run_id = start(&world, session).await;
    let detail = "The run is in attempt 1. Read it and decide whether it is still to be stopped.";
    let problem =
        ExpectedProblem::new(409, "attempt_mismatch", "Attempt mismatch", detail).with(json!({ "current_attempt": 1 }));
    for attempt in [0, 2] {
        let body = json!({ "expected_attempt": attempt });
        stop(&world, run_id, "stop").json(&body).send().await.assert_problem(&problem);
    }
    assert_eq!(world.read(run_id).await.json()["state"], "running", "a refusal stores nothing");
    let asked = stop(&world, run_id, "stop").json(&json!({ "expected_attempt": 1 })).send().await;
    assert_eq!(asked.json()["state"], "pending");
    let reused = stop(&world, run_id, "stop").json(&json!({ "expected_attempt": 2 })).send().await;
    assert_eq!(
        (reused.code().as_str(), &reused.json()["existing_operation_id"]),
        ("idempotency_key_reused", &asked.json()["operation_id"])
    );
    world.stop().await;
}

#[tokio::test]
async fn a_run_that_its_device_forgot_ends_by_a_stop_and_nobody_claims_what_it_changed() {
    let world = TestGateway::new().await;
    let talk = TestConversation::open(&world, "case").await;
    let id_of_request = ApprovalId::new();
    use EventType::{RunApprovalResolved, RunCancelled, RunCancelling, RunReconciled};
    // The device answers before the run was missed; it came back without it, while a request was open or not.
    for (key, asks, lost, expected) in [
        ("one", false, false, &[RunCancelling, RunCancelled][..]),
        ("two", false, true, &[RunCancelling, RunReconciled, RunCancelled]),
        ("three", true, true, &[RunCancelling, RunApprovalResolved, RunReconciled, RunCancelled]),
    ] {
        talk.message(key, 1).send().await.run_id();
        let (session, _) = world.desk.connect().await;
        let run_id = start(&world, session).await;
        let seen: Vec<_> =
            asks.then(|| opened(1, id_of_request)).into_iter().chain(lost.then_some(AttemptUpdate::Lose)).collect();
        for what in &seen {
            assert_eq!(report(&world, session, run_id, what.clone()).await, RecordOutcome::Done);
        }
        let asked = stop(&world, run_id, key).send().await;
        let done = |session| world.store().operation_done(session, id(&asked), OutcomeCode::OutcomeUnknown, LONG_LEASE);
        let (stale, session) = (session, world.desk.connect().await.0);
        done(stale).await.expect("written");
        assert_eq!(again(&world, &asked).await["state"], "pending", "an older session changes nothing");
        assert_eq!(talk.stands().await.0, "busy");
        for _ in 0..2 {
            done(session).await.expect("written");
        }
        assert_eq!(outcome(&again(&world, &asked).await), ("completed", "outcome_unknown", "cancelled"));
        assert_eq!(world.read(run_id).await.json()["state"], "cancelled");
        assert_eq!(talk.stands().await.0, "idle", "the next message finds it free");
        let stored = world.store().events_after(run_id, 0, 100).await.expect("read");
        assert_eq!(events(&world, run_id).await[2 + seen.len()..], *expected);
        assert_eq!(stored.last().expect("some").data, json!({ "effects": "possible" }));
        // A report of the same run, under the same key, comes too late.
        let late = report(&world, session, run_id, succeeded(1 + u64::from(asks))).await;
        assert_eq!(late, RecordOutcome::Revoked(RevokeCode::AlreadyFinal));
        assert_eq!(report(&world, session, run_id, AttemptUpdate::Lose).await, RecordOutcome::Done);
        assert_eq!(world.read(run_id).await.json()["state"], "cancelled");
    }
    world.stop().await;
}

#[tokio::test]
async fn a_stop_that_is_confirmed_without_the_runs_end_is_completed_and_claims_no_end() {
    let world = TestGateway::new().await;
    let (session, _) = world.desk.connect().await;
    for (key, code) in [("one", OutcomeCode::Stopped), ("two", OutcomeCode::AlreadyFinal)] {
        world.submit(key).await;
        let run_id = start(&world, session).await;
        let asked = stop(&world, run_id, "stop").send().await;
        for _ in 0..2 {
            world.store().operation_done(session, id(&asked), code, LONG_LEASE).await.expect("written");
        }
        assert_eq!(outcome(&again(&world, &asked).await), ("completed", "outcome_unknown", "awaiting_reconciliation"));
        assert_eq!(world.read(run_id).await.json()["state"], "awaiting_reconciliation");
        let events = world.store().events_after(run_id, 0, 100).await.expect("read");
        let last = events.last().expect("it was accepted");
        assert_eq!(last.kind, EventType::RunAwaitingReconciliation);
        assert!(last.data["reason"].as_str().is_some_and(|reason| reason.contains("says that this run ended")));
        // Its end counts at any time; the result of the operation stays.
        assert_eq!(report(&world, session, run_id, cancelled(1)).await, RecordOutcome::Done);
        assert_eq!(world.read(run_id).await.json()["state"], "cancelled");
        assert_eq!(outcome(&again(&world, &asked).await), ("completed", "outcome_unknown", "awaiting_reconciliation"));
    }
    world.stop().await;
}

#[tokio::test]
async fn removing_the_device_completes_the_stop_of_a_run_whose_end_got_lost() {
    let world = TestGateway::new().await;
    world.submit("one").await;
    let (session, _) = world.desk.connect().await;
    let run_id = start(&world, session).await;
    let first = stop(&world, run_id, "first").send().await;
    world.store().operation_done(session, id(&first), OutcomeCode::AlreadyFinal, LONG_LEASE).await.expect("written");
    let second = stop(&world, run_id, "second").send().await;
    assert_ne!(id(&second), id(&first), "the next stop is a new one");
    assert_eq!(world.read(run_id).await.json()["state"], "awaiting_reconciliation");
    world.store().revoke_device(world.desk.device_id, LONG_LEASE).await.expect("revoked");
    assert_eq!(outcome(&again(&world, &second).await), ("completed", "outcome_unknown", "failed"));
    world.stop().await;
}

#[tokio::test]
async fn a_stop_that_is_repeated_while_its_run_is_deleted_is_told_that_the_run_is_gone() {
    let world = TestGateway::new().await;
    let run_id = world.submit("one").await;
    assert_eq!(stop(&world, run_id, "stop").send().await.status, 202);
    let run = run_id.uuid();
    let deleting = world.database.begin().await;
    deleting
        .execute(&format!(
            "LOCK TABLE control_operations IN ACCESS EXCLUSIVE MODE;
             INSERT INTO purged_runs (run_id, app_id, subject, endpoint_id, forget_at)
             SELECT run_id, app_id, subject, endpoint_id, now() + interval '1 hour' FROM runs WHERE run_id = '{run}';
             DELETE FROM control_operations WHERE run_id = '{run}';
             DELETE FROM runs WHERE run_id = '{run}';"
        ))
        .await;
    let repeated = stop(&world, run_id, "stop").send();
    let purge = async {
        world.database.waits_for_a_lock("operations::read").await;
        deleting.commit().await;
    };
    let (repeated, ()) = tokio::join!(repeated, purge);
    assert_eq!((repeated.status, repeated.code().as_str()), (410, "run_purged"), "{repeated:?}");
    world.stop().await;
}

#[tokio::test]
async fn what_was_to_be_stopped_while_the_device_was_lost_is_still_to_be_stopped_when_it_is_back() {
    let world = TestGateway::new().await;
    world.submit("one").await;
    let (session, _) = world.desk.connect().await;
    let run_id = start(&world, session).await;
    let asked = stop(&world, run_id, "stop").send().await;
    world.database.execute("UPDATE devices SET lease_expires_at = now() - interval '1 second'").await;
    world.store().suspend_lost_runs().await.expect("suspended");
    assert_eq!(world.read(run_id).await.json()["state"], "awaiting_reconciliation");

    let (session, held) = world.desk.connect().await;
    assert!(held.iter().any(|run| run.run_id == run_id && run.stopping));
    assert_eq!(report(&world, session, run_id, AttemptUpdate::Reconcile).await, RecordOutcome::Done);
    assert_eq!(world.read(run_id).await.json()["state"], "cancelling");
    assert_eq!(world.store().deliver(session, OrderSelection::New).await.expect("delivered").len(), 1);
    // It was cut off before it did anything: no second execution, and nothing to wait for.
    assert_eq!(report(&world, session, run_id, AttemptUpdate::Cancel { held: 1 }).await, RecordOutcome::Done);
    assert_eq!(report(&world, session, run_id, AttemptUpdate::Cancel { held: 1 }).await, RecordOutcome::Done);
    assert_eq!(outcome(&again(&world, &asked).await), ("completed", "stopped", "cancelled"));
    world.stop().await;
}

#[tokio::test]
async fn an_operation_is_seen_by_its_subject_with_the_scope_of_its_target() {
    use deskgate_protocol::management::Scope::{ConversationsRead, RunsRead, RunsWrite};
    let world = TestGateway::new().await;
    let run_id = world.submit("one").await;
    let asked = stop(&world, run_id, "stop").send().await;
    let reset = TestConversation::open(&world, "case").await.reset("reset", 1).send().await;
    let other = world.desk.application("shipping").await;
    let read = |asked: &TestResponse| world.ask("GET", asked.header("location").expect("an address"));
    for (asked, needed, useless) in [(&asked, RunsRead, ConversationsRead), (&reset, ConversationsRead, RunsRead)] {
        read(asked).subject("berta").send().await.assert_problem(&not_found());
        read(asked).key(&other.key).send().await.assert_problem(&not_found());
        for (scope, status) in [(needed, 200), (useless, 403), (RunsWrite, 403)] {
            let key = world.desk.restricted_key(|key| key.scopes = vec![scope]).await;
            assert_eq!(read(asked).key(&key.text).send().await.status, status, "{scope}");
        }
    }
    for path in
        ["/api/v1/control-operations/run_1".to_owned(), format!("/api/v1/control-operations/{}", OperationId::new())]
    {
        world.ask("GET", &path).send().await.assert_problem(&not_found());
    }
    stop(&world, run_id, "x").subject("berta").send().await.assert_problem(&not_found());
    stop(&world, RunId::new(), "x").send().await.assert_problem(&not_found());
    world.stop().await;
}

#[tokio::test]
async fn a_stop_says_what_is_wrong_with_its_body() {
    let world = TestGateway::new().await;
    let run_id = world.submit("one").await;
    for (body, pointer) in [
        (json!({ "expected_attempt": -1 }), "/expected_attempt"),
        (json!({ "reason": 7 }), "/reason"),
        (json!({ "reason": "x".repeat(501) }), "/reason"),
        (json!({ "reason": "a\u{0}" }), "/reason"),
    ] {
        let reply = stop(&world, run_id, "x").json(&body).send().await;
        assert_eq!((reply.status, reply.code().as_str()), (422, "invalid_input"), "{reply:?}");
        assert_eq!(reply.json()["errors"][0]["pointer"], pointer);
    }
    let unknown = stop(&world, run_id, "x").json(&json!({ "force": true })).send().await;
    assert_eq!(unknown.code(), "unknown_field");
    let reply = stop(&world, run_id, "x").without("Idempotency-Key").send().await;
    assert_eq!(reply.code(), "idempotency_key_missing");
    world.stop().await;
}
