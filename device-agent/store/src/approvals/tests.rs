//! Each request gets exactly one answer, from any source at any time.

use std::sync::Arc;
use std::time::Duration;

use deskgate_definition::tool::{PlanPreview, PlannedCall};
use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::ids::EndpointId;
use serde_json::json;
use tokio::task::JoinSet;

use super::*;
use crate::ledger::{IntentBasis, Ledger, RequestDetails};

fn call(n: u32) -> PlannedCall {
    let plan = Plan { place: Some("a.txt".to_owned()), shown: PlanPreview::Arguments };
    let (call_id, tool) = (format!("call_1_{n}"), "Write".to_owned());
    PlannedCall { call_id, tool, kind: ToolKind::Write, arguments: json!({ "text": n }), plan }
}

fn asking(expiry: Duration) -> RequestDetails {
    let (endpoint_id, service, why) = (EndpointId::new(), "Writer".to_owned(), "I save it.".to_owned());
    RequestDetails { endpoint_id, service, subject: Some("customer-91".to_owned()), why, follows: None, expiry }
}

async fn disk() -> (tempfile::TempDir, Store, Ledger) {
    let home = tempfile::tempdir().expect("temporary folder");
    let store = Store::open(home.path().join("deskgate.db")).await.expect("opens");
    let ledger = store.ledger(RunId::new(), 1);
    (home, store, ledger)
}

const LONG_EXPIRY: Duration = Duration::from_secs(3600);

/// Two people and the expiry at once, ten thousand times: one answer each, and every other decision is reported as too
/// late.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_races_of_decisions_against_expiry_have_exactly_one_answer_each() {
    let (_home, store, ledger) = disk().await;
    let (rounds, width) = (10_000, 100);
    let store = Arc::new(store);
    let (mut decided, mut expired) = (0, 0);
    for round in 0..rounds / width {
        let mut races = JoinSet::new();
        for n in 0..width {
            let (store, ledger) = (Arc::clone(&store), ledger.clone());
            races.spawn(async move {
                // From 1 ms to 2 s: before, around and after the moment in which the decisions come.
                let expiry = Duration::from_millis(1 << (n % 12));
                let (id, _) = ledger.ask(call(round * width + n), asking(expiry)).await.expect("asked");
                let approvals = store.approvals();
                let (yes, no) = (Decision::Once, Decision::Deny { reason: None });
                let (waiting, yes, no) = tokio::join!(
                    ledger.answer(id, LONG_EXPIRY),
                    approvals.decide(id, yes, "uid 1"),
                    approvals.decide(id, no, "uid 2")
                );
                let (answer, yes, no) = (waiting.expect("read").state, yes.expect("read"), no.expect("read"));
                let winners = [&yes, &no].iter().filter(|decided| ***decided == DecisionOutcome::Counts).count();
                match answer {
                    ApprovalState::Approved => assert_eq!((yes, winners), (DecisionOutcome::Counts, 1)),
                    ApprovalState::Denied => assert_eq!((no, winners), (DecisionOutcome::Counts, 1)),
                    ApprovalState::Expired => assert_eq!(winners, 0, "never granted late"),
                    other => panic!("{other:?}"),
                }
                answer
            });
        }
        while let Some(answer) = races.join_next().await {
            match answer.expect("no panic") {
                ApprovalState::Expired => expired += 1,
                _ => decided += 1,
            }
        }
    }
    assert!(decided > 0 && expired > 0, "both sides win some: {decided} decided, {expired} expired");
    let audit = store.audit().list(None, 100_000).await.expect("readable");
    assert_eq!(audit.iter().filter(|row| row.what == "decided").count(), rounds as usize);
}

#[tokio::test]
async fn a_call_begins_by_an_approval_only_if_that_was_given_for_exactly_this_call() {
    let (_home, store, ledger) = disk().await;
    let (id, _) = ledger.ask(call(1), asking(LONG_EXPIRY)).await.expect("asked");
    let refused = async |call, by| matches!(ledger.begin(call, by).await, Err(Error::NotApproved { .. }));
    assert!(refused(call(1), IntentBasis::Approval(id)).await, "nobody decided yet");
    let counts = store.approvals().decide(id, Decision::Once, "uid 1").await.expect("decided");
    assert_eq!(counts, DecisionOutcome::Counts);
    assert!(refused(call(2), IntentBasis::Approval(id)).await, "other arguments");
    assert!(refused(call(1), IntentBasis::Grant(id)).await, "it was for once");
    let other_run = store.ledger(RunId::new(), 1);
    assert!(matches!(other_run.begin(call(1), IntentBasis::Approval(id)).await, Err(Error::NotApproved { .. })));
    ledger.begin(call(1), IntentBasis::Approval(id)).await.expect("approved");
    let (id, _) = ledger.ask(call(3), asking(LONG_EXPIRY)).await.expect("asked");
    store.approvals().decide(id, Decision::ForRun, "uid 1").await.expect("decided");
    ledger.begin(call(4), IntentBasis::Grant(id)).await.expect("granted");
    let elsewhere = PlannedCall { tool: "Bash".to_owned(), ..call(5) };
    assert!(refused(elsewhere, IntentBasis::Grant(id)).await, "another tool");
}

fn refused<T: std::fmt::Debug>(begun: &Result<T, Error>) -> bool {
    matches!(begun, Err(Error::AsksFirst))
}

#[tokio::test]
async fn a_call_that_may_have_happened_or_that_asked_before_begins_by_no_rule_in_no_attempt() {
    let (_home, store, first) = disk().await;
    let again = Ledger::new(store.clone(), first.run_id, 2);
    first.begin(call(1), IntentBasis::Rules).await.expect("the first");
    // By now the file is as the first left it.
    let shown = PlanPreview::Change { before: None, after: Sha256Digest::of(b"new"), diff: "+new".to_owned() };
    let place = call(1).plan.place;
    let equal = PlannedCall { call_id: "call_2_1".to_owned(), plan: Plan { place, shown }, ..call(1) };
    assert!(refused(&again.begin(equal.clone(), IntentBasis::Rules).await), "nobody knows what came of the first");
    let (id, _) = again.ask(call(2), asking(LONG_EXPIRY)).await.expect("asked");
    store.approvals().decide(id, Decision::ForRun, "uid 1").await.expect("decided");
    assert!(refused(&again.begin(equal.clone(), IntentBasis::Grant(id)).await), "nor by a grant");
    again.begin(call(3), IntentBasis::Rules).await.expect("another call");
    let (id, _) = again.ask(equal.clone(), asking(LONG_EXPIRY)).await.expect("asked");
    store.approvals().decide(id, Decision::Once, "uid 1").await.expect("decided");
    again.begin(equal.clone(), IntentBasis::Approval(id)).await.expect("a person's word");
    first.note("call_1_1".to_owned(), true).await.expect("noted");
    again.note("call_2_1".to_owned(), true).await.expect("noted");
    let once_more = PlannedCall { call_id: "call_2_2".to_owned(), ..equal };
    assert!(refused(&again.begin(once_more, IntentBasis::Rules).await), "it asked before");
    let other_run = store.ledger(RunId::new(), 1);
    other_run.begin(call(1), IntentBasis::Rules).await.expect("what another run did is no matter of this one");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_equal_calls_that_begin_at_once_without_a_person_one_begins() {
    let (_home, store, _) = disk().await;
    for _ in 0..50 {
        let run_id = RunId::new();
        let mut race = JoinSet::new();
        for attempt in 1..=8 {
            let ledger = Ledger::new(store.clone(), run_id, attempt);
            race.spawn(async move { ledger.begin(call(1), IntentBasis::Rules).await });
        }
        let begun = race.join_all().await;
        assert_eq!(begun.iter().filter(|begun| begun.is_ok()).count(), 1, "{begun:?}");
        assert_eq!(begun.iter().filter(|begun| refused(begun)).count(), 7, "{begun:?}");
        let intents = store.journal().evidence(run_id).await.expect("readable");
        assert_eq!(intents.len(), 1);
    }
}

#[tokio::test]
async fn a_clock_that_was_set_back_makes_no_request_live_longer() {
    let (_home, store, ledger) = disk().await;
    // As if the clock had been set back by an hour after it was asked.
    let (id, _) = ledger.ask(call(1), asking(LONG_EXPIRY * 2)).await.expect("asked");
    let answer = ledger.answer(id, Duration::from_millis(20)).await.expect("readable");
    assert_eq!((answer.state, answer.decided_by.as_deref()), (ApprovalState::Expired, Some("expiry")));
    let late = store.approvals().decide(id, Decision::Once, "uid 1").await.expect("readable");
    assert_eq!(late, DecisionOutcome::TooLate(ApprovalState::Expired));
}

#[tokio::test]
async fn a_clock_that_was_set_back_by_years_is_waited_for_no_longer_and_one_answer_counts() {
    let (_home, store, ledger) = disk().await;
    for decision in [Some(Decision::Once), None] {
        let (id, _) = ledger.ask(call(1), asking(LONG_EXPIRY)).await.expect("asked");
        let back = "UPDATE approval SET expires_at = expires_at + 100000000000 WHERE approval_id = ?1";
        store.durably(move |tx| Ok(tx.execute(back, [id.to_string()])?)).await.expect("three years");
        let (state, longest) = match decision {
            Some(decision) => {
                let counts = store.approvals().decide(id, decision, "uid 1").await.expect("decided");
                assert_eq!(counts, DecisionOutcome::Counts);
                (ApprovalState::Approved, LONG_EXPIRY)
            }
            None => (ApprovalState::Expired, Duration::from_millis(20)),
        };
        assert_eq!(ledger.answer(id, longest).await.expect("readable").state, state);
    }
}

#[tokio::test]
async fn a_request_that_was_let_go_has_expired_for_everybody_unless_it_was_answered_before() {
    let (_home, store, ledger) = disk().await;
    let (id, _) = ledger.ask(call(1), asking(LONG_EXPIRY)).await.expect("asked");
    assert_eq!(ledger.expire(id).await.expect("written"), ApprovalState::Expired);
    let late = store.approvals().decide(id, Decision::Once, "uid 1").await.expect("readable");
    assert_eq!(late, DecisionOutcome::TooLate(ApprovalState::Expired));
    let (id, _) = ledger.ask(call(2), asking(LONG_EXPIRY)).await.expect("asked");
    store.approvals().decide(id, Decision::Once, "uid 1").await.expect("decided");
    assert_eq!(ledger.expire(id).await.expect("written"), ApprovalState::Approved);
}

#[tokio::test]
async fn a_decision_after_the_time_is_over_loses_though_nobody_has_noticed_the_expiry() {
    let (_home, store, ledger) = disk().await;
    let (id, expires_at) = ledger.ask(call(1), asking(Duration::ZERO)).await.expect("asked");
    while Timestamp::now() <= expires_at {
        tokio::task::yield_now().await;
    }
    let late = store.approvals().decide(id, Decision::Once, "uid 1").await.expect("readable");
    assert_eq!(late, DecisionOutcome::TooLate(ApprovalState::Expired));
    let unknown = store.approvals().decide(ApprovalId::new(), Decision::Once, "uid 1").await.expect("readable");
    assert_eq!(unknown, DecisionOutcome::Unknown);
}

#[tokio::test]
async fn the_audit_only_grows_until_it_is_old() {
    let (_home, store, ledger) = disk().await;
    ledger.begin(PlannedCall { kind: ToolKind::Read, ..call(1) }, IntentBasis::Rules).await.expect("written");
    for tamper in [
        "UPDATE audit SET who = 'somebody else'",
        "DELETE FROM audit",
        "INSERT OR REPLACE INTO audit SELECT n, at, kept_from, what, 'me', run_id, attempt, call_id, tool, digest, NULL, NULL
         FROM audit",
    ] {
        let refused: Result<(), Error> = store.durably(move |tx| Ok(tx.execute_batch(tamper)?)).await;
        assert!(refused.expect_err(tamper).to_string().contains("only grows"), "{tamper}");
    }
    let rows = async || store.audit().list(None, 10).await.expect("readable").len();
    store.audit().forget_old().await.expect("nothing is old");
    assert_eq!(rows().await, 1);
    let year = "UPDATE transcript_clock SET now = now + 34560001";
    store.lazily(move |tx| Ok(tx.execute(year, [])?)).await.expect("time passes");
    store.audit().forget_old().await.expect("old by now");
    assert_eq!(rows().await, 0);
}

#[tokio::test]
async fn what_a_request_was_about_and_for_whom_outlives_its_run_for_its_own_time() {
    let (_home, store, ledger) = disk().await;
    let (id, _) = ledger.ask(call(1), asking(LONG_EXPIRY)).await.expect("asked");
    let read = async || store.approvals().get(id).await.expect("readable").expect("kept");
    store.journal().forget(ledger.run_id, 1).await.expect("settled");
    assert_eq!(read().await.state, ApprovalState::Withdrawn);
    let days = async |days: u32| {
        let sql = "UPDATE transcript_clock SET now = now + ?1 * 86400";
        store.lazily(move |tx| Ok(tx.execute(sql, [days])?)).await.expect("time passes");
        store.forget_old_calls().await.expect("looked");
    };
    days(30).await;
    assert_eq!(read().await.subject.as_deref(), Some("customer-91"));
    assert_eq!(read().await.arguments, Some(json!({ "text": 1 })));
    days(1).await;
    let Approval { subject, arguments, plan, why, .. } = read().await;
    assert_eq!((subject, arguments, plan, why.as_str()), (None, None, None, ""));
}

#[tokio::test]
async fn why_an_approved_call_was_not_carried_out_outlives_what_it_was_about() {
    let (_home, store, ledger) = disk().await;
    let (first, _) = ledger.ask(call(1), asking(LONG_EXPIRY)).await.expect("asked");
    store.approvals().decide(first, Decision::Once, "uid 1").await.expect("decided");
    let anew = RequestDetails { follows: Some(first), ..asking(LONG_EXPIRY) };
    let (second, _) = ledger.ask(call(1), anew).await.expect("asked anew");
    store.approvals().decide(second, Decision::Once, "uid 1").await.expect("decided");
    ledger.not_done(second, "the text is gone".to_owned()).await.expect("kept");
    store.journal().forget(ledger.run_id, 1).await.expect("settled");
    let requests = store.approvals().of_run(ledger.run_id).await.expect("readable");
    let told: Vec<_> = requests.iter().map(|one| (one.follows, one.followed_by, one.not_done.as_deref())).collect();
    assert_eq!(told, [(None, Some(second), None), (Some(first), None, Some("the text is gone"))]);
    let elsewhere = store.approvals().of_run(RunId::new()).await.expect("readable");
    assert_eq!(elsewhere, []);
}

#[tokio::test]
async fn no_statement_gives_a_request_a_second_answer() {
    let (_home, store, ledger) = disk().await;
    let (id, _) = ledger.ask(call(1), asking(LONG_EXPIRY)).await.expect("asked");
    store.approvals().decide(id, Decision::Deny { reason: None }, "uid 1").await.expect("decided");
    let tamper = "UPDATE approval SET state = 'approved'";
    let refused: Result<(), Error> = store.durably(move |tx| Ok(tx.execute_batch(tamper)?)).await;
    assert!(refused.expect_err("one answer").to_string().contains("one answer"));
}

#[tokio::test]
async fn requests_are_found_by_the_ends_of_their_identifiers() {
    let (_home, store, ledger) = disk().await;
    let other = store.ledger(RunId::new(), 1);
    let older = ledger.ask(call(1), asking(LONG_EXPIRY)).await.expect("asked").0.to_string();
    let newer = other.ask(call(1), asking(LONG_EXPIRY)).await.expect("asked").0.to_string();
    let find = async |end: &str| {
        let found = store.approvals().ids_by_end(end.to_owned()).await.expect("read");
        found.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    for id in [&older, &newer] {
        assert_eq!(find(&id[24..]).await, [id.as_str()]);
    }
    assert!(find("%").await.is_empty());
}
