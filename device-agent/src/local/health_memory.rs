//! What is remembered of the agent's health between two looks.

use std::sync::Arc;
use std::time::Instant;

use deskgate_protocol::Timestamp;
use tokio::sync::{Mutex, watch};

use crate::health::{Finding, HealthProblem, ProblemTracker};

/// What is remembered between two looks. Cloning is cheap.
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
    /// The problems of the newest look that the owner wants to hear of, and news of others.
    pub fn watch(&self) -> watch::Receiver<Vec<HealthProblem>> {
        self.shown.subscribe()
    }
}
