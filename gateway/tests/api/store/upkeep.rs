//! The effects of time on runs, each once.

use std::time::Duration;

use deskgate_gateway::store::attempts::{AttemptUpdate, RecordOutcome};
use deskgate_gateway::upkeep::{UpkeepCounts, run_once};
use deskgate_protocol::VERSION;
use deskgate_protocol::control::RevokeCode;
use deskgate_protocol::run::EventType::*;
use tokio::task::JoinSet;

use super::{TestStore, events, succeeded};
use crate::support::gateway::LONG_LEASE;

#[tokio::test]
async fn every_pass_does_its_work_once_also_when_replicas_make_rounds_together() {
    let shelf = TestStore::new().await;
    let key = &shelf.desk.key;
    let (session, _) =
        shelf.store.begin_session(key, None, VERSION, Duration::ZERO).await.expect("stored").expect("paired");
    let lost = shelf.started(session).await;
    shelf.one(session, lost, 1, events(1, 1)).await;
    let unaccepted = shelf.queue().await;
    shelf.store.claim(session, 1, &[], Duration::ZERO).await.expect("claimed");
    let (expiring, waiting) = (shelf.queue().await, shelf.queue().await);
    let expire = format!("UPDATE runs SET queue_expires_at = now() WHERE run_id = '{}'", expiring.uuid());
    shelf.database.execute(&expire).await;

    let mut rounds = JoinSet::new();
    for _ in 0..4 {
        let store = shelf.store.clone();
        rounds.spawn(async move { run_once(&store, LONG_LEASE).await.expect("done") });
    }
    let done = rounds.join_all().await;
    let sum = |of: fn(&UpkeepCounts) -> usize| done.iter().map(of).sum::<usize>();
    assert_eq!((sum(|r| r.offers_returned), sum(|r| r.expired), sum(|r| r.lost)), (1, 1, 1));
    assert_eq!(run_once(&shelf.store, LONG_LEASE).await.expect("done"), UpkeepCounts::default());

    assert_eq!(shelf.events(expiring).await, [RunAccepted, RunExpired]);
    assert_eq!(shelf.row(expiring).await.0, "expired");
    assert_eq!(shelf.events(lost).await, [RunAccepted, RunStarted, MessageCompleted, RunAwaitingReconciliation]);
    assert_eq!((shelf.row(unaccepted).await.0, shelf.row(waiting).await.0), ("queued".to_owned(), "queued".to_owned()));
    // The device was only slow: its outcome still counts.
    assert_eq!(shelf.one(session, lost, 1, succeeded(2)).await, RecordOutcome::Done);
    assert_eq!(shelf.row(lost).await.0, "succeeded");
}

#[tokio::test]
async fn a_run_that_expired_while_it_was_offered_is_not_started() {
    let shelf = TestStore::new().await;
    let (session, _) = shelf.desk.connect().await;
    let run_id = shelf.queue().await;
    shelf.desk.claim(session, 1).await;
    shelf.database.execute("UPDATE runs SET queue_expires_at = now()").await;
    assert_eq!(shelf.store.expire_queued(LONG_LEASE).await.expect("done"), 1);
    let answer = shelf.one(session, run_id, 1, AttemptUpdate::Start).await;
    assert_eq!(answer, RecordOutcome::Revoked(RevokeCode::AlreadyFinal));
    assert_eq!(shelf.events(run_id).await, [RunAccepted, RunExpired]);
}

#[tokio::test]
async fn removing_a_device_ends_every_run_of_it_once() {
    let shelf = TestStore::new().await;
    let (session, _) = shelf.desk.connect().await;
    let (running, lost, finished) =
        (shelf.started(session).await, shelf.started(session).await, shelf.started(session).await);
    shelf.one(session, lost, 1, AttemptUpdate::Lose).await;
    shelf.one(session, finished, 1, succeeded(1)).await;
    let offered = shelf.queue().await;
    shelf.desk.claim(session, 1).await;
    let queued = shelf.queue().await;
    for _ in 0..2 {
        assert!(shelf.store.revoke_device(shelf.desk.device_id, LONG_LEASE).await.expect("stored"));
    }
    let states = [
        (running, "failed", "possible"),
        (lost, "failed", "possible"),
        (offered, "cancelled", "none"),
        (queued, "cancelled", "none"),
    ];
    for (run_id, state, effects) in states {
        let stored = shelf.store.run_of_device(shelf.desk.device_id, run_id).await.expect("read").expect("there");
        assert_eq!(stored.run.state.to_string(), state);
        let error = serde_json::to_value(stored.run.error.expect("why")).expect("JSON");
        assert_eq!((&error["code"], &error["effects"]), (&"device_removed".into(), &effects.into()));
        let finals = shelf.events(run_id).await.into_iter().filter(|kind| matches!(kind, RunFailed | RunCancelled));
        assert_eq!(finals.count(), 1);
    }
    assert_eq!(shelf.row(finished).await.0, "succeeded");
    assert!(!shelf.store.renew_session(session, LONG_LEASE).await.expect("asked"));
    assert!(!shelf.store.session_is_current(session).await.expect("asked"));
    assert!(shelf.store.begin_session(&shelf.desk.key, None, VERSION, LONG_LEASE).await.expect("asked").is_none());
    let late = shelf.one(session, running, 1, succeeded(1)).await;
    assert_eq!(late, RecordOutcome::Revoked(RevokeCode::AlreadyFinal));
}
