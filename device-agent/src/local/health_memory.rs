//! The health data that is cached between two checks.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;

use deskgate_protocol::{DraftId, Timestamp};
use tokio::sync::{Mutex, watch};

use crate::health::{Finding, HealthProblem, ProblemTracker};
use crate::services::standing::ServiceStanding;

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
    /// What the gateway says of each service.
    pub(super) standings: HashMap<DraftId, ServiceStanding>,
    pub(super) sandboxes: Option<(Instant, Vec<Finding>)>,
    pub(super) providers: Option<(Timestamp, Vec<Finding>)>,
    /// When the settings of a provider were last changed.
    pub(super) providers_changed: BTreeMap<String, Timestamp>,
    pub(super) keyring: Option<(Instant, Option<Finding>)>,
}

impl Default for HealthMonitor {
    fn default() -> Self {
        Self { memory: Arc::default(), shown: watch::Sender::new(Vec::new()) }
    }
}

impl HealthMonitor {
    /// A provider's settings were changed: what was found about it is of no use any more.
    pub(super) async fn forget_provider(&self, name: &str) {
        let mut memory = self.memory.lock().await;
        memory.providers_changed.insert(name.to_owned(), Timestamp::now());
        memory.gateway = None;
        if let Some((_, found)) = &mut memory.providers {
            found.retain(|finding| !is_about(finding, name));
        }
    }

    /// The current problems that the owner has not ignored, and their changes.
    pub fn watch(&self) -> watch::Receiver<Vec<HealthProblem>> {
        self.shown.subscribe()
    }
}

/// Whether a finding is about a provider, or a model of its.
pub(super) fn is_about(finding: &Finding, provider: &str) -> bool {
    let about = finding.about.as_deref().and_then(|about| about.strip_prefix(provider));
    about.is_some_and(|rest| rest.is_empty() || rest.starts_with(": "))
}
