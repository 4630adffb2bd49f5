//! `service`: renamed, duplicated, disabled, unpublished, moved to another application, removed.

use clap::{Args, Subcommand};
use deskgate_definition::{Service as Record, ServiceStage};
use deskgate_program::confirmation::Confirmation;
use deskgate_program::exit::Failure;
use deskgate_program::output::Output;
use deskgate_program::records::counted;
use deskgate_protocol::ApplicationId;
use deskgate_protocol::management::{PreviewUnpublishing, ShowApplication};

use super::app;
use super::service::{find, view};
use super::socket::AgentClient;
use crate::local::{
    DuplicateService, EditService, EnableService, MoveService, PreviewServiceEnding, RemoveService, UnpublishService,
};

/// What happens to a service beside its draft, checks and publication.
#[derive(Debug, Subcommand)]
pub(super) enum ServiceLifeCommand {
    /// Give a draft another name; callers see it once the draft is published
    Rename {
        /// Its name or identifier
        service: String,
        /// The new name, unique in the application
        name: String,
    },
    /// Save the draft once more as a new service
    Duplicate {
        /// Its name or identifier
        service: String,
        /// The name of the new one
        name: String,
        /// The application of the new one, by name or identifier [default: the same]
        #[arg(long)]
        app: Option<String>,
    },
    /// Refuse new calls of a published service; what was accepted is executed
    Disable {
        /// Its name or identifier
        service: String,
    },
    /// Accept calls of a disabled service again
    Enable {
        /// Its name or identifier
        service: String,
    },
    /// Take a service away from its callers and end its runs; its draft stays
    #[command(after_help = "Queued runs are cancelled, started ones are stopped. Publishing it again brings it back \
                            under the same service ID.")]
    Unpublish(EndArgs),
    /// Unpublish a service and give its draft to another application
    #[command(after_help = "Its runs end as with `unpublish`. In the other application it has another service ID, \
                            which is shown when it is published there.")]
    Move {
        /// Its name or identifier
        service: String,
        /// The other application, by name or identifier
        #[arg(long)]
        app: String,
        #[command(flatten)]
        confirmation: Confirmation,
    },
    /// Unpublish a service and remove it for good
    #[command(after_help = "Its runs end as with `unpublish`, and stay readable until they are deleted. Its name is \
                            free.")]
    Remove(EndArgs),
}

/// A service that ends.
#[derive(Debug, Args)]
pub(super) struct EndArgs {
    /// Its name or identifier
    service: String,
    #[command(flatten)]
    confirmation: Confirmation,
}

pub(super) async fn run(agent: AgentClient, command: ServiceLifeCommand, out: Output) -> Result<(), Failure> {
    match command {
        ServiceLifeCommand::Rename { service, name } => {
            let service = find(&agent, &service).await?;
            let mut definition = service.draft;
            definition.name = name;
            let service = agent.request(EditService { draft_id: service.draft_id, definition }).await?;
            out.result("service/1", &view(&service), || renamed(&service));
        }
        ServiceLifeCommand::Duplicate { service, name, app } => {
            let service = find(&agent, &service).await?;
            let app_id = app::find_given(&agent, app).await?.unwrap_or(service.app_id);
            let request = DuplicateService { draft_id: service.draft_id, name, app_id };
            let service = agent.request(request).await?;
            out.result("service/1", &view(&service), || {
                format!("Saved as a draft: {}\nNext: deskgate service check {}", service.draft_id, service.draft_id)
            });
        }
        ServiceLifeCommand::Disable { service } => enable(&agent, &service, false, out).await?,
        ServiceLifeCommand::Enable { service } => enable(&agent, &service, true, out).await?,
        ServiceLifeCommand::Unpublish(EndArgs { service, confirmation }) => {
            let service = find(&agent, &service).await?;
            let name = &service.draft.name;
            let ends = what_ends(&agent, &service).await?;
            if !ends.is_empty() {
                confirmation.confirm(&format!(
                    "Unpublish {name:?}? Its draft stays. What ends:{ends}\nTo refuse new calls alone, and let the runs \
                     finish: deskgate service disable {}",
                    service.draft_id
                ))?;
            }
            let service = agent.request(UnpublishService { draft_id: service.draft_id }).await?;
            let left = left_to_end(&agent, &service).await;
            out.result("service/1", &view(&service), || {
                let (name, id) = (&service.draft.name, service.draft_id);
                let next = match service.stage() {
                    ServiceStage::Draft => format!("deskgate service check {id}"),
                    _ => format!("deskgate service publish {id}"),
                };
                format!("{name} is not published any more.{left}\nTo bring it back: {next}")
            });
        }
        ServiceLifeCommand::Move { service, app, confirmation } => {
            let service = find(&agent, &service).await?;
            let app_id = app::find(&agent, &app).await?;
            move_to(&agent, service, app_id, confirmation, out).await?;
        }
        ServiceLifeCommand::Remove(EndArgs { service, confirmation }) => {
            let service = find(&agent, &service).await?;
            let name = &service.draft.name;
            let ends = match what_ends(&agent, &service).await? {
                none if none.is_empty() => " It is not published, so nothing ends for callers.".to_owned(),
                ends => format!(" What ends:{ends}"),
            };
            confirmation.confirm(&format!("Remove {name:?}? It cannot be put back.{ends}"))?;
            let service = agent.request(RemoveService { draft_id: service.draft_id }).await?;
            let left = left_to_end(&agent, &service).await;
            out.result("service/1", &view(&service), || {
                format!("{} is removed, and its name is free.{left}", service.draft.name)
            });
        }
    }
    Ok(())
}

fn renamed(service: &Record) -> String {
    let Record { draft, draft_id, published, .. } = service;
    match published {
        Some(version) if version.definition.name != draft.name => format!(
            "Renamed. Callers see {:?} until this draft is published.\nNext: deskgate service check {draft_id}",
            version.definition.name
        ),
        _ => format!("Renamed.\nNext: deskgate service check {draft_id}"),
    }
}

async fn enable(agent: &AgentClient, wanted: &str, enabled: bool, out: Output) -> Result<(), Failure> {
    let service = find(agent, wanted).await?;
    let endpoint = agent.request(EnableService { draft_id: service.draft_id, enabled }).await?;
    out.result("service-enabled/1", &endpoint, || match enabled {
        true => format!("{} accepts calls, while access is enabled.", endpoint.name),
        false => format!(
            "{} refuses new calls. What was accepted is executed.\nTo enable it again: deskgate service enable {}",
            endpoint.name, service.draft_id
        ),
    });
    Ok(())
}

async fn move_to(
    agent: &AgentClient,
    service: Record,
    app_id: ApplicationId,
    confirmation: Confirmation,
    out: Output,
) -> Result<(), Failure> {
    let application = agent.manage(ShowApplication { app_id }).await?.name;
    let name = &service.draft.name;
    let ends = what_ends(agent, &service).await?;
    if service.app_id != app_id && !ends.is_empty() {
        confirmation.confirm(&format!(
            "Move {name:?} to {application:?}? It gets another service ID there, once you publish it. What ends:{ends}"
        ))?;
    }
    let service = agent.request(MoveService { draft_id: service.draft_id, app_id }).await?;
    out.result("service/1", &view(&service), || {
        format!(
            "{} belongs to {application}, as a draft.\nNext: deskgate service check {}",
            service.draft.name, service.draft_id
        )
    });
    Ok(())
}

/// What ends with a service at the gateway, indented, each thing in a line of its own.
async fn what_ends(agent: &AgentClient, service: &Record) -> Result<String, Failure> {
    let ending = agent.request(PreviewServiceEnding { draft_id: service.draft_id }).await?;
    Ok(ending.lines().iter().map(|line| format!("\n  {line}")).collect())
}

/// What is still being ended, as a sentence.
async fn left_to_end(agent: &AgentClient, service: &Record) -> String {
    let Some(endpoint_id) = service.endpoint_id else { return String::new() };
    match agent.manage(PreviewUnpublishing { endpoint_id }).await {
        Ok(left) if left.runs_queued + left.runs_in_progress > 0 => {
            let runs = counted(left.runs_queued + left.runs_in_progress, "run");
            format!(" {runs} still to end; see: deskgate run list --service {endpoint_id}")
        }
        _ => String::new(),
    }
}
