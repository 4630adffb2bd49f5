//! Messages to a conversation that works on another one: refused, in line, or instead of it.

use deskgate_gateway::store::attempts::{AttemptUpdate, RecordOutcome};
use deskgate_gateway::store::leases::SessionKey;
use deskgate_gateway::store::messages::MAX_WAITING_MESSAGES;
use deskgate_gateway::store::operations::OrderSelection;
use deskgate_protocol::RunId;
use deskgate_protocol::control::Order;
use deskgate_protocol::management::Scope;
use deskgate_protocol::run::{Effects, Outcome, Usage};
use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::conversations::{TestConversation, report, start};
use crate::store::queue::ASTRAY_SQL;
use crate::store::succeeded;
use crate::support::call::{TestRequest, TestResponse};
use crate::support::gateway::{LONG_LEASE, TestGateway};

/// A message of generation 1.
fn message(talk: &TestConversation<'_>, key: &str, on_busy: &str) -> TestRequest {
    let body = json!({ "expected_generation": 1, "on_busy": on_busy, "input": { "text": "hello" } });
    talk.gateway.ask("POST", &talk.path("/messages")).header("Idempotency-Key", key).json(&body)
}

async fn enqueued(talk: &TestConversation<'_>, key: &str) -> RunId {
    let accepted = message(talk, key, "enqueue").send().await;
    assert_eq!(accepted.status, 202, "{accepted:?}");
    accepted.run_id()
}

async fn position(gateway: &TestGateway, run_id: RunId) -> Value {
    gateway.read(run_id).await.json()["conversation_position"].take()
}

async fn state(gateway: &TestGateway, run_id: RunId) -> String {
    gateway.read(run_id).await.json()["state"].as_str().expect("a word").to_owned()
}

async fn stop(gateway: &TestGateway, run_id: RunId) -> TestResponse {
    let path = format!("/api/v1/runs/{run_id}/stop");
    gateway.ask("POST", &path).header("Idempotency-Key", run_id.to_string()).send().await
}

async fn expire(gateway: &TestGateway, runs: &[RunId]) {
    for run_id in runs {
        let due = format!("UPDATE runs SET queue_expires_at = now() WHERE run_id = '{}'", run_id.uuid());
        gateway.database.execute(&due).await;
    }
    gateway.store().expire_queued(LONG_LEASE).await.expect("expired");
}

/// The device starts the only run that it can claim, and ends it.
async fn execute(gateway: &TestGateway, session: SessionKey) -> RunId {
    let offers = gateway.device.claim(session, 9).await;
    assert_eq!(offers.len(), 1, "one run of a conversation at a time: {offers:?}");
    let run_id = offers[0].run_id;
    assert_eq!(report(gateway, session, run_id, AttemptUpdate::Start).await, RecordOutcome::Done);
    assert_eq!(report(gateway, session, run_id, succeeded(1)).await, RecordOutcome::Done);
    run_id
}

fn cancelled() -> AttemptUpdate {
    let outcome = Outcome::Cancelled { effects: Effects::None, usage: Usage::default() };
    AttemptUpdate::End { seq: 1, outcome, is_checked: false, receipt: None }
}

#[tokio::test]
async fn messages_wait_in_order_and_are_executed_one_at_a_time() {
    let gateway = TestGateway::new().await;
    let talk = TestConversation::open(&gateway, "case").await;
    let first = message(&talk, "0", "enqueue").send().await;
    assert_eq!((first.status, &first.json()["conversation_position"]), (202, &Value::Null), "nothing goes before it");
    let mut runs = vec![first.run_id()];
    let (session, _) = gateway.device.connect().await;
    for number in 1..4 {
        let accepted = message(&talk, &number.to_string(), "enqueue").send().await;
        let run = accepted.json();
        assert_eq!((accepted.status, &run["conversation_position"]), (202, &json!(number)), "{run}");
        assert_eq!((&run["state"], &run["state_reason"]["code"]), (&json!("queued"), &json!("conversation_busy")));
        assert_eq!(gateway.read(accepted.run_id()).await.json(), run, "the record says the same");
        runs.push(accepted.run_id());
    }
    let replayed = message(&talk, "2", "enqueue").send().await;
    assert_eq!((replayed.run_id(), replayed.header("idempotency-replayed")), (runs[2], Some("true")));
    assert_eq!(talk.message("x", 1).send().await.code(), "conversation_busy", "others are refused as ever");
    assert_eq!(talk.reset("reset", 1).send().await.code(), "conversation_busy");
    let other = gateway.submit("no-message").await;
    let queue_position = gateway.read(other).await.json()["queue_position"].take();
    assert_eq!(queue_position, 1, "what waits for its conversation is before nobody");

    let mut executed = Vec::new();
    for left in (0..4).rev() {
        if left == 2 {
            // A claim takes the other run too, which is older than the messages' turn.
            stop(&gateway, other).await;
        }
        if left == 3 {
            let offers = gateway.device.claim(session, 9).await;
            assert_eq!(offers.iter().map(|offer| offer.run_id).collect::<Vec<_>>(), [runs[0], other]);
            report(&gateway, session, runs[0], AttemptUpdate::Start).await;
            assert_eq!(talk.stands().await, ("busy".to_owned(), 1, Some(runs[0].to_string())));
            report(&gateway, session, runs[0], succeeded(1)).await;
            executed.push(runs[0]);
        } else {
            executed.push(execute(&gateway, session).await);
        }
        let next = (left > 0).then(|| runs[4 - left].to_string());
        assert_eq!(talk.stands().await.2, next);
        for (number, run_id) in runs[4 - left..].iter().enumerate() {
            let expected = if number == 0 { Value::Null } else { json!(number) };
            assert_eq!(position(&gateway, *run_id).await, expected);
        }
    }
    assert_eq!(executed, runs);
    assert_eq!(talk.stands().await, ("idle".to_owned(), 1, None));
    gateway.stop().await;
}

#[tokio::test]
async fn a_waiting_message_that_expires_or_is_stopped_leaves_the_line() {
    let gateway = TestGateway::new().await;
    let talk = TestConversation::open(&gateway, "case").await;
    let (session, _) = gateway.device.connect().await;
    let mut runs = Vec::new();
    for number in 0..5 {
        runs.push(enqueued(&talk, &number.to_string()).await);
    }
    assert_eq!(start(&gateway, session).await, runs[0]);
    expire(&gateway, &runs[1..2]).await;
    assert_eq!(state(&gateway, runs[1]).await, "expired");
    let stopped = stop(&gateway, runs[3]).await.json();
    assert_eq!(stopped["outcome"]["code"], "stopped", "it was never started: {stopped}");
    assert_eq!((position(&gateway, runs[2]).await, position(&gateway, runs[4]).await), (json!(1), json!(2)));
    report(&gateway, session, runs[0], succeeded(1)).await;
    assert_eq!(execute(&gateway, session).await, runs[2]);

    // The one that is next ends in the same statement as the one before it, or by its own stop.
    let more = enqueued(&talk, "more").await;
    let last = enqueued(&talk, "last").await;
    expire(&gateway, &[runs[4], more]).await;
    assert_eq!(talk.stands().await.2, Some(last.to_string()));
    stop(&gateway, last).await;
    assert_eq!(talk.stands().await, ("idle".to_owned(), 1, None));
    gateway.stop().await;
}

#[tokio::test]
async fn every_way_a_run_can_end_passes_its_conversation_on() {
    let gateway = TestGateway::new().await;
    let talk = TestConversation::open(&gateway, "case").await;
    let (session, _) = gateway.device.connect().await;
    let mut runs = Vec::new();
    for number in 0..6 {
        runs.push(enqueued(&talk, &number.to_string()).await);
    }
    expire(&gateway, &runs[..1]).await;
    assert_eq!(gateway.device.claim(session, 9).await[0].run_id, runs[1]);
    assert_eq!(report(&gateway, session, runs[1], AttemptUpdate::Mismatch).await, RecordOutcome::Done);
    assert_eq!(start(&gateway, session).await, runs[2]);
    assert_eq!(stop(&gateway, runs[2]).await.status, 202);
    assert_eq!(report(&gateway, session, runs[2], cancelled()).await, RecordOutcome::Done);
    assert_eq!(start(&gateway, session).await, runs[3]);
    gateway.store().revoke_device(gateway.device.device_id, LONG_LEASE).await.expect("revoked");
    for (run_id, expected) in runs[3..].iter().zip(["failed", "cancelled", "cancelled"]) {
        assert_eq!(state(&gateway, *run_id).await, expected);
    }
    assert_eq!(talk.stands().await, ("idle".to_owned(), 1, None));
    gateway.stop().await;
}

#[tokio::test]
async fn so_many_messages_wait_and_no_more_however_many_come_at_once() {
    let gateway = TestGateway::new().await;
    let (replica, _dir) = gateway.replica().await;
    let talk = TestConversation::open(&gateway, "case").await;
    let calls = (0..40).map(|number| {
        let call = message(&talk, &number.to_string(), "enqueue");
        match number % 2 {
            0 => call,
            _ => call.to(replica.addresses().http, &talk.path("/messages")),
        }
        .send()
    });
    let answers = join_all(calls).await;
    let (accepted, refused): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.status == 202);
    let most = MAX_WAITING_MESSAGES as usize;
    assert_eq!(accepted.len(), most + 1, "the active one, and those that wait");
    for answer in refused {
        assert_eq!((answer.status, answer.code()), (409, "conversation_busy".to_owned()));
        assert_eq!(answer.json()["waiting_messages"], json!(MAX_WAITING_MESSAGES));
    }
    let mut positions: Vec<_> =
        accepted.iter().map(|answer| answer.json()["conversation_position"].as_u64().unwrap_or(0)).collect();
    positions.sort_unstable();
    assert_eq!(positions, (0..=u64::from(MAX_WAITING_MESSAGES)).collect::<Vec<_>>(), "each has a place of its own");

    let mut in_line: Vec<_> = accepted
        .iter()
        .map(|answer| (answer.json()["conversation_position"].as_u64().unwrap_or(0), answer.run_id()))
        .collect();
    in_line.sort_unstable();
    let (session, _) = gateway.device.connect().await;
    for (_, run_id) in in_line {
        assert_eq!(execute(&gateway, session).await, run_id);
    }
    replica.stop().await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_message_that_interrupts_stops_the_run_and_comes_after_those_that_wait() {
    let gateway = TestGateway::new().await;
    let talk = TestConversation::open(&gateway, "case").await;
    let first = message(&talk, "first", "interrupt").send().await;
    assert_eq!((first.status, &first.json()["stop"]), (202, &Value::Null), "an idle conversation is not interrupted");
    let (session, _) = gateway.device.connect().await;
    assert_eq!(start(&gateway, session).await, first.run_id());
    let waiting = enqueued(&talk, "waiting").await;
    let newest = message(&talk, "newest", "interrupt").send().await;
    assert_eq!((newest.status, &newest.json()["conversation_position"]), (202, &json!(2)), "{newest:?}");
    let interrupted = gateway.read(first.run_id()).await.json();
    assert_eq!(
        (&interrupted["state"], &interrupted["stop"]["requested_by"]),
        (&json!("cancelling"), &json!("application"))
    );
    let told = gateway.store().deliver(session, OrderSelection::New).await.expect("delivered");
    assert!(matches!(told[..], [(_, Order::Stop { run_id })] if run_id == first.run_id()), "{told:?}");
    let operation = interrupted["stop"]["operation_id"].as_str().expect("an operation");
    let operation = gateway.ask("GET", &format!("/api/v1/control-operations/{operation}")).send().await.json();
    assert_eq!(operation["state"], "delivered", "it is an operation like any other: {operation}");

    // Neither a repetition nor a second interruption stops anything else.
    message(&talk, "newest", "interrupt").send().await;
    message(&talk, "again", "interrupt").send().await;
    assert!(gateway.store().deliver(session, OrderSelection::New).await.expect("delivered").is_empty());
    report(&gateway, session, first.run_id(), cancelled()).await;
    assert_eq!(state(&gateway, first.run_id()).await, "cancelled");
    assert_eq!(talk.stands().await.2, Some(waiting.to_string()));
    assert_eq!(message(&talk, "newest", "interrupt").send().await.run_id(), newest.run_id());
    assert_eq!(state(&gateway, waiting).await, "queued", "a repetition interrupts nothing");

    // One that was not started yet ends at once.
    let last = message(&talk, "last", "interrupt").send().await;
    assert_eq!(state(&gateway, waiting).await, "cancelled");
    assert_eq!(last.json()["conversation_position"], 2, "behind \"newest\", which is active now, and \"again\"");
    assert_eq!(talk.stands().await.2, Some(newest.run_id().to_string()));
    gateway.stop().await;
}

#[tokio::test]
async fn what_is_not_accepted_interrupts_nothing() {
    let gateway = TestGateway::new().await;
    let talk = TestConversation::open(&gateway, "case").await;
    let active = talk.message("active", 1).send().await.run_id();
    let weak = gateway
        .device
        .restricted_key(|key| key.scopes = vec![Scope::ConversationsWrite, Scope::RunsWrite, Scope::RunsRead])
        .await
        .text;
    let refused = message(&talk, "weak", "interrupt").key(&weak).send().await;
    assert_eq!(
        (refused.code(), &refused.json()["required_scope"]),
        ("insufficient_scope".to_owned(), &json!("runs:control"))
    );
    assert_eq!(message(&talk, "weak", "enqueue").key(&weak).send().await.status, 202);
    let body = json!({ "expected_generation": 2, "on_busy": "interrupt", "input": { "text": "hello" } });
    let other = gateway.ask("POST", &talk.path("/messages")).header("Idempotency-Key", "other").json(&body);
    assert_eq!(other.send().await.code(), "generation_mismatch");
    for number in 1..MAX_WAITING_MESSAGES {
        enqueued(&talk, &number.to_string()).await;
    }
    assert_eq!(state(&gateway, active).await, "waiting_for_device", "nothing was stopped");
    for wrong in [json!("sometimes"), json!(7), json!(null)] {
        let body = json!({ "expected_generation": 1, "on_busy": wrong, "input": { "text": "hello" } });
        let refused =
            gateway.ask("POST", &talk.path("/messages")).header("Idempotency-Key", "w").json(&body).send().await;
        assert_eq!((refused.status, &refused.json()["errors"][0]["pointer"]), (422, &json!("/on_busy")), "{refused:?}");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_message_does_not_wait_for_a_reset() {
    let gateway = TestGateway::new().await;
    let talk = TestConversation::open(&gateway, "case").await;
    let reset = talk.reset("reset", 1).send().await.json();
    for on_busy in ["enqueue", "interrupt"] {
        let refused = message(&talk, on_busy, on_busy).send().await;
        assert_eq!((refused.status, refused.code()), (409, "conversation_busy".to_owned()));
        assert_eq!(refused.json()["operation_id"], reset["operation_id"]);
    }
    gateway.stop().await;
}

#[tokio::test]
async fn no_claim_of_any_program_takes_a_message_before_its_turn() {
    let gateway = TestGateway::new().await;
    let talk = TestConversation::open(&gateway, "case").await;
    let active = talk.message("active", 1).send().await.run_id();
    let waiting = enqueued(&talk, "waiting").await;
    let (session, _) = gateway.device.connect().await;
    gateway.database.execute("SELECT refill_run_queue()").await;
    let claim = format!(
        "UPDATE runs SET attempt = 1, offered_until = now() + interval '1 hour' WHERE run_id = '{}'",
        waiting.uuid()
    );
    gateway.database.execute(&claim).await;
    assert_eq!(start(&gateway, session).await, active);
    assert!(gateway.device.claim(session, 9).await.is_empty());
    report(&gateway, session, active, succeeded(1)).await;
    assert_eq!(execute(&gateway, session).await, waiting);
    gateway.stop().await;
}

/// Ends, stops, expiries and messages of one conversation at once, by two gateways: none is lost, and none waits for ever.
#[tokio::test]
async fn whatever_comes_together_no_message_is_left_waiting() {
    let gateway = TestGateway::new().await;
    let (replica, _dir) = gateway.replica().await;
    let talk = TestConversation::open(&gateway, "case").await;
    let (session, _) = gateway.device.connect().await;
    for round in 0..30 {
        let active = enqueued(&talk, &format!("active-{round}")).await;
        assert_eq!(start(&gateway, session).await, active);
        let next = enqueued(&talk, &format!("next-{round}")).await;
        let after = enqueued(&talk, &format!("after-{round}")).await;
        let due = format!("UPDATE runs SET queue_expires_at = now() WHERE run_id = '{}'", after.uuid());
        gateway.database.execute(&due).await;
        let late = message(&talk, &format!("late-{round}"), if round % 3 == 0 { "interrupt" } else { "enqueue" })
            .to(replica.addresses().http, &talk.path("/messages"));
        let (ended, stopped, expired, late) = tokio::join!(
            report(&gateway, session, active, succeeded(1)),
            stop(&gateway, next),
            gateway.store().expire_queued(LONG_LEASE),
            late.send(),
        );
        assert_eq!((ended, stopped.status, late.status), (RecordOutcome::Done, 202, 202), "{stopped:?} {late:?}");
        expired.expect("no deadlock");
        // An interruption may have met any of them, and itself waits for its turn.
        assert_eq!(execute(&gateway, session).await, late.run_id(), "round {round}");
        assert_eq!(talk.stands().await, ("idle".to_owned(), 1, None));
    }
    assert_eq!(gateway.database.number("SELECT count(*) FROM run_queue").await, 0);
    assert_eq!(gateway.database.number(ASTRAY_SQL).await, 0);
    replica.stop().await;
    gateway.stop().await;
}
