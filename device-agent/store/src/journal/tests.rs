//! The journal's guarantees, against a real file.

use std::time::Instant;

use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::control::ToolKind;
use deskgate_protocol::ids::EndpointId;
use deskgate_protocol::receipt::jws::{ReceiptSigner, SignedReceipt};
use deskgate_protocol::run::{Input, RunResult};

use super::*;
use crate::ledger::{IntentBasis, Plan, PlanPreview, PlannedCall};

fn offer(attempt: u32) -> Offer {
    Offer {
        run_id: RunId::new(),
        attempt,
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

fn next(offer: &Offer) -> Offer {
    Offer { attempt: offer.attempt + 1, ..offer.clone() }
}

fn answer() -> Outcome {
    let result = RunResult::completed("done");
    Outcome::Succeeded { result, usage: Usage::default() }
}

fn said() -> DeviceEvent {
    DeviceEvent::MessageCompleted { message_id: "m1".to_owned(), text: "done".to_owned(), reasoning_summary: None }
}

fn writing() -> PlannedCall {
    let plan = Plan { place: None, shown: PlanPreview::Arguments };
    let (call_id, tool, arguments) = ("call_1_1".to_owned(), "Write".to_owned(), serde_json::json!({}));
    PlannedCall { call_id, tool, kind: ToolKind::Write, arguments, plan }
}

struct TestDisk(tempfile::TempDir);

impl TestDisk {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("temporary folder"))
    }

    /// Opens the store as a restarted process does.
    async fn open(&self) -> Store {
        Store::open(self.0.path().join("deskgate.db"))
            .await
            .expect("opens")
            .signing_with(ReceiptSigner::from_seed([7; 32]))
    }
}

#[tokio::test]
async fn a_finish_comes_back_after_a_restart_with_its_number_and_unacknowledged_events() {
    let disk = TestDisk::new();
    let (offer, store) = (offer(1), disk.open().await);
    let journal = store.journal();
    assert_eq!(journal.take(&offer).await.expect("taken"), TakeOutcome::Fresh);
    assert_eq!(journal.start(offer.run_id, 1).await.expect("started"), StartOutcome::Execute);
    let signed = journal.finish(offer.run_id, 1, 8, &answer(), &[said()]).await.expect("finished");
    assert!(signed.is_some());
    drop((journal, store));
    let entries = disk.open().await.journal().recover().await.expect("readable");
    let ended = Some(EndedAttempt { seq: 8, outcome: answer(), receipt: signed, events: vec![said()] });
    assert_eq!(entries, [JournalEntry { offer, status: InFlightStatus::Finished, ended, settled: None }]);
}

#[tokio::test]
async fn a_run_that_ended_here_is_never_taken_as_new_work() {
    let disk = TestDisk::new();
    let (first, store) = (offer(1), disk.open().await);
    let journal = store.journal();
    journal.take(&first).await.expect("taken");
    journal.start(first.run_id, 1).await.expect("started");
    let signed = journal.finish(first.run_id, 1, 2, &answer(), &[]).await.expect("finished");
    journal.forget(first.run_id, 1).await.expect("settled");
    assert_eq!(journal.in_flight().await.expect("readable"), []);
    drop((journal, store));

    let store = disk.open().await;
    let journal = store.journal();
    let again = TakeOutcome::Ended(EndedAttempt { seq: 2, outcome: answer(), receipt: signed, events: Vec::new() });
    assert_eq!(journal.take(&first).await.expect("remembered"), again);
    let second = next(&first);
    assert_eq!(journal.take(&second).await.expect("taken"), TakeOutcome::Fresh);
    let StartOutcome::Ended { outcome, receipt } = journal.start(second.run_id, 2).await.expect("known") else {
        panic!("it begins again")
    };
    assert_eq!(outcome, answer());
    let signed = SignedReceipt::read(&receipt.expect("of this attempt")).expect("good");
    assert_eq!(signed.receipt.run.attempt, 2);
    assert_eq!(journal.take(&first).await.expect("known"), TakeOutcome::Stale);
}

#[tokio::test]
async fn a_run_cut_off_twice_executes_no_third_time_even_if_the_cut_attempts_were_revoked() {
    for revoked in [false, true] {
        let disk = TestDisk::new();
        let mut offer = offer(1);
        for _ in 0..MAX_CUT_OFFS {
            let store = disk.open().await;
            let journal = store.journal();
            journal.recover().await.expect("readable");
            assert_eq!(journal.take(&offer).await.expect("taken"), TakeOutcome::Fresh);
            assert_eq!(journal.start(offer.run_id, offer.attempt).await.expect("starts"), StartOutcome::Execute);
            drop((journal, store));
            let store = disk.open().await;
            let entries = store.journal().recover().await.expect("readable");
            assert_eq!(entries[0].status, InFlightStatus::Interrupted);
            if revoked {
                store.journal().forget(offer.run_id, offer.attempt).await.expect("settled");
            }
            offer = next(&offer);
        }
        let store = disk.open().await;
        let journal = store.journal();
        assert_eq!(journal.take(&offer).await.expect("taken"), TakeOutcome::Fresh);
        let started = journal.start(offer.run_id, offer.attempt).await.expect("known");
        let StartOutcome::Ended { outcome: Outcome::Failed { error, .. }, .. } = started else { panic!("{started:?}") };
        assert_eq!((error.code, error.effects, error.retryable), (RunErrorCode::Internal, Effects::None, true));
    }
}

#[tokio::test]
async fn a_run_that_was_revoked_after_it_began_to_write_is_not_executed_by_a_newer_offer() {
    let call = writing();
    for (writes, noted, wanted) in [
        (false, None, None),
        (true, None, Some(Effects::Possible)),
        (true, Some(false), Some(Effects::Possible)),
        (true, Some(true), Some(Effects::Known)),
    ] {
        let disk = TestDisk::new();
        let (offer, store) = (offer(1), disk.open().await);
        let (journal, ledger) = (store.journal(), store.ledger(offer.run_id, 1));
        journal.take(&offer).await.expect("taken");
        journal.start(offer.run_id, 1).await.expect("started");
        if writes {
            ledger.begin(call.clone(), IntentBasis::Rules).await.expect("written");
        }
        if let Some(ok) = noted {
            ledger.note(call.call_id.clone(), ok).await.expect("written");
        }
        journal.forget(offer.run_id, 1).await.expect("revoked");
        assert!(!journal.has_ended(offer.run_id).await.expect("readable"), "it had no end here");
        assert_eq!(journal.take(&offer).await.expect("known"), TakeOutcome::Stale);
        drop((journal, ledger, store));
        // The result is the same however often it is revoked and offered again, also after a restart.
        let mut offer = offer;
        for _ in 0..2 {
            offer = next(&offer);
            let store = disk.open().await;
            let journal = store.journal();
            assert_eq!(journal.take(&offer).await.expect("taken"), TakeOutcome::Fresh);
            journal.forget(offer.run_id, offer.attempt).await.expect("revoked");
        }
        offer = next(&offer);
        let journal = disk.open().await.journal();
        assert_eq!(journal.take(&offer).await.expect("taken"), TakeOutcome::Fresh);
        match (journal.start(offer.run_id, offer.attempt).await.expect("known"), wanted) {
            (StartOutcome::Execute, None) => {}
            (StartOutcome::Ended { outcome: Outcome::Failed { error, .. }, .. }, Some(effects)) => {
                assert_eq!((error.code, error.effects), (RunErrorCode::Interrupted, effects));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn the_owners_no_about_the_step_under_way_says_nothing_of_an_earlier_one_that_may_have_happened() {
    let (disk, offer) = (TestDisk::new(), offer(1));
    let store = disk.open().await;
    let (journal, ledger) = (store.journal(), store.ledger(offer.run_id, 1));
    journal.take(&offer).await.expect("taken");
    journal.start(offer.run_id, 1).await.expect("started");
    for call_id in ["call_1_1", "call_1_2"] {
        let arguments = serde_json::json!({ "of": call_id });
        let call = PlannedCall { call_id: call_id.to_owned(), arguments, ..writing() };
        ledger.begin(call, IntentBasis::Rules).await.expect("written");
    }
    drop((journal, ledger, store));
    let journal = disk.open().await.journal();
    journal.recover().await.expect("readable");
    let settled = journal.reconcile(offer.run_id, 1, reconcile::OwnerFinding::NotDone, "uid 1").await.expect("settled");
    let reconcile::Settlement::Ends(outcome) = settled else { panic!("{settled:?}") };
    let Outcome::Failed { error, .. } = *outcome else { panic!("{outcome:?}") };
    assert_eq!((error.effects, error.retryable), (Effects::Possible, false));
}

#[tokio::test]
async fn an_entry_that_was_only_taken_stays_taken() {
    let disk = TestDisk::new();
    let offer = offer(3);
    disk.open().await.journal().take(&offer).await.expect("taken");
    let store = disk.open().await;
    let entries = store.journal().recover().await.expect("readable");
    assert_eq!(entries[0].status, InFlightStatus::Taken);
    assert_eq!(store.journal().take(&offer).await.expect("known"), TakeOutcome::Stale);
}

#[tokio::test]
async fn an_entry_that_a_bad_disk_made_anothers_is_refused_and_not_told_as_that_ones() {
    for (damage, what) in [
        ("offer = replace(offer, run_id, 'run_018f3b6e000070008000000000000001')", "an offer"),
        ("offer = json_set(offer, '$.attempt', 2)", "an offer"),
        ("status = 'finisheb'", "the journal"),
        ("finish_seq = -1", "the number of an end"),
        ("finish_seq = 1", "the number of an end"),
    ] {
        let disk = TestDisk::new();
        let (offer, store) = (offer(1), disk.open().await);
        let journal = store.journal();
        journal.take(&offer).await.expect("taken");
        journal.start(offer.run_id, 1).await.expect("started");
        journal.finish(offer.run_id, 1, 2, &answer(), &[said()]).await.expect("finished");
        drop((journal, store));
        let connection = rusqlite::Connection::open(disk.0.path().join("deskgate.db")).expect("opens");
        connection.execute_batch("PRAGMA ignore_check_constraints = ON").expect("set");
        connection.execute(&format!("UPDATE run_journal SET {damage}"), []).expect("changed");
        drop(connection);
        let error = disk.open().await.journal().recover().await.expect_err(damage).to_string();
        assert!(error.contains("is damaged") && error.contains(what), "{damage}: {error}");
    }
}

#[tokio::test]
async fn a_full_disk_fails_the_write_and_leaves_the_journal_as_it_was() {
    let disk = TestDisk::new();
    let store = disk.open().await;
    let mut large = offer(1);
    large.input.text = "x".repeat(200_000);
    store.fill_up(true).await;
    assert!(matches!(store.journal().take(&large).await, Err(Error::Sqlite(_))));
    assert_eq!(store.journal().in_flight().await.expect("readable"), []);
    store.fill_up(false).await;
    assert_eq!(store.journal().take(&large).await.expect("space again"), TakeOutcome::Fresh);
}

#[tokio::test]
async fn what_is_not_there_cannot_start_or_finish() {
    let store = TestDisk::new().open().await;
    let journal = store.journal();
    let id = RunId::new();
    assert!(matches!(journal.start(id, 1).await, Err(Error::NoSuchEntry { .. })));
    assert!(matches!(journal.finish(id, 1, 1, &answer(), &[]).await, Err(Error::NoSuchEntry { .. })));
    journal.forget(id, 1).await.expect("nothing to do");
}

/// Takes, executes and settles so many runs.
async fn settled(store: &Store, count: i64) -> Vec<Offer> {
    let offers: Vec<_> = (0..count).map(|_| offer(1)).collect();
    for offer in &offers {
        let taken = offer.clone();
        let all = move |tx: &Transaction<'_>| {
            let (run_id, outcome) = (taken.run_id, text(&answer()));
            take(tx, run_id, 1, &text(&taken))?;
            start(tx, &ReceiptSigner::from_seed([7; 32]), run_id, 1)?;
            tx.execute(
                "UPDATE run_journal SET status = 'finished', finish_seq = 1, outcome = ?2, events = '[]' WHERE run_id = ?1",
                params![run_id.to_string(), outcome],
            )?;
            forget(tx, run_id, 1)
        };
        store.lazily(all).await.expect("settled");
    }
    offers
}

#[tokio::test]
async fn a_run_of_days_ago_is_not_executed_again_however_many_came_after() {
    let store = TestDisk::new().open().await;
    let journal = store.journal();
    let offers = settled(&store, MAX_REMEMBERED_OUTCOMES + 2 * TRIM_INTERVAL_RUNS).await;
    let outcomes = async || {
        let sql = "SELECT count(*), count(outcome) FROM past_run";
        let counts = |row: &Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?));
        store.lazily(move |tx| Ok(tx.query_row(sql, [], counts)?)).await.expect("counted")
    };
    let (known, with_outcome) = outcomes().await;
    assert_eq!(known, offers.len() as i64);
    assert!((MAX_REMEMBERED_OUTCOMES..MAX_REMEMBERED_OUTCOMES + TRIM_INTERVAL_RUNS).contains(&with_outcome));
    let TakeOutcome::Ended(ended) = journal.take(&offers[0]).await.expect("remembered") else { panic!("it ended") };
    assert_eq!((ended.seq, ended.outcome, ended.receipt), (1, ended_before(), None));
    // A gateway that was restored from a backup counts attempts anew, or goes on with them.
    let again = Offer { attempt: 2, ..offers[1].clone() };
    assert_eq!(journal.take(&again).await.expect("remembered"), TakeOutcome::Fresh);
    let StartOutcome::Ended { outcome, .. } = journal.start(again.run_id, 2).await.expect("known") else {
        panic!("it begins again")
    };
    assert_eq!(outcome, ended_before());
    let newest = offers.last().expect("many");
    let TakeOutcome::Ended(ended) = journal.take(newest).await.expect("remembered") else { panic!("it ended") };
    assert_eq!(ended.outcome, answer());
}

#[tokio::test]
async fn runs_are_remembered_for_as_long_as_a_gateway_may_offer_them_and_the_newest_for_longer() {
    let store = TestDisk::new().open().await;
    let journal = store.journal();
    let offers = settled(&store, MAX_REMEMBERED_OUTCOMES + 2).await;
    let age = async |seconds: i64| {
        let sql = "UPDATE past_run SET settled_at = (SELECT now FROM transcript_clock) - ?1";
        store.lazily(move |tx| Ok(tx.execute(sql, [seconds])?)).await.expect("written");
        journal.forget_old_answers().await.expect("forgotten");
    };
    age(REMEMBERED_SECONDS).await;
    assert!(journal.has_ended(offers[1].run_id).await.expect("readable"));
    age(REMEMBERED_SECONDS + 1).await;
    assert!(!journal.has_ended(offers[1].run_id).await.expect("readable"));
    assert!(journal.has_ended(offers[2].run_id).await.expect("readable"), "the newest stay");
}

#[tokio::test]
async fn a_journal_says_of_no_run_that_it_took_that_it_never_had_it_and_keeps_its_name() {
    let disk = TestDisk::new();
    let (taken, revoked, ended) = (offer(1), offer(1), offer(1));
    let (store, unknown) = (disk.open().await, [RunId::new(), RunId::new()]);
    let journal = store.journal();
    for offer in [&taken, &revoked, &ended] {
        journal.take(offer).await.expect("taken");
    }
    journal.forget(revoked.run_id, 1).await.expect("forgotten");
    journal.start(ended.run_id, 1).await.expect("started");
    journal.finish(ended.run_id, 1, 1, &answer(), &[]).await.expect("finished");
    journal.forget(ended.run_id, 1).await.expect("forgotten");
    let id = journal.id().await.expect("made");
    drop((journal, store));
    let journal = disk.open().await.journal();
    assert_eq!(journal.id().await.expect("kept"), id);
    let asked = [taken.run_id, unknown[0], revoked.run_id, ended.run_id, unknown[1]];
    assert_eq!(journal.never_had(asked.to_vec()).await.expect("readable"), unknown);
    assert_ne!(
        TestDisk::new().open().await.journal().id().await.expect("made"),
        id,
        "another database is another journal"
    );
}

#[tokio::test]
async fn the_cost_of_a_durable_write_is_shown() {
    let store = TestDisk::new().open().await;
    let journal = store.journal();
    let mut times = Vec::new();
    for _ in 0..200 {
        let offer = offer(1);
        let begun = Instant::now();
        journal.take(&offer).await.expect("taken");
        times.push(begun.elapsed());
    }
    times.sort();
    println!("durable journal write: p50 {:?}, p99 {:?}", times[100], times[198]);
}
