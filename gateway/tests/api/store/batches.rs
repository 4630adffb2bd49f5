//! What devices report at one moment: a batch is the sequence of its records, and each session answers for its own.

use std::sync::{Arc, Mutex, PoisonError};

use deskgate_gateway::store::attempts::{AttemptRecord, AttemptUpdate, RecordOutcome, Reports};
use deskgate_gateway::store::commit_limit::CommitLimit;
use deskgate_gateway::store::leases::SessionKey;
use deskgate_program::tasks::Tasks;
use deskgate_protocol::run::EventType::{
    MessageCompleted, RunAccepted, RunApprovalResolved, RunAwaitingApproval, RunStarted, RunSucceeded,
};
use deskgate_protocol::{ApprovalId, RunId};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use tokio_util::sync::CancellationToken;

use super::{TestStore, closed, events, failed, opened, quoted, succeeded};
use crate::support::gateway::{DeviceFixture, LONG_LEASE};
use crate::support::until;

const DONE: RecordOutcome = RecordOutcome::Done;

fn record(run_id: RunId, what: AttemptUpdate) -> AttemptRecord {
    AttemptRecord { run_id, attempt: 1, what }
}

/// The entrance of a gateway.
fn entrance(test_store: &TestStore) -> (Reports, Tasks) {
    let tasks = Tasks::new(CancellationToken::new());
    (Reports::start(&test_store.store, &tasks, &CommitLimit::fixed(2), LONG_LEASE), tasks)
}

/// A device of its own with a session, and runs that it has started.
async fn second_device(test_store: &TestStore, runs: usize) -> (SessionKey, Vec<RunId>) {
    let device = DeviceFixture::pair(&test_store.store).await;
    let (session, _) = device.connect().await;
    let mut started = Vec::new();
    for _ in 0..runs {
        let run_id = test_store.queue_for(device.endpoint).await;
        device.claim(session, 1).await;
        assert_eq!(test_store.one(session, run_id, 1, AttemptUpdate::Start).await, DONE);
        started.push(run_id);
    }
    (session, started)
}

#[tokio::test]
async fn an_end_with_its_events_is_one_change_and_stored_as_if_they_had_come_one_by_one() {
    let test_store = TestStore::new().await;
    let (session, _) = test_store.device.connect().await;
    let (plain, repeated, asking) =
        (test_store.started(session).await, test_store.started(session).await, test_store.started(session).await);
    let request = ApprovalId::new();
    test_store.one(session, repeated, 1, events(1, 2)).await;
    test_store.one(session, asking, 1, opened(1, request)).await;
    // Counts the row's versions.
    let counting = "CREATE TABLE versions (run_id uuid);
        CREATE FUNCTION count_version() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN INSERT INTO versions VALUES (NEW.run_id); RETURN NULL; END $$;
        CREATE TRIGGER count_version AFTER UPDATE ON runs FOR EACH ROW EXECUTE FUNCTION count_version()";
    test_store.database.execute(counting).await;
    let records = [
        record(plain, events(1, 2)),
        record(repeated, events(2, 2)),
        record(asking, events(2, 1)),
        record(plain, succeeded(3)),
        record(repeated, succeeded(4)),
        record(asking, succeeded(3)),
    ];
    let outcomes = test_store.store.record(session, &records, LONG_LEASE).await.expect("written");
    assert_eq!(outcomes, [DONE; 6]);
    let said = MessageCompleted;
    assert_eq!(test_store.events(plain).await, [RunAccepted, RunStarted, said, said, RunSucceeded]);
    assert_eq!(test_store.events(repeated).await, [RunAccepted, RunStarted, said, said, said, RunSucceeded]);
    assert_eq!(
        test_store.events(asking).await,
        [RunAccepted, RunStarted, RunAwaitingApproval, said, RunApprovalResolved, RunSucceeded]
    );
    let changes = format!("SELECT count(*) FROM versions WHERE run_id = {}", quoted(plain.uuid()));
    assert_eq!(test_store.database.value(&changes).await, "1");
}

#[tokio::test]
async fn what_sessions_report_together_is_judged_for_each_and_a_report_that_cannot_be_stored_fails_alone() {
    let test_store = TestStore::new().await;
    let (session, _) = test_store.device.connect().await;
    let run_id = test_store.started(session).await;
    let (other_session, others) = second_device(&test_store, 2).await;
    let foreign = test_store.started(session).await;
    let (reports, _tasks) = entrance(&test_store);
    // PostgreSQL stores no text with this character.
    let AttemptUpdate::End { seq, outcome, .. } = succeeded(1) else { unreachable!("it is an end") };
    let broken = AttemptUpdate::End { seq, outcome, is_checked: false, receipt: Some("\0".to_owned()) };
    let of = |records: Vec<AttemptRecord>| -> Arc<[AttemptRecord]> { records.into() };
    // All wait before a committer begins: nothing is polled in between.
    let (one, other, bad) = tokio::join!(
        reports.record(session, of(vec![record(run_id, events(1, 1)), record(run_id, succeeded(2))])),
        reports.record(other_session, of(vec![record(others[0], succeeded(1)), record(foreign, succeeded(1))])),
        reports.record(other_session, of(vec![record(others[1], broken)])),
    );
    assert_eq!(one.expect("stored"), [DONE, DONE]);
    let unknown = RecordOutcome::Revoked(deskgate_protocol::control::RevokeCode::UnknownRun);
    assert_eq!(other.expect("stored"), [DONE, unknown]);
    bad.expect_err("cannot be stored");
    assert_eq!(test_store.row(run_id).await.0, "succeeded");
    assert_eq!(test_store.row(foreign).await.0, "running", "another device says nothing about it");
    for (run_id, state) in others.into_iter().zip(["succeeded", "running"]) {
        let stored = format!("SELECT state FROM runs WHERE run_id = {}", quoted(run_id.uuid()));
        assert_eq!(test_store.database.value(&stored).await, state);
    }
}

#[tokio::test]
async fn what_waits_when_a_gateway_stops_is_still_written_and_what_comes_later_is_refused() {
    let test_store = TestStore::new().await;
    let (session, _) = test_store.device.connect().await;
    let (one, other) = (test_store.started(session).await, test_store.started(session).await);
    let (reports, tasks) = entrance(&test_store);
    let waiting = reports.record(session, vec![record(one, succeeded(1))].into());
    let (written, stopped) = tokio::join!(waiting, tasks.stop(LONG_LEASE));
    assert!(stopped);
    assert_eq!(written.expect("written"), [DONE]);
    reports.record(session, vec![record(other, succeeded(1))].into()).await.expect_err("nobody writes it");
    assert_eq!(test_store.row(other).await.0, "running");
}

#[tokio::test]
async fn two_sessions_that_name_one_run_are_each_judged_and_the_other_device_changes_nothing() {
    let test_store = TestStore::new().await;
    let (session, _) = test_store.device.connect().await;
    let run_id = test_store.started(session).await;
    let (other_session, _) = second_device(&test_store, 0).await;
    let (reports, _tasks) = entrance(&test_store);
    let unknown = RecordOutcome::Revoked(deskgate_protocol::control::RevokeCode::UnknownRun);
    // More steps than share a commit, whoever says them.
    let many: Vec<_> = (1..=6).map(|seq| record(run_id, events(seq, 1))).collect();
    let end = vec![record(run_id, failed(1))];
    let (own, foreign, foreign_end) = tokio::join!(
        reports.record(session, many.clone().into()),
        reports.record(other_session, many.into()),
        reports.record(other_session, end.into()),
    );
    assert_eq!(own.expect("stored"), [DONE; 6]);
    assert_eq!(foreign.expect("judged"), [unknown; 6]);
    assert_eq!(foreign_end.expect("judged"), [unknown]);
    assert_eq!(test_store.row(run_id).await.0, "running");
    assert_eq!(test_store.events(run_id).await.len(), 8);
}

#[tokio::test]
async fn plans_that_were_made_while_there_were_few_runs_read_only_the_runs_that_are_named() {
    let test_store = TestStore::new().await;
    let (session, _) = test_store.device.connect().await;
    test_store.database.execute("ALTER TABLE runs SET (autovacuum_enabled = off)").await;
    let through = async |pairs: usize| {
        for _ in 0..pairs {
            let (one, other) = (test_store.queue().await, test_store.queue().await);
            test_store.device.claim(session, 2).await;
            for what in [AttemptUpdate::Start, events(1, 1), succeeded(2)] {
                let records = [record(one, what.clone()), record(other, what)];
                let outcomes = test_store.store.record(session, &records, LONG_LEASE).await.expect("written");
                assert_eq!(outcomes, [DONE; 2]);
            }
        }
    };
    through(10).await;
    test_store.database.execute("VACUUM ANALYZE runs").await;
    // The plans of now are kept.
    through(10).await;
    let many =
        "INSERT INTO runs SELECT (jsonb_populate_record(r, jsonb_build_object('run_id', gen_random_uuid(), 'identity',
            '\\x' || encode(sha256(uuid_send(gen_random_uuid())), 'hex')))).*
        FROM (SELECT r FROM runs r WHERE state = 'succeeded' LIMIT 1) one, generate_series(1, 10000)";
    test_store.database.execute(many).await;
    test_store.database.execute("SELECT pg_stat_reset()").await;
    through(10).await;
    let TestStore { database, store, device } = test_store;
    drop((store, device));
    let open = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";
    until("its connections to be closed", async || database.value(open).await == "0").await;
    let blocks = "SELECT heap_blks_read + heap_blks_hit + idx_blks_read + idx_blks_hit FROM pg_statio_user_tables
        WHERE relname = 'runs'";
    let blocks: f64 = database.value(blocks).await.parse().expect("a number");
    // Two hundred for each run is what all its steps read; the whole table has more than a thousand.
    assert!(blocks / 20.0 < 200.0, "{blocks} blocks for 20 runs");
}

/// What a device may say about a run, and how far from what is due.
#[derive(Clone, Copy, Debug)]
enum Said {
    Start,
    Return,
    Events { from: u64, count: u64 },
    End { seq: u64, succeeds: bool },
    Open { seq: u64 },
    Close { seq: u64 },
    Mismatch,
    Lose,
    Reconcile,
    Unknown,
    Restart,
}

impl Said {
    fn update(self, request: ApprovalId) -> AttemptUpdate {
        match self {
            Self::Start => AttemptUpdate::Start,
            Self::Return => AttemptUpdate::Return,
            Self::Events { from, count } => events(from, count),
            Self::End { seq, succeeds: true } => succeeded(seq),
            Self::End { seq, succeeds: false } => failed(seq),
            Self::Open { seq } => opened(seq, request),
            Self::Close { seq } => closed(seq, request),
            Self::Mismatch => AttemptUpdate::Mismatch,
            Self::Lose => AttemptUpdate::Lose,
            Self::Reconcile => AttemptUpdate::Reconcile,
            Self::Unknown => AttemptUpdate::Unknown,
            Self::Restart => AttemptUpdate::Restart,
        }
    }
}

/// Runs in a batch.
const RUNS: usize = 3;

fn said() -> impl Strategy<Value = (usize, u32, Said)> {
    let said = prop_oneof![
        5 => Just(Said::Start),
        1 => Just(Said::Return),
        10 => (1u64..5, 1u64..4).prop_map(|(from, count)| Said::Events { from, count }),
        6 => (1u64..7, any::<bool>()).prop_map(|(seq, succeeds)| Said::End { seq, succeeds }),
        2 => (1u64..5).prop_map(|seq| Said::Open { seq }),
        2 => (1u64..6).prop_map(|seq| Said::Close { seq }),
        1 => Just(Said::Mismatch),
        1 => Just(Said::Lose),
        1 => Just(Said::Reconcile),
        1 => Just(Said::Unknown),
        1 => Just(Said::Restart),
    ];
    (0..RUNS, prop_oneof![6 => Just(1u32), 1 => Just(2u32)], said)
}

/// Tells the store the same of two sets of runs, of one set one by one and of the other in one batch, and compares.
async fn tell(test_store: &mut TestStore, session: SessionKey, history: Vec<(usize, u32, Said)>) {
    // A run that was returned would be claimed again.
    test_store.database.execute("TRUNCATE runs CASCADE; SELECT refill_run_queue()").await;
    let mut sets = Vec::new();
    for _ in 0..2 {
        let mut runs = Vec::new();
        for _ in 0..RUNS {
            let run_id = test_store.queue().await;
            assert_eq!(test_store.device.claim(session, 1).await[0].run_id, run_id);
            runs.push((run_id, ApprovalId::new()));
        }
        sets.push(runs);
    }
    let records = |runs: &[(RunId, ApprovalId)]| -> Vec<AttemptRecord> {
        let said = history.iter().map(|(run, attempt, said)| {
            let (run_id, request) = runs[*run];
            // A start that is not known of is explained, and its number passed over, only after the commit.
            let attempt = if matches!(said, Said::Start) { 1 } else { *attempt };
            AttemptRecord { run_id, attempt, what: said.update(request) }
        });
        said.collect()
    };
    for said in records(&sets[0]) {
        test_store.store.record(session, &[said], LONG_LEASE).await.expect("written");
    }
    test_store.store.record(session, &records(&sets[1]), LONG_LEASE).await.expect("written");
    for (alone, together) in sets[0].iter().zip(&sets[1]) {
        let mut seen = Vec::new();
        for (run_id, _) in [alone, together] {
            let columns = "state, attempt, restarts, device_seq, last_sequence, open_approval IS NULL, is_reoffered,
                unknown_attempt, offered_until IS NULL, started_at IS NULL, finished_at IS NULL, purge_at IS NULL";
            let row = test_store
                .database
                .value(&format!("SELECT row({columns})::text FROM runs WHERE run_id = {}", quoted(run_id.uuid())))
                .await;
            let said = test_store.store.events_after(*run_id, 0, 1000).await.expect("read");
            let said: Vec<_> = said.into_iter().map(|event| (event.sequence, event.kind)).collect();
            seen.push((row, said));
        }
        assert_eq!(seen[0], seen[1], "one by one, and in a batch: {history:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_of_records_leaves_what_they_leave_one_by_one() {
    let mut test_store = TestStore::new().await;
    let (session, _) = test_store.device.connect().await;
    let runtime = tokio::runtime::Handle::current();
    let shared = Mutex::new(&mut test_store);
    let mut runner = TestRunner::new(Config { cases: 100, failure_persistence: None, ..Config::default() });
    tokio::task::block_in_place(|| {
        let outcome = runner.run(&prop::collection::vec(said(), 1..25), |history| {
            let mut test_store = shared.lock().unwrap_or_else(PoisonError::into_inner);
            runtime.block_on(tell(&mut test_store, session, history));
            Ok(())
        });
        outcome.unwrap_or_else(|error| panic!("{error}"));
    });
}
