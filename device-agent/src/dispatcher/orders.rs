//! Control operations: stops and resets. Each may be repeated in every session until the gateway has its answer.
//!
//! A stop is answered after the run's `finish`, so that a completed stop means that the run no longer works. A reset is
//! answered when the transcript is deleted from the disk.

use deskgate_protocol::control::{DeviceFrame, Order};
use deskgate_protocol::ids::{OperationId, RunId};
use deskgate_protocol::operation::OutcomeCode;
use deskgate_protocol::run::{Effects, Outcome, Usage};
use deskgate_store::journal::reconcile::OwnerFinding;
use tracing::{info, warn};

use super::run::RunStage;
use super::{Dispatcher, Link};

impl<L: Link> Dispatcher<L> {
    pub(super) async fn carry_out(&mut self, operation_id: OperationId, order: Order) {
        info!(%operation_id, ?order, "an operation came");
        let done = match order {
            Order::Stop { run_id } => self.stop_run(operation_id, run_id).await,
            Order::Reset { conversation, generation } => {
                self.transcripts.close(conversation, generation).await.map(|()| Some(OutcomeCode::Reset))
            }
        };
        match done {
            Ok(Some(outcome)) => self.line.send(DeviceFrame::ControlDone { operation_id, outcome }),
            Ok(None) => {}
            Err(error) => {
                warn!(%operation_id, %error, "an operation cannot be carried out now; trying again");
                self.unfinished_orders.insert(operation_id, order);
                self.retry_soon();
            }
        }
    }

    /// The answer, unless it follows the end of the run.
    async fn stop_run(
        &mut self,
        operation_id: OperationId,
        run_id: RunId,
    ) -> Result<Option<OutcomeCode>, deskgate_store::Error> {
        let Some(run) = self.runs.get_mut(&run_id) else {
            let ended = self.journal.has_ended(run_id).await?;
            return Ok(Some(if ended { OutcomeCode::AlreadyFinal } else { OutcomeCode::OutcomeUnknown }));
        };
        run.stop = Some(operation_id);
        match &run.stage {
            RunStage::Running { stop, .. } => stop.cancel(),
            RunStage::Unknown { settled: None, .. } => {
                let attempt = run.attempt;
                self.settle(run_id, attempt, OwnerFinding::Stopped, "stop").await?;
            }
            _ => {}
        }
        Ok(None)
    }

    /// Repeats operations that could not be carried out.
    pub(super) async fn retry_orders(&mut self) {
        for (operation_id, order) in std::mem::take(&mut self.unfinished_orders) {
            self.carry_out(operation_id, order).await;
        }
    }
}

/// The outcome of an attempt that was stopped before it began. `effects`: of the attempts before it.
pub(super) fn never_began(effects: Effects) -> Outcome {
    Outcome::Cancelled { effects, usage: Usage::default() }
}

/// The result of a stop, given the run's outcome.
pub(super) fn stopped(outcome: &Outcome) -> OutcomeCode {
    match outcome {
        Outcome::Cancelled { .. } => OutcomeCode::Stopped,
        Outcome::Succeeded { .. } | Outcome::Failed { .. } => OutcomeCode::AlreadyFinal,
    }
}
