//! Runs of all devices: the administrator's commands, and the running gateway's answers.
//!
//! Inputs and results are left out: they belong to the callers and the desktop user.

use std::path::Path;

use clap::Subcommand;
use deskgate_protocol::management::{RecordKind, ShowOperation, ShowRun, StopRun};
use deskgate_protocol::operation::{ControlOperation, OperationState};
use deskgate_protocol::run::{Run, RunState};
use deskgate_protocol::{ApplicationId, DeviceId, RunId, Timestamp};
use serde::{Deserialize, Serialize};

use super::applications::find as find_application;
use super::client::{find as find_device, find_by_end, risk, send_request, unexpected};
use super::state::AdminService;
use super::{AdminErrorCode, AdminReply, AdminRequest, no};
use crate::domain::desktop::Desktop;
use crate::domain::runs::visible_run;
use crate::store::device_lists::{DeviceRunQuery, RunWithDevice};
use deskgate_program::duration;
use deskgate_program::exit::{Exit, Failure};
use deskgate_program::look::Cell;
use deskgate_program::output::Output;
use deskgate_program::records::given::GivenId;
use deskgate_program::records::tones::Toned;
use deskgate_program::records::{self, Detail, Noun};

const RUNS: Noun = Noun { singular: "run", plural: "runs", list: "deskgate-gateway admin run list" };

/// `deskgate-gateway admin run …`
#[derive(Debug, Subcommand)]
pub enum RunCommand {
    /// Runs of all devices, newest first
    List {
        /// At most so many
        #[arg(long, default_value_t = 20)]
        limit: u32,
        /// Only runs older than this one
        #[arg(long, value_name = "RUN")]
        before: Option<GivenId<RunId>>,
        /// Only of this device, by its name or identifier
        #[arg(long, value_name = "DEVICE")]
        device: Option<String>,
        /// Only of this application, by its name or identifier
        #[arg(long, value_name = "APP")]
        app: Option<String>,
        /// Only in this state, such as queued or awaiting_reconciliation; may be repeated
        #[arg(long, value_name = "STATE")]
        state: Vec<RunState>,
    },
    /// One run and what happened to it, without its input and result
    Show {
        /// Its identifier, or the end of it as `run list` shows it
        run: GivenId<RunId>,
    },
    /// Cancel a run: one that has not started at once, another as soon as its desktop has stopped it
    #[command(alias = "cancel")]
    Stop {
        /// Its identifier, or the end of it as `run list` shows it
        run: GivenId<RunId>,
        /// Accept that work is interrupted in its middle: interrupt-runs. Not needed for a run that has not started
        #[arg(long, value_name = "RISK")]
        accept_risk: Option<String>,
        /// Wait for its end, at most so long, as in 30s, and at most 60s; ends with 8 if there is none by then
        #[arg(long, value_name = "TIME", default_value = "0s", value_parser = up_to_a_minute)]
        wait: u32,
    },
}

/// Whole seconds that the gateway waits within one request.
fn up_to_a_minute(text: &str) -> Result<u32, String> {
    let seconds = u32::try_from(duration::parse(text)?.as_millis().div_ceil(1000)).unwrap_or(u32::MAX);
    if seconds > 60 { Err("at most 60s".to_owned()) } else { Ok(seconds) }
}

/// A request about runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum AdminRunRequest {
    /// List those of all devices, newest first.
    List {
        /// At most so many, 1 to 100.
        limit: u32,
        /// Only older ones.
        before: Option<RunId>,
        /// Only of this device.
        device_id: Option<DeviceId>,
        /// Only of this application.
        app_id: Option<ApplicationId>,
        /// Only in one of these states; empty: in any.
        states: Vec<RunState>,
    },
    /// Show one, and what happened to it.
    Show {
        /// The run to show.
        run_id: RunId,
    },
    /// Cancel it.
    Cancel {
        /// The run to cancel.
        run_id: RunId,
        /// Whether to cancel it even if it has started.
        interrupt: bool,
        /// Seconds to wait for its end, at most 60.
        wait_s: u32,
    },
}

/// A run, its application and its device.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunView {
    /// Its application.
    pub app_id: ApplicationId,
    /// Its device.
    pub device_id: DeviceId,
    /// The device's name.
    pub device_name: String,
    /// Its record, without input and result.
    #[serde(flatten)]
    pub run: Run,
}

/// A page of runs, newest first. It may be short, or empty, and go on all the same.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunList {
    /// The runs of the page.
    pub runs: Vec<RunView>,
    /// The `before` of the next page.
    pub next: Option<RunId>,
}

/// A run and its history.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunHistory {
    /// Its record, without input and result.
    pub run: Run,
    /// Each event's time and text, oldest first; at most 1,000.
    pub events: Vec<(Timestamp, String)>,
}

/// A run by its identifier, or by the end of it.
pub(super) async fn find(socket: &Path, given: GivenId<RunId>) -> Result<RunId, Failure> {
    given.resolve(&RUNS, async |end: &str| find_by_end(socket, RecordKind::Run, end).await).await
}

/// Runs a command about runs.
pub(super) async fn run(socket: &Path, command: RunCommand, out: Output) -> Result<(), Failure> {
    let asked = match command {
        RunCommand::List { limit, before, device, app, state } => {
            let device_id = match device {
                Some(device) => Some(find_device(socket, &device).await?.device_id),
                None => None,
            };
            let app_id = match app {
                Some(app) => Some(find_application(socket, &app).await?),
                None => None,
            };
            let before = match before {
                Some(before) => Some(find(socket, before).await?),
                None => None,
            };
            AdminRunRequest::List { limit, before, device_id, app_id, states: state }
        }
        RunCommand::Show { run } => AdminRunRequest::Show { run_id: find(socket, run).await? },
        RunCommand::Stop { run, accept_risk, wait } => AdminRunRequest::Cancel {
            run_id: find(socket, run).await?,
            interrupt: risk(accept_risk.as_deref(), "interrupt-runs")?,
            wait_s: wait,
        },
    };
    match send_request(socket, AdminRequest::Run(asked)).await? {
        AdminReply::Runs(page) => out.result("runs/1", &page, || list(&page)),
        AdminReply::Run(story) => out.result("run/1", &story, || show(&story)),
        AdminReply::Operation(operation) => {
            out.result("operation/1", &operation, || cancelled(&operation));
            if operation.state != OperationState::Completed {
                return Err(Failure::new(Exit::Pending, "its desktop has not confirmed the stop yet"));
            }
        }
        other => return Err(unexpected(&other)),
    }
    Ok(())
}

/// Answers a request about runs.
pub(super) async fn answer(service: &AdminService, asked: AdminRunRequest) -> Result<AdminReply, AdminReply> {
    match asked {
        AdminRunRequest::List { limit, before, device_id, app_id, states } => {
            let sought = DeviceRunQuery { before, states, app_id, ..DeviceRunQuery::default() };
            let page = service.store.placed_runs(device_id, &sought, limit.clamp(1, 100)).await?;
            let names = service.device_names().await?;
            let view = |RunWithDevice { run, app_id, device_id }| {
                let device_name = names.get(&device_id).cloned().unwrap_or_default();
                RunView { app_id, device_id, device_name, run: private(visible_run(run)) }
            };
            Ok(AdminReply::Runs(RunList {
                runs: page.entries.into_iter().map(view).collect(),
                next: page.next.map(Into::into),
            }))
        }
        AdminRunRequest::Show { run_id } => {
            Ok(AdminReply::Run(Box::new(story(&desk_of(service, run_id).await?, run_id).await?)))
        }
        AdminRunRequest::Cancel { run_id, interrupt, wait_s } => {
            let desktop = desk_of(service, run_id).await?;
            let run = story(&desktop, run_id).await?.run;
            let has_started = !matches!(run.state, RunState::Queued | RunState::WaitingForDevice);
            if has_started && run.finished_at.is_none() && !interrupt {
                return Err(no(
                    AdminErrorCode::Refused,
                    format!(
                        "{run_id} is {}: what it has changed stays changed, and the rest is not done. No changes were \
                         made.\nTo go on: deskgate-gateway admin run stop {run_id} --accept-risk=interrupt-runs",
                        run.state
                    ),
                ));
            }
            let stopped = match interrupt {
                true => desktop.stop_run(StopRun { run_id }).await?,
                false => desktop.stop_attempt(run_id, run.attempt).await?,
            };
            let operation_id = stopped.operation_id;
            Ok(AdminReply::Operation(Box::new(desktop.operation(ShowOperation { operation_id, wait_s }).await?)))
        }
    }
}

/// The desktop service of the device that a run is for.
async fn desk_of(service: &AdminService, run_id: RunId) -> Result<Desktop, AdminReply> {
    let device_id = service.store.device_of_run(run_id).await?;
    device_id
        .map(|id| service.desktop_of(id))
        .ok_or_else(|| no(AdminErrorCode::NotFound, format!("there is no run {run_id}")))
}

async fn story(desktop: &Desktop, run_id: RunId) -> Result<RunHistory, AdminReply> {
    let detail = desktop.run(ShowRun { run_id, after: 0, wait_s: 0 }).await?;
    let events = detail.events.into_iter().map(|event| (event.created_at, event.kind.to_string())).collect();
    Ok(RunHistory { run: private(detail.run), events })
}

/// A run without its input and result.
fn private(run: Run) -> Run {
    Run { input: None, result: None, metadata: Default::default(), ..run }
}

fn list(page: &RunList) -> String {
    let heading = ["ACCEPTED", "STATE", "REASON", "DEVICE", "APPLICATION", "ID"];
    let row = |view: &RunView| {
        let reason = view.run.state_reason.as_ref().map(|reason| word(&reason.code)).unwrap_or_default();
        vec![
            view.run.created_at.into(),
            view.run.state.cell(),
            reason.into(),
            view.device_name.clone().into(),
            Cell::id(view.app_id),
            Cell::id(view.run.run_id),
        ]
    };
    records::list(&page.runs, "There are no runs here.", &heading, row) + &records::older(page.next)
}

fn show(story: &RunHistory) -> String {
    let run = &story.run;
    let mut text = Detail::new(run.run_id)
        .field("state", run.state)
        .field("attempt", run.attempt)
        .fields("reason", run.state_reason.as_ref().map(|reason| format!("{}: {}", word(&reason.code), reason.message)))
        .fields("error", run.error.as_ref().map(|error| word(&error.code)))
        .text();
    for (at, what) in &story.events {
        text += &format!("{at}  {what}\n");
    }
    text
}

/// A code as it is serialized for programs.
fn word(code: &impl Serialize) -> String {
    serde_json::to_value(code).ok().and_then(|word| word.as_str().map(str::to_owned)).unwrap_or_default()
}

fn cancelled(operation: &ControlOperation) -> String {
    let outcome = operation.outcome.as_ref().map(|outcome| outcome.code.to_string());
    match outcome {
        Some(outcome) => format!("{}: {outcome}.", operation.operation_id),
        None => {
            format!("{}: {}. It is confirmed when its desktop is connected.", operation.operation_id, operation.state)
        }
    }
}
