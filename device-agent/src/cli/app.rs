//! `app`: applications, the business systems that may call.

use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;
use deskgate_program::confirmation::Confirmation;
use deskgate_program::duration;
use deskgate_program::exit::Failure;
use deskgate_program::look::Cell;
use deskgate_program::output::Output;
use deskgate_program::records::applications::{self as records, Commands};
use deskgate_program::records::tones::Toned;
use deskgate_program::records::{Noun, list as list_of, older};
use deskgate_protocol::management::{
    Activity, Application, ApplicationState, CompleteDisabling, CreateApplication, CreatedKey, DisableApplication,
    ListActivity, ListApplications, ListRemoved, PreviewDisabling, RemoveApplication, RemovedApplication,
    ShowApplication,
};
use deskgate_protocol::{ActivityId, ApplicationId};

use super::identity::{WithFingerprint, fingerprint};
use super::socket::AgentClient;
use crate::local::{CopiedApplication, CopyApplication, ListElsewhere};

const APPLICATIONS: Noun = Noun { singular: "application", plural: "applications", list: "deskgate app list" };

/// Next steps with an application.
const COMMANDS: Commands = Commands { app: "deskgate app", runs: "deskgate run list" };

/// `deskgate app …`
#[derive(Debug, Subcommand)]
pub(super) enum AppCommand {
    /// Create an application with a first key, which is shown this once
    Create {
        /// A recognisable name
        name: String,
    },
    /// Make an application of another gateway again at the present one, with drafts of its services
    #[command(
        after_help = "Its first key is shown this once. What is at the other gateway stays as it is. An application \
                            that has the name here is used, and gets the services that it lacks."
    )]
    Copy {
        /// Its name at the other gateway, or its identifier
        app: String,
    },
    /// Every application that was not removed
    List,
    /// One application, and what its disabling waits for
    Show {
        /// Its name or identifier
        app: String,
    },
    /// End an application's keys, services and runs for good
    #[command(after_help = "Keys are never restored. Files that runs have changed stay changed.")]
    Disable {
        /// Its name or identifier
        app: String,
        /// Wait until nothing of it is left to end and complete it, at most so long, as in 60s
        #[arg(long, value_name = "TIME", value_parser = duration::parse)]
        wait: Option<Duration>,
        #[command(flatten)]
        confirmation: Confirmation,
    },
    /// Complete disabling, once everything of the application has ended
    CompleteDisabling {
        /// Its name or identifier
        app: String,
        /// Wait until nothing of it is left to end and complete it, at most so long, as in 60s
        #[arg(long, value_name = "TIME", value_parser = duration::parse)]
        wait: Option<Duration>,
    },
    /// Take a disabled application off the list; its history stays readable until it is deleted
    Remove {
        /// Its name or identifier
        app: String,
        #[command(flatten)]
        confirmation: Confirmation,
    },
    /// Removed applications of which something is kept
    Removed,
    /// Its runs with their events, newest first, one JSON object on each line; the application may be removed
    Export {
        /// Its name or identifier
        app: String,
        /// Into a file, where nothing is yet; otherwise to the standard output
        #[arg(long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Who did what to applications, newest first
    Activity {
        /// Only to this application: its name or identifier, removed or not
        #[arg(long, value_name = "APP")]
        app: Option<String>,
        /// At most so many
        #[arg(long, default_value_t = 20)]
        limit: u32,
        /// Only what was done before this
        #[arg(long, value_name = "ACTIVITY")]
        before: Option<ActivityId>,
    },
}

/// A new application and its first key, for people.
fn text_of_new(application: &Application, key: &CreatedKey) -> String {
    format!(
        "Created {} ({}).\nApplication key, shown this once; keep it in the backend's credential store:\n{}",
        application.name, application.app_id, key.text
    )
}

async fn copy(agent: &AgentClient, app: &str, out: Output) -> Result<(), Failure> {
    const ELSEWHERE: Noun = Noun {
        singular: "application of another gateway",
        plural: "applications of other gateways",
        list: "deskgate service list",
    };
    let elsewhere = agent.request(ListElsewhere {}).await?;
    let app_id = ELSEWHERE.named(app, elsewhere, |found| found.name.clone(), |found| found.app_id.to_string())?.app_id;
    let fingerprint = fingerprint(agent).await?;
    let copied = agent.request(CopyApplication { app_id }).await?;
    let shown = WithFingerprint::of(&copied, fingerprint);
    out.result("app-copied/1", &shown, || {
        let CopiedApplication { application, key, services } = &copied;
        let mut text = match key {
            Some(key) => text_of_new(application, key) + &shown.line(),
            None => format!("{} ({}) was there.", application.name, application.app_id),
        };
        for service in services {
            text += &format!(
                "\nSaved as a draft: {}\nNext: deskgate service check {}",
                service.draft.name, service.draft_id
            );
        }
        text
    });
    Ok(())
}

pub(super) async fn run(agent: AgentClient, command: AppCommand, out: Output) -> Result<(), Failure> {
    match command {
        AppCommand::Create { name } => {
            let fingerprint = fingerprint(&agent).await?;
            let created = agent.manage(CreateApplication { name }).await?;
            let shown = WithFingerprint::of(&created, fingerprint);
            out.result("app-created/1", &shown, || text_of_new(&created.application, &created.key) + &shown.line());
        }
        AppCommand::Copy { app } => copy(&agent, &app, out).await?,
        AppCommand::List => {
            let applications = agent.manage(ListApplications {}).await?;
            out.result("apps/1", &serde_json::json!({ "applications": applications }), || list(&applications));
        }
        AppCommand::Show { app } => {
            let app_id = find(&agent, &app).await?;
            let application = agent.manage(ShowApplication { app_id }).await?;
            let shown = WithFingerprint::of(&application, fingerprint(&agent).await?);
            out.result("app/1", &shown, || records::text(&application, COMMANDS).trim_end().to_owned() + &shown.line());
        }
        AppCommand::Disable { app, wait, confirmation } => {
            let app_id = find(&agent, &app).await?;
            let preview = agent.manage(PreviewDisabling { app_id }).await?;
            let name = &preview.application.name;
            confirmation.confirm(&format!("Disable {name:?}? It ends:\n{}", records::would_end(&preview)))?;
            let application = agent.manage(DisableApplication { app_id }).await?;
            follow_disabling(&agent, application, wait, out).await?;
        }
        AppCommand::CompleteDisabling { app, wait } => {
            let app_id = find(&agent, &app).await?;
            let shown = agent.manage(ShowApplication { app_id }).await?;
            let application = match (wait, shown.state) {
                (Some(_), ApplicationState::Disabling) => shown,
                _ => agent.manage(CompleteDisabling { app_id }).await?,
            };
            follow_disabling(&agent, application, wait, out).await?;
        }
        AppCommand::Remove { app, confirmation } => {
            let app_id = find(&agent, &app).await?;
            let name = agent.manage(ShowApplication { app_id }).await?.name;
            confirmation.confirm(&format!(
                "Remove {name:?} from the list? It cannot be put back; its history stays readable."
            ))?;
            let application = agent.manage(RemoveApplication { app_id }).await?;
            out.result("app/1", &application, || records::text(&application, COMMANDS));
        }
        AppCommand::Activity { app, limit, before } => {
            let app_id = find_given(&agent, app).await?;
            let page = agent.manage(ListActivity { limit, before, app_id }).await?;
            out.result("activity/1", &page, || list_activity(&page.entries) + &older(page.next));
        }
        AppCommand::Export { app, output } => {
            let app_id = find(&agent, &app).await?;
            super::export::run(agent, app_id, output, out).await?;
        }
        AppCommand::Removed => {
            let removed = agent.manage(ListRemoved {}).await?;
            out.result("apps-removed/1", &serde_json::json!({ "applications": removed }), || list_removed(&removed));
        }
    }
    Ok(())
}

/// Shows an application that is being disabled; with `wait`, once that is complete or the time is over.
async fn follow_disabling(
    agent: &AgentClient,
    application: Application,
    wait: Option<Duration>,
    out: Output,
) -> Result<(), Failure> {
    let app_id = application.app_id;
    let show = async || agent.manage(ShowApplication { app_id }).await;
    let complete = async || agent.manage(CompleteDisabling { app_id }).await;
    let application = records::wait_until_disabled(application, wait, show, complete).await?;
    out.result("app/1", &application, || records::text(&application, COMMANDS));
    records::verdict(&application, wait)
}

fn list(applications: &[Application]) -> String {
    list_of(
        applications,
        "An application stands for one business system that may call you. Create one: deskgate app create NAME",
        &["NAME", "STATE", "KEYS", "CREATED", "ID"],
        |app| {
            let keys = app.live_keys.to_string().into();
            vec![app.name.clone().into(), app.state.cell(), keys, app.created_at.into(), Cell::id(app.app_id)]
        },
    )
}

fn list_removed(removed: &[RemovedApplication]) -> String {
    list_of(
        removed,
        "Applications that you remove appear here until the last of their runs is deleted.",
        &["NAME", "REMOVED", "RUNS", "KEPT UNTIL", "ID"],
        |RemovedApplication { application: app, runs, kept_until }| {
            let (name, runs) = (app.name.clone().into(), runs.to_string().into());
            vec![name, app.removed_at.into(), runs, (*kept_until).into(), Cell::id(app.app_id)]
        },
    )
}

/// The same for an optional application name.
pub(super) async fn find_given(agent: &AgentClient, wanted: Option<String>) -> Result<Option<ApplicationId>, Failure> {
    match wanted {
        Some(wanted) => find(agent, &wanted).await.map(Some),
        None => Ok(None),
    }
}

fn list_activity(entries: &[Activity]) -> String {
    list_of(entries, "Nothing was done here.", &["WHEN", "BY", "WHAT", "NAME", "ABOUT"], |entry| {
        let by = match &entry.key_last4 {
            Some(last4) => format!("key …{last4}"),
            None => entry.by.to_string(),
        };
        let name = entry.name.clone().unwrap_or_default();
        let about = entry.about.clone().or_else(|| entry.app_id.map(|app_id| app_id.to_string())).unwrap_or_default();
        vec![entry.at.into(), by.into(), entry.what.to_string().into(), name.into(), Cell::Id(about)]
    })
}

/// An application by its identifier or its name. A name that is not on the list may be that of a removed one: the one
/// removed last.
pub(super) async fn find(agent: &AgentClient, wanted: &str) -> Result<ApplicationId, Failure> {
    super::no_secret("application", wanted)?;
    if let Ok(app_id) = wanted.parse() {
        return Ok(app_id);
    }
    let mut known = agent.manage(ListApplications {}).await?;
    if !known.iter().any(|app| app.name == wanted) {
        let removed = agent.manage(ListRemoved {}).await?.into_iter().map(|removed| removed.application);
        let (named, others): (Vec<_>, Vec<_>) = removed.partition(|app| app.name == wanted);
        known.extend(named.into_iter().take(1).chain(others));
    }
    let application = APPLICATIONS.named(wanted, known, |app| app.name.clone(), |app| app.app_id.to_string())?;
    Ok(application.app_id)
}
