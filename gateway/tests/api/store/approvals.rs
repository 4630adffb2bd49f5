//! Requests for approval: how they open and close, and the state that a run returns to.

use deskgate_gateway::store::attempts::{AttemptRecord, AttemptUpdate, RecordOutcome};
use deskgate_gateway::store::leases::SessionKey;
use deskgate_protocol::control::RevokeCode;
use deskgate_protocol::management::StopRun;
use deskgate_protocol::run::EventType::*;
use deskgate_protocol::run::{Effects, Outcome, Usage};
use deskgate_protocol::{ApprovalId, RunId, Timestamp};
use serde_json::{Value, json};

use super::{TestStore, closed, events, failed, opened, succeeded};
use crate::support::gateway::LONG_LEASE;

impl TestStore {
    pub(crate) async fn state(&self, run_id: RunId) -> String {
        self.row(run_id).await.0
    }

    pub(crate) async fn stop_run(&self, run_id: RunId) {
        self.device.desktop.stop_run(StopRun { run_id }).await.expect("asked");
    }

    pub(crate) async fn all_done(
        &self,
        session: SessionKey,
        run_id: RunId,
        all: impl IntoIterator<Item = AttemptUpdate>,
    ) {
        for what in all {
            assert_eq!(self.one(session, run_id, 1, what.clone()).await, RecordOutcome::Done, "{what:?}");
        }
    }

    pub(crate) async fn data(&self, run_id: RunId, place: usize) -> Value {
        self.store.events_after(run_id, 0, 100).await.expect("read")[place].data.clone()
    }
}

async fn asking(test_store: &TestStore) -> (SessionKey, RunId, ApprovalId) {
    let (session, _) = test_store.device.connect().await;
    let (run_id, approval_id) = (test_store.started(session).await, ApprovalId::new());
    test_store.all_done(session, run_id, [opened(1, approval_id)]).await;
    assert_eq!(test_store.state(run_id).await, "awaiting_approval");
    (session, run_id, approval_id)
}

#[tokio::test]
async fn a_run_awaits_approval_while_a_request_is_open_as_often_as_it_asks() {
    let test_store = TestStore::new().await;
    let (session, run_id, first) = asking(&test_store).await;
    let second = ApprovalId::new();
    for (what, state) in [
        (opened(1, first), "awaiting_approval"),
        (closed(2, ApprovalId::new()), "awaiting_approval"),
        (closed(3, first), "running"),
        (closed(3, first), "running"),
        (opened(1, first), "running"),
        (closed(4, first), "running"),
        (events(5, 2), "running"),
        (opened(7, second), "awaiting_approval"),
        (closed(3, first), "awaiting_approval"),
        (closed(8, second), "running"),
        (succeeded(9), "succeeded"),
    ] {
        test_store.all_done(session, run_id, [what.clone()]).await;
        assert_eq!(test_store.state(run_id).await, state, "after {what:?}");
    }
    assert_eq!(
        test_store.events(run_id).await,
        [
            RunAccepted,
            RunStarted,
            RunAwaitingApproval,
            RunApprovalResolved,
            RunApprovalResolved,
            RunApprovalResolved,
            MessageCompleted,
            MessageCompleted,
            RunAwaitingApproval,
            RunApprovalResolved,
            RunSucceeded
        ]
    );
}

#[tokio::test]
async fn requests_among_other_events_keep_their_places_when_everything_is_sent_again() {
    let test_store = TestStore::new().await;
    let (session, _) = test_store.device.connect().await;
    let (run_id, id) = (test_store.started(session).await, ApprovalId::new());
    let all = [events(1, 2), opened(3, id), events(4, 1), closed(5, id), events(6, 1), succeeded(7)];
    for from in [0, 0, 1, 3, 5, 2] {
        let records: Vec<_> =
            all[from..].iter().map(|what| AttemptRecord { run_id, attempt: 1, what: what.clone() }).collect();
        let written = test_store.store.record(session, &records, LONG_LEASE).await.expect("written");
        assert!(written.iter().all(|one| *one == RecordOutcome::Done), "{written:?}");
    }
    let types = test_store.events(run_id).await;
    assert_eq!(types[2..6], [MessageCompleted, MessageCompleted, RunAwaitingApproval, MessageCompleted]);
    assert_eq!(types[6..], [RunApprovalResolved, MessageCompleted, RunSucceeded]);
    assert_eq!(test_store.data(run_id, 4).await["approval_id"], json!(id));
}

#[tokio::test]
async fn a_request_with_a_number_too_far_is_a_gap_and_stores_nothing() {
    let test_store = TestStore::new().await;
    let (session, run_id, id) = asking(&test_store).await;
    for what in [closed(3, id), closed(u64::MAX, id), opened(i64::MAX as u64, id)] {
        assert_eq!(test_store.one(session, run_id, 1, what).await, RecordOutcome::Gap);
    }
    assert_eq!(test_store.events(run_id).await, [RunAccepted, RunStarted, RunAwaitingApproval]);
}

#[tokio::test]
async fn a_stop_of_a_run_that_awaits_approval_is_cancelling_whatever_becomes_of_the_request() {
    let test_store = TestStore::new().await;
    let (session, run_id, id) = asking(&test_store).await;
    test_store.stop_run(run_id).await;
    let other = ApprovalId::new();
    for what in [closed(2, id), opened(3, other), closed(4, other)] {
        test_store.all_done(session, run_id, [what]).await;
        assert_eq!(test_store.state(run_id).await, "cancelling");
    }
    let outcome = Outcome::Cancelled { effects: Effects::None, usage: Usage::default() };
    test_store
        .all_done(session, run_id, [AttemptUpdate::End { seq: 5, outcome, is_checked: false, receipt: None }])
        .await;
    let types = test_store.events(run_id).await;
    assert_eq!(types[2..5], [RunAwaitingApproval, RunCancelling, RunApprovalResolved]);
    assert_eq!(types[5..], [RunAwaitingApproval, RunApprovalResolved, RunCancelled]);
}

#[tokio::test]
async fn a_lost_and_found_run_comes_back_to_the_request_that_is_still_open() {
    let test_store = TestStore::new().await;
    // Nothing meanwhile; answered before it is found; another one asked; stopped.
    for meanwhile in 0..4 {
        let (_, run_id, id) = asking(&test_store).await;
        test_store.database.execute("UPDATE devices SET lease_expires_at = now() - interval '1 second'").await;
        assert_eq!(test_store.store.suspend_lost_runs().await.expect("done"), 1);
        assert_eq!(test_store.state(run_id).await, "awaiting_reconciliation");
        let (session, held) = test_store.device.connect().await;
        assert_eq!(held.iter().filter(|held| held.run_id == run_id && held.device_seq == 1).count(), 1);
        let (sent, expected) = match meanwhile {
            0 => (vec![], "awaiting_approval"),
            1 => (vec![closed(2, id)], "running"),
            2 => (vec![closed(2, id), opened(3, ApprovalId::new())], "awaiting_approval"),
            _ => (vec![], "cancelling"),
        };
        let end = failed(sent.len() as u64 + 2);
        if expected == "cancelling" {
            test_store.stop_run(run_id).await;
        }
        test_store.all_done(session, run_id, sent).await;
        assert_eq!(test_store.state(run_id).await, "awaiting_reconciliation");
        test_store.all_done(session, run_id, [AttemptUpdate::Reconcile, AttemptUpdate::Reconcile]).await;
        assert_eq!(test_store.state(run_id).await, expected);
        let last = test_store.events(run_id).await.len() - 1;
        assert_eq!(test_store.data(run_id, last).await, json!({ "state": expected, "by": "device" }));
        test_store.all_done(session, run_id, [end]).await;
    }
}

#[tokio::test]
async fn an_end_while_a_request_is_open_withdraws_it_and_counts() {
    let test_store = TestStore::new().await;
    for (end, state) in [(succeeded(2), "succeeded"), (failed(2), "failed")] {
        let (session, run_id, id) = asking(&test_store).await;
        test_store.all_done(session, run_id, [end.clone(), end]).await;
        assert_eq!(test_store.state(run_id).await, state);
        let types = test_store.events(run_id).await;
        assert_eq!(types[2..4], [RunAwaitingApproval, RunApprovalResolved]);
        assert_eq!((types.len(), types[4].is_final()), (5, true));
        assert_eq!(test_store.data(run_id, 3).await, json!({ "approval_id": id, "resolution": "withdrawn" }));
    }
    // Without a stop nothing is cancelled, here as anywhere.
    let (session, run_id, _) = asking(&test_store).await;
    let outcome = Outcome::Cancelled { effects: Effects::None, usage: Usage::default() };
    let refused = RecordOutcome::Revoked(RevokeCode::StaleAttempt);
    assert_eq!(
        test_store
            .one(session, run_id, 1, AttemptUpdate::End { seq: 2, outcome, is_checked: false, receipt: None })
            .await,
        refused
    );
    assert_eq!(test_store.state(run_id).await, "awaiting_approval");
}

#[tokio::test]
async fn a_request_that_is_open_when_its_run_is_stopped_or_in_doubt_is_withdrawn_by_the_end_whatever_ends_it() {
    let test_store = TestStore::new().await;
    let stopped = || Outcome::Cancelled { effects: Effects::Possible, usage: Usage::default() };
    for (in_doubt, is_stopped, end) in [
        (None, true, succeeded(2)),
        (None, true, AttemptUpdate::End { seq: 2, outcome: stopped(), is_checked: false, receipt: None }),
        (None, true, AttemptUpdate::Cancel { held: 1 }),
        (Some(AttemptUpdate::Unknown), false, failed(2)),
        (Some(AttemptUpdate::Unknown), true, AttemptUpdate::RunAgain),
        (Some(AttemptUpdate::Lose), false, succeeded(2)),
        (
            Some(AttemptUpdate::Lose),
            true,
            AttemptUpdate::End { seq: 2, outcome: stopped(), is_checked: false, receipt: None },
        ),
        (Some(AttemptUpdate::Lose), true, AttemptUpdate::Cancel { held: 1 }),
    ] {
        let (session, run_id, id) = asking(&test_store).await;
        let doubted = in_doubt.is_some();
        test_store.all_done(session, run_id, in_doubt).await;
        if is_stopped {
            test_store.stop_run(run_id).await;
        }
        test_store.all_done(session, run_id, [end.clone()]).await;
        let types = test_store.events(run_id).await;
        let place = 3 + usize::from(doubted) + usize::from(is_stopped);
        assert_eq!(types[place], RunApprovalResolved, "{end:?}: {types:?}");
        assert_eq!(test_store.data(run_id, place).await, json!({ "approval_id": id, "resolution": "withdrawn" }));
        assert_eq!(types[place + 1] == RunReconciled, doubted, "{end:?}: {types:?}");
        assert!(types.last().is_some_and(|last| last.is_final()), "{end:?}: {types:?}");
        assert_eq!(types.iter().filter(|kind| **kind == RunApprovalResolved).count(), 1);
    }
}

#[tokio::test]
async fn a_restart_asks_anew_and_the_old_request_holds_nothing_any_more() {
    let test_store = TestStore::new().await;
    let (session, run_id, old) = asking(&test_store).await;
    test_store.all_done(session, run_id, [AttemptUpdate::Restart]).await;
    assert_eq!(test_store.row(run_id).await, ("running".to_owned(), 2, 5));
    assert_eq!(test_store.events(run_id).await[2..], [RunAwaitingApproval, RunApprovalResolved, RunRestarted]);
    assert_eq!(test_store.data(run_id, 3).await, json!({ "approval_id": old, "resolution": "withdrawn" }));
    let second = |what| test_store.one(session, run_id, 2, what);
    assert_eq!(second(closed(1, old)).await, RecordOutcome::Done);
    assert_eq!(test_store.state(run_id).await, "running");
    assert_eq!(second(opened(2, ApprovalId::new())).await, RecordOutcome::Done);
    assert_eq!(second(closed(3, old)).await, RecordOutcome::Done);
    assert_eq!(test_store.state(run_id).await, "awaiting_approval", "the new one is open");
    assert_eq!(
        test_store.one(session, run_id, 1, closed(2, old)).await,
        RecordOutcome::Revoked(RevokeCode::StaleAttempt)
    );
}

#[tokio::test]
async fn removing_the_device_ends_what_awaits_approval_and_withdraws_the_request() {
    let test_store = TestStore::new().await;
    let (_, run_id, id) = asking(&test_store).await;
    assert!(test_store.store.revoke_device(test_store.device.device_id, LONG_LEASE).await.expect("stored"));
    assert_eq!(test_store.events(run_id).await[2..], [RunAwaitingApproval, RunApprovalResolved, RunFailed]);
    assert_eq!(test_store.data(run_id, 3).await, json!({ "approval_id": id, "resolution": "withdrawn" }));
    assert_eq!(test_store.data(run_id, 4).await["error"]["effects"], "possible");
}

#[tokio::test]
async fn waiting_for_an_approval_in_announced_sleep_does_not_count_as_executing_and_is_not_for_ever() {
    let test_store = TestStore::new().await;
    let (session, _) = test_store.device.connect().await;
    let (run_id, id) = (test_store.started(session).await, ApprovalId::new());
    let ask = |seq, hours: i64| {
        let until = Timestamp::now().0 + jiff::SignedDuration::from_hours(hours);
        let AttemptUpdate::Approval { seq, mut approval } = opened(seq, id) else { unreachable!("it opens one") };
        approval.open_until = Some(until.into());
        AttemptUpdate::Approval { seq, approval }
    };
    test_store.all_done(session, run_id, [ask(1, 24)]).await;
    test_store.store.fall_asleep(session).await.expect("written");
    let time_passes = async |hours: u32| {
        let sql = format!(
            "UPDATE runs SET started_at = started_at - interval '{hours} h', waited_until = waited_until - interval '{hours} h',
                queue_expires_at = now() - interval '1 s'"
        );
        test_store.database.execute(&sql).await;
        test_store.database.execute("UPDATE devices SET lease_expires_at = now() - interval '1 second'").await;
        test_store.store.suspend_lost_runs().await.expect("done")
    };
    assert_eq!(time_passes(20).await, 0, "somebody may still decide");
    test_store.all_done(session, run_id, [closed(2, id)]).await;
    assert_eq!(time_passes(0).await, 0, "and then it may execute as long as any other");
    assert_eq!(time_passes(1).await, 1);
    test_store.all_done(session, run_id, [AttemptUpdate::Reconcile, ask(3, 24 * 3650)]).await;
    assert_eq!(time_passes(7 * 24).await, 0);
    assert_eq!(time_passes(1).await, 1, "a clock that is years ahead is believed for a week");
}

#[tokio::test]
async fn of_a_stop_and_an_answer_at_the_same_moment_neither_is_lost() {
    let test_store = TestStore::new().await;
    for _ in 0..30 {
        let (session, run_id, id) = asking(&test_store).await;
        let (answered, ()) =
            tokio::join!(test_store.one(session, run_id, 1, closed(2, id)), test_store.stop_run(run_id));
        assert_eq!((answered, test_store.state(run_id).await.as_str()), (RecordOutcome::Done, "cancelling"));
        test_store.all_done(session, run_id, [failed(3)]).await;
    }
}

#[tokio::test]
async fn of_a_lost_lease_and_a_request_at_the_same_moment_neither_is_lost() {
    let test_store = TestStore::new().await;
    for round in 0..30 {
        let (session, run_id, id) = asking(&test_store).await;
        if round % 2 == 0 {
            test_store.all_done(session, run_id, [closed(2, id)]).await;
        }
        let (what, expected) =
            if round % 2 == 0 { (opened(3, id), "awaiting_approval") } else { (closed(2, id), "running") };
        test_store.database.execute("UPDATE devices SET lease_expires_at = now() - interval '1 second'").await;
        let report = test_store.one(session, run_id, 1, what);
        let (reported, lost) = tokio::join!(report, test_store.store.suspend_lost_runs());
        // A transaction that finds the row locked skips it, and polls again a moment later.
        let again = test_store.store.suspend_lost_runs().await.expect("done");
        assert_eq!((reported, lost.expect("done") + again), (RecordOutcome::Done, 1));
        assert_eq!(test_store.state(run_id).await, "awaiting_reconciliation");
        test_store.all_done(session, run_id, [AttemptUpdate::Reconcile]).await;
        assert_eq!(test_store.state(run_id).await, expected);
        test_store.all_done(session, run_id, [failed(if round % 2 == 0 { 4 } else { 3 })]).await;
    }
}
