//! The health data that is cached between two checks.

use std::sync::Arc;
use std::time::Instant;

use deskgate_protocol::Timestamp;
use tokio::sync::{Mutex, watch};

use crate::health::{Finding, HealthProblem, ProblemTracker};

/// The health data that is cached between two checks. Clones are cheap.
#[derive(Clone, Debug)]
pub struct HealthMonitor {
    pub(super) memory: Arc<Mutex<HealthCache>>,
    pub(super) shown: watch::Sender<Vec<HealthProblem>>,
}

#[derive(Debug, Default)]
pub(super) struct HealthCache {
    pub(super) board: ProblemTracker,
    pub(super) line: Option<Finding>,
    pub(super) gateway: Option<(Instant, Vec<Finding>)>,
    pub(super) sandboxes: Option<(Instant, Vec<Finding>)>,
    pub(super) providers: Option<(Timestamp, Vec<Finding>)>,
    pub(super) keyring: Option<(Instant, Option<Finding>)>,
}

impl Default for HealthMonitor {
    fn default() -> Self {
        Self { memory: Arc::default(), shown: watch::Sender::new(Vec::new()) }
    }
}

impl HealthMonitor {
    /// The current problems that the owner has not ignored, and their changes.
    pub fn watch(&self) -> watch::Receiver<Vec<HealthProblem>> {
        self.shown.subscribe()
    }
}
