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
        match handler.pending_decisions.take(self.approval_id, None) {
            Some(_) => Ok(()),
            None => Err(refused("too late: the decision counts already, or there is none".to_owned())),
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

/// The decisions that do not count yet. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct PendingDecisions {
    decisions: Arc<Mutex<HashMap<ApprovalId, PendingDecision>>>,
}

impl PendingDecisions {
    fn lock(&self) -> MutexGuard<'_, HashMap<ApprovalId, PendingDecision>> {
        self.decisions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The decision about a request.
    pub(super) fn of(&self, approval_id: ApprovalId) -> Option<PendingDecision> {
        self.lock().get(&approval_id).cloned()
    }

    /// Takes the decision about a request: only `this` one, if one is named.
    fn take(&self, approval_id: ApprovalId, this: Option<&PendingDecision>) -> Option<PendingDecision> {
        let mut decisions = self.lock();
        let found = decisions.get(&approval_id)?;
        this.is_none_or(|this| this == found).then(|| decisions.remove(&approval_id)).flatten()
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
        self.pending_decisions.lock().insert(approval_id, pending.clone());
        let handler = self.clone();
        let counts = pending.clone();
        tokio::spawn(async move {
            tokio::time::sleep(UNDO_TIME).await;
            let Some(PendingDecision { decision, .. }) = handler.pending_decisions.take(approval_id, Some(&counts))
            else {
                return;
            };
            if let Err(no) = handler.decide(DecideApproval { approval_id, decision }, asker).await {
                tracing::warn!(%approval_id, why = no.message, "a decision did not count");
            }
        });
        Ok(ApprovalView { pending: Some(pending), ..view })
    }
}
