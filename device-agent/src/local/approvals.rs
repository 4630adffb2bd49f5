//! Requests about approvals, the audit, and runs that wait for their owner's decision.

use deskgate_definition::ModelFailure;
use deskgate_definition::approvals::GrantScope;
pub use deskgate_definition::tool::{Plan, PlanPreview};
use deskgate_program::visible;
use deskgate_protocol::ids::{ApplicationId, ApprovalId, RunId};
use deskgate_store::approvals::Approval;
pub use deskgate_store::approvals::{ApprovalState, Decision};
use deskgate_store::audit;
use deskgate_store::intents::Intent;
pub use deskgate_store::journal::reconcile::OwnerFinding;
use serde::{Deserialize, Serialize};

use super::handler::RequestHandler;
use super::pending_decisions::PendingDecision;
use super::reply::{ErrorReply, Requester};
use super::request::TypedRequest;

/// Lists approval requests, the next to expire first.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ListApprovals {
    /// Whether to include the answered ones.
    pub all: bool,
    /// Only those of this run, answered or not, in the order in which they were made.
    #[serde(default)]
    pub run_id: Option<RunId>,
}

impl TypedRequest for ListApprovals {
    type Response = Vec<ApprovalView>;

    async fn answer(self, handler: &RequestHandler, _: Requester) -> Result<Vec<ApprovalView>, ErrorReply> {
        handler.approvals(self).await
    }
}

/// Finds approval requests, answered or not, by the end of their identifier. A few, newest first.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FindApprovals {
    /// The last hexadecimal digits.
    pub end: String,
}

impl TypedRequest for FindApprovals {
    type Response = Vec<ApprovalId>;

    async fn answer(self, handler: &RequestHandler, _: Requester) -> Result<Vec<ApprovalId>, ErrorReply> {
        Ok(handler.store.approvals().ids_by_end(self.end).await?)
    }
}

/// Shows one approval request.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ShowApproval {
    /// The approval request.
    pub approval_id: ApprovalId,
}

impl TypedRequest for ShowApproval {
    type Response = ApprovalView;

    async fn answer(self, handler: &RequestHandler, _: Requester) -> Result<ApprovalView, ErrorReply> {
        handler.approval(self).await
    }
}

/// Decides about an approval request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DecideApproval {
    /// The approval request.
    pub approval_id: ApprovalId,
    /// The decision.
    pub decision: Decision,
}

impl TypedRequest for DecideApproval {
    type Response = ApprovalView;

    async fn answer(self, handler: &RequestHandler, asker: Requester) -> Result<ApprovalView, ErrorReply> {
        handler.decide(self, asker).await
    }
}

/// Lists the audit, newest first.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ListAudit {
    /// Only rows of this run.
    pub run_id: Option<RunId>,
    /// At most this many rows.
    pub limit: u32,
}

impl TypedRequest for ListAudit {
    type Response = Vec<audit::AuditEntry>;

    async fn answer(self, handler: &RequestHandler, _: Requester) -> Result<Vec<audit::AuditEntry>, ErrorReply> {
        handler.store.audit().list(self.run_id, self.limit).await.map_err(ErrorReply::from)
    }
}

/// Shows the evidence about a run that waits for its owner's decision.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ShowEvidence {
    /// The run.
    pub run_id: RunId,
}

impl TypedRequest for ShowEvidence {
    type Response = Vec<Evidence>;

    async fn answer(self, handler: &RequestHandler, _: Requester) -> Result<Vec<Evidence>, ErrorReply> {
        handler.evidence(self.run_id).await
    }
}

/// Shows why the model of a run could not be used, in its provider's words.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ShowModelFailure {
    /// The run.
    pub run_id: RunId,
}

impl TypedRequest for ShowModelFailure {
    type Response = Option<ModelFailure>;

    async fn answer(self, handler: &RequestHandler, _: Requester) -> Result<Option<ModelFailure>, ErrorReply> {
        Ok(handler.store.model_failure(self.run_id).await?)
    }
}

/// The owner's finding about a run whose end is unknown.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ReconcileRun {
    /// The run.
    pub run_id: RunId,
    /// The owner's finding.
    pub finding: OwnerFinding,
}

impl TypedRequest for ReconcileRun {
    type Response = ();

    async fn answer(self, handler: &RequestHandler, asker: Requester) -> Result<(), ErrorReply> {
        handler.settle(self, asker).await
    }
}

/// An approval request with this device's knowledge of its application.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ApprovalView {
    /// The request.
    #[serde(flatten)]
    pub approval: Approval,
    /// The application that may call the service.
    pub app_id: Option<ApplicationId>,
    /// The scope of an approval for the rest of the run.
    pub scope: String,
    /// A decision that does not count yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<PendingDecision>,
}

impl ApprovalView {
    /// From a request and its service's application.
    pub(super) fn new(approval: Approval, app_id: Option<ApplicationId>, pending: Option<PendingDecision>) -> Self {
        let place = approval.plan.as_ref().and_then(|plan| plan.place.as_deref());
        let scope = GrantScope::of(&approval.tool, place).to_string();
        Self { approval, app_id, scope, pending }
    }
}

impl ApprovalView {
    /// What the owner of an approved call that was not carried out as they saw it has to know, as a sentence.
    pub fn not_carried_out(&self) -> Option<String> {
        let Approval { followed_by, not_done, .. } = &self.approval;
        match (followed_by, not_done) {
            (Some(next), _) => Some(format!(
                "It was not carried out: what it would do had changed since you saw it. You were asked again with {next}."
            )),
            (None, Some(why)) => Some(format!("It was not carried out: {}", sentence(why))),
            (None, None) => None,
        }
    }

    /// Seconds from the request to its answer, or to its expiry; `None` while it waits, and if the run ended first.
    pub fn waited_s(&self) -> Option<i64> {
        let decided_at = self.approval.decided_at.filter(|_| self.approval.state != ApprovalState::Withdrawn)?;
        Some((decided_at.0.as_second() - self.approval.asked_at.0.as_second()).max(0))
    }
}

/// With a full stop at its end.
fn sentence(text: &str) -> String {
    format!("{}.", visible::line(text).trim_end_matches('.'))
}

/// The median of seconds; `None` without any.
pub fn median(seconds: impl IntoIterator<Item = i64>) -> Option<i64> {
    let mut sorted: Vec<_> = seconds.into_iter().collect();
    sorted.sort_unstable();
    sorted.get(sorted.len().div_ceil(2).checked_sub(1)?).copied()
}

/// The state on disk after a call that was to change it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnDisk {
    /// As before the call.
    AsBefore,
    /// As the call planned it.
    AsPlanned,
    /// Neither of them.
    Neither,
    /// Unknown: the call changes no single file, or the file cannot be read.
    Unknown,
}

/// One writing call of a run, and the state on disk now.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Evidence {
    /// The call.
    #[serde(flatten)]
    pub intent: Intent,
    /// The state on disk now.
    pub on_disk: OnDisk,
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn half_of_them_are_no_longer_than_the_median() {
        assert_eq!((median([]), median([7]), median([9, 1])), (None, Some(7), Some(1)));
        assert_eq!(median([600, 5, 3, 900, 4]), Some(5), "one long absence does not move it");
    }
}
