//! What is remembered of the agent's health between two looks.

use std::sync::Arc;
use std::time::Instant;

use deskgate_protocol::Timestamp;
use tokio::sync::{Mutex, watch};

use crate::health::{Board, Finding, Problem};

/// What is remembered between two looks. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct Health {
    pub(super) memory: Arc<Mutex<Memory>>,
    pub(super) shown: watch::Sender<Vec<Problem>>,
}

#[derive(Debug, Default)]
pub(super) struct Memory {
    pub(super) board: Board,
    pub(super) line: Option<Finding>,
    pub(super) gateway: Option<(Instant, Vec<Finding>)>,
    pub(super) sandboxes: Option<(Instant, Vec<Finding>)>,
    pub(super) providers: Option<(Timestamp, Vec<Finding>)>,
    pub(super) keyring: Option<(Instant, Option<Finding>)>,
}

impl Default for Health {
    fn default() -> Self {
        Self { memory: Arc::default(), shown: watch::Sender::new(Vec::new()) }
    }
}

impl Health {
    /// The problems of the newest look that the owner wants to hear of, and news of others.
    pub fn watch(&self) -> watch::Receiver<Vec<Problem>> {
        self.shown.subscribe()
    }
}
