//! The effects of time on runs, each once.

use std::time::Duration;

use deskgate_gateway::store::attempts::{AttemptUpdate, RecordOutcome, ServiceRoom};
use deskgate_gateway::upkeep::{UpkeepCounts, run_once};
use deskgate_protocol::VERSION;
use deskgate_protocol::control::RevokeCode;
use deskgate_protocol::run::EventType::*;
use tokio::task::JoinSet;

use super::{TestStore, events, succeeded};
use crate::support::gateway::LONG_LEASE;

#[tokio::test]
async fn every_pass_does_its_work_once_also_when_replicas_make_rounds_together() {
    let test_store = TestStore::new().await;
    let key = &test_store.device.key;
    let (session, _) =
        test_store.store.begin_session(key, None, VERSION, Duration::ZERO).await.expect("stored").expect("paired");
    let lost = test_store.started(session).await;
    test_store.one(session, lost, 1, events(1, 1)).await;
    let unaccepted = test_store.queue().await;
    test_store.store.claim(session, 1, &ServiceRoom::default(), Duration::ZERO).await.expect("claimed");
    let (expiring, waiting) = (test_store.queue().await, test_store.queue().await);
    let expire = format!("UPDATE runs SET queue_expires_at = now() WHERE run_id = '{}'", expiring.uuid());
    test_store.database.execute(&expire).await;

    let mut rounds = JoinSet::new();
    for _ in 0..4 {
        let store = test_store.store.clone();
        rounds.spawn(async move { run_once(&store, LONG_LEASE).await.expect("done") });
    }
    let done = rounds.join_all().await;
    let sum = |of: fn(&UpkeepCounts) -> usize| done.iter().map(of).sum::<usize>();
    assert_eq!((sum(|r| r.offers_returned), sum(|r| r.expired), sum(|r| r.lost)), (1, 1, 1));
    assert_eq!(run_once(&test_store.store, LONG_LEASE).await.expect("done"), UpkeepCounts::default());

    assert_eq!(test_store.events(expiring).await, [RunAccepted, RunExpired]);
    assert_eq!(test_store.row(expiring).await.0, "expired");
    assert_eq!(test_store.events(lost).await, [RunAccepted, RunStarted, MessageCompleted, RunAwaitingReconciliation]);
    assert_eq!(
        (test_store.row(unaccepted).await.0, test_store.row(waiting).await.0),
        ("queued".to_owned(), "queued".to_owned())
    );
    // The device was only slow: its outcome still counts.
    assert_eq!(test_store.one(session, lost, 1, succeeded(2)).await, RecordOutcome::Done);
    assert_eq!(test_store.row(lost).await.0, "succeeded");
}

#[tokio::test]
async fn a_run_that_expired_while_it_was_offered_is_not_started() {
    let test_store = TestStore::new().await;
    let (session, _) = test_store.device.connect().await;
    let run_id = test_store.queue().await;
    test_store.device.claim(session, 1).await;
    test_store.database.execute("UPDATE runs SET queue_expires_at = now()").await;
    assert_eq!(test_store.store.expire_queued(LONG_LEASE).await.expect("done"), 1);
    let answer = test_store.one(session, run_id, 1, AttemptUpdate::Start).await;
    assert_eq!(answer, RecordOutcome::Revoked(RevokeCode::AlreadyFinal));
    assert_eq!(test_store.events(run_id).await, [RunAccepted, RunExpired]);
}

#[tokio::test]
async fn removing_a_device_ends_every_run_of_it_once() {
    let test_store = TestStore::new().await;
    let (session, _) = test_store.device.connect().await;
    let (running, lost, finished) =
        (test_store.started(session).await, test_store.started(session).await, test_store.started(session).await);
    test_store.one(session, lost, 1, AttemptUpdate::Lose).await;
    test_store.one(session, finished, 1, succeeded(1)).await;
    let offered = test_store.queue().await;
    test_store.device.claim(session, 1).await;
    let queued = test_store.queue().await;
    for _ in 0..2 {
        assert!(test_store.store.revoke_device(test_store.device.device_id, LONG_LEASE).await.expect("stored"));
    }
    let states = [
        (running, "failed", "possible"),
        (lost, "failed", "possible"),
        (offered, "cancelled", "none"),
        (queued, "cancelled", "none"),
    ];
    for (run_id, state, effects) in states {
        let of_device = test_store.store.run_of_device(test_store.device.device_id, run_id);
        let (stored, _) = of_device.await.expect("read").expect("there");
        assert_eq!(stored.run.state.to_string(), state);
        let error = serde_json::to_value(stored.run.error.expect("why")).expect("JSON");
        assert_eq!((&error["code"], &error["effects"]), (&"device_removed".into(), &effects.into()));
        let finals =
            test_store.events(run_id).await.into_iter().filter(|kind| matches!(kind, RunFailed | RunCancelled));
        assert_eq!(finals.count(), 1);
    }
    assert_eq!(test_store.row(finished).await.0, "succeeded");
    assert!(!test_store.renew(session, LONG_LEASE).await);
    assert!(!test_store.store.session_is_current(session).await.expect("asked"));
    assert!(
        test_store
            .store
            .begin_session(&test_store.device.key, None, VERSION, LONG_LEASE)
            .await
            .expect("asked")
            .is_none()
    );
    let late = test_store.one(session, running, 1, succeeded(1)).await;
    assert_eq!(late, RecordOutcome::Revoked(RevokeCode::AlreadyFinal));
}
