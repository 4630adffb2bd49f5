//! What an owner can read of a run's tool calls, and for how long.

use deskgate_definition::tool::PlanPreview;
use deskgate_protocol::control::{Offer, ToolKind};
use deskgate_protocol::ids::{ConversationId, EndpointId};
use deskgate_protocol::receipt::jws::ReceiptSigner;
use deskgate_protocol::run::{Input, Outcome, RunResult, Usage};
use serde_json::json;

use super::*;
use crate::ledger::IntentBasis;

async fn open() -> (tempfile::TempDir, Store) {
    let home = tempfile::tempdir().expect("temporary folder");
    let store = Store::open(home.path().join("deskgate.db")).await.expect("opens");
    (home, store.signing_with(ReceiptSigner::from_seed([7; 32])))
}

fn planned(call_id: &str, kind: ToolKind) -> PlannedCall {
    let plan = Plan { place: Some("a.txt".to_owned()), shown: PlanPreview::Arguments };
    let arguments = json!({ "file_path": "a.txt" });
    PlannedCall { call_id: call_id.to_owned(), tool: "Read".to_owned(), kind, arguments, plan }
}

fn end(call_id: &str, output: &str) -> EndedCall {
    EndedCall {
        call_id: call_id.to_owned(),
        tool: "Read".to_owned(),
        arguments: json!({ "file_path": "a.txt" }),
        output: output.to_owned(),
        is_refused: false,
        is_error: false,
        is_unknown: false,
    }
}

fn message(conversation: Option<ConversationId>) -> Offer {
    Offer {
        run_id: RunId::new(),
        attempt: 1,
        endpoint_id: EndpointId::new(),
        endpoint_version: 1,
        definition_sha256: Sha256Digest::of(b"definition"),
        subject: None,
        input: Input { text: "work".to_owned(), more: serde_json::Map::new() },
        output: None,
        conversation,
        generation: conversation.map(|_| 1),
        max_duration_s: 60,
        traceparent: None,
        depth: 0,
    }
}

/// Executes a run with one call, and settles it.
async fn settled(store: &Store, offer: &Offer) {
    let journal = store.journal();
    journal.take(offer).await.expect("taken");
    journal.start(offer.run_id, 1).await.expect("started");
    let ledger = store.ledger(offer.run_id, 1);
    ledger.begin(planned("call_1_1", ToolKind::Read), IntentBasis::Rules).await.expect("begun");
    ledger.end_call(end("call_1_1", "twelve")).await;
    let result = RunResult::completed("done");
    let outcome = Outcome::Succeeded { result, usage: Usage::default() };
    journal.finish(offer.run_id, 1, 1, &outcome, &[]).await.expect("finished");
    journal.forget(offer.run_id, 1).await.expect("settled");
}

async fn days_pass(store: &Store, days: u32) {
    let sql = "UPDATE transcript_clock SET now = now + ?1 * 86400";
    store.lazily(move |tx| Ok(tx.execute(sql, [days])?)).await.expect("time passes");
    store.forget_old_calls().await.expect("looked");
}

#[tokio::test]
async fn a_call_is_read_with_what_it_was_to_do_and_what_came_of_it() {
    let (_home, store) = open().await;
    let run_id = RunId::new();
    let ledger = store.ledger(run_id, 1);
    for n in 1..=3 {
        let kind = if n == 3 { ToolKind::Write } else { ToolKind::Read };
        ledger.begin(planned(&format!("call_1_{n}"), kind), IntentBasis::Rules).await.expect("begun");
    }
    ledger.end_call(end("call_1_2", &"x".repeat(3 * MAX_PART_BYTES))).await;
    ledger.end_call(EndedCall { is_error: true, ..end("call_1_1", "no such file") }).await;
    ledger.end_call(EndedCall { is_error: true, is_unknown: true, ..end("call_1_3", "cut off") }).await;
    let calls = store.calls_of_run(run_id).await.expect("readable");
    let status: Vec<_> = calls.iter().map(|call| (call.call_id.as_str(), call.status)).collect();
    let expected = [("call_1_1", CallStatus::Error), ("call_1_2", CallStatus::Ok), ("call_1_3", CallStatus::Unknown)];
    assert_eq!(status, expected);
    let [first, long, _] = &calls[..] else { panic!("three calls") };
    assert_eq!(first.arguments.as_deref(), Some(r#"{"file_path":"a.txt"}"#));
    assert_eq!(first.plan.as_ref().and_then(|plan| plan.place.as_deref()), Some("a.txt"));
    assert_eq!(first.output.as_deref(), Some("no such file"));
    assert!(first.begun_at.is_some() && first.begun_at <= first.ended_at, "{first:?}");
    let output = long.output.as_deref().expect("kept");
    assert!(output.contains("bytes were left out here") && output.len() < 2 * MAX_PART_BYTES, "{}", output.len());
    let one = store.call_of_run(run_id, "call_1_1".to_owned()).await.expect("readable");
    assert_eq!(one.as_ref(), Some(first));
    assert_eq!(store.call_of_run(RunId::new(), "call_1_1".to_owned()).await.expect("readable"), None);
}

#[tokio::test]
async fn a_call_that_was_refused_is_kept_for_its_owner_and_is_not_in_the_receipt() {
    let (_home, store) = open().await;
    let run_id = RunId::new();
    let ledger = store.ledger(run_id, 1);
    ledger
        .end_call(EndedCall { is_refused: true, is_error: true, ..end("call_1_1", "the rules do not allow it") })
        .await;
    ledger.end_call(EndedCall { is_error: true, ..end("call_1_2", "no such file") }).await;
    let calls = store.calls_of_run(run_id).await.expect("readable");
    let [call, not_planned] = &calls[..] else { panic!("{calls:?}") };
    assert_eq!((not_planned.status, not_planned.begun_at), (CallStatus::Error, None));
    assert_eq!((call.status, call.begun_at), (CallStatus::NotRun, None));
    assert_eq!(call.output.as_deref(), Some("the rules do not allow it"));
    assert_eq!(store.lazily(move |tx| facts(tx, run_id)).await.expect("readable"), []);
}

#[tokio::test]
async fn the_calls_of_a_settled_run_go_when_their_time_is_over_and_those_of_an_open_run_stay() {
    let (_home, store) = open().await;
    let (over, open) = (message(None), message(None));
    settled(&store, &over).await;
    store.journal().take(&open).await.expect("taken");
    let ledger = store.ledger(open.run_id, 1);
    ledger.begin(planned("call_1_1", ToolKind::Read), IntentBasis::Rules).await.expect("begun");
    let kept = async |offer: &Offer| store.calls_of_run(offer.run_id).await.expect("readable").len();
    days_pass(&store, 30).await;
    assert_eq!((kept(&over).await, kept(&open).await), (1, 1));
    assert_eq!(store.calls_older_than(29).await.expect("counted"), (2, 2));
    days_pass(&store, 1).await;
    assert_eq!((kept(&over).await, kept(&open).await), (0, 1));
}

#[tokio::test]
async fn calls_are_kept_no_longer_than_the_gateway_keeps_their_runs() {
    let (_home, store) = open().await;
    let offer = message(None);
    settled(&store, &offer).await;
    store.settings().set_gateway_retention(Some(7 * 86400)).await.expect("noted");
    days_pass(&store, 8).await;
    assert_eq!(store.calls_of_run(offer.run_id).await.expect("readable"), []);
}

#[tokio::test]
async fn a_conversation_that_is_forgotten_takes_the_calls_of_its_runs_along() {
    let (_home, store) = open().await;
    let conversation = ConversationId::new();
    let (inside, other) = (message(Some(conversation)), message(Some(ConversationId::new())));
    settled(&store, &inside).await;
    settled(&store, &other).await;
    store.transcripts().close(conversation, 1).await.expect("closed");
    let kept = async |offer: &Offer| store.calls_of_run(offer.run_id).await.expect("readable").len();
    assert_eq!((kept(&inside).await, kept(&other).await), (0, 1));
}

#[tokio::test]
async fn calls_of_an_attempt_that_was_settled_are_not_in_the_receipt_of_the_next_one() {
    let (_home, store) = open().await;
    let offer = message(None);
    store.journal().take(&offer).await.expect("taken");
    store.journal().start(offer.run_id, 1).await.expect("started");
    let begin = async |attempt: u32, call_id: &str| {
        let ledger = store.ledger(offer.run_id, attempt);
        ledger.begin(planned(call_id, ToolKind::Read), IntentBasis::Rules).await.expect("begun");
    };
    begin(1, "call_1_1").await;
    store.journal().forget(offer.run_id, 1).await.expect("revoked");
    store.journal().take(&Offer { attempt: 2, ..offer.clone() }).await.expect("taken");
    begin(2, "call_2_1").await;
    let run_id = offer.run_id;
    let facts = store.lazily(move |tx| facts(tx, run_id)).await.expect("readable");
    assert_eq!(facts.iter().map(|call| call.attempt).collect::<Vec<_>>(), [2]);
    assert_eq!(store.calls_of_run(run_id).await.expect("readable").len(), 2, "the owner reads both");
}

#[tokio::test]
async fn a_reset_takes_nothing_from_an_open_run_and_all_of_it_once_it_is_settled() {
    let (_home, store) = open().await;
    let conversation = ConversationId::new();
    let offer = message(Some(conversation));
    store.journal().take(&offer).await.expect("taken");
    store.journal().start(offer.run_id, 1).await.expect("started");
    let asking = crate::ledger::RequestDetails {
        endpoint_id: offer.endpoint_id,
        service: "invoices".to_owned(),
        subject: Some("customer-91".to_owned()),
        why: "because".to_owned(),
        follows: None,
        expiry: std::time::Duration::from_secs(3600),
    };
    let ledger = store.ledger(offer.run_id, 1);
    let (id, _) = ledger.ask(planned("call_1_1", ToolKind::Write), asking).await.expect("asked");
    store.transcripts().close(conversation, 1).await.expect("closed");
    assert_eq!(store.calls_of_run(offer.run_id).await.expect("readable").len(), 1);
    store.journal().forget(offer.run_id, 1).await.expect("revoked");
    assert_eq!(store.calls_of_run(offer.run_id).await.expect("readable"), []);
    let request = store.approvals().get(id).await.expect("readable").expect("kept");
    assert_eq!((request.arguments, request.plan, request.subject), (None, None, None));
}
