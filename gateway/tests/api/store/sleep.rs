//! What announced sleep preserves, for how long, and what ends it.

use std::time::Duration;

use deskgate_gateway::store::devices::Presence;
use deskgate_protocol::VERSION;
use deskgate_protocol::control::{RefusedCode, SessionRefusal};
use deskgate_protocol::run::EventType::*;

use super::{TestStore, succeeded};
use crate::support::gateway::LONG_LEASE;

impl TestStore {
    async fn presence(&self) -> Presence {
        self.store.device(self.device.device_id).await.expect("read").expect("paired").presence
    }

    async fn lease_runs_out(&self) {
        self.database.execute("UPDATE devices SET lease_expires_at = now() - interval '1 second'").await;
    }

    async fn given_up(&self) -> usize {
        self.store.suspend_lost_runs().await.expect("done")
    }
}

#[tokio::test]
async fn announced_sleep_keeps_a_started_run_as_long_as_its_caller_let_it_wait_and_no_longer() {
    let test_store = TestStore::new().await;
    let (session, _) = test_store.device.connect().await;
    let run_id = test_store.started(session).await;
    test_store.store.fall_asleep(session).await.expect("written");
    test_store.lease_runs_out().await;
    assert_eq!(test_store.given_up().await, 0);
    assert_eq!(test_store.row(run_id).await.0, "running");

    // Its queue time is over, its execution time is not, and then both are.
    test_store.database.execute("UPDATE runs SET queue_expires_at = now() - interval '1 second'").await;
    assert_eq!(test_store.given_up().await, 0);
    test_store.database.execute("UPDATE runs SET started_at = now() - interval '1 day'").await;
    assert_eq!(test_store.given_up().await, 1);
    assert_eq!(test_store.events(run_id).await, [RunAccepted, RunStarted, RunAwaitingReconciliation]);
    // A device that wakes later still reports how it ended.
    test_store.one(session, run_id, 1, succeeded(1)).await;
    assert_eq!(test_store.row(run_id).await.0, "succeeded");
}

#[tokio::test]
async fn a_device_that_woke_and_fell_silent_is_lost_like_any_other() {
    let test_store = TestStore::new().await;
    let (session, _) = test_store.device.connect().await;
    test_store.started(session).await;
    test_store.store.fall_asleep(session).await.expect("written");
    test_store.store.awake(session, LONG_LEASE).await.expect("written");
    test_store.lease_runs_out().await;
    assert_eq!(test_store.given_up().await, 1);
}

#[tokio::test]
async fn a_session_comes_back_from_its_sleep_with_a_whole_lease_or_not_at_all() {
    let test_store = TestStore::new().await;
    let (session, _) = test_store.device.connect().await;
    let run_id = test_store.started(session).await;
    test_store.store.fall_asleep(session).await.expect("written");
    test_store.database.execute("UPDATE devices SET lease_expires_at = now() + interval '2 seconds'").await;
    test_store.store.awake(session, LONG_LEASE).await.expect("written");
    let young = "UPDATE devices SET lease_expires_at = lease_expires_at - interval '3 seconds'";
    test_store.database.execute(young).await;
    assert_eq!((test_store.presence().await, test_store.given_up().await), (Presence::Connected, 0));

    test_store.store.fall_asleep(session).await.expect("written");
    test_store.lease_runs_out().await;
    test_store.store.awake(session, LONG_LEASE).await.expect("written");
    assert_eq!((test_store.presence().await, test_store.given_up().await), (Presence::Asleep, 0));
    assert!(!test_store.renew(session, LONG_LEASE).await, "so the session ends");
    let (_, held) = test_store.device.connect().await;
    assert_eq!((held[0].run_id, test_store.presence().await), (run_id, Presence::Connected));
    assert_eq!(test_store.events(run_id).await, [RunAccepted, RunStarted]);
}

#[tokio::test]
async fn nothing_is_offered_to_a_device_between_its_announcement_and_its_return() {
    let test_store = TestStore::new().await;
    let (session, _) = test_store.device.connect().await;
    let run_id = test_store.queue().await;
    test_store.store.fall_asleep(session).await.expect("written");
    assert!(test_store.device.claim(session, 4).await.is_empty());
    assert_eq!(test_store.presence().await, Presence::Asleep);
    test_store.store.awake(session, LONG_LEASE).await.expect("written");
    assert_eq!(test_store.presence().await, Presence::Connected);
    assert_eq!(test_store.device.claim(session, 4).await[0].run_id, run_id);
}

#[tokio::test]
async fn the_newest_session_alone_says_whether_its_device_sleeps() {
    let test_store = TestStore::new().await;
    let (older, _) = test_store.device.connect().await;
    let (newer, _) = test_store.device.connect().await;
    test_store.store.fall_asleep(older).await.expect("written");
    assert_eq!(test_store.presence().await, Presence::Connected);
    test_store.store.fall_asleep(newer).await.expect("written");
    test_store.store.awake(older, LONG_LEASE).await.expect("written");
    assert_eq!(test_store.presence().await, Presence::Asleep);
    // The session that comes back is awake, with or without a notice.
    test_store.device.connect().await;
    assert_eq!(test_store.presence().await, Presence::Connected);
}

#[tokio::test]
async fn sleep_begins_once_outlasts_the_session_and_ends_with_whatever_is_heard_of_the_device() {
    let test_store = TestStore::new().await;
    let (session, _) = test_store.device.connect().await;
    let since = async || {
        test_store.store.device(test_store.device.device_id).await.expect("read").expect("paired").asleep_since
    };
    test_store.store.fall_asleep(session).await.expect("written");
    let first = since().await.expect("asleep");
    test_store.store.fall_asleep(session).await.expect("written");
    assert_eq!(since().await, Some(first), "announced twice");
    test_store.store.end_session(session).await.expect("written");
    assert_eq!(test_store.presence().await, Presence::Asleep);

    let refusal = SessionRefusal {
        code: RefusedCode::VersionMismatch,
        message: "Upgrade.".to_owned(),
        should_retry: true,
        retry_after_s: None,
        gateway_version: VERSION.to_owned(),
        device_version: None,
        upgrade: None,
    };
    test_store.store.note_refusal(&test_store.device.key, "9.9.9", &refusal).await.expect("written");
    assert_eq!(test_store.presence().await, Presence::Incompatible, "it is awake, and cannot come in");
}

#[tokio::test]
async fn a_device_that_is_removed_in_its_sleep_is_removed_with_its_runs() {
    let test_store = TestStore::new().await;
    let (session, _) = test_store.device.connect().await;
    let (started, queued) = (test_store.started(session).await, test_store.queue().await);
    test_store.store.fall_asleep(session).await.expect("written");
    assert!(test_store.store.revoke_device(test_store.device.device_id, LONG_LEASE).await.expect("stored"));
    assert_eq!(
        (test_store.row(started).await.0, test_store.row(queued).await.0),
        ("failed".to_owned(), "cancelled".to_owned())
    );
    test_store.store.fall_asleep(session).await.expect("written");
    let device = test_store.store.device(test_store.device.device_id).await.expect("read").expect("known");
    assert_eq!(device.asleep_since, None, "the dead announce nothing");
    assert!(!test_store.renew(session, Duration::from_secs(9)).await);
}
