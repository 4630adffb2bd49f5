//! Management requests that wait for their reply.

use std::collections::HashMap;

use deskgate_protocol::control::ManagementResult;
use serde_json::Value;
use tokio::sync::oneshot;

use crate::services::CallError;

/// Requests under way at the same time.
const LIMIT: usize = 64;

type Answer = oneshot::Sender<Result<Value, CallError>>;

#[derive(Debug, Default)]
pub(super) struct Calls {
    last_id: u64,
    waiting: HashMap<u64, Answer>,
}

impl Calls {
    /// Remembers who waits and gives the request its number; `None` when too many wait.
    pub(super) fn begin(&mut self, answer: Answer) -> Option<u64> {
        // Whoever gave up waiting makes room.
        self.waiting.retain(|_, answer| !answer.is_closed());
        if self.waiting.len() >= LIMIT {
            let _ = answer.send(Err(CallError::Busy));
            return None;
        }
        self.last_id += 1;
        self.waiting.insert(self.last_id, answer);
        Some(self.last_id)
    }

    pub(super) fn end(&mut self, request_id: u64, result: ManagementResult) {
        if let Some(answer) = self.waiting.remove(&request_id) {
            let _ = answer.send(match result {
                ManagementResult::Ok(value) => Ok(value),
                ManagementResult::Error(error) => Err(CallError::Refused(error)),
            });
        }
    }

    /// The line is lost, and with it every reply.
    pub(super) fn fail_all(&mut self) {
        for (_, answer) in self.waiting.drain() {
            let _ = answer.send(Err(CallError::LineLost));
        }
    }
}
