//! Applications of all devices: the administrator's commands, and the running gateway's answers.

use std::path::Path;
use std::time::Duration;

use clap::Subcommand;
use deskgate_protocol::management::{
    Application, ApplicationState, CompleteDisabling, DisableApplication, DisablingPreview, PreviewDisabling,
    RecordKind, RemoveApplication,
};
use deskgate_protocol::{ApplicationId, DeviceId};
use serde::{Deserialize, Serialize};

use super::client::{find as find_device, find_by_end, risk, send_request, unexpected};
use super::state::AdminService;
use super::{AdminErrorCode, AdminReply, AdminRequest, no};
use crate::store::applications::{ApplicationQuery, ApplicationWithDevice};
use deskgate_program::duration;
use deskgate_program::exit::{Exit, Failure};
use deskgate_program::look::Cell;
use deskgate_program::output::Output;
use deskgate_program::records::applications::{self as records, Commands};
use deskgate_program::records::given::GivenId;
use deskgate_program::records::tones::Toned;
use deskgate_program::records::{Noun, list as list_of, older};

const APPLICATIONS: Noun =
    Noun { singular: "application", plural: "applications", list: "deskgate-gateway admin app list" };

/// Next steps with an application.
const COMMANDS: Commands = Commands { app: "deskgate-gateway admin app", runs: "deskgate-gateway admin run list" };

/// `deskgate-gateway admin app …`
#[derive(Debug, Subcommand)]
pub enum AppCommand {
    /// Applications of all devices, newest first
    List {
        /// At most so many
        #[arg(long, default_value_t = 20)]
        limit: u32,
        /// Only applications older than this one
        #[arg(long, value_name = "APP")]
        before: Option<ApplicationId>,
        /// Only of this device, by its name or identifier
        #[arg(long, value_name = "DEVICE")]
        device: Option<String>,
        /// Only in this state: active, disabling, disabled or removed
        #[arg(long, value_name = "STATE")]
        state: Option<ApplicationState>,
    },
    /// One application, and what disabling it would end
    Show {
        /// Its name or identifier
        app: String,
    },
    /// End an application's keys, services and runs for good
    Disable {
        /// Its name or identifier
        app: String,
        /// Accept what that does to its runs: interrupt-runs
        #[arg(long, value_name = "RISK")]
        accept_risk: Option<String>,
        /// Wait until nothing of it is left to end and complete it, at most so long, as in 60s
        #[arg(long, value_name = "TIME", value_parser = duration::parse)]
        wait: Option<Duration>,
    },
    /// Complete disabling, once nothing is waited for
    CompleteDisabling {
        /// Its name or identifier
        app: String,
        /// Wait until nothing of it is left to end and complete it, at most so long, as in 60s
        #[arg(long, value_name = "TIME", value_parser = duration::parse)]
        wait: Option<Duration>,
    },
    /// Take a disabled application off its owner's list
    Remove {
        /// Its name or identifier
        app: String,
    },
}

/// A request about applications.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum AdminAppRequest {
    /// List those of all devices, newest first.
    List {
        /// At most so many, 1 to 100.
        limit: u32,
        /// Only older ones.
        before: Option<ApplicationId>,
        /// Only of this device.
        device_id: Option<DeviceId>,
        /// Only in this state; otherwise all that were not removed.
        state: Option<ApplicationState>,
        /// Only of this name.
        name: Option<String>,
    },
    /// Preview what disabling one would end.
    Preview(PreviewDisabling),
    /// Disable it.
    Disable(DisableApplication),
    /// Complete disabling it.
    Complete(CompleteDisabling),
    /// Take it off the list.
    Remove(RemoveApplication),
}

/// An application and its device.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AppView {
    /// Its device.
    pub device_id: DeviceId,
    /// The device's name.
    pub device_name: String,
    /// The application.
    #[serde(flatten)]
    pub application: Application,
}

/// A page of applications, newest first.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AppPage {
    /// The applications of the page.
    pub applications: Vec<AppView>,
    /// The `before` of the next page.
    pub next: Option<ApplicationId>,
}

/// Runs a command about applications.
pub(super) async fn run(socket: &Path, command: AppCommand, out: Output) -> Result<(), Failure> {
    let asked = match command {
        AppCommand::List { limit, before, device, state } => {
            let device_id = match device {
                Some(device) => Some(find_device(socket, &device).await?.device_id),
                None => None,
            };
            let page = page(socket, AdminAppRequest::List { limit, before, device_id, state, name: None }).await?;
            out.result("applications/1", &page, || list(&page));
            return Ok(());
        }
        AppCommand::Show { app } => AdminAppRequest::Preview(PreviewDisabling { app_id: find(socket, &app).await? }),
        AppCommand::Disable { app, accept_risk, wait } => {
            let app_id = find(socket, &app).await?;
            if !risk(accept_risk.as_deref(), "interrupt-runs")? {
                let AdminReply::Preview(preview) =
                    send_request(socket, AdminRequest::App(AdminAppRequest::Preview(PreviewDisabling { app_id })))
                        .await?
                else {
                    return Err(Failure::new(Exit::Failed, "the gateway answered something else"));
                };
                let message = format!(
                    "Disabling {:?} would end:\n{}\nNo changes were made.\nTo go on: deskgate-gateway admin app disable \
                     {app_id} --accept-risk=interrupt-runs",
                    preview.application.name,
                    records::would_end(&preview)
                );
                return Err(Failure::new(Exit::Refused, message));
            }
            let disabled = asked_for(socket, AdminAppRequest::Disable(DisableApplication { app_id })).await?;
            return follow_disabling(socket, disabled, wait, out).await;
        }
        AppCommand::CompleteDisabling { app, wait } => {
            let app_id = find(socket, &app).await?;
            let shown = seen(socket, app_id).await?;
            let application = match (wait, shown.state) {
                (Some(_), ApplicationState::Disabling) => shown,
                _ => asked_for(socket, AdminAppRequest::Complete(CompleteDisabling { app_id })).await?,
            };
            return follow_disabling(socket, application, wait, out).await;
        }
        AppCommand::Remove { app } => AdminAppRequest::Remove(RemoveApplication { app_id: find(socket, &app).await? }),
    };
    match send_request(socket, AdminRequest::App(asked)).await? {
        AdminReply::Application(application) => {
            out.result("application/1", &application, || records::text(&application, COMMANDS))
        }
        AdminReply::Preview(preview) => out.result("application/1", &preview, || show(&preview)),
        other => return Err(unexpected(&other)),
    }
    Ok(())
}

/// Shows an application that is being disabled; with `wait`, once that is complete or the time is over.
async fn follow_disabling(
    socket: &Path,
    application: Application,
    wait: Option<Duration>,
    out: Output,
) -> Result<(), Failure> {
    let app_id = application.app_id;
    let complete = async || asked_for(socket, AdminAppRequest::Complete(CompleteDisabling { app_id })).await;
    let application =
        records::wait_until_disabled(application, wait, async || seen(socket, app_id).await, complete).await?;
    out.result("application/1", &application, || records::text(&application, COMMANDS));
    records::verdict(&application, wait)
}

async fn seen(socket: &Path, app_id: ApplicationId) -> Result<Application, Failure> {
    match send_request(socket, AdminRequest::App(AdminAppRequest::Preview(PreviewDisabling { app_id }))).await? {
        AdminReply::Preview(preview) => Ok(preview.application),
        other => Err(unexpected(&other)),
    }
}

async fn asked_for(socket: &Path, asked: AdminAppRequest) -> Result<Application, Failure> {
    match send_request(socket, AdminRequest::App(asked)).await? {
        AdminReply::Application(application) => Ok(*application),
        other => Err(unexpected(&other)),
    }
}

async fn page(socket: &Path, asked: AdminAppRequest) -> Result<AppPage, Failure> {
    match send_request(socket, AdminRequest::App(asked)).await? {
        AdminReply::Applications(page) => Ok(page),
        other => Err(unexpected(&other)),
    }
}

/// An application by its identifier, by a name that only one has, or by the end of its identifier.
pub(super) async fn find(socket: &Path, wanted: &str) -> Result<ApplicationId, Failure> {
    if let Ok(app_id) = wanted.parse() {
        return Ok(app_id);
    }
    let named =
        |state| AdminAppRequest::List { limit: 2, before: None, device_id: None, state, name: Some(wanted.to_owned()) };
    let found = page(socket, named(None)).await?.applications;
    if found.is_empty()
        && let Ok(given @ GivenId::End(_)) = wanted.parse()
    {
        return given
            .resolve(&APPLICATIONS, async |end: &str| find_by_end(socket, RecordKind::Application, end).await)
            .await;
    }
    let named = APPLICATIONS.only(wanted, found)?;
    Ok(named.application.app_id)
}

/// Answers a request about applications.
pub(super) async fn answer(service: &AdminService, asked: AdminAppRequest) -> Result<AdminReply, AdminReply> {
    let store = &service.store;
    let desktop = async |app_id: ApplicationId| {
        let placed = store.placed_application(app_id).await?;
        let unknown = || no(AdminErrorCode::NotFound, format!("there is no application {app_id}"));
        placed.map(|placed| service.desktop_of(placed.device_id)).ok_or_else(unknown)
    };
    Ok(match asked {
        AdminAppRequest::List { limit, before, device_id, state, name } => {
            let limit = limit.clamp(1, 100) as usize;
            let sought = ApplicationQuery { before, device_id, state, name: name.as_deref() };
            let mut placed = store.placed_applications(&sought, limit as i64 + 1).await?;
            let has_more = placed.len() > limit;
            placed.truncate(limit);
            let next = placed.last().filter(|_| has_more).map(|last| last.application.app_id);
            let names = service.device_names().await?;
            let view = |ApplicationWithDevice { application, device_id }| AppView {
                device_name: names.get(&device_id).cloned().unwrap_or_default(),
                device_id,
                application,
            };
            AdminReply::Applications(AppPage { applications: placed.into_iter().map(view).collect(), next })
        }
        AdminAppRequest::Preview(ask) => {
            AdminReply::Preview(Box::new(desktop(ask.app_id).await?.preview_disabling(ask).await?))
        }
        AdminAppRequest::Disable(ask) => {
            AdminReply::Application(Box::new(desktop(ask.app_id).await?.disable_application(ask).await?))
        }
        AdminAppRequest::Complete(ask) => {
            AdminReply::Application(Box::new(desktop(ask.app_id).await?.complete_disabling(ask).await?))
        }
        AdminAppRequest::Remove(ask) => {
            AdminReply::Application(Box::new(desktop(ask.app_id).await?.remove_application(ask).await?))
        }
    })
}

fn list(page: &AppPage) -> String {
    let empty = "There are no applications here. Desktop users make them: deskgate app create NAME";
    let heading = ["NAME", "STATE", "DEVICE", "KEYS", "CREATED", "ID"];
    let row = |view: &AppView| {
        let application = &view.application;
        vec![
            application.name.clone().into(),
            application.state.cell(),
            view.device_name.clone().into(),
            application.live_keys.to_string().into(),
            application.created_at.into(),
            Cell::id(application.app_id),
        ]
    };
    list_of(&page.applications, empty, &heading, row) + &older(page.next)
}

fn show(preview: &DisablingPreview) -> String {
    let text = records::text(&preview.application, COMMANDS);
    match preview.application.state {
        ApplicationState::Active => format!("{text}\nDisabling it would end:\n{}", records::would_end(preview)),
        _ => text,
    }
}
