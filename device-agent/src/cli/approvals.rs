//! `approvals`: tool calls that wait for a person.

use std::collections::HashMap;

use clap::Subcommand;
use deskgate_program::exit::Failure;
use deskgate_program::output::{Output, table};
use deskgate_program::records;
use deskgate_protocol::ids::{ApplicationId, ApprovalId, RunId};
use deskgate_protocol::management::ListApplications;

use super::socket::AgentClient;
use super::{call, no_secret};
use crate::local::{
    ApprovalState, ApprovalView, DecideApproval, Decision, ListApprovals, ListAudit, ShowApproval, audit, median,
};
use deskgate_program::visible::{block, line};

/// `deskgate approvals …`
#[derive(Debug, Subcommand)]
pub(super) enum ApprovalsCommand {
    /// Requests that wait for you, those that expire first at the top
    List {
        /// The answered ones too
        #[arg(long)]
        all: bool,
    },
    /// One request: what would be done, where, and for whom
    Show {
        /// Which
        approval: ApprovalId,
    },
    /// Let a tool call run, with exactly the arguments that `show` shows
    Approve {
        /// Which
        approval: ApprovalId,
        /// Also further tool calls of the kind that `show` names, for the rest of this run
        #[arg(long)]
        for_run: bool,
    },
    /// Refuse a tool call
    Deny {
        /// Which
        approval: ApprovalId,
        /// What the assistant is told as your words
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// What was asked, decided and executed, newest first
    Log {
        /// Of one run only
        #[arg(long)]
        run: Option<RunId>,
        /// At most so many
        #[arg(long, default_value_t = 50)]
        limit: u32,
    },
}

pub(super) async fn run(agent: AgentClient, command: ApprovalsCommand, out: Output) -> Result<(), Failure> {
    match command {
        ApprovalsCommand::List { all } => {
            let requests = agent.request(ListApprovals { all, run_id: None }).await?;
            let names = applications(&agent).await;
            let waited = median(requests.iter().filter_map(ApprovalView::waited_s));
            let value = serde_json::json!({ "approvals": requests, "median_waited_s": waited });
            out.result("approvals/1", &value, || {
                let median = waited.map(|seconds| format!("\nMedian wait of those answered: {seconds} s."));
                list(&requests, &names) + &median.unwrap_or_default()
            });
        }
        ApprovalsCommand::Show { approval } => {
            let request = agent.request(ShowApproval { approval_id: approval }).await?;
            let names = applications(&agent).await;
            out.result("approval/1", &request, || show(&request, &names));
        }
        ApprovalsCommand::Approve { approval, for_run } => {
            let decision = if for_run { Decision::ForRun } else { Decision::Once };
            let request = agent.request(DecideApproval { approval_id: approval, decision }).await?;
            out.result("approval/1", &request, || match for_run {
                false => {
                    format!("Approved, once: {} of run {}.", line(&request.approval.tool), request.approval.run_id)
                }
                true => format!("Approved for the rest of run {}: {}.", request.approval.run_id, line(&request.scope)),
            });
        }
        ApprovalsCommand::Deny { approval, reason } => {
            no_secret("--reason", reason.as_deref().unwrap_or_default())?;
            let decision = Decision::Deny { reason };
            let request = agent.request(DecideApproval { approval_id: approval, decision }).await?;
            out.result("approval/1", &request, || {
                format!("Denied: {} of run {}.", line(&request.approval.tool), request.approval.run_id)
            });
        }
        ApprovalsCommand::Log { run, limit } => {
            show_log(agent, run, limit, out).await?;
        }
    }
    Ok(())
}

/// What was asked, decided and executed.
pub(super) async fn show_log(agent: AgentClient, run: Option<RunId>, limit: u32, out: Output) -> Result<(), Failure> {
    let entries = agent.request(ListAudit { run_id: run, limit }).await?;
    out.result("audit/1", &serde_json::json!({ "entries": entries }), || log(&entries));
    Ok(())
}

/// Names come from the gateway; a request can be decided without them.
async fn applications(agent: &AgentClient) -> HashMap<ApplicationId, String> {
    let listed = agent.glance(ListApplications {}).await.unwrap_or_default();
    listed.into_iter().map(|app| (app.app_id, app.name)).collect()
}

fn application(view: &ApprovalView, names: &HashMap<ApplicationId, String>) -> String {
    match view.app_id {
        Some(app_id) => names.get(&app_id).map_or_else(|| app_id.to_string(), |name| line(name)),
        None => "unknown".to_owned(),
    }
}

/// The subject that the application named.
fn subject(view: &ApprovalView) -> String {
    view.approval.subject.as_deref().map_or_else(|| "unknown".to_owned(), line)
}

fn place(view: &ApprovalView) -> String {
    let plan = view.approval.plan.as_ref();
    plan.and_then(|plan| plan.place.as_deref()).map(line).unwrap_or_default()
}

fn list(requests: &[ApprovalView], names: &HashMap<ApplicationId, String>) -> String {
    let heads = ["STATE", "WAITED", "TOOL", "PLACE", "SERVICE", "APPLICATION", "SUBJECT", "ID"];
    records::list(
        requests,
        "Nothing waits for you. A request appears when a service asks to do something that its rules do not allow \
                by themselves.",
        &heads,
        |view| {
            let request = &view.approval;
            let state = match request.state {
                ApprovalState::Waiting => format!("until {}", request.expires_at),
                state if view.not_carried_out().is_some() => format!("{}, not carried out", state.as_str()),
                state => state.as_str().to_owned(),
            };
            let waited = view.waited_s().map(|seconds| format!("{seconds} s")).unwrap_or_default();
            let (tool, service) = (line(&request.tool), line(&request.service));
            let (application, id) = (application(view, names), request.approval_id.to_string());
            vec![state, waited, tool, place(view), service, application, subject(view), id]
        },
    )
}

fn show(view: &ApprovalView, names: &HashMap<ApplicationId, String>) -> String {
    let request = &view.approval;
    let mut text = format!(
        "{} {}\nrequest       {}, {}\nservice       {}, for the application {}\nsubject       {}\nrun           {} (attempt {}, {})\nasked         {}\nexpires       {}, and counts as denied then\ndigest        {}\n",
        line(&request.tool),
        place(view),
        request.approval_id,
        request.state.as_str(),
        line(&request.service),
        application(view, names),
        subject(view),
        request.run_id,
        request.attempt,
        request.call_id,
        request.asked_at,
        request.expires_at,
        request.digest,
    );
    if request.again {
        text += "AGAIN         you approved this tool call, and what it would do has changed since\n";
    }
    if let Some(former) = request.follows {
        text += &format!("approved as   {former}\n");
    }
    if let (Some(at), Some(by)) = (request.decided_at, &request.decided_by) {
        text += &format!("answered      {at} by {}\n", line(by));
    }
    if let Some(told) = view.not_carried_out() {
        text += &format!("NOT DONE      {told}\n");
    }
    if let Some(reason) = &request.reason {
        text += &format!("reason        {}\n", line(reason));
    }
    if !request.why.is_empty() {
        text += "why, in the assistant's own words, which nobody verified\n";
        text += &block(&request.why, "  | ");
    }
    match (&request.plan, &request.arguments) {
        (Some(plan), Some(arguments)) => text += &call::planned(plan, arguments),
        _ => text += "What it was about is not kept any more: its run is settled.\n",
    }
    if request.state == ApprovalState::Waiting {
        let id = request.approval_id;
        text += &format!(
            "\ndeskgate approvals approve {id}            this tool call, once\n\
             deskgate approvals approve {id} --for-run  also, for the rest of this run: {}\n\
             deskgate approvals deny {id} [--reason TEXT]\n",
            line(&view.scope)
        );
    }
    text
}

fn log(entries: &[audit::AuditEntry]) -> String {
    let row = |entry: &audit::AuditEntry| {
        let answer = entry.answer.clone().unwrap_or_default();
        vec![
            entry.at.to_string(),
            entry.what.clone(),
            answer,
            line(&entry.tool),
            line(&entry.who),
            entry.run_id.to_string(),
        ]
    };
    table(&["AT", "WHAT", "ANSWER", "TOOL", "BY", "RUN"], &entries.iter().map(row).collect::<Vec<_>>())
}
