//! Random histories of one device's runs, against a small model of the allowed steps.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use deskgate_gateway::store::attempts::{AttemptUpdate, RecordOutcome};
use deskgate_gateway::store::device_lists::DeviceRunQuery;
use deskgate_gateway::store::leases::SessionKey;
use deskgate_protocol::management::StopRun;
use deskgate_protocol::operation::OutcomeCode;
use deskgate_protocol::run::{EventType, Phase, RunEvent, RunState};
use deskgate_protocol::{ApprovalId, OperationId, RunId};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::Value;

use super::{TestStore, closed, events, failed, opened, succeeded};
use crate::support::gateway::{DeviceFixture, LONG_LEASE};

/// One step. Small numbers choose among the things that exist at that moment.
#[derive(Clone, Copy, Debug)]
enum ModelStep {
    Submit,
    Claim {
        limit: u32,
    },
    Connect,
    Report {
        run: usize,
        stale_session: bool,
        attempt_off: u32,
        what: ModelReport,
    },
    OffersEnd,
    LeaseEnds,
    QueueTimeEnds {
        run: usize,
    },
    Stop {
        run: usize,
    },
    /// The device does not know the run that is to be stopped.
    Forgotten {
        run: usize,
    },
    Revoke,
}

#[derive(Clone, Copy, Debug)]
enum ModelReport {
    Start,
    Return,
    /// From `back` numbers before the next one, or one too far.
    Events {
        back: u64,
        skip: u64,
        count: u64,
    },
    Finish {
        succeeds: bool,
        back: u64,
        skip: u64,
    },
    /// Opens or closes one of a few requests, with the next number or one that was there before.
    Approval {
        opens: bool,
        which: usize,
        back: u64,
    },
    Mismatch,
    Reconcile,
    Restart,
    Unknown,
    RunAgain,
    Cancel,
    Lose,
}

#[derive(Clone, Debug)]
struct ExpectedRun {
    id: RunId,
    state: RunState,
    /// The number of its newest offer.
    attempt: u32,
    /// How often it began, which is what callers see as its attempt.
    begins: u32,
    offered: bool,
    holder: u64,
    device_seq: u64,
    last: u64,
    open: Option<ApprovalId>,
    /// The newest attempt that was unknown.
    unknown: Option<u32>,
    stop: Option<OperationId>,
}

impl ExpectedRun {
    fn moved(&mut self, state: RunState) {
        assert!(self.state == state || self.state.may_become(state), "{} to {state}", self.state);
        (self.state, self.offered, self.last) = (state, false, self.last + 1);
    }

    /// Whether the report may change the run, and if so, how it stands afterwards.
    fn report(&mut self, what: &AttemptUpdate) -> bool {
        use RunState::{AwaitingApproval, AwaitingReconciliation, Cancelled, Failed, Queued, Running, Succeeded};
        let started = self.state.phase() == Phase::Started;
        let in_doubt = self.state == AwaitingReconciliation;
        match what {
            AttemptUpdate::Start if self.state == Queued && self.offered => {
                self.moved(Running);
                self.begins = 1;
            }
            AttemptUpdate::Return if self.state == Queued => self.offered = false,
            AttemptUpdate::Events { first, events } if started => {
                let last = first + events.len() as u64 - 1;
                if !(*first <= self.device_seq + 1 && last > self.device_seq) {
                    return false;
                }
                (self.last, self.device_seq) = (self.last + last - self.device_seq, last);
            }
            AttemptUpdate::Approval { seq, approval } if started && *seq == self.device_seq + 1 => {
                let (id, opens) = (Some(approval.approval_id), approval.open_until.is_some());
                match self.state {
                    Running if opens => self.moved(AwaitingApproval),
                    AwaitingApproval if !opens && self.open == id => self.moved(Running),
                    same => self.moved(same),
                }
                self.open = if opens { id } else { self.open.filter(|open| Some(*open) != id) };
                self.device_seq = *seq;
            }
            AttemptUpdate::End { seq, .. } if started && *seq == self.device_seq + 1 => {
                let succeeds = *what == succeeded(*seq);
                self.settled();
                self.moved(if succeeds { Succeeded } else { Failed });
                self.device_seq = *seq;
            }
            AttemptUpdate::Mismatch if self.state == Queued || (started && self.device_seq == 0) => {
                self.settled();
                self.moved(Failed);
            }
            AttemptUpdate::Reconcile if in_doubt => self.goes_on(),
            AttemptUpdate::Lose if started && !in_doubt => self.moved(AwaitingReconciliation),
            AttemptUpdate::Unknown if started && (!in_doubt || self.unknown != Some(self.attempt)) => {
                self.moved(AwaitingReconciliation);
                self.unknown = Some(self.attempt);
            }
            AttemptUpdate::Restart if started => self.begins_again(),
            AttemptUpdate::RunAgain if in_doubt && self.stop.is_some() => {
                self.settled();
                self.moved(Cancelled);
            }
            AttemptUpdate::RunAgain if in_doubt && self.unknown == Some(self.attempt) => self.begins_again(),
            AttemptUpdate::Cancel { .. } if self.stop.is_some() && started => {
                self.settled();
                self.moved(Cancelled);
            }
            _ => return false,
        }
        true
    }

    /// What is open when it ends has an event of its own.
    fn withdraw(&mut self) {
        if self.open.take().is_some() {
            self.moved(match self.state {
                RunState::AwaitingApproval => RunState::Running,
                same => same,
            });
        }
    }

    /// And so has what is in doubt.
    fn settled(&mut self) {
        self.withdraw();
        if self.state == RunState::AwaitingReconciliation {
            self.last += 1;
        }
    }

    fn goes_on(&mut self) {
        self.moved(match self.open {
            _ if self.stop.is_some() => RunState::Cancelling,
            Some(_) => RunState::AwaitingApproval,
            None => RunState::Running,
        });
    }

    fn begins_again(&mut self) {
        if self.state == RunState::AwaitingReconciliation {
            self.last += 1;
        }
        if self.open.take().is_some() {
            self.last += 1;
        }
        self.moved(if self.stop.is_some() { RunState::Cancelling } else { RunState::Running });
        (self.attempt, self.device_seq) = (self.attempt + 1, 0);
        self.begins += 1;
    }

    fn stop(&mut self, by: OperationId) {
        match self.state {
            RunState::Queued => self.moved(RunState::Cancelled),
            RunState::AwaitingReconciliation => self.moved(RunState::AwaitingReconciliation),
            _ => self.moved(RunState::Cancelling),
        }
        self.stop = Some(by);
    }
}

fn step() -> impl Strategy<Value = ModelStep> {
    let report = prop_oneof![
        8 => Just(ModelReport::Start),
        1 => Just(ModelReport::Return),
        6 => (0u64..3, 0u64..5, 1u64..4).prop_map(|(back, skip, count)| {
            ModelReport::Events { back, skip: skip.saturating_sub(3), count }
        }),
        4 => (any::<bool>(), 0u64..5, 0u64..6).prop_map(|(succeeds, back, skip)| {
            ModelReport::Finish { succeeds, back: back.saturating_sub(3), skip: skip.saturating_sub(4) }
        }),
        6 => (any::<bool>(), 0usize..4, 0u64..4).prop_map(|(opens, which, back)| {
            ModelReport::Approval { opens, which: which / 3, back: back.saturating_sub(2) }
        }),
        1 => Just(ModelReport::Mismatch),
        2 => Just(ModelReport::Reconcile),
        1 => Just(ModelReport::Restart),
        2 => Just(ModelReport::Unknown),
        2 => Just(ModelReport::RunAgain),
        1 => Just(ModelReport::Cancel),
        1 => Just(ModelReport::Lose),
    ];
    prop_oneof![
        3 => Just(ModelStep::Submit),
        5 => (0u32..4).prop_map(|limit| ModelStep::Claim { limit }),
        2 => Just(ModelStep::Connect),
        24 => (0usize..3, 0u32..8, 0u32..8, report).prop_map(|(run, session, attempt, what)| {
            ModelStep::Report { run, stale_session: session < 2, attempt_off: u32::from(attempt < 2), what }
        }),
        1 => Just(ModelStep::OffersEnd),
        1 => Just(ModelStep::LeaseEnds),
        1 => (0usize..4).prop_map(|run| ModelStep::QueueTimeEnds { run }),
        1 => (0usize..4).prop_map(|run| ModelStep::Stop { run }),
        1 => (0usize..3).prop_map(|run| ModelStep::Forgotten { run }),
        1 => (0u8..8).prop_map(|n| if n == 0 { ModelStep::Revoke } else { ModelStep::Submit }),
    ]
}

/// A device, its sessions, and the model's view of its runs.
struct ModelHistory<'a> {
    test_store: &'a TestStore,
    sessions: Vec<SessionKey>,
    runs: Vec<ExpectedRun>,
    requests: [ApprovalId; 2],
    revoked: bool,
}

impl ModelHistory<'_> {
    async fn perform(&mut self, step: ModelStep) {
        match step {
            ModelStep::Submit if self.revoked => {}
            ModelStep::Submit => {
                let id = self.test_store.queue().await;
                let state = RunState::Queued;
                self.runs.push(ExpectedRun {
                    id,
                    state,
                    attempt: 0,
                    begins: 0,
                    offered: false,
                    holder: 0,
                    device_seq: 0,
                    last: 1,
                    open: None,
                    unknown: None,
                    stop: None,
                });
            }
            ModelStep::Connect => {
                match self.test_store.store.begin_session(&self.test_store.device.key, None, "0.1.0", LONG_LEASE).await
                {
                    Ok(Some((session, held))) => self.connected(session, held.iter().map(|run| run.run_id).collect()),
                    begun => assert!(self.revoked && matches!(begun, Ok(None))),
                }
            }
            ModelStep::Claim { limit } => self.claim(limit).await,
            ModelStep::Report { run, stale_session, attempt_off, what } => {
                self.report(run, stale_session, attempt_off, what).await;
            }
            ModelStep::OffersEnd => {
                let expected = self.runs.iter().filter(|run| run.offered).count();
                self.execute("UPDATE runs SET offered_until = now() WHERE offered_until IS NOT NULL").await;
                assert_eq!(self.test_store.store.return_unaccepted_offers().await.expect("done"), expected);
                self.runs.iter_mut().for_each(|run| run.offered = false);
            }
            ModelStep::LeaseEnds => {
                self.execute("UPDATE devices SET lease_expires_at = now()").await;
                // Runs of earlier histories may be among those it counts.
                self.test_store.store.suspend_lost_runs().await.expect("done");
                let lost = |run: &&mut ExpectedRun| {
                    run.state.phase() == Phase::Started && run.state != RunState::AwaitingReconciliation
                };
                self.runs.iter_mut().filter(lost).for_each(|run| run.moved(RunState::AwaitingReconciliation));
            }
            ModelStep::QueueTimeEnds { run } => {
                let Some(place) = self.place(run) else { return };
                let run = &mut self.runs[place];
                let sql = format!("UPDATE runs SET queue_expires_at = now() WHERE run_id = '{}'", run.id.uuid());
                self.test_store.database.execute(&sql).await;
                let expires = run.state == RunState::Queued;
                assert_eq!(self.test_store.store.expire_queued(LONG_LEASE).await.expect("done"), usize::from(expires));
                if expires {
                    run.moved(RunState::Expired);
                }
            }
            ModelStep::Stop { run } => {
                let Some(place) = self.place(run) else { return };
                let run = &mut self.runs[place];
                let asked = self.test_store.device.desktop.stop_run(StopRun { run_id: run.id }).await.expect("asked");
                if run.state.phase() != Phase::Final && run.stop.is_none() {
                    run.stop(asked.operation_id);
                }
            }
            ModelStep::Forgotten { run } => {
                let (Some(place), Some(session)) = (self.place(run), self.sessions.last()) else { return };
                let run = &mut self.runs[place];
                let Some(stop) = run.stop else { return };
                let store = &self.test_store.store;
                store.operation_done(*session, stop, OutcomeCode::OutcomeUnknown, LONG_LEASE).await.expect("written");
                if run.state.phase() == Phase::Started {
                    run.settled();
                    run.moved(RunState::Cancelled);
                }
            }
            ModelStep::Revoke => {
                assert!(
                    self.test_store
                        .store
                        .revoke_device(self.test_store.device.device_id, LONG_LEASE)
                        .await
                        .expect("done")
                );
                self.revoked = true;
                for run in self.runs.iter_mut().filter(|run| run.state.phase() != Phase::Final) {
                    run.withdraw();
                    run.moved(if run.state == RunState::Queued { RunState::Cancelled } else { RunState::Failed });
                }
            }
        }
        self.compare().await;
    }

    fn connected(&mut self, session: SessionKey, mut held: Vec<RunId>) {
        let mine = self.runs.iter_mut().filter(|run| run.offered || run.state.phase() == Phase::Started);
        let mut expected = Vec::new();
        for run in mine {
            run.holder = session.epoch;
            expected.push(run.id);
        }
        held.sort();
        expected.sort();
        assert_eq!(held, expected, "the new session holds what was under way");
        self.sessions.push(session);
    }

    async fn claim(&mut self, limit: u32) {
        let Some(session) = self.sessions.last().copied() else { return };
        let offers = self.test_store.device.claim(session, limit).await;
        let taken: Vec<_> = offers.iter().map(|offer| (offer.run_id, offer.attempt)).collect();
        let limit = if self.revoked { 0 } else { limit as usize };
        let waiting = self.runs.iter_mut().filter(|run| run.state == RunState::Queued && !run.offered);
        let mut expected = Vec::new();
        for run in waiting.take(limit) {
            (run.attempt, run.holder, run.offered, run.device_seq) = (run.attempt + 1, session.epoch, true, 0);
            expected.push((run.id, run.attempt));
        }
        assert_eq!(taken, expected);
    }

    async fn report(&mut self, run: usize, stale_session: bool, attempt_off: u32, report: ModelReport) {
        let count = self.sessions.len();
        let place = count.checked_sub(if stale_session { 2 } else { 1 });
        let (Some(session), Some(place)) = (place.map(|place| self.sessions[place]), self.place(run)) else { return };
        let run = &mut self.runs[place];
        let next = run.device_seq + 1;
        let what = match report {
            ModelReport::Start => AttemptUpdate::Start,
            ModelReport::Return => AttemptUpdate::Return,
            ModelReport::Events { back, skip, count } => events(next.saturating_sub(back).max(1) + skip, count),
            ModelReport::Finish { succeeds: true, back, skip } => succeeded(next.saturating_sub(back) + skip),
            ModelReport::Finish { succeeds: false, back, skip } => failed(next.saturating_sub(back) + skip),
            ModelReport::Approval { opens, which, back } => {
                let (seq, approval_id) = (next.saturating_sub(back).max(1), self.requests[which]);
                if opens { opened(seq, approval_id) } else { closed(seq, approval_id) }
            }
            ModelReport::Mismatch => AttemptUpdate::Mismatch,
            ModelReport::Reconcile => AttemptUpdate::Reconcile,
            ModelReport::Restart => AttemptUpdate::Restart,
            ModelReport::Unknown => AttemptUpdate::Unknown,
            ModelReport::RunAgain => AttemptUpdate::RunAgain,
            ModelReport::Cancel => AttemptUpdate::Cancel { held: run.attempt },
            ModelReport::Lose => AttemptUpdate::Lose,
        };
        let attempt = run.attempt + attempt_off;
        let fenced = session.epoch == run.holder && attempt_off == 0;
        let changes = fenced && run.report(&what);
        let is_newest = self.sessions.last().is_some_and(|newest| newest.epoch == session.epoch);
        if matches!(what, AttemptUpdate::Start) && is_newest && run.state == RunState::Queued && !run.offered {
            // What the device accepted was claimed once, and the claim was lost: its number is not given again.
            run.attempt = attempt.max(run.attempt);
        }
        let answer = self.test_store.one(session, run.id, attempt, what.clone()).await;
        if changes {
            assert_eq!(answer, RecordOutcome::Done, "{what:?}");
        } else if matches!(what, AttemptUpdate::End { .. }) && answer == RecordOutcome::Done {
            assert_eq!(self.runs[place].state.phase(), Phase::Final, "a finish is acknowledged and not stored");
        } else if !fenced && self.runs[place].state.phase() != Phase::Final {
            // A restart that was written down before is found again.
            let again =
                matches!(what, AttemptUpdate::Restart | AttemptUpdate::RunAgain) && answer == RecordOutcome::Done;
            assert!(
                again || matches!(answer, RecordOutcome::Revoked(_) | RecordOutcome::Replaced),
                "{what:?}: {answer:?}"
            );
        }
    }

    /// The newest runs are more interesting than those that ended long ago.
    fn place(&self, run: usize) -> Option<usize> {
        self.runs.len().checked_sub(1 + run % self.runs.len().max(1))
    }

    async fn execute(&self, sql: &str) {
        let own = if sql.contains(" WHERE ") { "AND" } else { "WHERE" };
        let device = self.test_store.device.device_id.uuid();
        self.test_store.database.execute(&format!("{sql} {own} device_id = '{device}'")).await;
    }

    async fn follow(&self, run: &ExpectedRun) {
        let (mut state, mut open) = (RunState::Queued, None);
        for event in self.test_store.store.events_after(run.id, 0, 1000).await.expect("read") {
            let next = after(state, &mut open, &event);
            assert!(state == next || state.may_become(next), "{state} to {next} by {event:?}");
            state = next;
        }
        assert_eq!(state, run.state, "what callers see in the events of {run:?}");
        assert!(state.phase() != Phase::Final || open.is_none(), "nothing stays open in the events of {run:?}");
    }

    async fn compare(&self) {
        let (store, all) = (&self.test_store.store, DeviceRunQuery::default());
        let mut stored =
            store.runs_of_device(self.test_store.device.device_id, &all, 1000).await.expect("read").entries;
        stored.sort_by_key(|stored| stored.run.run_id);
        let stored: Vec<_> = stored
            .into_iter()
            .map(|stored| (stored.run.run_id, stored.run.state, stored.run.attempt, stored.run.last_sequence))
            .collect();
        let expected: Vec<_> = self.runs.iter().map(|run| (run.id, run.state, run.begins, run.last)).collect();
        assert_eq!(stored, expected);
        assert_eq!(
            self.test_store.database.value(super::queue::ASTRAY_SQL).await,
            "0",
            "the queue holds what is queued"
        );
        let numbers = store.numbers(self.test_store.device.device_id).await.expect("counted");
        let count = |phase| self.runs.iter().filter(|run| run.state.phase() == phase).count();
        let counted = (numbers.waiting as usize, numbers.in_progress as usize);
        assert_eq!(counted, (count(Phase::Accepted), count(Phase::Started)));
    }

    /// Dense sequences, and exactly one final event, the last, where there is a final state. Its events lead by steps
    /// of the transition table to its state.
    async fn close(&self) {
        for run in &self.runs {
            self.follow(run).await;
            let types = self.test_store.events(run.id).await;
            let finals: Vec<_> = RunState::ALL.iter().filter_map(|state| EventType::ending(*state)).collect();
            let ends: Vec<_> = types.iter().enumerate().filter(|(_, kind)| finals.contains(kind)).collect();
            match EventType::ending(run.state) {
                Some(kind) => assert_eq!(ends, [(types.len() - 1, &kind)]),
                None => assert_eq!(ends, []),
            }
        }
    }
}

/// The state of a run after an event, as a reader of the events alone knows it.
fn after(state: RunState, open: &mut Option<Value>, event: &RunEvent) -> RunState {
    let said = |member: &str| event.data[member].as_str().and_then(|word| word.parse().ok());
    match event.kind {
        EventType::RunStarted => RunState::Running,
        EventType::RunAwaitingApproval => {
            *open = Some(event.data["approval_id"].clone());
            if state == RunState::Running { RunState::AwaitingApproval } else { state }
        }
        EventType::RunApprovalResolved => {
            let is_open = open.take_if(|open| *open == event.data["approval_id"]).is_some();
            if state == RunState::AwaitingApproval && is_open { RunState::Running } else { state }
        }
        EventType::RunAwaitingReconciliation => RunState::AwaitingReconciliation,
        EventType::RunReconciled => said("state").expect("it says where it went"),
        EventType::RunCancelling if state != RunState::AwaitingReconciliation => RunState::Cancelling,
        kind => RunState::ALL.into_iter().find(|end| EventType::ending(*end) == Some(kind)).unwrap_or(state),
    }
}

/// One history from its first step to its last.
async fn live(test_store: &mut TestStore, steps: Vec<ModelStep>) {
    test_store.device = DeviceFixture::pair(&test_store.store).await;
    let mut history = ModelHistory {
        test_store,
        sessions: Vec::new(),
        runs: Vec::new(),
        requests: [ApprovalId::new(), ApprovalId::new()],
        revoked: false,
    };
    history.perform(ModelStep::Connect).await;
    for step in steps {
        let within = tokio::time::timeout(Duration::from_secs(120), history.perform(step)).await;
        within.unwrap_or_else(|_| panic!("{step:?} does not end"));
    }
    history.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_history_leaves_a_final_state_or_makes_a_gap_or_a_second_end() {
    let test_store = Mutex::new(TestStore::new().await);
    let runtime = tokio::runtime::Handle::current();
    let mut runner = TestRunner::new(Config { cases: 50, failure_persistence: None, ..Config::default() });
    tokio::task::block_in_place(|| {
        let outcome = runner.run(&prop::collection::vec(step(), 10..60), |steps| {
            runtime.block_on(live(&mut test_store.lock().unwrap_or_else(PoisonError::into_inner), steps));
            Ok(())
        });
        outcome.unwrap_or_else(|error| panic!("{error}"));
    });
}
