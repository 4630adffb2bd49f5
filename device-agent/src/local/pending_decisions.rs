//! Decisions that can still be undone: for five seconds after a click they do not count.
//!
//! They are kept in memory only. If the agent ends before one counts, nothing was decided and the request still waits.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use deskgate_protocol::Timestamp;
use deskgate_protocol::ids::ApprovalId;
use deskgate_store::approvals::{ApprovalState, Decision};
use serde::{Deserialize, Serialize};

use super::approvals::{ApprovalView, DecideApproval, ShowApproval};
use super::decisions::too_late;
use super::error_reply::refused;
use super::handler::RequestHandler;
use super::reply::{ErrorReply, Requester};
use super::request::TypedRequest;

/// For how long a decision can be undone.
pub const UNDO_TIME: Duration = Duration::from_secs(5);

/// Decides about an approval request in [`UNDO_TIME`], unless that is undone. One that expires before decides at once.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DecideSoon {
    /// The approval request.
    pub approval_id: ApprovalId,
    /// The decision. A later one takes its place.
    pub decision: Decision,
}

impl TypedRequest for DecideSoon {
    type Response = ApprovalView;

    async fn answer(self, handler: &RequestHandler, asker: Requester) -> Result<ApprovalView, ErrorReply> {
        handler.decide_soon(self, asker).await
    }
}

/// Undoes a decision that does not count yet.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct UndoDecision {
    /// The approval request, which waits again.
    pub approval_id: ApprovalId,
}

impl TypedRequest for UndoDecision {
    type Response = ();

    async fn answer(self, handler: &RequestHandler, _: Requester) -> Result<(), ErrorReply> {
        match handler.pending_decisions.undo(self.approval_id) {
            true => Ok(()),
            false => Err(refused("too late: the decision counts already, or there is none".to_owned())),
        }
    }
}

/// A decision that does not count yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingDecision {
    /// The decision.
    #[serde(flatten)]
    pub decision: Decision,
    /// When it counts.
    pub counts_at: Timestamp,
}

#[derive(Clone, Debug)]
struct PendingEntry {
    decision: PendingDecision,
    /// Its time to be undone is over, and it is being written.
    counts: bool,
}

/// The decisions that do not count yet. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct PendingDecisions {
    decisions: Arc<Mutex<HashMap<ApprovalId, PendingEntry>>>,
}

impl PendingDecisions {
    fn lock(&self) -> MutexGuard<'_, HashMap<ApprovalId, PendingEntry>> {
        self.decisions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The decision about a request.
    pub(super) fn of(&self, approval_id: ApprovalId) -> Option<PendingDecision> {
        self.lock().get(&approval_id).map(|entry| entry.decision.clone())
    }

    /// Adds a decision; false if another one counts already.
    fn add(&self, approval_id: ApprovalId, decision: PendingDecision) -> bool {
        let mut decisions = self.lock();
        let is_late = decisions.get(&approval_id).is_some_and(|entry| entry.counts);
        if !is_late {
            decisions.insert(approval_id, PendingEntry { decision, counts: false });
        }
        !is_late
    }

    /// Takes back the decision about a request, unless its time is over.
    fn undo(&self, approval_id: ApprovalId) -> bool {
        let mut decisions = self.lock();
        decisions.get(&approval_id).is_some_and(|entry| !entry.counts) && decisions.remove(&approval_id).is_some()
    }

    /// Ends the time of a decision, if it is still there and no other one took its place.
    fn begin_to_count(&self, approval_id: ApprovalId, this: &PendingDecision) -> bool {
        match self.lock().get_mut(&approval_id) {
            Some(entry) if entry.decision == *this => {
                entry.counts = true;
                true
            }
            _ => false,
        }
    }
}

impl RequestHandler {
    async fn decide_soon(&self, ask: DecideSoon, asker: Requester) -> Result<ApprovalView, ErrorReply> {
        let DecideSoon { approval_id, decision } = ask;
        super::decisions::check(&decision)?;
        let view = self.approval(ShowApproval { approval_id }).await?;
        if view.approval.state != ApprovalState::Waiting {
            return Err(too_late(view.approval.state));
        }
        let now = Timestamp::now();
        let counts_at = Timestamp(now.0 + UNDO_TIME);
        if counts_at >= view.approval.expires_at {
            return self.decide(DecideApproval { approval_id, decision }, asker).await;
        }
        let pending = PendingDecision { decision, counts_at };
        if !self.pending_decisions.add(approval_id, pending.clone()) {
            return Err(refused("too late: another decision counts already".to_owned()));
        }
        let (handler, counting) = (self.clone(), pending.clone());
        tokio::spawn(async move {
            tokio::time::sleep(UNDO_TIME).await;
            if !handler.pending_decisions.begin_to_count(approval_id, &counting) {
                return;
            }
            let decided = handler.decide(DecideApproval { approval_id, decision: counting.decision }, asker).await;
            // Only now: until it is written, the request does not wait for another answer.
            handler.pending_decisions.lock().remove(&approval_id);
            if let Err(no) = decided {
                tracing::warn!(%approval_id, why = no.message, "a decision did not count");
                handler.store.wake_requests();
            }
        });
        Ok(ApprovalView { pending: Some(pending), ..view })
    }
}
