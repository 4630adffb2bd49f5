//! `approval`: tool calls that wait for a person.

use std::collections::HashMap;

use clap::Subcommand;
use deskgate_program::exit::Failure;
use deskgate_program::look::{Cell, Tone};
use deskgate_program::output::{Output, table};
use deskgate_program::records;
use deskgate_program::records::Noun;
use deskgate_program::records::given::GivenId;
use deskgate_protocol::ids::{ApplicationId, ApprovalId, RunId};
use deskgate_protocol::management::ListApplications;

use super::socket::AgentClient;
use super::{call, no_secret, run};
use crate::local::{
    ApprovalState, ApprovalView, DecideApproval, Decision, FindApprovals, ListApprovals, ListAudit, ShowApproval,
    audit, median,
};
use deskgate_program::visible::{block, line};

const APPROVALS: Noun = Noun { singular: "approval", plural: "approvals", list: "deskgate approval list --all" };

/// `deskgate approval …`
#[derive(Debug, Subcommand)]
pub(super) enum ApprovalCommand {
    /// Requests that wait for you, those that expire first at the top
    List {
        /// The answered ones too
        #[arg(long)]
        all: bool,
    },
    /// One request: what would be done, where, and for whom
    Show {
        /// Its identifier, or the end of it as `approval list` shows it
        approval: GivenId<ApprovalId>,
    },
    /// Let a tool call run, with exactly the arguments that `show` shows
    Approve {
        /// Its identifier, or the end of it as `approval list` shows it
        approval: GivenId<ApprovalId>,
        /// Also further tool calls of the kind that `show` names, for the rest of this run
        #[arg(long)]
        for_run: bool,
    },
    /// Refuse a tool call
    Deny {
        /// Its identifier, or the end of it as `approval list` shows it
        approval: GivenId<ApprovalId>,
        /// What the assistant is told as your words
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// What was asked, decided and executed, newest first
    Log {
        /// Of one run only
        #[arg(long)]
        run: Option<GivenId<RunId>>,
        /// At most so many
        #[arg(long, default_value_t = 50)]
        limit: u32,
    },
}

pub(super) async fn run(agent: AgentClient, command: ApprovalCommand, out: Output) -> Result<(), Failure> {
    match command {
        ApprovalCommand::List { all } => {
            let requests = agent.request(ListApprovals { all, run_id: None }).await?;
            let names = applications(&agent).await;
            let waited = median(requests.iter().filter_map(ApprovalView::waited_s));
            let value = serde_json::json!({ "approvals": requests, "median_waited_s": waited });
            out.result("approvals/1", &value, || {
                let median = waited.map(|seconds| format!("\nMedian wait of those answered: {seconds} s."));
                list(&requests, &names) + &median.unwrap_or_default()
            });
        }
        ApprovalCommand::Show { approval } => {
            let request = agent.request(ShowApproval { approval_id: find(&agent, approval).await? }).await?;
            let names = applications(&agent).await;
            out.result("approval/1", &request, || show(&request, &names));
        }
        ApprovalCommand::Approve { approval, for_run } => {
            let decision = if for_run { Decision::ForRun } else { Decision::Once };
            let approval_id = find(&agent, approval).await?;
            let request = agent.request(DecideApproval { approval_id, decision }).await?;
            out.result("approval/1", &request, || match for_run {
                false => {
                    format!("Approved, once: {} of run {}.", line(&request.approval.tool), request.approval.run_id)
                }
                true => format!("Approved for the rest of run {}: {}.", request.approval.run_id, line(&request.scope)),
            });
        }
        ApprovalCommand::Deny { approval, reason } => {
            no_secret("--reason", reason.as_deref().unwrap_or_default())?;
            let decision = Decision::Deny { reason };
            let approval_id = find(&agent, approval).await?;
            let request = agent.request(DecideApproval { approval_id, decision }).await?;
            out.result("approval/1", &request, || {
                format!("Denied: {} of run {}.", line(&request.approval.tool), request.approval.run_id)
            });
        }
        ApprovalCommand::Log { run, limit } => {
            let run = run::find_given(&agent, run).await?;
            show_log(agent, run, limit, out).await?;
        }
    }
    Ok(())
}

/// An approval by its identifier, or by the end of it.
async fn find(agent: &AgentClient, given: GivenId<ApprovalId>) -> Result<ApprovalId, Failure> {
    let by_end = async |end: &str| agent.request(FindApprovals { end: end.to_owned() }).await;
    given.resolve(&APPROVALS, by_end).await
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
    let heads = ["STATE", "EXPIRES", "WAITED", "TOOL", "PLACE", "SERVICE", "APPLICATION", "SUBJECT", "ID"];
    records::list(
        requests,
        "Nothing waits for you. A request appears when a service asks to do something that its rules do not allow \
                by themselves.",
        &heads,
        |view| {
            let request = &view.approval;
            let state = match request.state {
                ApprovalState::Waiting => Cell::toned("waiting", Tone::Attention),
                state if view.not_carried_out().is_some() => {
                    Cell::toned(format!("{}, not carried out", state.as_str()), Tone::Failed)
                }
                state => Cell::from(state.as_str()),
            };
            let until = (request.state == ApprovalState::Waiting).then_some(request.expires_at);
            let waited = view.waited_s().map(|seconds| format!("{seconds} s")).unwrap_or_default();
            let (tool, service) = (line(&request.tool), line(&request.service));
            let (application, id) = (application(view, names), Cell::id(request.approval_id));
            let [waited, tool, place, service, application, subject] =
                [waited, tool, place(view), service, application, subject(view)].map(Cell::from);
            vec![state, until.into(), waited, tool, place, service, application, subject, id]
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
            "\ndeskgate approval approve {id}            this tool call, once\n\
             deskgate approval approve {id} --for-run  also, for the rest of this run: {}\n\
             deskgate approval deny {id} [--reason TEXT]\n",
            line(&view.scope)
        );
    }
    text
}

fn log(entries: &[audit::AuditEntry]) -> String {
    let row = |entry: &audit::AuditEntry| {
        let answer = entry.answer.clone().unwrap_or_default();
        let [what, answer, tool, who] =
            [entry.what.clone(), answer, entry.tool.clone(), entry.who.clone()].map(Cell::from);
        vec![entry.at.into(), what, answer, tool, who, Cell::id(entry.run_id)]
    };
    table(&["AT", "WHAT", "ANSWER", "TOOL", "BY", "RUN"], entries.iter().map(row).collect())
}
