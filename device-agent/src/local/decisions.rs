//! Answers requests about approvals and unsettled runs. Only the private socket and the pages reach them: gateways
//! cannot decide.

use std::path::Path;

use deskgate_definition::Network;
use deskgate_definition::tool::PlanPreview;
use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::ids::{ApplicationId, EndpointId, RunId};
use deskgate_store::approvals::{Approval, ApprovalState, Decision, DecisionOutcome};
use deskgate_store::intents::Intent;
use deskgate_tools::engine::access::AccessError;
use deskgate_tools::engine::workspace::{LinkPolicy, Workspace, WorkspaceOptions};

use super::approvals::{ApprovalView, DecideApproval, Evidence, ListApprovals, OnDisk, ReconcileRun, ShowApproval};
use super::error_reply::refused;
use super::handler::RequestHandler;
use super::reply::{ErrorReply, ErrorReplyCode, Requester};
use crate::dispatcher::ReconcileError;

/// The length limit of a reason for the assistant, in characters.
const MAX_REASON_CHARS: usize = 2_000;
/// How many bytes of contents the answered requests of one list have. `ShowApproval` has those of each.
const MAX_LISTED_BYTES: usize = 4 << 20;
/// How many bytes of a file are read for the comparison.
const MAX_COMPARED_BYTES: u64 = 256 << 20;

/// Whether a decision is acceptable.
pub(super) fn check(decision: &Decision) -> Result<(), ErrorReply> {
    match decision {
        Decision::Deny { reason: Some(reason) } if reason.chars().count() > MAX_REASON_CHARS => {
            let message = format!("--reason: at most {MAX_REASON_CHARS} characters");
            Err(ErrorReply { code: ErrorReplyCode::Invalid, message })
        }
        _ => Ok(()),
    }
}

/// Why a decision about a request that has ended does not count.
pub(super) fn too_late(state: ApprovalState) -> ErrorReply {
    let why = match state {
        ApprovalState::Expired => "its time was over, so it counts as denied",
        ApprovalState::Withdrawn => "its run has ended, or was interrupted",
        ApprovalState::Denied => "it was denied already",
        _ => "it was approved already",
    };
    refused(format!("too late: {why}. Nothing was changed by this command"))
}

impl RequestHandler {
    pub(super) async fn approvals(&self, ask: ListApprovals) -> Result<Vec<ApprovalView>, ErrorReply> {
        let approvals = self.store.approvals();
        let listed = match ask.run_id {
            Some(run_id) => approvals.of_run(run_id).await?,
            None => approvals.list(ask.all).await?,
        };
        let mut views = Vec::new();
        let mut left = MAX_LISTED_BYTES;
        for mut approval in listed {
            if approval.state != ApprovalState::Waiting {
                let arguments = approval.arguments.as_ref().map_or(0, |arguments| arguments.to_string().len());
                let plan = approval.plan.as_ref().and_then(|plan| serde_json::to_string(plan).ok());
                left = left.saturating_sub(arguments + plan.map_or(0, |plan| plan.len()));
                if left == 0 {
                    (approval.arguments, approval.plan) = (None, None);
                }
            }
            let app_id = self.application_of(approval.endpoint_id).await?;
            views.push(self.view(approval, app_id));
        }
        Ok(views)
    }

    pub(super) async fn approval(&self, ask: ShowApproval) -> Result<ApprovalView, ErrorReply> {
        let approval = self.store.approvals().get(ask.approval_id).await?.ok_or_else(|| unknown(&ask))?;
        let app_id = self.application_of(approval.endpoint_id).await?;
        Ok(self.view(approval, app_id))
    }

    pub(super) async fn decide(&self, ask: DecideApproval, asker: Requester) -> Result<ApprovalView, ErrorReply> {
        let show = ShowApproval { approval_id: ask.approval_id };
        check(&ask.decision)?;
        match self.store.approvals().decide(ask.approval_id, ask.decision, &who(asker)).await? {
            DecisionOutcome::Counts => self.approval(show).await,
            DecisionOutcome::Unknown => Err(unknown(&show)),
            DecisionOutcome::TooLate(state) => Err(too_late(state)),
        }
    }

    fn view(&self, approval: Approval, app_id: Option<ApplicationId>) -> ApprovalView {
        let waits = approval.state == ApprovalState::Waiting;
        let pending = self.pending_decisions.of(approval.approval_id).filter(|_| waits);
        ApprovalView::new(approval, app_id, pending)
    }

    async fn application_of(&self, endpoint_id: EndpointId) -> Result<Option<ApplicationId>, ErrorReply> {
        let services = self.store.services().list().await?;
        Ok(services.iter().find(|service| service.endpoint_id == Some(endpoint_id)).map(|service| service.app_id))
    }

    /// The disk is read now, through the same confinement as the tools'.
    pub(super) async fn evidence(&self, run_id: RunId) -> Result<Vec<Evidence>, ErrorReply> {
        let journal = self.store.journal();
        let intents = journal.evidence(run_id).await?;
        let Some(offer) = journal.offer(run_id).await? else { return Ok(Vec::new()) };
        let services = self.store.services();
        let held = services.published(offer.endpoint_id, offer.endpoint_version).await?;
        let folder = services.folder(offer.endpoint_id, offer.endpoint_version).await?;
        let own = self.own_folder.clone();
        let compare = move || {
            let workspace = held.and_then(|(definition, _)| {
                let directory = definition.working_directory;
                Workspace::open(WorkspaceOptions {
                    directory: &directory,
                    own_folder: &own,
                    expected: folder.as_ref(),
                    others: &[],
                    protected: &[],
                    network: Network::None,
                    files: None,
                })
                .ok()
            });
            let compared = |intent: Intent| {
                let on_disk = workspace.as_ref().map_or(OnDisk::Unknown, |workspace| on_disk(workspace, &intent));
                Evidence { intent, on_disk }
            };
            intents.into_iter().map(compared).collect()
        };
        tokio::task::spawn_blocking(compare).await.map_err(|_| ErrorReply {
            code: ErrorReplyCode::Failed,
            message: "the agent failed while it looked at the files".to_owned(),
        })
    }

    pub(super) async fn settle(&self, ask: ReconcileRun, asker: Requester) -> Result<(), ErrorReply> {
        let dispatcher = self.active()?.dispatcher;
        dispatcher.reconcile(ask.run_id, ask.finding, who(asker)).await.map_err(|error| {
            let code = match error {
                ReconcileError::NotWaiting(_) | ReconcileError::Settled(_) | ReconcileError::Stopped => {
                    ErrorReplyCode::Refused
                }
                ReconcileError::Store(_) => ErrorReplyCode::Failed,
            };
            ErrorReply { code, message: error.to_string() }
        })
    }
}

fn on_disk(workspace: &Workspace, intent: &Intent) -> OnDisk {
    let (Some(place), PlanPreview::Change { before, after, .. }) = (&intent.plan.place, &intent.plan.shown) else {
        return OnDisk::Unknown;
    };
    let now = match workspace.open_file(Path::new(place), LinkPolicy::Refused) {
        Ok((file, metadata)) if metadata.len() <= MAX_COMPARED_BYTES => {
            let mut bytes = Vec::new();
            match std::io::Read::read_to_end(&mut std::io::Read::take(file, MAX_COMPARED_BYTES), &mut bytes) {
                Ok(_) => Some(Sha256Digest::of(&bytes)),
                Err(_) => return OnDisk::Unknown,
            }
        }
        Err(AccessError::Missing) => None,
        _ => return OnDisk::Unknown,
    };
    match now {
        now if now.as_ref() == Some(after) => OnDisk::AsPlanned,
        now if now == *before => OnDisk::AsBefore,
        _ => OnDisk::Neither,
    }
}

fn unknown(ask: &ShowApproval) -> ErrorReply {
    let message = format!("there is no request {}; list them with: deskgate approval list", ask.approval_id);
    ErrorReply { code: ErrorReplyCode::NotFound, message }
}

/// The requester, for the audit.
fn who(asker: Requester) -> String {
    match asker {
        Requester::Socket(peer) => user(peer.uid),
        Requester::Page => format!("{}, on the page", user(rustix::process::geteuid().as_raw())),
    }
}

/// A local user for the audit: the number, which the kernel vouches for, and its current name.
fn user(uid: u32) -> String {
    let known = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let named = known.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, number) = (fields.next()?, fields.nth(1)?);
        (number.parse() == Ok(uid)).then(|| name.to_owned())
    });
    named.map_or_else(|| format!("uid {uid}"), |name| format!("{name} (uid {uid})"))
}
