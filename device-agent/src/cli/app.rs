//! `app`: applications, the business systems that may call.

use clap::Subcommand;
use deskgate_gateway::exit::{Exit, Failure};
use deskgate_gateway::output::{Output, table};
use deskgate_protocol::ApplicationId;
use deskgate_protocol::management::{Application, CreateApplication, ListApplications, SetApplication};

use super::socket::Agent;

/// `deskgate app …`
#[derive(Debug, Subcommand)]
pub(super) enum App {
    /// Create an application with a first key, which is shown this once
    Create {
        /// A recognisable name
        name: String,
    },
    /// Every application
    List,
    /// Refuse every call with an application's keys
    Disable {
        /// Its name or identifier
        app: String,
    },
    /// Let a disabled application call again
    Enable {
        /// Its name or identifier
        app: String,
    },
}

pub(super) async fn run(agent: Agent, command: App, out: Output) -> Result<(), Failure> {
    match command {
        App::Create { name } => {
            let created = agent.manage(CreateApplication { name }).await?;
            out.result("app-created/1", &created, || {
                format!(
                    "Created {} ({}).\nApplication key, shown this once; keep it in the backend's credential store:\n{}",
                    created.application.name, created.application.app_id, created.key.text
                )
            });
        }
        App::Disable { app } => set(&agent, &app, false, out).await?,
        App::Enable { app } => set(&agent, &app, true, out).await?,
        App::List => {
            let applications = agent.manage(ListApplications {}).await?;
            out.result("apps/1", &serde_json::json!({ "applications": applications }), || list(&applications));
        }
    }
    Ok(())
}

async fn set(agent: &Agent, app: &str, enabled: bool, out: Output) -> Result<(), Failure> {
    let app_id = find(agent, app).await?;
    let application = agent.manage(SetApplication { app_id, enabled }).await?;
    out.result("app/1", &application, || match enabled {
        true => format!("{} may call again.", application.name),
        false => format!("{} is disabled. Calls with its keys are refused within a second.", application.name),
    });
    Ok(())
}

fn list(applications: &[Application]) -> String {
    if applications.is_empty() {
        return "An application stands for one business system that may call you. Create one: deskgate app create NAME"
            .to_owned();
    }
    let row = |app: &Application| {
        let state = if app.disabled_at.is_some() { "disabled" } else { "enabled" };
        let keys = app.live_keys.to_string();
        vec![app.name.clone(), state.to_owned(), keys, app.created_at.to_string(), app.app_id.to_string()]
    };
    table(&["NAME", "STATE", "KEYS", "CREATED", "ID"], &applications.iter().map(row).collect::<Vec<_>>())
}

/// An application by its identifier or its name.
pub(super) async fn find(agent: &Agent, wanted: &str) -> Result<ApplicationId, Failure> {
    super::no_secret("application", wanted)?;
    if let Ok(app_id) = wanted.parse() {
        return Ok(app_id);
    }
    let applications = agent.manage(ListApplications {}).await?;
    let found = applications.iter().find(|app| app.name == wanted).map(|app| app.app_id);
    found.ok_or_else(|| {
        Failure::new(Exit::Failed, format!("there is no application {wanted:?}; see: deskgate app list"))
    })
}
