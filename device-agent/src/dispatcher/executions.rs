//! Executions: starting them, their numbered events, and the one outcome of each.

use std::collections::BTreeMap;
use std::task::Poll;

use deskgate_protocol::control::{DeviceEvent, DeviceFrame, MessageDelta};
use deskgate_protocol::ids::RunId;
use deskgate_protocol::run::{Effects, Outcome, RunError, RunErrorCode, Usage};
use futures_util::future::join_all;
use tokio::sync::mpsc;
use tokio::task::{Id, JoinError};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::run::{RunStage, TrackedRun};
use super::{Dispatcher, Link, StopMode};
use crate::executor::{Exchange, Job, Progress};

/// The queue length between an execution and the dispatcher. When it is full, the execution waits.
const REPORT_QUEUE_LEN: usize = 16;

/// The next report of any run that may have another unacknowledged event. Cancel-safe.
pub(super) async fn next_report(runs: &mut BTreeMap<RunId, TrackedRun>, window: usize) -> (RunId, Progress) {
    std::future::poll_fn(|context| {
        for (run_id, run) in runs.iter_mut() {
            if let RunStage::Running { reports, .. } = &mut run.stage
                && !run.log.is_full(window)
                && let Poll::Ready(Some(report)) = reports.poll_recv(context)
            {
                return Poll::Ready((*run_id, report));
            }
        }
        Poll::Pending
    })
    .await
}

impl<L: Link> Dispatcher<L> {
    pub(super) fn execute(&mut self, run_id: RunId, earlier: Vec<Exchange>) {
        let Some(run) = self.runs.get_mut(&run_id) else { return };
        let (reports_in, reports) = mpsc::channel(REPORT_QUEUE_LEN);
        let stop = CancellationToken::new();
        let running = RunStage::Running { reports, stop: stop.clone(), revoked: false, ends: None };
        let RunStage::Taken { offer, definition: Some(definition), .. } = std::mem::replace(&mut run.stage, running)
        else {
            unreachable!("only `begin` calls this, for a run that it found taken and with a definition")
        };
        if let StopMode::Now { .. } = self.stop {
            stop.cancel();
        }
        info!(%run_id, attempt = run.attempt, trace_id = offer.trace_id(), "execution began");
        let (execute, job) =
            (self.execute.clone(), Job { offer: *offer, definition, earlier, leaving: self.leaving.clone() });
        let task = self.executions.spawn(async move { execute(job, reports_in, stop).await });
        self.tasks.insert(task.id(), run_id);
    }

    pub(super) fn note_event(&mut self, run_id: RunId, event: DeviceEvent) {
        let Some(run) = self.runs.get_mut(&run_id) else { return };
        match &event {
            DeviceEvent::UsageUpdated { usage, .. } => run.turns = usage.model_calls,
            DeviceEvent::ApprovalRequested { .. } => run.asks = true,
            DeviceEvent::ApprovalResolved { .. } => run.asks = false,
            _ => {}
        }
        run.log.push(event);
    }

    /// Stores a summary of the conversation before the run. If that fails, the next run sees more, and summarises
    /// again.
    pub(super) async fn remember(&mut self, run_id: RunId, summary: Exchange) {
        let Some(TrackedRun { said_before: Some(place), .. }) = self.runs.get(&run_id) else { return };
        let Exchange { request, answer } = summary;
        if let Err(error) = self.transcripts.sum_up(*place, request, answer).await {
            warn!(%run_id, %error, "a summary of a conversation could not be kept");
        }
    }

    /// Pauses a service that differs from its published version. If that cannot be recorded, its next run finds the
    /// same.
    pub(super) async fn pause(&mut self, run_id: RunId, why: String) {
        let Some(run) = self.runs.get(&run_id) else { return };
        let (endpoint_id, version) = (run.endpoint_id, run.endpoint_version);
        warn!(%run_id, %endpoint_id, version, why, "this version of the service is paused");
        if let Err(error) = self.services.pause(endpoint_id, version, why).await {
            warn!(%run_id, %error, "the pause could not be noted");
        }
    }

    /// Sends the assistant's unfinished text if the connection is free now, and drops it otherwise.
    pub(super) fn pass_on(&mut self, run_id: RunId, delta: MessageDelta) {
        if let Some(TrackedRun { attempt, stage: RunStage::Running { revoked: false, .. }, .. }) =
            self.runs.get(&run_id)
        {
            self.line.send_if_free(DeviceFrame::Delta { run_id, attempt: *attempt, delta });
        }
    }

    pub(super) fn stop_executions(&mut self) {
        for run in self.runs.values() {
            if let RunStage::Running { stop, .. } = &run.stage {
                stop.cancel();
            }
        }
    }

    pub(super) async fn note_report(&mut self, run_id: RunId, report: Progress) {
        match report {
            Progress::Event(event) => self.note_event(run_id, event),
            Progress::Ends => {
                self.send_what_can_be_sent();
                if let Some(TrackedRun { stage: RunStage::Running { ends, .. }, .. }) = self.runs.get_mut(&run_id) {
                    *ends = Some(Instant::now() + self.event_delay);
                }
            }
            Progress::Delta(delta) => {
                // Text never overtakes the events before it.
                self.send_what_can_be_sent();
                self.pass_on(run_id, delta.clone());
                self.writing.send_modify(|writing| writing.add(run_id, delta));
            }
            Progress::Summary(summary) => self.remember(run_id, summary).await,
            Progress::Outdated(why) => self.pause(run_id, why).await,
        }
    }

    pub(super) async fn end_executions(&mut self, ended: Vec<Result<(Id, Outcome), JoinError>>) {
        let mut finished = Vec::with_capacity(ended.len());
        for ended in ended {
            finished.extend(self.end_execution(ended).await);
        }
        self.journal_finish(&finished).await;
    }

    /// Returns the run if its outcome is to be journalled.
    async fn end_execution(&mut self, ended: Result<(Id, Outcome), JoinError>) -> Option<RunId> {
        let (id, outcome) = match ended {
            Ok((id, outcome)) => (id, Some(Ok(outcome))),
            Err(lost) => (lost.id(), lost.is_panic().then_some(Err(lost))),
        };
        let run_id = self.tasks.remove(&id)?;
        self.writing.send_if_modified(|writing| writing.end(run_id));
        let effects = match outcome {
            // It ended by itself, so nobody asks for them.
            Some(Ok(_)) if matches!(self.stop, StopMode::NotStopping) => Effects::Possible,
            _ => self.journal.effects(run_id).await,
        };
        let outcome = outcome.map(|outcome| outcome.unwrap_or_else(|_broken| faulty(effects)));
        let run = self.runs.get_mut(&run_id)?;
        let RunStage::Running { reports, revoked, .. } = &mut run.stage else { return None };
        if *revoked {
            let attempt = run.attempt;
            self.forget(&[(run_id, attempt)]).await;
            return None;
        }
        // Cut off by a stop of the agent, not by a stop of the run: the journal keeps it as running, and the next start
        // of the agent executes it again. Until then the run is kept in memory, so that a stop for it is not answered
        // as unknown.
        let cut_off = run.stop.is_none()
            && !matches!(self.stop, StopMode::NotStopping)
            && matches!(outcome, None | Some(Outcome::Cancelled { .. }));
        let Some(outcome) = outcome.filter(|_| !cut_off) else {
            let attempt = run.attempt;
            info!(%run_id, attempt, ?effects, "execution was cut off; the next start decides how it goes on");
            run.stage = match effects {
                Effects::None => RunStage::Interrupted,
                _ => RunStage::Unknown { settled: None, numbered: false },
            };
            // A graceful stop ends only executions that wait for a person.
            if let StopMode::Graceful { .. } = self.stop {
                self.give_back(run_id, attempt).await;
            }
            return None;
        };
        let mut outdated = None;
        while let Ok(report) = reports.try_recv() {
            match report {
                Progress::Event(event) => run.log.push(event),
                Progress::Outdated(why) => outdated = Some(why),
                // The next run makes a new summary in place of one that comes this late.
                Progress::Delta(_) | Progress::Summary(_) | Progress::Ends => {}
            }
        }
        info!(%run_id, attempt = run.attempt, state = %outcome.state(), "execution ended");
        run.stage = RunStage::ended(outcome);
        if let Some(why) = outdated {
            self.pause(run_id, why).await;
        }
        Some(run_id)
    }

    async fn give_back(&mut self, run_id: RunId, attempt: u32) {
        if let Err(error) = self.journal.give_back(run_id, attempt).await {
            warn!(%run_id, %error, "a run that only waited counts as cut off: the journal could not be written");
        }
    }

    /// Journals the outcomes of runs that have ended.
    pub(super) async fn journal_finish(&mut self, ended: &[RunId]) {
        let journal = &self.journal;
        let writes = self.runs.iter_mut().filter(|(run_id, _)| ended.contains(run_id)).filter_map(|(run_id, run)| {
            let RunStage::Ended { outcome, .. } = &run.stage else { return None };
            let (attempt, seq) = (run.attempt, run.log.last() + 1);
            let events = run.log.unacknowledged();
            Some(async move { (*run_id, journal.finish(*run_id, attempt, seq, outcome, events).await) })
        });
        for (run_id, written) in join_all(writes).await {
            let Some(run) = self.runs.get_mut(&run_id) else { continue };
            match (written, &mut run.stage) {
                (Ok(signed), RunStage::Ended { receipt, journalled, .. }) => {
                    (*receipt, *journalled) = (signed, true);
                    let endpoint_id = run.endpoint_id;
                    self.withheld.record_end(endpoint_id);
                    self.journal_works();
                }
                (Ok(_), _) => {}
                (Err(error), _) => self.journal_failed(run_id, &error),
            }
        }
    }
}

/// The outcome of an execution that panicked. `effects`: of its calls, according to the journal.
fn faulty(effects: Effects) -> Outcome {
    error!("an execution broke down; its run fails with internal");
    let message = match effects {
        Effects::None => "The device failed while it was executing this run. Nothing was changed.",
        _ => "The device failed while it was executing this run.",
    };
    let error = RunError {
        code: RunErrorCode::Internal,
        message: message.to_owned(),
        retryable: effects == Effects::None,
        effects,
    };
    Outcome::Failed { error, usage: Usage::default() }
}
