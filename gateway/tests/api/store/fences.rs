//! The fences of writes about a run, and the effect of repetitions.

use deskgate_gateway::store::attempts::{AttemptRecord, AttemptUpdate, RecordOutcome};
use deskgate_gateway::store::leases::SessionKey;
use deskgate_protocol::control::RevokeCode;
use deskgate_protocol::run::EventType::*;
use deskgate_protocol::run::RunState;
use deskgate_protocol::{ApprovalId, RunId};

use super::{TestStore, closed, events, failed, opened, succeeded};
use crate::support::gateway::{DeviceFixture, LONG_LEASE};

const STALE_ATTEMPT: RecordOutcome = RecordOutcome::Revoked(RevokeCode::StaleAttempt);
const ALREADY_FINAL: RecordOutcome = RecordOutcome::Revoked(RevokeCode::AlreadyFinal);
const UNKNOWN_RUN: RecordOutcome = RecordOutcome::Revoked(RevokeCode::UnknownRun);

fn everything() -> Vec<AttemptUpdate> {
    vec![
        AttemptUpdate::Start,
        AttemptUpdate::Return,
        events(1, 2),
        events(0, 1),
        succeeded(1),
        failed(1),
        AttemptUpdate::Mismatch,
        opened(1, ApprovalId::new()),
        closed(1, ApprovalId::new()),
        AttemptUpdate::Reconcile,
        AttemptUpdate::Restart,
        AttemptUpdate::Unknown,
        AttemptUpdate::RunAgain,
        AttemptUpdate::Cancel { held: 1 },
        AttemptUpdate::Lose,
    ]
}

#[tokio::test]
async fn a_stale_attempt_a_stale_epoch_and_a_foreign_device_change_nothing() {
    let test_store = TestStore::new().await;
    let (old, _) = test_store.device.connect().await;
    let offered = test_store.queue().await;
    test_store.device.claim(old, 1).await;
    let started = test_store.started(old).await;
    let (new, held) = test_store.device.connect().await;
    assert_eq!(held.len(), 2, "the new session takes both over");
    let stranger = DeviceFixture::pair(&test_store.store).await;
    let (foreign, _) = stranger.connect().await;
    let future = SessionKey { epoch: new.epoch + 1, ..new };
    for run_id in [offered, started] {
        let before = (test_store.row(run_id).await, test_store.events(run_id).await);
        for what in everything() {
            for (session, attempt, expected) in [
                (old, 1, RecordOutcome::Replaced),
                (future, 1, STALE_ATTEMPT),
                (new, 0, STALE_ATTEMPT),
                (new, 2, STALE_ATTEMPT),
                (new, u32::MAX, STALE_ATTEMPT),
                (foreign, 1, UNKNOWN_RUN),
            ] {
                assert_eq!(test_store.one(session, run_id, attempt, what.clone()).await, expected, "{what:?}");
            }
            assert_eq!((test_store.row(run_id).await, test_store.events(run_id).await), before, "{what:?}");
        }
    }
    assert_eq!(test_store.one(new, RunId::new(), 1, AttemptUpdate::Start).await, UNKNOWN_RUN);
    assert_eq!(
        test_store.one(new, offered, 1, AttemptUpdate::Start).await,
        RecordOutcome::Done,
        "the newest session may"
    );
    assert_eq!(test_store.one(new, started, 1, succeeded(1)).await, RecordOutcome::Done);
}

#[tokio::test]
async fn events_sent_again_wholly_or_partly_are_stored_once() {
    let test_store = TestStore::new().await;
    let (session, _) = test_store.device.connect().await;
    let run_id = test_store.started(session).await;
    for what in [events(1, 3), events(1, 3), events(1, 1), events(2, 2), events(2, 4), events(1, 5), events(6, 1)] {
        assert_eq!(test_store.one(session, run_id, 1, what.clone()).await, RecordOutcome::Done, "{what:?}");
    }
    assert_eq!(test_store.events(run_id).await, [vec![RunAccepted, RunStarted], vec![MessageCompleted; 6]].concat());
    let stored = test_store.store.events_after(run_id, 2, 10).await.expect("read");
    let numbers: Vec<_> = stored.iter().map(|event| event.data["number"].as_u64()).collect();
    assert_eq!(numbers, (1..=6).map(Some).collect::<Vec<_>>(), "each in its own place");
}

#[tokio::test]
async fn a_gap_is_said_and_stores_nothing() {
    let test_store = TestStore::new().await;
    let (session, _) = test_store.device.connect().await;
    let run_id = test_store.started(session).await;
    assert_eq!(test_store.one(session, run_id, 1, events(2, 1)).await, RecordOutcome::Gap);
    assert_eq!(test_store.one(session, run_id, 1, succeeded(2)).await, RecordOutcome::Gap);
    assert_eq!(test_store.one(session, run_id, 1, events(1, 2)).await, RecordOutcome::Done);
    assert_eq!(test_store.one(session, run_id, 1, events(4, 2)).await, RecordOutcome::Gap);
    for last in [u64::MAX, u64::MAX - 1, i64::MAX as u64, i64::MAX as u64 + 1] {
        assert_eq!(test_store.one(session, run_id, 1, events(last, 1)).await, RecordOutcome::Gap);
        assert_eq!(test_store.one(session, run_id, 1, succeeded(last)).await, RecordOutcome::Gap);
    }
    assert_eq!(test_store.events(run_id).await, [RunAccepted, RunStarted, MessageCompleted, MessageCompleted]);
}

#[tokio::test]
async fn a_finish_sent_again_is_done_and_another_outcome_changes_nothing() {
    let test_store = TestStore::new().await;
    let (session, _) = test_store.device.connect().await;
    let run_id = test_store.started(session).await;
    test_store.one(session, run_id, 1, events(1, 2)).await;
    for what in [succeeded(3), succeeded(3), failed(3)] {
        assert_eq!(test_store.one(session, run_id, 1, what).await, RecordOutcome::Done);
    }
    let finished = (test_store.row(run_id).await, test_store.events(run_id).await);
    assert_eq!(finished.0, ("succeeded".to_owned(), 1, 5));
    assert_eq!(finished.1.last(), Some(&RunSucceeded));
    // A newer session of the same device repeats what was never acknowledged.
    let (newer, held) = test_store.device.connect().await;
    assert_eq!(held, [], "a final run is nobody's");
    assert_eq!(test_store.one(newer, run_id, 1, succeeded(3)).await, RecordOutcome::Done);
    for what in [AttemptUpdate::Start, AttemptUpdate::Restart] {
        assert_eq!(test_store.one(newer, run_id, 1, what).await, ALREADY_FINAL);
    }
    for what in everything().into_iter().chain([events(3, 1), events(4, 1), succeeded(4)]) {
        for (session, attempt) in [(session, 1), (newer, 1), (newer, 2)] {
            test_store.one(session, run_id, attempt, what.clone()).await;
        }
        assert_eq!((test_store.row(run_id).await, test_store.events(run_id).await), finished, "{what:?}");
    }
}

#[tokio::test]
async fn a_run_ends_without_a_start_only_when_its_definition_is_missing() {
    let test_store = TestStore::new().await;
    let (session, _) = test_store.device.connect().await;
    let run_id = test_store.queue().await;
    test_store.device.claim(session, 1).await;
    for what in [succeeded(1), failed(1), events(1, 1), AttemptUpdate::Restart] {
        assert_ne!(test_store.one(session, run_id, 1, what.clone()).await, RecordOutcome::Done, "{what:?}");
    }
    assert_eq!(test_store.row(run_id).await.0, "queued");
    let missing = AttemptUpdate::Mismatch;
    assert_eq!(test_store.one(session, run_id, 1, missing.clone()).await, RecordOutcome::Done);
    assert_eq!(test_store.one(session, run_id, 1, missing).await, RecordOutcome::Done, "repeated");
    assert_eq!(test_store.events(run_id).await, [RunAccepted, RunFailed]);
}

#[tokio::test]
async fn a_restart_begins_a_new_attempt_and_the_old_one_is_over() {
    let test_store = TestStore::new().await;
    let (session, _) = test_store.device.connect().await;
    let run_id = test_store.started(session).await;
    test_store.one(session, run_id, 1, events(1, 2)).await;
    assert_eq!(test_store.one(session, run_id, 1, AttemptUpdate::Lose).await, RecordOutcome::Done);
    assert_eq!(test_store.one(session, run_id, 1, AttemptUpdate::Restart).await, RecordOutcome::Done);
    assert_eq!(test_store.row(run_id).await, ("running".to_owned(), 2, 7));
    let offer = test_store.store.offer(session, run_id).await.expect("read").expect("held");
    assert_eq!(offer.attempt, 2);
    for what in [events(3, 1), succeeded(3), AttemptUpdate::Lose] {
        assert_eq!(test_store.one(session, run_id, 1, what.clone()).await, STALE_ATTEMPT, "{what:?}");
    }
    assert_eq!(test_store.one(session, run_id, 2, events(1, 1)).await, RecordOutcome::Done, "numbered from 1 again");
    assert_eq!(test_store.one(session, run_id, 2, succeeded(2)).await, RecordOutcome::Done);
    assert_eq!(
        test_store.events(run_id).await,
        [
            RunAccepted,
            RunStarted,
            MessageCompleted,
            MessageCompleted,
            RunAwaitingReconciliation,
            RunReconciled,
            RunRestarted,
            MessageCompleted,
            RunSucceeded
        ]
    );
}

#[tokio::test]
async fn a_restart_whose_offer_was_lost_is_the_newer_sessions_and_is_not_made_twice() {
    let test_store = TestStore::new().await;
    let (session, _) = test_store.device.connect().await;
    let run_id = test_store.started(session).await;
    assert_eq!(test_store.one(session, run_id, 1, AttemptUpdate::Restart).await, RecordOutcome::Done);
    let (newer, held) = test_store.device.connect().await;
    assert_eq!(held.iter().map(|run| (run.run_id, run.attempt)).collect::<Vec<_>>(), [(run_id, 2)]);
    for older in [session, newer] {
        assert_eq!(test_store.one(older, run_id, 1, AttemptUpdate::Restart).await, STALE_ATTEMPT);
    }
    let offer = test_store.store.offer(newer, run_id).await.expect("readable").expect("held");
    assert_eq!(offer.attempt, 2);
    assert!(held[0].is_reoffered, "nobody has accepted it");
    assert_eq!(test_store.one(newer, run_id, 2, AttemptUpdate::Start).await, RecordOutcome::Done);
    assert_eq!(test_store.one(newer, run_id, 2, events(1, 1)).await, RecordOutcome::Done);
    assert_eq!(test_store.events(run_id).await, [RunAccepted, RunStarted, RunRestarted, MessageCompleted]);
    let (_, held) = test_store.device.connect().await;
    assert!(!held[0].is_reoffered, "it may have been executed since");
}

#[tokio::test]
async fn a_restart_that_the_device_has_no_definition_for_any_more_fails() {
    let test_store = TestStore::new().await;
    let (session, _) = test_store.device.connect().await;
    let run_id = test_store.started(session).await;
    test_store.one(session, run_id, 1, events(1, 2)).await;
    let missing = AttemptUpdate::Mismatch;
    assert_eq!(test_store.one(session, run_id, 1, missing.clone()).await, RecordOutcome::Gap, "it has begun");
    test_store.one(session, run_id, 1, AttemptUpdate::Restart).await;
    assert_eq!(test_store.one(session, run_id, 2, missing.clone()).await, RecordOutcome::Done);
    assert_eq!(test_store.one(session, run_id, 2, missing).await, RecordOutcome::Done, "repeated");
    assert_eq!(test_store.row(run_id).await.0, "failed");
}

#[tokio::test]
async fn a_finish_that_is_not_stored_is_never_acknowledged() {
    let test_store = TestStore::new().await;
    let (session, _) = test_store.device.connect().await;
    let run_id = test_store.started(session).await;
    test_store.one(session, run_id, 1, events(1, 3)).await;
    for seq in 0..4 {
        assert_eq!(test_store.one(session, run_id, 1, succeeded(seq)).await, RecordOutcome::Gap);
    }
    assert_eq!(test_store.row(run_id).await.0, "running");
    assert_eq!(test_store.one(session, run_id, 1, succeeded(4)).await, RecordOutcome::Done);
}

#[tokio::test]
async fn a_batch_is_one_commit_in_its_order_and_each_record_is_judged_for_itself() {
    let test_store = TestStore::new().await;
    let (session, _) = test_store.device.connect().await;
    let (one, other) = (test_store.queue().await, test_store.queue().await);
    test_store.device.claim(session, 2).await;
    let record = |run_id, what| AttemptRecord { run_id, attempt: 1, what };
    let records = [
        record(one, AttemptUpdate::Start),
        record(one, events(1, 2)),
        record(other, events(1, 1)),
        record(RunId::new(), AttemptUpdate::Start),
        record(one, events(2, 2)),
        record(one, succeeded(4)),
        record(one, succeeded(4)),
        record(other, AttemptUpdate::Start),
        record(other, events(1, 1)),
    ];
    let results = test_store.store.record(session, &records, LONG_LEASE).await.expect("written");
    let done = RecordOutcome::Done;
    // What came too early for its run is explained by how things stand after the commit.
    assert_eq!(results, [done, done, done, UNKNOWN_RUN, done, done, done, done, done]);
    assert_eq!(
        test_store.events(one).await,
        [RunAccepted, RunStarted, MessageCompleted, MessageCompleted, MessageCompleted, RunSucceeded]
    );
    assert_eq!(test_store.events(other).await, [RunAccepted, RunStarted, MessageCompleted]);
}

#[tokio::test]
async fn a_lost_and_found_run_goes_on_where_it_was() {
    let test_store = TestStore::new().await;
    let (session, _) = test_store.device.connect().await;
    let run_id = test_store.started(session).await;
    test_store.one(session, run_id, 1, events(1, 1)).await;
    test_store.one(session, run_id, 1, AttemptUpdate::Lose).await;
    assert_eq!(test_store.row(run_id).await.0, RunState::AwaitingReconciliation.as_str());
    // A device that is back may report before and after it is reconciled.
    assert_eq!(test_store.one(session, run_id, 1, events(2, 1)).await, RecordOutcome::Done);
    assert_eq!(test_store.one(session, run_id, 1, AttemptUpdate::Reconcile).await, RecordOutcome::Done);
    assert_eq!(test_store.one(session, run_id, 1, AttemptUpdate::Reconcile).await, RecordOutcome::Done, "repeated");
    assert_eq!(test_store.one(session, run_id, 1, events(3, 1)).await, RecordOutcome::Done);
    assert_eq!(test_store.one(session, run_id, 1, failed(4)).await, RecordOutcome::Done);
    let types = test_store.events(run_id).await;
    assert_eq!(types[3..], [RunAwaitingReconciliation, MessageCompleted, RunReconciled, MessageCompleted, RunFailed]);
}
