//! Stops and resets that the desktop user requests.

use serde::{Deserialize, Serialize};

use crate::ids::{OperationId, RunId};

/// Stops a run of one of the device's services. If a stop of it is already open, the reply shows that stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopRun {
    /// The run's identifier.
    pub run_id: RunId,
}

/// Shows a control operation on one of the device's runs or conversations, no matter who requested it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShowOperation {
    /// The operation's identifier.
    pub operation_id: OperationId,
    /// Seconds to wait until it has ended, at most 60.
    #[serde(default)]
    pub wait_s: u32,
}
