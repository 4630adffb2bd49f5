//! One run, from its start to exactly one outcome.

use std::sync::Arc;

use deskgate_protocol::control::{DeviceEvent, Offer};
use deskgate_protocol::run::Outcome;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::services::Definition;

/// A run to execute, with the definition it was accepted for.
#[derive(Clone, Debug)]
pub struct Job {
    /// What was offered.
    pub offer: Offer,
    /// What the device holds for it.
    pub definition: Arc<Definition>,
}

/// Executes one run. Events go to `events` in order; `stop` ends the run early and the outcome says
/// so. Always returns exactly one outcome and leaves nothing running.
pub async fn execute(job: Job, events: mpsc::Sender<DeviceEvent>, stop: CancellationToken) -> Outcome {
    let _ = (job, events, stop);
    unreachable!("replaced by the executor")
}
