//! `quickstart`: from nothing to a finished run in one command.
//!
//! It looks first, asks one question about all that is missing, and then makes it step by step. What is there already is
//! used as it is, so the command can be repeated, also after a step that failed.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use deskgate_definition::{Definition, Provider, Service, ServiceStage, ServiceTemplate};
use deskgate_program::confirmation::Confirmation;
use deskgate_program::exit::{Exit, Failure};
use deskgate_program::output::Output;
use deskgate_program::{terminal, visible};
use deskgate_protocol::management::{
    Access, Application, ApplicationState, CreateApplication, CreateKey, GetAccess, LISTED_TEXT_CHARS,
    ListApplications, ListRuns, ListedRun, Scope, SetAccess, ShowRun, TryEndpoint,
};
use deskgate_protocol::run::{Phase, Run, RunState};
use deskgate_protocol::{ApplicationId, DraftId, EndpointId};
use serde::Serialize;

use super::ctrl_c::CtrlC;
use super::socket::AgentClient;
use super::{RunAgent, checks, daemon, no_secret};
use crate::local::{
    CreateService, GetStatus, LineView, ListModels, ListProviders, ListServices, ListStandings, PublishService,
    ServiceStanding, summary,
};

/// `deskgate quickstart`
#[derive(Debug, Args)]
pub(super) struct QuickstartArgs {
    /// The folder that the service works in
    folder: PathBuf,
    /// The application: the business system that may call. Created if there is none of this name
    #[arg(long, value_name = "NAME", default_value = "Quickstart")]
    app: String,
    /// The service's name [default: the folder's]
    #[arg(long)]
    name: Option<String>,
    /// Who answers: scripted, or a name from `deskgate provider list` [default: the provider that a service of yours
    /// uses, else the first whose models can be listed, else scripted]
    #[arg(long, requires = "model")]
    provider: Option<String>,
    /// Which of its models
    #[arg(long, requires = "provider")]
    model: Option<String>,
    /// What the first run is asked
    #[arg(long, value_name = "TEXT", default_value = "What is in this folder?")]
    input: String,
    #[command(flatten)]
    confirmation: Confirmation,
}

/// How long a started agent may take to reach its gateway, which may have to be made first.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);
const CONNECT_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// How long the first run is waited for.
const RUN_TIMEOUT: Duration = Duration::from_secs(120);
/// Among how many runs of the service one that has not ended is looked for.
const MAX_RUNS_SEARCHED: u32 = 20;
/// Seconds that one look at the run waits for a change.
const RUN_WAIT_S: u32 = 30;
/// The business user that the printed call is for.
const SUBJECT: &str = "quickstart";

/// What was done and what was there, for people and programs.
#[derive(Debug, Default, Serialize)]
struct QuickstartReport {
    /// What was done, in order.
    done: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    app_id: Option<ApplicationId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    draft_id: Option<DraftId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    endpoint_id: Option<EndpointId>,
    /// Where callers reach the gateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<String>,
    /// The full text of the key, if one was made now.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    /// A call of the service, for a shell whose variable APP_KEY has the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    curl: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<Run>,
}

pub(super) async fn run(args: QuickstartArgs, out: Output, run_agent: RunAgent) -> Result<(), Failure> {
    let folder = folder(&args.folder)?;
    for (flag, text) in [
        ("--app", Some(&args.app)),
        ("--name", args.name.as_ref()),
        ("--input", Some(&args.input)),
        ("--provider", args.provider.as_ref()),
        ("--model", args.model.as_ref()),
    ] {
        no_secret(flag, text.map(String::as_str).unwrap_or_default())?;
    }
    let mut quickstart = Quickstart { args, folder, out, report: QuickstartReport::default() };
    // For the key's sake.
    let mut ctrl_c = CtrlC::answered()?;
    let ended = tokio::select! {
        ended = quickstart.go(run_agent) => ended,
        () = ctrl_c.pressed() => Err(Failure::new(Exit::Interrupted, "interrupted")),
    };
    let Quickstart { report, .. } = quickstart;
    // A key that was made is shown whatever came after it: it cannot be shown again.
    if ended.is_ok() || report.key.is_some() {
        out.result("quickstart/1", &report, || report.text());
    }
    let run = ended.map_err(|failure| report.explain(failure))?;
    match run.state {
        RunState::Succeeded => Ok(()),
        _ if run.phase == Phase::Final => Err(Failure::new(Exit::NotSucceeded, unsuccessful(&run))),
        _ => Err(Failure::new(Exit::Pending, unsuccessful(&run))),
    }
}

/// The folder's absolute path.
fn folder(given: &Path) -> Result<PathBuf, Failure> {
    let wrong =
        |why: String| Failure::new(Exit::Usage, format!("{}: {why}. Name a folder that exists", given.display()));
    let found = std::fs::canonicalize(given).map_err(|error| wrong(error.to_string()))?;
    if found.is_dir() { Ok(found) } else { Err(wrong("this is no folder".to_owned())) }
}

fn unsuccessful(run: &Run) -> String {
    let why = run.error.as_ref().map(|error| format!(" {}", error.message));
    let why = why.or_else(|| run.state_reason.as_ref().map(|reason| format!(" {}", reason.message)));
    format!(
        "the first run is {}.{} Look at it with: deskgate run show {}",
        run.state,
        why.unwrap_or_default(),
        run.run_id
    )
}

/// The command while it works.
struct Quickstart {
    args: QuickstartArgs,
    folder: PathBuf,
    out: Output,
    report: QuickstartReport,
}

/// What is there already.
struct Found {
    application: Option<Application>,
    service: Option<Service>,
    access: Access,
    /// The definition to publish: the service's own, or that of the one to create.
    definition: Definition,
    /// The other services of this computer that callers can use once access is enabled.
    others: usize,
    /// What the gateway says of the service.
    standing: Option<ServiceStanding>,
}

impl Found {
    fn is_published(&self) -> bool {
        // The device alone does not know that it was unpublished at the gateway, or never published at this one.
        let is_gone = matches!(self.standing, Some(ServiceStanding::Unpublished | ServiceStanding::Elsewhere));
        !is_gone && self.service.as_ref().is_some_and(|service| service.stage() == ServiceStage::Published)
    }

    fn needs_key(&self) -> bool {
        self.application.as_ref().is_none_or(|app| app.live_keys == 0)
    }
}

impl Quickstart {
    async fn go(&mut self, run_agent: RunAgent) -> Result<Run, Failure> {
        let agent = AgentClient::find()?;
        self.start(&agent, run_agent).await?;
        let found = self.look(&agent).await?;
        self.ask(&found)?;
        let app_id = self.application(&agent, &found).await?;
        let service = self.service(&agent, app_id, &found).await?;
        let service = self.publish(&agent, service, found.is_published()).await?;
        let endpoint_id = service
            .endpoint_id
            .ok_or_else(|| Failure::new(Exit::Failed, format!("see: deskgate service show {}", service.draft_id)))?;
        self.report.endpoint_id = Some(endpoint_id);
        if !found.access.enabled {
            agent.manage(SetAccess { enabled: true }).await?;
            self.done("Access is enabled.");
        }
        self.report.address = Some(found.access.address.clone());
        self.report.curl = Some(curl(&found.access.address, endpoint_id, &self.args.input));
        let run = first_run(&agent, endpoint_id, self.args.input.clone()).await?;
        self.done(&format!("The first run is {}: {}", run.state, run.run_id));
        self.report.run = Some(run.clone());
        Ok(run)
    }

    /// Notes what was done, and tells it at once.
    fn done(&mut self, what: &str) {
        if !self.out.json && !self.out.quiet {
            terminal::print(what);
        }
        self.report.done.push(what.to_owned());
    }

    /// Starts the agent if it does not run, and waits until it has reached its gateway.
    async fn start(&mut self, agent: &AgentClient, run_agent: RunAgent) -> Result<(), Failure> {
        match agent.request(GetStatus {}).await {
            Ok(_) => {}
            Err(failure) if failure.exit == Exit::CannotReach => {
                daemon::start(daemon::StartArgs::again(), Output { json: false, quiet: true }, run_agent).await?;
                self.done("The agent is started.");
            }
            Err(failure) => return Err(failure),
        }
        let deadline = Instant::now() + CONNECT_TIMEOUT;
        loop {
            let status = agent.request(GetStatus {}).await?;
            let why = match status.line {
                LineView::Connected { .. } if status.access.is_some() => return Ok(()),
                LineView::Refused { refused, .. } => {
                    let message =
                        format!("the gateway refuses this computer: {}. See: deskgate status", refused.message);
                    return Err(Failure::new(Exit::NotAuthorised, message));
                }
                LineView::Disconnected { why, .. } => why,
                LineView::Connected { .. } | LineView::Connecting => "it does not answer".to_owned(),
            };
            if Instant::now() > deadline {
                let message = format!("the gateway cannot be reached: {why}. See: deskgate doctor");
                return Err(Failure::new(Exit::CannotReach, message));
            }
            tokio::time::sleep(CONNECT_POLL_INTERVAL).await;
        }
    }

    async fn look(&self, agent: &AgentClient) -> Result<Found, Failure> {
        let application = agent.manage(ListApplications {}).await?.into_iter().find(|app| app.name == self.args.app);
        if let Some(app) = application.as_ref().filter(|app| app.state != ApplicationState::Active) {
            let message = format!("the application {:?} is {}; name another one with --app", app.name, app.state);
            return Err(Failure::new(Exit::Refused, message));
        }
        let services = agent.request(ListServices {}).await?;
        let standings = agent.request(ListStandings {}).await?;
        let standing = |service: &Service| standings.get(&service.draft_id).copied();
        let service = match &application {
            Some(app) => self.known(&services, app.app_id)?,
            None => None,
        };
        if let Some(service) = service.as_ref().filter(|service| standing(service) == Some(ServiceStanding::Disabled)) {
            let message =
                format!("{:?} is disabled; run: deskgate service enable {}", service.draft.name, service.draft_id);
            return Err(Failure::new(Exit::Refused, message));
        }
        let others = services.iter().filter(|other| {
            service.as_ref().is_none_or(|service| service.draft_id != other.draft_id)
                && other.published.is_some()
                && standing(other) == Some(ServiceStanding::Published)
        });
        let definition = match &service {
            Some(service) => service.draft.clone(),
            None => self.definition(agent, &services).await?,
        };
        let access = agent.manage(GetAccess {}).await?;
        let (others, standing) = (others.count(), service.as_ref().and_then(standing));
        Ok(Found { application, others, access, definition, standing, service })
    }

    /// The service that is there already: the one of the name, or the only one that works in the folder.
    fn known(&self, services: &[Service], app_id: ApplicationId) -> Result<Option<Service>, Failure> {
        let mut own = services.iter().filter(|service| service.app_id == app_id);
        let name = self.name();
        if let Some(named) = own.clone().find(|service| service.draft.name == name) {
            let works_in = &named.draft.working_directory;
            if std::fs::canonicalize(works_in).unwrap_or_else(|_| works_in.clone()) == self.folder {
                return Ok(Some(named.clone()));
            }
            let message = format!(
                "{:?} has a service {name:?} for another folder, {}; give this one another name with --name",
                self.args.app,
                works_in.display()
            );
            return Err(Failure::new(Exit::Refused, message));
        }
        let of_folder = |service: &&Service| self.args.name.is_none() && service.draft.working_directory == self.folder;
        Ok(own.find(of_folder).cloned())
    }

    fn name(&self) -> String {
        let of_folder = self.folder.file_name().map(|name| name.to_string_lossy().into_owned());
        self.args.name.clone().or(of_folder).unwrap_or_else(|| "folder".to_owned())
    }

    /// The definition of a service that only reads, so that nothing waits for a decision.
    async fn definition(&self, agent: &AgentClient, services: &[Service]) -> Result<Definition, Failure> {
        let (provider, model) = match (&self.args.provider, &self.args.model) {
            (Some(provider), Some(model)) => (Provider::from(provider.clone()), model.clone()),
            _ => best_model(agent, services).await?,
        };
        let (name, working_directory) = (self.name(), self.folder.clone());
        Ok(Definition { name, working_directory, provider, model, ..ServiceTemplate::ReadOnly.definition() })
    }

    /// One question about everything that is missing.
    fn ask(&self, found: &Found) -> Result<(), Failure> {
        let app = &self.args.app;
        let mut steps = Vec::new();
        match (&found.application, found.needs_key()) {
            (None, _) => steps.push(format!("Create the application {app:?} with a key, which is shown once.")),
            (Some(_), true) => steps.push(format!("Create a key for the application {app:?}, which is shown once.")),
            (Some(_), false) => {}
        }
        let (name, folder) = (&found.definition.name, self.folder.display());
        match &found.service {
            None => steps.push(format!("Create the service {name:?} for {folder}, check it, and publish it.")),
            Some(_) if !found.is_published() => steps.push(format!("Check the service {name:?}, and publish it.")),
            Some(_) => {}
        }
        if !found.is_published() {
            steps.extend(summary(&found.definition, app));
        }
        if !found.access.enabled {
            steps.push(match found.others {
                0 => "Enable access, so that callers can use it.".to_owned(),
                others => format!("Enable access, so that callers can use it and {others} more that you published."),
            });
        }
        if steps.is_empty() {
            return Ok(());
        }
        let steps: String = steps.iter().map(|step| format!("\n  {step}")).collect();
        self.args.confirmation.confirm(&format!("Go on?{steps}"))
    }

    async fn application(&mut self, agent: &AgentClient, found: &Found) -> Result<ApplicationId, Failure> {
        let (app_id, key) = match &found.application {
            None => {
                let created = agent.manage(CreateApplication { name: self.args.app.clone() }).await?;
                self.done(&format!("The application {:?} is created.", self.args.app));
                (created.application.app_id, Some(created.key.text))
            }
            Some(app) if found.needs_key() => {
                let request = CreateKey {
                    app_id: app.app_id,
                    name: "quickstart".to_owned(),
                    scopes: Scope::ALL.to_vec(),
                    endpoints: Vec::new(),
                    fixed_subject: None,
                    expires_at: None,
                    allowed_cidrs: Vec::new(),
                };
                let created = agent.manage(request).await?;
                self.done(&format!("A key of {:?} is created.", app.name));
                (app.app_id, Some(created.text))
            }
            Some(app) => (app.app_id, None),
        };
        self.report.app_id = Some(app_id);
        self.report.key = key;
        Ok(app_id)
    }

    async fn service(&mut self, agent: &AgentClient, app_id: ApplicationId, found: &Found) -> Result<Service, Failure> {
        let service = match &found.service {
            Some(service) => service.clone(),
            None => {
                let service = agent.request(CreateService { app_id, definition: found.definition.clone() }).await?;
                self.done(&format!("The service {:?} is created.", service.draft.name));
                service
            }
        };
        self.report.draft_id = Some(service.draft_id);
        Ok(service)
    }

    async fn publish(&mut self, agent: &AgentClient, service: Service, is_published: bool) -> Result<Service, Failure> {
        if is_published {
            return Ok(service);
        }
        let draft_id = service.draft_id;
        if service.stage() != ServiceStage::Checked {
            // A program is given one object, at the end.
            let quiet = self.out.quiet || self.out.json;
            let report = checks::check(agent, draft_id, Output { json: false, quiet }).await?;
            if !report.passed() {
                let failed = checks::show_failures(&report);
                let message = format!(
                    "the service cannot be published like this:\n{failed}Mend it, with deskgate service edit {draft_id} if \
                     the service has to change"
                );
                return Err(Failure::new(Exit::CheckFailed, message));
            }
            self.done("Its checks pass.");
        }
        let service = agent.request(PublishService { draft_id }).await?;
        self.done(&format!("{:?} is published.", service.draft.name));
        Ok(service)
    }
}

/// The model that a service of this computer uses, or the first that the profile of a provider knows; the scripted
/// assistant where there is no provider.
async fn best_model(agent: &AgentClient, services: &[Service]) -> Result<(Provider, String), Failure> {
    let providers = agent.request(ListProviders {}).await?;
    let is_there = |provider: &Provider| providers.iter().any(|known| known.name == provider.to_string());
    if let Some(used) = services.iter().rev().map(|service| &service.draft).find(|draft| is_there(&draft.provider)) {
        return Ok((used.provider.clone(), used.model.clone()));
    }
    for provider in &providers {
        let models = agent.request(ListModels { name: provider.name.clone() }).await.unwrap_or_default();
        let known = models.iter().find(|model| model.usd_per_million_tokens.is_some());
        if let Some(model) = known.or(models.first()) {
            return Ok((Provider::Account(provider.name.clone()), model.model.clone()));
        }
    }
    Ok((Provider::Scripted, Definition::blank().model))
}

/// The run that was asked the same and has not ended, as after Ctrl-C, or a new one as a caller would start it. Waits for its
/// end.
async fn first_run(agent: &AgentClient, endpoint_id: EndpointId, input: String) -> Result<Run, Failure> {
    let newest = ListRuns { limit: MAX_RUNS_SEARCHED, endpoint_id: Some(endpoint_id), ..ListRuns::default() };
    let asked: String = input.chars().take(LISTED_TEXT_CHARS).collect();
    let is_it = |run: &ListedRun| run.phase != Phase::Final && run.asked.as_ref() == Some(&asked);
    let mut run = match agent.manage(newest).await?.runs.into_iter().find(is_it) {
        Some(under_way) => under_way.run,
        None => agent.manage(TryEndpoint { endpoint_id, input, data: None, files: Vec::new() }).await?,
    };
    let deadline = Instant::now() + RUN_TIMEOUT;
    while run.phase != Phase::Final && Instant::now() < deadline {
        let request = ShowRun { run_id: run.run_id, after: run.last_sequence, wait_s: RUN_WAIT_S };
        run = agent.manage(request).await?.run;
    }
    Ok(run)
}

/// A call of the service. The key reaches curl by a pipe: among its arguments every user of the computer could read it.
fn curl(address: &str, endpoint_id: EndpointId, input: &str) -> String {
    let body = serde_json::json!({ "input": { "text": input } }).to_string();
    format!(
        "printf 'Authorization: Bearer %s\\n' \"$APP_KEY\" | curl -sS -H @- -H 'X-Gateway-Subject: {SUBJECT}' \
         -H 'Idempotency-Key: quickstart-{:08x}' -H 'Content-Type: application/json' -d {} \
         {}",
        rand::random::<u32>(),
        in_quotes(&body),
        in_quotes(&format!("{address}/agent-endpoints/{endpoint_id}/runs"))
    )
}

/// A text as one word of a shell.
fn in_quotes(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

impl QuickstartReport {
    fn text(&self) -> String {
        let mut text = String::new();
        if let Some(answer) = self.run.as_ref().and_then(|run| run.result.as_ref()) {
            text += &format!("{}\n", visible::block(&answer.text, "  | "));
        }
        match &self.key {
            Some(key) => {
                text +=
                    "Its application key is shown this once; keep it in the backend's credential store. In a shell:\n";
                text += &format!("APP_KEY={key}\n");
            }
            None => {
                text += "Its application has a key already, and a key is shown only when it is made: put yours into APP_KEY.\n";
                if let Some(app_id) = self.app_id {
                    text += &format!("For another one: deskgate key create another --app {app_id}\n");
                }
            }
        }
        if let Some(curl) = &self.curl {
            text += &format!("and a call like a backend's, which is answered with the run's identifier:\n{curl}\n");
        }
        text += "See it all in your browser: deskgate open";
        text
    }

    /// What was done before a failure, and how it goes on.
    fn explain(&self, failure: Failure) -> Failure {
        if self.done.is_empty() {
            return failure;
        }
        let message = format!(
            "{}\nDone before that: {}\nRun the same command again to go on from there.",
            failure.message,
            self.done.join(" ")
        );
        Failure::new(failure.exit, message)
    }
}
