//! Runs whose end nobody knows: what their owner says of them, and what the gateway is told then.
//!
//! An end takes the number after the last event that the gateway has. The events were lost with the process, so the
//! gateway says that number: it answers an `unknown` run of the hello with an `ack`.

use deskgate_protocol::control::DeviceFrame;
use deskgate_protocol::ids::RunId;
use tracing::info;

use super::handle::ReconcileError;
use super::run::{Log, Run, Stage};
use super::{Dispatcher, Link};
use crate::store;
use crate::store::journal::reconcile::Finding;

impl<L: Link> Dispatcher<L> {
    pub(super) async fn reconcile(&mut self, run_id: RunId, finding: Finding, who: &str) -> Result<(), ReconcileError> {
        let Some(Run { attempt, stage: Stage::Unknown { settled, .. }, .. }) = self.runs.get(&run_id) else {
            return Err(ReconcileError::NotWaiting(run_id));
        };
        if settled.is_some() {
            return Err(ReconcileError::Settled(run_id));
        }
        let attempt = *attempt;
        Ok(self.settle(run_id, attempt, finding, who).await?)
    }

    /// Writes down what became of an unknown run, and tells the gateway as soon as it can be told.
    pub(super) async fn settle(
        &mut self,
        run_id: RunId,
        attempt: u32,
        finding: Finding,
        who: &str,
    ) -> Result<(), store::Error> {
        let outcome = self.journal.reconcile(run_id, attempt, finding, who).await?;
        info!(%run_id, attempt, finding = finding.as_str(), "a run whose end was unknown is settled");
        let Some(run) = self.runs.get_mut(&run_id) else { return Ok(()) };
        match (outcome, &mut run.stage) {
            (None, stage) => {
                *stage = Stage::Interrupted;
                self.line.send(DeviceFrame::Reconciled { run_id, attempt });
            }
            (Some(outcome), Stage::Unknown { settled, .. }) => {
                *settled = Some(Box::new(outcome));
                self.end_settled(run_id).await;
            }
            (Some(_), _) => {}
        }
        Ok(())
    }

    /// The gateway has events of an unknown run through this number.
    pub(super) async fn number(&mut self, run_id: RunId, through: u64) {
        let Some(Run { stage: Stage::Unknown { numbered, .. }, log, .. }) = self.runs.get_mut(&run_id) else { return };
        *numbered = true;
        *log = Log::after(through);
        self.end_settled(run_id).await;
    }

    /// An unknown run ends once its owner has settled it and its end has a number.
    async fn end_settled(&mut self, run_id: RunId) {
        let Some(run) = self.runs.get_mut(&run_id) else { return };
        if let Stage::Unknown { settled: settled @ Some(_), numbered: true } = &mut run.stage
            && let Some(outcome) = settled.take()
        {
            run.stage = Stage::Ended { outcome, journalled: false, sent: false };
            self.journal_finish(run_id).await;
        }
    }
}
