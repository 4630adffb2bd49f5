//! Runs with unknown changes after a restart of their device: they wait, and end or begin again once.

use deskgate_gateway::store::attempts::{AttemptUpdate, RecordOutcome};
use deskgate_gateway::store::leases::SessionKey;
use deskgate_protocol::control::RevokeCode;
use deskgate_protocol::run::EventType::*;
use deskgate_protocol::run::{Effects, Outcome, RunError, RunErrorCode, Usage};
use deskgate_protocol::{ApprovalId, RunId};
use serde_json::json;

use super::{TestStore, events, opened, succeeded};
use crate::support::gateway::LONG_LEASE;

const RECORDED: RecordOutcome = RecordOutcome::Done;

/// A run whose device came back and does not know, with two events stored.
async fn unknown(test_store: &TestStore) -> (SessionKey, RunId) {
    let (session, _) = test_store.device.connect().await;
    let run_id = test_store.started(session).await;
    test_store.all_done(session, run_id, [events(1, 2)]).await;
    let (session, held) = test_store.device.connect().await;
    assert!(held.iter().any(|held| (held.run_id, held.device_seq) == (run_id, 2)));
    test_store.all_done(session, run_id, [AttemptUpdate::Unknown]).await;
    (session, run_id)
}

fn cancelled(seq: u64, effects: Effects) -> AttemptUpdate {
    AttemptUpdate::End {
        seq,
        outcome: Outcome::Cancelled { effects, usage: Usage::default() },
        is_checked: false,
        receipt: None,
    }
}

#[tokio::test]
async fn what_is_unknown_waits_however_often_its_device_comes_and_is_offered_to_nobody() {
    let test_store = TestStore::new().await;
    let (_, run_id) = unknown(&test_store).await;
    for _ in 0..3 {
        let (session, held) = test_store.device.connect().await;
        assert_eq!(held.len(), 1);
        test_store.all_done(session, run_id, [AttemptUpdate::Unknown, AttemptUpdate::Unknown]).await;
        assert_eq!(test_store.device.claim(session, 9).await, []);
        test_store.store.return_unaccepted_offers().await.expect("done");
        test_store.store.expire_queued(LONG_LEASE).await.expect("done");
    }
    assert_eq!(test_store.state(run_id).await, "awaiting_reconciliation");
    let types = test_store.events(run_id).await;
    assert_eq!(types[4..], [RunAwaitingReconciliation], "its callers are told once");
}

#[tokio::test]
async fn who_was_told_that_the_device_is_lost_is_told_once_more_that_a_person_is_asked() {
    let test_store = TestStore::new().await;
    let (session, _) = test_store.device.connect().await;
    let run_id = test_store.started(session).await;
    test_store.all_done(session, run_id, [AttemptUpdate::Lose, AttemptUpdate::Unknown, AttemptUpdate::Unknown]).await;
    assert_eq!(test_store.events(run_id).await[2..], [RunAwaitingReconciliation, RunAwaitingReconciliation]);
    assert_ne!(test_store.data(run_id, 2).await, test_store.data(run_id, 3).await);
}

#[tokio::test]
async fn run_again_is_a_new_attempt_behind_the_decision_and_is_not_made_twice() {
    let test_store = TestStore::new().await;
    let (session, run_id) = unknown(&test_store).await;
    test_store.all_done(session, run_id, [AttemptUpdate::RunAgain, AttemptUpdate::RunAgain]).await;
    assert_eq!(test_store.row(run_id).await, ("running".to_owned(), 2, 7));
    assert_eq!(test_store.events(run_id).await[4..], [RunAwaitingReconciliation, RunReconciled, RunRestarted]);
    assert_eq!(test_store.data(run_id, 5).await, json!({ "state": "running", "by": "desktop_user" }));
    assert_eq!(test_store.data(run_id, 6).await, json!({ "attempt": 2 }));
    // Its offer got lost with the connection.
    let (newer, held) = test_store.device.connect().await;
    assert_eq!(held.iter().map(|run| (run.run_id, run.attempt)).collect::<Vec<_>>(), [(run_id, 2)]);
    test_store.all_done(newer, run_id, [AttemptUpdate::RunAgain]).await;
    assert_eq!(test_store.store.offer(newer, run_id).await.expect("read").expect("held").attempt, 2);
    let second = |what| test_store.one(newer, run_id, 2, what);
    assert_eq!((second(events(1, 1)).await, second(succeeded(2)).await), (RECORDED, RECORDED));
    assert_eq!(test_store.events(run_id).await[7..], [MessageCompleted, RunSucceeded]);
    let late = test_store.one(newer, run_id, 1, AttemptUpdate::RunAgain).await;
    assert_eq!(late, RecordOutcome::Revoked(RevokeCode::AlreadyFinal));
    assert_eq!(test_store.store.offer(newer, run_id).await.expect("read"), None, "what has ended is not offered");
}

#[tokio::test]
async fn a_run_that_waited_for_an_approval_and_became_unknown_begins_again_with_both_settled() {
    let test_store = TestStore::new().await;
    let (session, _) = test_store.device.connect().await;
    let run_id = test_store.started(session).await;
    test_store
        .all_done(session, run_id, [opened(1, ApprovalId::new()), AttemptUpdate::Unknown, AttemptUpdate::RunAgain])
        .await;
    assert_eq!(
        test_store.events(run_id).await[2..],
        [RunAwaitingApproval, RunAwaitingReconciliation, RunApprovalResolved, RunReconciled, RunRestarted]
    );
    assert_eq!(test_store.state(run_id).await, "running");
}

#[tokio::test]
async fn what_ran_once_and_has_no_definition_any_more_may_have_changed_something() {
    let test_store = TestStore::new().await;
    let (session, run_id) = unknown(&test_store).await;
    test_store.all_done(session, run_id, [AttemptUpdate::RunAgain]).await;
    assert_eq!(test_store.one(session, run_id, 2, AttemptUpdate::Mismatch).await, RECORDED);
    let last = test_store.events(run_id).await.len() - 1;
    let error = &test_store.data(run_id, last).await["error"];
    assert_eq!((&error["code"], &error["effects"]), (&json!("definition_mismatch"), &json!("possible")));
}

#[tokio::test]
async fn what_is_unknown_a_second_time_is_decided_a_second_time() {
    let test_store = TestStore::new().await;
    let (session, run_id) = unknown(&test_store).await;
    test_store.all_done(session, run_id, [AttemptUpdate::RunAgain]).await;
    let again = [AttemptUpdate::Unknown, AttemptUpdate::RunAgain];
    for what in again {
        assert_eq!(test_store.one(session, run_id, 2, what).await, RECORDED);
    }
    assert_eq!(test_store.row(run_id).await.1, 3);
    let types = test_store.events(run_id).await;
    assert_eq!(types[7..], [RunAwaitingReconciliation, RunReconciled, RunRestarted]);
}

#[tokio::test]
async fn a_person_who_says_that_it_ended_ends_it_with_what_is_known() {
    let test_store = TestStore::new().await;
    let (session, run_id) = unknown(&test_store).await;
    let error = RunError {
        code: RunErrorCode::Interrupted,
        message: "The device stopped in the middle of a tool call, which had been done.".to_owned(),
        retryable: false,
        effects: Effects::Known,
    };
    let end = AttemptUpdate::End {
        seq: 3,
        outcome: Outcome::Failed { error, usage: Usage::default() },
        is_checked: false,
        receipt: None,
    };
    test_store.all_done(session, run_id, [end.clone(), end]).await;
    assert_eq!(test_store.events(run_id).await[4..], [RunAwaitingReconciliation, RunReconciled, RunFailed]);
    assert_eq!(test_store.data(run_id, 5).await, json!({ "state": "failed", "by": "desktop_user" }));
    assert_eq!(test_store.data(run_id, 6).await["error"]["effects"], "known");
}

#[tokio::test]
async fn a_device_that_only_was_away_reconciles_by_its_end() {
    let test_store = TestStore::new().await;
    let (session, _) = test_store.device.connect().await;
    let run_id = test_store.started(session).await;
    test_store.all_done(session, run_id, [AttemptUpdate::Lose, events(1, 1), succeeded(2)]).await;
    assert_eq!(
        test_store.events(run_id).await[2..],
        [RunAwaitingReconciliation, MessageCompleted, RunReconciled, RunSucceeded]
    );
    assert_eq!(test_store.data(run_id, 4).await, json!({ "state": "succeeded", "by": "device" }));
}

#[tokio::test]
async fn a_stop_of_what_is_unknown_is_confirmed_by_the_device_and_nothing_is_claimed_of_its_effects() {
    let test_store = TestStore::new().await;
    let (session, run_id) = unknown(&test_store).await;
    test_store.stop_run(run_id).await;
    assert_eq!(test_store.state(run_id).await, "awaiting_reconciliation");
    test_store.all_done(session, run_id, [cancelled(3, Effects::Possible)]).await;
    assert_eq!(test_store.state(run_id).await, "cancelled");
    assert_eq!(test_store.data(run_id, 7).await["effects"], "possible");
}

#[tokio::test]
async fn what_was_to_be_stopped_does_not_run_again_and_may_have_changed_something() {
    let test_store = TestStore::new().await;
    let (session, run_id) = unknown(&test_store).await;
    test_store.stop_run(run_id).await;
    test_store.all_done(session, run_id, [AttemptUpdate::RunAgain]).await;
    assert_eq!(
        test_store.one(session, run_id, 1, AttemptUpdate::RunAgain).await,
        RecordOutcome::Revoked(RevokeCode::AlreadyFinal)
    );
    assert_eq!(test_store.row(run_id).await.0, "cancelled");
    let types = test_store.events(run_id).await;
    assert_eq!(types[4..], [RunAwaitingReconciliation, RunCancelling, RunReconciled, RunCancelled]);
    assert_eq!(test_store.data(run_id, 7).await, json!({ "effects": "possible" }));

    // Also when the decision was made before, and the stop found a next attempt that nobody had begun.
    let (session, run_id) = unknown(&test_store).await;
    test_store.all_done(session, run_id, [AttemptUpdate::RunAgain]).await;
    test_store.stop_run(run_id).await;
    let (session, _) = test_store.device.connect().await;
    assert_eq!(test_store.one(session, run_id, 2, AttemptUpdate::Cancel { held: 1 }).await, RECORDED);
    let last = test_store.events(run_id).await.len() - 1;
    assert_eq!(test_store.data(run_id, last).await, json!({ "effects": "possible" }));
}

#[tokio::test]
async fn of_a_stop_and_a_decision_to_run_again_at_the_same_moment_the_stop_holds() {
    let test_store = TestStore::new().await;
    for _ in 0..30 {
        let (session, run_id) = unknown(&test_store).await;
        let (decided, ()) =
            tokio::join!(test_store.one(session, run_id, 1, AttemptUpdate::RunAgain), test_store.stop_run(run_id));
        let (state, attempt, _) = test_store.row(run_id).await;
        assert_eq!(decided, RECORDED);
        assert!(matches!((state.as_str(), attempt), ("cancelling", 2) | ("cancelled", 1)), "{state} in {attempt}");
        if attempt == 2 {
            assert_eq!(test_store.one(session, run_id, 2, cancelled(1, Effects::Possible)).await, RECORDED);
        }
    }
}

#[tokio::test]
async fn a_run_that_is_not_unknown_is_not_begun_again_by_a_decision() {
    let test_store = TestStore::new().await;
    let (session, _) = test_store.device.connect().await;
    let run_id = test_store.started(session).await;
    let refused = RecordOutcome::Revoked(RevokeCode::StaleAttempt);
    assert_eq!(test_store.one(session, run_id, 1, AttemptUpdate::RunAgain).await, refused);
    test_store.all_done(session, run_id, [opened(1, ApprovalId::new())]).await;
    assert_eq!(test_store.one(session, run_id, 1, AttemptUpdate::RunAgain).await, refused);
    test_store.all_done(session, run_id, [AttemptUpdate::Lose]).await;
    assert_eq!(
        test_store.one(session, run_id, 1, AttemptUpdate::RunAgain).await,
        refused,
        "lost, but nobody was asked"
    );
    assert_eq!(test_store.row(run_id).await.1, 1);
}
