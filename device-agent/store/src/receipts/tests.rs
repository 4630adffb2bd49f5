//! The chain's guarantees, against a real file.

use deskgate_protocol::control::ToolKind;
use deskgate_protocol::identity::PublicKey;
use deskgate_protocol::receipt::chain::ChainCheck;
use deskgate_protocol::receipt::{ApprovalDecision, CallStatus};
use deskgate_protocol::run::{Effects, Input, RunError, RunErrorCode, RunResult, Usage};
use serde_json::json;

use super::*;
use crate::approvals::Decision;
use crate::journal::reconcile::OwnerFinding;
use crate::journal::{StartOutcome, TakeOutcome};
use crate::ledger::{EndedCall, IntentBasis, Plan, PlanPreview, PlannedCall, RequestDetails};

fn signer() -> ReceiptSigner {
    ReceiptSigner::from_seed([7; 32])
}

async fn open(home: &tempfile::TempDir) -> Store {
    Store::open(home.path().join("deskgate.db")).await.expect("opens").signing_with(signer())
}

fn home() -> tempfile::TempDir {
    tempfile::tempdir().expect("temporary folder")
}

fn offer() -> Offer {
    Offer {
        run_id: RunId::new(),
        attempt: 1,
        endpoint_id: EndpointId::new(),
        endpoint_version: 1,
        definition_sha256: Sha256Digest::of(b"definition"),
        subject: Some("customer-91".to_owned()),
        input: Input { text: "work".to_owned(), more: serde_json::Map::new() },
        output: None,
        conversation: None,
        generation: None,
        max_duration_s: 60,
        traceparent: None,
        depth: 0,
    }
}

fn answer() -> Outcome {
    let result = RunResult::completed("done");
    Outcome::Succeeded { result, usage: Usage::default() }
}

fn call(call_id: &str, kind: ToolKind) -> PlannedCall {
    let plan = Plan { place: None, shown: PlanPreview::Arguments };
    let tool = if kind == ToolKind::Read { "Read" } else { "Write" }.to_owned();
    PlannedCall { call_id: call_id.to_owned(), tool, kind, arguments: json!({ "file_path": call_id }), plan }
}

/// The whole chain; it holds, and is signed by the device's key.
async fn chain(store: &Store) -> Vec<SignedReceipt> {
    let read = |jws: &String| SignedReceipt::read(jws).expect("good");
    let receipts: Vec<_> = store.receipts().after(0, 1000).await.expect("readable").iter().map(read).collect();
    let mut check = ChainCheck::whole();
    for receipt in &receipts {
        assert_eq!(check.next(receipt), []);
        assert_eq!(receipt.key, signer().public_key());
    }
    receipts
}

fn answers(chain: &[SignedReceipt]) -> Vec<OfferAnswer> {
    let answer = |signed: &SignedReceipt| match &signed.receipt.entry {
        ReceiptEntry::Offer(offer) => Some(offer.answer),
        ReceiptEntry::Outcome(_) => None,
    };
    chain.iter().filter_map(answer).collect()
}

fn outcomes(chain: &[SignedReceipt]) -> Vec<OutcomeFacts> {
    let outcome = |signed: &SignedReceipt| match &signed.receipt.entry {
        ReceiptEntry::Outcome(outcome) => Some(outcome.clone()),
        ReceiptEntry::Offer(_) => None,
    };
    chain.iter().filter_map(outcome).collect()
}

#[tokio::test]
async fn each_offer_and_each_outcome_stands_once_in_the_chain_however_often_it_is_repeated() {
    let home = home();
    let (offer, mut signed) = (offer(), Vec::new());
    for process in 0..2 {
        let store = open(&home).await;
        let journal = store.journal();
        let taken = journal.take(&offer).await.expect("taken");
        assert_eq!(taken == TakeOutcome::Fresh, process == 0);
        if process == 0 {
            journal.start(offer.run_id, 1).await.expect("started");
        }
        for _ in 0..2 {
            signed.push(journal.finish(offer.run_id, 1, 1, &answer(), &[]).await.expect("finished"));
        }
    }
    let store = open(&home).await;
    let chain = chain(&store).await;
    assert_eq!(answers(&chain), [OfferAnswer::Taken, OfferAnswer::EndedBefore]);
    let [outcome] = &outcomes(&chain)[..] else { panic!("one outcome") };
    assert!(outcome.fits(&answer()) && outcome.started_at.is_some());
    assert!(signed.iter().all(|one| one.is_some() && *one == signed[0]), "the same each time");
    let other = Outcome::Cancelled { effects: Effects::None, usage: Usage::default() };
    let unfit = store.journal().finish(offer.run_id, 1, 1, &other, &[]).await.expect("written");
    assert_eq!(unfit, None, "a receipt of another outcome is not sent with this one");
}

#[tokio::test]
async fn a_refused_offer_stands_in_the_chain_and_one_with_another_input_stands_there_too() {
    let home = home();
    let store = open(&home).await;
    let offer = offer();
    for answer in [OfferAnswer::Busy, OfferAnswer::Busy, OfferAnswer::DefinitionMismatch] {
        store.journal().answered(&offer, answer, 0).await.expect("signed");
    }
    let mut other = offer.clone();
    other.input.text = "other work".to_owned();
    store.journal().answered(&other, OfferAnswer::Busy, 4).await.expect("signed");
    let chain = chain(&store).await;
    assert_eq!(answers(&chain), [OfferAnswer::Busy, OfferAnswer::DefinitionMismatch, OfferAnswer::Busy]);
    assert_ne!(chain[0].receipt.run.input_sha256, chain[2].receipt.run.input_sha256);
    assert!(matches!(&chain[2].receipt.entry, ReceiptEntry::Offer(offer) if offer.unlisted == 4));
    assert_eq!((chain[0].receipt.run.app_id, chain[0].receipt.run.subject_tag), (None, None), "no such service here");
}

#[tokio::test]
async fn the_receipt_of_a_run_names_its_calls_with_what_the_owner_decided() {
    let home = home();
    let store = open(&home).await;
    let (offer, asking) = (offer(), || RequestDetails {
        endpoint_id: EndpointId::new(),
        service: "invoices".to_owned(),
        subject: None,
        why: "because".to_owned(),
        follows: None,
        expiry: std::time::Duration::from_secs(3600),
    });
    store.journal().take(&offer).await.expect("taken");
    store.journal().start(offer.run_id, 1).await.expect("started");
    let ledger = store.ledger(offer.run_id, 1);
    ledger.begin(call("read", ToolKind::Read), IntentBasis::Rules).await.expect("begun");
    let ended = EndedCall {
        call_id: "read".to_owned(),
        tool: "Read".to_owned(),
        arguments: call("read", ToolKind::Read).arguments,
        output: "There is no such file.".to_owned(),
        is_refused: false,
        is_error: true,
        is_unknown: false,
    };
    ledger.end_call(ended).await;
    let (approved, _) = ledger.ask(call("yes", ToolKind::Write), asking()).await.expect("asked");
    store.approvals().decide(approved, Decision::Once, "anna").await.expect("decided");
    ledger.begin(call("yes", ToolKind::Write), IntentBasis::Approval(approved)).await.expect("begun");
    ledger.note("yes".to_owned(), true).await.expect("noted");
    let (denied, _) = ledger.ask(call("no", ToolKind::Write), asking()).await.expect("asked");
    store.approvals().decide(denied, Decision::Deny { reason: None }, "anna").await.expect("decided");
    let (open_still, _) = ledger.ask(call("late", ToolKind::Write), asking()).await.expect("asked");
    store.journal().finish(offer.run_id, 1, 1, &answer(), &[]).await.expect("finished");
    let chain = chain(&store).await;
    let [outcome] = &outcomes(&chain)[..] else { panic!("one outcome") };
    assert_eq!(outcome.effects, Effects::Known);
    let said: Vec<_> = outcome
        .tools
        .iter()
        .map(|call| (call.name.as_str(), call.status, call.approval.as_ref().map(|asked| (asked.id, asked.decision))))
        .collect();
    assert_eq!(
        said,
        [
            ("Read", CallStatus::Error, None),
            ("Write", CallStatus::Ok, Some((approved, ApprovalDecision::Approved))),
            ("Write", CallStatus::NotRun, Some((denied, ApprovalDecision::Denied))),
            ("Write", CallStatus::NotRun, Some((open_still, ApprovalDecision::Withdrawn))),
        ]
    );
    let args = Sha256Digest::of(br#"{"file_path":"yes"}"#);
    assert_eq!(outcome.tools[1].args_sha256, args);
}

#[tokio::test]
async fn the_owners_decision_is_signed_as_the_owners_and_sent_as_it_was_signed() {
    let home = home();
    let offer = offer();
    let store = open(&home).await;
    store.journal().take(&offer).await.expect("taken");
    store.journal().start(offer.run_id, 1).await.expect("started");
    store.ledger(offer.run_id, 1).begin(call("w", ToolKind::Write), IntentBasis::Rules).await.expect("begun");
    drop(store);
    let store = open(&home).await;
    let journal = store.journal();
    journal.recover().await.expect("readable");
    journal.reconcile(offer.run_id, 1, OwnerFinding::Finished, "anna").await.expect("settled");
    let [entry] = &journal.recover().await.expect("readable")[..] else { panic!("one run") };
    let Some(crate::journal::reconcile::Settlement::Ends(outcome)) = &entry.settled else { panic!("it ends") };
    let sent = journal.finish(offer.run_id, 1, 5, outcome, &[]).await.expect("finished").expect("signed");
    let chain = chain(&store).await;
    let [signed] = &outcomes(&chain)[..] else { panic!("one outcome") };
    assert_eq!((signed.decided_by, signed.effects), (OutcomeDecider::Owner, Effects::Known));
    assert_eq!(signed.tools[0].status, CallStatus::Unknown);
    assert_eq!(SignedReceipt::read(&sent).expect("good").sha256, chain[1].sha256);
}

#[tokio::test]
async fn an_outcome_that_later_attempts_end_with_is_signed_for_each_of_them() {
    let home = home();
    let store = open(&home).await;
    let (journal, mut offer) = (store.journal(), offer());
    journal.take(&offer).await.expect("taken");
    journal.start(offer.run_id, 1).await.expect("started");
    journal.finish(offer.run_id, 1, 1, &answer(), &[]).await.expect("finished");
    journal.forget(offer.run_id, 1).await.expect("settled");
    offer.attempt = 2;
    journal.take(&offer).await.expect("taken");
    let StartOutcome::Ended { receipt, .. } = journal.start(offer.run_id, 2).await.expect("known") else {
        panic!("it begins again")
    };
    let chain = chain(&store).await;
    let attempts: Vec<_> = chain.iter().map(|signed| signed.receipt.run.attempt).collect();
    assert_eq!((attempts, outcomes(&chain).len()), (vec![1, 1, 2, 2], 2));
    assert_eq!(SignedReceipt::read(&receipt.expect("signed")).expect("good"), chain[3]);
}

#[tokio::test]
async fn nothing_is_taken_out_of_the_chain_and_its_newest_outlives_every_year() {
    let home = home();
    let store = open(&home).await;
    for _ in 0..3 {
        store.journal().answered(&offer(), OfferAnswer::Busy, 0).await.expect("signed");
    }
    for refused in [
        "UPDATE receipt SET jws = 'other' WHERE device_seq = 2",
        "DELETE FROM receipt WHERE device_seq = 2",
        "INSERT OR REPLACE INTO receipt SELECT 2, kept_from, run_id, attempt, kind, 'x', sha256, jws FROM receipt LIMIT 1",
        "INSERT INTO receipt SELECT 9, kept_from, run_id, attempt, kind, 'x', sha256, jws FROM receipt LIMIT 1",
    ] {
        let done = store.durably(move |tx| Ok(tx.execute(refused, [])?)).await;
        assert!(done.is_err(), "{refused}");
    }
    assert_eq!(chain(&store).await.len(), 3);
    let a_year_on = "UPDATE transcript_clock SET now = now + 401 * 86400";
    store.durably(move |tx| Ok(tx.execute(a_year_on, [])?)).await.expect("written");
    store.audit().forget_old().await.expect("forgotten");
    assert_eq!(chain(&store).await.iter().map(|signed| signed.receipt.device_seq).collect::<Vec<_>>(), [3]);
    store.journal().answered(&offer(), OfferAnswer::Busy, 0).await.expect("signed");
    assert_eq!(chain(&store).await.len(), 2, "the chain goes on where it was");
}

#[tokio::test]
async fn a_new_identity_goes_on_in_the_chain_of_the_old_one() {
    let home = home();
    open(&home).await.journal().answered(&offer(), OfferAnswer::Busy, 0).await.expect("signed");
    let renewed = ReceiptSigner::from_seed([8; 32]);
    let store = Store::open(home.path().join("deskgate.db")).await.expect("opens").signing_with(renewed.clone());
    store.journal().answered(&offer(), OfferAnswer::Busy, 0).await.expect("signed");
    let jws = store.receipts().after(0, 9).await.expect("readable");
    let read: Vec<_> = jws.iter().map(|jws| SignedReceipt::read(jws).expect("good")).collect();
    assert_eq!(
        read.iter().map(|one| one.key).collect::<Vec<PublicKey>>(),
        [signer().public_key(), renewed.public_key()]
    );
    let mut check = ChainCheck::whole();
    assert!(read.iter().all(|one| check.next(one).is_empty()));
}

#[tokio::test]
async fn without_the_devices_key_no_run_is_taken() {
    let home = home();
    let store = Store::open(home.path().join("deskgate.db")).await.expect("opens");
    assert!(matches!(store.journal().take(&offer()).await, Err(Error::NoKey)));
    assert_eq!(store.journal().in_flight().await.expect("readable"), []);
}

#[tokio::test]
async fn an_answer_that_was_forgotten_is_sent_without_the_receipt_of_the_one_before() {
    let home = home();
    let store = open(&home).await;
    let (journal, offer) = (store.journal(), offer());
    journal.take(&offer).await.expect("taken");
    journal.start(offer.run_id, 1).await.expect("started");
    journal.finish(offer.run_id, 1, 1, &answer(), &[]).await.expect("finished");
    journal.forget(offer.run_id, 1).await.expect("settled");
    let sql = "UPDATE transcript_clock SET now = now + 91 * 86400";
    store.durably(move |tx| Ok(tx.execute(sql, [])?)).await.expect("written");
    journal.forget_old_answers().await.expect("forgotten");
    let TakeOutcome::Ended(ended) = journal.take(&offer).await.expect("remembered") else { panic!("it ended") };
    assert_eq!((ended.receipt, ended.outcome == answer()), (None, false));
    let error =
        RunError { code: RunErrorCode::Internal, message: String::new(), retryable: true, effects: Effects::None };
    let failed = Outcome::Failed { error, usage: Usage::default() };
    assert!(!outcomes(&chain(&store).await)[0].fits(&failed));
}
