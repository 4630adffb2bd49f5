//! Runs whose end is unknown: their owner's decision, and its report to the gateway.
//!
//! The gateway answers an `unknown` run of the hello with an `ack`. The owner's decision is sent only after it: the
//! gateway has then recorded that the end was unknown, and has reported which number an end takes, whose events were
//! lost with the process.

use deskgate_protocol::control::{DeviceFrame, MAX_RECALLED_RUNS};
use deskgate_protocol::ids::RunId;
use deskgate_store::journal::reconcile::{OwnerFinding, Settlement};
use tracing::{info, warn};

use super::handle::ReconcileError;
use super::run::{EventLog, RunStage, TrackedRun};
use super::{Dispatcher, Link, StopMode};

impl<L: Link> Dispatcher<L> {
    pub(super) async fn reconcile(
        &mut self,
        run_id: RunId,
        finding: OwnerFinding,
        who: &str,
    ) -> Result<(), ReconcileError> {
        let Some(TrackedRun { attempt, stage: RunStage::Unknown { settled, .. }, .. }) = self.runs.get(&run_id) else {
            return Err(ReconcileError::NotWaiting(run_id));
        };
        if !matches!(self.stop, StopMode::NotStopping) {
            // From the next start on the journal has it as unknown.
            return Err(ReconcileError::Stopped);
        }
        if settled.is_some() {
            return Err(ReconcileError::Settled(run_id));
        }
        let attempt = *attempt;
        Ok(self.settle(run_id, attempt, finding, who).await?)
    }

    /// Records how an unknown run ended, and reports it to the gateway as soon as possible.
    pub(super) async fn settle(
        &mut self,
        run_id: RunId,
        attempt: u32,
        finding: OwnerFinding,
        who: &str,
    ) -> Result<(), deskgate_store::Error> {
        let word = self.journal.reconcile(run_id, attempt, finding, who).await?;
        info!(%run_id, attempt, finding = finding.as_str(), "a run whose end was unknown is settled");
        if let Some(TrackedRun { stage: RunStage::Unknown { settled, .. }, .. }) = self.runs.get_mut(&run_id) {
            *settled = Some(word);
            self.pass_word(run_id).await;
        }
        Ok(())
    }

    /// The gateway was restored, and asks which of these runs were never here. A journal that cannot be read says nothing.
    pub(super) async fn recall(&mut self, runs: Vec<RunId>) {
        let asked = runs.len();
        if asked > MAX_RECALLED_RUNS {
            return warn!(asked, "the gateway asked about more runs at once than any gateway does; not answered");
        }
        match self.journal.never_had(runs).await {
            Ok(never_had) => {
                info!(asked, never_had = never_had.len(), "the gateway was restored, and asked which runs were here");
                self.line.send(DeviceFrame::Recalled { never_had });
            }
            Err(error) => warn!(%error, "the gateway asked which runs were here, and the journal cannot be read"),
        }
    }

    /// The gateway has events of an unknown run through this number.
    pub(super) async fn number(&mut self, run_id: RunId, through: u64) {
        let Some(TrackedRun { stage: RunStage::Unknown { numbered, .. }, log, .. }) = self.runs.get_mut(&run_id) else {
            return;
        };
        *numbered = true;
        *log = EventLog::after(through);
        self.pass_word(run_id).await;
    }

    /// Reports the owner's decision to the gateway once both the decision and the `ack` are there. A run that is to run
    /// again stays unknown until its next attempt is offered, so that another session gets the whole report again.
    async fn pass_word(&mut self, run_id: RunId) {
        let Some(run) = self.runs.get_mut(&run_id) else { return };
        let RunStage::Unknown { settled: Some(word), numbered: true } = &run.stage else { return };
        match word {
            Settlement::RunsAgain => self.line.send(DeviceFrame::Reconciled { run_id, attempt: run.attempt }),
            Settlement::Ends(outcome) => {
                run.stage = RunStage::ended((**outcome).clone());
                self.journal_finish(&[run_id]).await;
            }
        }
    }
}
