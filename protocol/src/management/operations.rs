//! What the desktop user orders, and what becomes of it.

use serde::{Deserialize, Serialize};

use crate::ids::{OperationId, RunId};

/// Stops a run of one of the device's services. While a stop of it is open already, the reply shows that one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopRun {
    /// Which run.
    pub run_id: RunId,
}

/// Shows a control operation on one of the device's runs or conversations, whoever asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShowOperation {
    /// Which one.
    pub operation_id: OperationId,
    /// Wait up to so many seconds, at most 60, until it has ended.
    #[serde(default)]
    pub wait_s: u32,
}
