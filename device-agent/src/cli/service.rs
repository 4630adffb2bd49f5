//! `service`: services, from draft to publication.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use deskgate_definition::{
    CostShownTo, Definition, Effort, MicroUsd, ModelReads, Network, PROTECTED_NAMES, Provider, ReasoningSummaries,
    RunLimits, Service as Record, ServiceTemplate, Skill, ToolName, TypedData, is_taken_off,
};
use deskgate_program::duration;
use deskgate_program::exit::{Exit, Failure};
use deskgate_program::look::Cell;
use deskgate_program::output::Output;
use deskgate_program::records::given;
use deskgate_program::records::{self, Detail, Noun};
use deskgate_program::{text_file, visible};
use deskgate_protocol::EndpointId;
use deskgate_protocol::management::TryEndpoint;
use serde_json::Value;

use super::service_life::{self, ServiceLifeCommand};
use super::socket::AgentClient;
use super::{app, checks, files, mcp, no_secret, rules, service_templates, service_versions};
use crate::local::{
    CreateService, EditService, ElsewhereApplication, ListElsewhere, ListServices, ListStandings, LookAtFolder,
    PublishService, ServiceStanding, ShowService, ShowToolName, TryServiceDraft, stage,
};
use crate::services::Folder;
use crate::services::differences::VersionChoice;

const SERVICES: Noun = Noun { singular: "service", plural: "services", list: "deskgate service list" };

/// `deskgate service …`
#[derive(Debug, Subcommand)]
pub(super) enum ServiceCommand {
    /// Save a new service as a draft
    Create {
        /// Its name, unique in the application
        name: String,
        /// The application that may call it, by name or identifier
        #[arg(long)]
        app: String,
        /// What it begins as, by its name in `deskgate service templates`; the other options change it
        #[arg(long, value_name = "NAME")]
        template: Option<ServiceTemplate>,
        #[command(flatten)]
        fields: DefinitionArgs,
    },
    /// What a new service may begin as
    Templates,
    /// Change a draft; what is published stays as it is until the draft is published too
    Edit {
        /// Its name or identifier
        service: String,
        /// A new name
        #[arg(long)]
        name: Option<String>,
        #[command(flatten)]
        fields: DefinitionArgs,
    },
    /// Check whether this computer can do what the draft asks for
    Check {
        /// Its name or identifier
        service: String,
    },
    /// Publish a checked draft
    Publish {
        /// Its name or identifier
        service: String,
    },
    #[command(flatten)]
    Life(ServiceLifeCommand),
    /// The published versions of a service, newest first
    Versions {
        /// Its name or identifier
        service: String,
    },
    /// What one version of a service has otherwise than another
    Diff {
        /// Its name or identifier
        service: String,
        /// The older one: a version's number, or draft [default: the newest version]
        from: Option<VersionChoice>,
        /// The newer one [default: draft]
        to: Option<VersionChoice>,
    },
    /// Start a run of what is published, as a caller would, or of a checked draft
    Try {
        /// Its name or identifier
        service: String,
        /// Try the draft as it is saved, which was checked; callers cannot call it
        #[arg(long)]
        draft: bool,
        /// The text that the assistant is given
        #[arg(long, value_name = "TEXT")]
        input: String,
        /// The data that it is given, a JSON file; - for standard input
        #[arg(long, value_name = "FILE")]
        data: Option<PathBuf>,
        /// A file that it is given; may be repeated
        #[arg(long, value_name = "FILE")]
        file: Vec<PathBuf>,
        /// Wait for its end, at most so long
        #[arg(long, value_name = "TIME", value_parser = duration::parse)]
        wait: Option<Duration>,
    },
    /// Every service
    List,
    /// One service
    Show {
        /// Its name or identifier
        service: String,
    },
}

/// The fields of a definition; what is absent stays, or has its default.
#[derive(Debug, Args)]
pub(super) struct DefinitionArgs {
    /// The folder that tools work in
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
    /// What it does, for the people who call it
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// Who answers: scripted, or a name from `deskgate provider list`
    #[arg(long)]
    provider: Option<String>,
    /// Which of its models; scripted has `folder`, and `script:` with a file's absolute path
    #[arg(long)]
    model: Option<String>,
    /// The fixed task
    #[arg(long, value_name = "TEXT", conflicts_with = "instructions_file")]
    instructions: Option<String>,
    /// A file with the fixed task
    #[arg(long, value_name = "FILE")]
    instructions_file: Option<PathBuf>,
    /// The tools, separated by commas; "none" for conversation only; Bash, which runs commands, Fetch, which gets pages
    /// of the web, and Deliver, which hands files out, are among them only when named [default: Read,Grep,Glob,Edit,Write]
    #[arg(long, value_name = "TOOLS")]
    tools: Option<String>,
    /// The network that commands have: none, or host for the whole network of this computer; Fetch does not use it
    #[arg(long)]
    network: Option<Network>,
    /// A folder with a SKILL.md, whose instructions are taken over now; may be repeated, "none" for no skills
    #[arg(long, value_name = "FOLDER")]
    skill: Vec<PathBuf>,
    /// An MCP server, by its name in `deskgate mcp list`; may be repeated, "none" for no servers
    #[arg(long, value_name = "NAME")]
    mcp: Vec<String>,
    /// The schema that `input.data` of callers must fit, a JSON file; - for standard input, "none" for no schema
    #[arg(long, value_name = "FILE")]
    input_schema: Option<PathBuf>,
    /// The schema that the data of every answer fits, a JSON file; - for standard input, "none" for no schema
    #[arg(long, value_name = "FILE")]
    output_schema: Option<PathBuf>,
    /// Whether callers may send a schema for the answer, where the service has none
    #[arg(long, value_name = "YES_OR_NO")]
    caller_schema: Option<YesOrNo>,
    /// Whether runs may be given files by callers
    #[arg(long, value_name = "YES_OR_NO")]
    takes_files: Option<YesOrNo>,
    /// Its name as a tool of MCP; "none" to keep the one that the gateway gave it [default: ask_ and its name at first]
    #[arg(long, value_name = "NAME")]
    tool_name: Option<String>,
    #[command(flatten)]
    rules: rules::RuleArgs,
    /// Files that no tool changes, by a pattern as in a .gitignore; !NAME takes off a name that is always protected; may be
    /// repeated, "none" for none
    #[arg(long, value_name = "PATTERN")]
    protect: Vec<String>,
    /// Model calls in one run
    #[arg(long)]
    max_turns: Option<u32>,
    /// Awake seconds in one run
    #[arg(long, value_name = "SECONDS")]
    max_duration: Option<u32>,
    /// Runs at the same time [default: 1 with a tool that changes something or an MCP server, else 4]; more than the
    /// device has slots wait for one (deskgate settings set slots)
    #[arg(long)]
    concurrency: Option<u32>,
    /// Tokens that the model may write in one run; 0 for as many as it likes
    #[arg(long, value_name = "TOKENS")]
    max_output_tokens: Option<u64>,
    /// Tokens that the model takes in one model call; 0 for the usual number
    #[arg(long, value_name = "TOKENS")]
    context_tokens: Option<u64>,
    /// How much the model reasons: default leaves it to the model; else none, minimal, low, medium, high, xhigh or max, as
    /// the model takes them
    #[arg(long, value_name = "EFFORT")]
    effort: Option<EffortChoice>,
    /// Who reads summaries of the reasoning: owner, callers too, or off
    #[arg(long, value_name = "WHO")]
    reasoning_summaries: Option<ReasoningSummaries>,
    /// Tokens that the model may read and write in one run; 0 takes the budget away
    #[arg(long, value_name = "TOKENS")]
    run_tokens: Option<u64>,
    /// US dollars that one run's model calls may cost; 0 takes the budget away
    #[arg(long, value_name = "AMOUNT")]
    run_usd: Option<MicroUsd>,
    /// Who is told what a run cost: owner, or callers, in the run's usage
    #[arg(long, value_name = "WHO")]
    cost_shown_to: Option<CostShownTo>,
    /// What the model reads: text, images, or pdfs (which includes images); default for what is known of it
    #[arg(long, value_name = "CONTENT")]
    model_reads: Option<ModelReadsChoice>,
}

deskgate_protocol::words! {
    /// Whether something is allowed.
    pub(super) enum YesOrNo {
        /// It is.
        Yes = "yes",
        /// It is not.
        No = "no",
    }
}

/// What a model reads, or what is known of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct ModelReadsChoice(Option<ModelReads>);

impl std::str::FromStr for ModelReadsChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        or_default(text).map(Self)
    }
}

/// A word, or `default` for none.
fn or_default<T: std::str::FromStr<Err: std::fmt::Display>>(text: &str) -> Result<Option<T>, String> {
    match text {
        "default" => Ok(None),
        word => word.parse().map(Some).map_err(|error| format!("{error}, default")),
    }
}

/// An effort, or the model's own.
#[derive(Clone, Copy, Debug)]
pub(super) struct EffortChoice(Option<Effort>);

impl std::str::FromStr for EffortChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        or_default(text).map(Self)
    }
}

pub(super) async fn run(agent: AgentClient, command: ServiceCommand, out: Output) -> Result<(), Failure> {
    match command {
        ServiceCommand::Create { name, app, template, fields } => {
            let app_id = app::find(&agent, &app).await?;
            let begins = template.map_or_else(Definition::blank, ServiceTemplate::definition);
            let mcp = mcp::named(&agent, &fields.mcp, &[]).await?;
            let working_directory = std::env::current_dir().unwrap_or_default();
            let definition = fields.apply(Definition { name, working_directory, mcp, ..begins })?;
            let service = agent.request(CreateService { app_id, definition }).await?;
            out.result("service/1", &view(&service), || {
                format!("Saved as a draft: {}\nNext: deskgate service check {}", service.draft_id, service.draft_id)
            });
        }
        ServiceCommand::Templates => service_templates::list(out),
        ServiceCommand::Edit { service, name, fields } => {
            let service = find(&agent, &service).await?;
            let mut definition = service.draft;
            definition.name = name.unwrap_or(definition.name);
            if !fields.mcp.is_empty() {
                let servers = mcp::named(&agent, &fields.mcp, &definition.mcp).await?;
                give(&mut definition, |definition| definition.mcp = servers);
            }
            let request = EditService { draft_id: service.draft_id, definition: fields.apply(definition)? };
            let service = agent.request(request).await?;
            out.result("service/1", &view(&service), || {
                format!("Saved.\nNext: deskgate service check {}", service.draft_id)
            });
        }
        ServiceCommand::Check { service } => {
            let draft_id = find(&agent, &service).await?.draft_id;
            let report = checks::check(&agent, draft_id, out).await?;
            if !report.passed() {
                return Err(Failure::new(
                    Exit::CheckFailed,
                    "a check failed: the service cannot be published like this",
                ));
            }
        }
        ServiceCommand::Publish { service } => {
            let draft_id = find(&agent, &service).await?.draft_id;
            let service = agent.request(PublishService { draft_id }).await?;
            out.result("service/1", &view(&service), || {
                let version = service.published.as_ref().map_or(0, |version| version.version);
                let endpoint = service.endpoint_id.map(|id| id.to_string()).unwrap_or_default();
                let Definition { name, limits, tools, mcp, .. } = &service.draft;
                let at_once = limits.concurrency_in_words(tools, mcp);
                format!(
                    "Published version {version} of {name}.\nService ID: {endpoint}\nAt once: {at_once} (change it: \
                     deskgate service edit {draft_id} --concurrency N)\nNext: deskgate access enable"
                )
            });
        }
        ServiceCommand::Life(command) => service_life::run(agent, command, out).await?,
        ServiceCommand::Versions { service } => service_versions::list(&agent, &service, out).await?,
        ServiceCommand::Diff { service, from, to } => {
            service_versions::compare(&agent, &service, from, to, out).await?;
        }
        ServiceCommand::Try { service, draft, input, data, file, wait } => {
            no_secret("--input", &input)?;
            let data = data.map(|file| json_file("--data", &file)).transpose()?;
            let service = find(&agent, &service).await?;
            let endpoint_id = if draft { None } else { Some(callable(&service)?) };
            let files = files::upload(&agent, service.app_id, file).await?;
            let run = match endpoint_id {
                None => agent.request(TryServiceDraft { draft_id: service.draft_id, input, data, files }).await?,
                Some(endpoint_id) => {
                    let files = files.iter().map(|file| file.file_id).collect();
                    agent.manage(TryEndpoint { endpoint_id, input, data, files }).await?
                }
            };
            if wait.is_some() {
                return super::run::show(agent, run.run_id, wait, out).await;
            }
            out.result("accepted/1", &run, || {
                format!("Accepted: {}\nNext: deskgate run show {} --wait 60s", run.run_id, run.run_id)
            });
        }
        ServiceCommand::List => {
            let services = agent.request(ListServices {}).await?;
            let standings = agent.request(ListStandings {}).await?;
            let rows: Vec<_> =
                services.iter().map(|service| (service, standings.get(&service.draft_id).copied())).collect();
            let views: Vec<_> = rows.iter().map(|(service, standing)| view_with(service, *standing)).collect();
            let elsewhere = agent.request(ListElsewhere {}).await.unwrap_or_default();
            out.result("services/1", &serde_json::json!({ "services": views }), || list(&rows) + &away(&elsewhere));
        }
        ServiceCommand::Show { service } => {
            let service = find(&agent, &service).await?;
            let service = agent.request(ShowService { draft_id: service.draft_id }).await?;
            let standing = agent.request(ListStandings {}).await?.get(&service.draft_id).copied();
            let path = service.draft.working_directory.clone();
            let folder = agent.request(LookAtFolder { path }).await?;
            let tool_name = agent.request(ShowToolName { draft_id: service.draft_id }).await?;
            let mut view = view_with(&service, standing);
            view["tool_name"] = serde_json::json!(tool_name);
            out.result("service/1", &view, || show(&service, standing, &folder, tool_name.as_deref()));
        }
    }
    Ok(())
}

impl DefinitionArgs {
    fn apply(self, mut definition: Definition) -> Result<Definition, Failure> {
        for (flag, text) in [
            ("--description", &self.description),
            ("--instructions", &self.instructions),
            ("--provider", &self.provider),
            ("--model", &self.model),
        ] {
            no_secret(flag, text.as_deref().unwrap_or_default())?;
        }
        if let Some(folder) = self.dir {
            let absolute = std::path::absolute(&folder);
            definition.working_directory =
                absolute.map_err(|error| Failure::new(Exit::Usage, format!("--dir {}: {error}", folder.display())))?;
        }
        if let Some(file) = self.instructions_file {
            definition.instructions = text_file::read(&file).map_err(|error| {
                Failure::new(Exit::Failed, format!("--instructions-file {}: {error}", file.display()))
            })?;
        }
        if let Some(tools) = self.tools {
            let tools = tools_of(&tools)?;
            give(&mut definition, |definition| definition.tools = tools);
        }
        if !self.protect.is_empty() {
            definition.protected = if self.protect == ["none"] { Vec::new() } else { self.protect };
        }
        if !self.skill.is_empty() {
            definition.skills = skills_in(&self.skill)?;
        }
        let data = &mut definition.data;
        for (schema, flag, file) in [
            (&mut data.input_schema, "--input-schema", self.input_schema),
            (&mut data.output_schema, "--output-schema", self.output_schema),
        ] {
            match file {
                None => {}
                Some(none) if none.as_os_str() == "none" => *schema = None,
                Some(file) => *schema = Some(json_file(flag, &file)?),
            }
        }
        data.caller_schema = self.caller_schema.map_or(data.caller_schema, |choice| choice == YesOrNo::Yes);
        data.takes_files = self.takes_files.map_or(data.takes_files, |choice| choice == YesOrNo::Yes);
        if let Some(name) = self.tool_name {
            data.tool_name = Some(name).filter(|name| name != "none");
        }
        definition.network = self.network.unwrap_or(definition.network);
        definition.provider = self.provider.map_or(definition.provider, Provider::from);
        definition.description = self.description.unwrap_or(definition.description);
        definition.instructions = self.instructions.unwrap_or(definition.instructions);
        definition.model = self.model.unwrap_or(definition.model);
        let reasoning = &mut definition.reasoning;
        reasoning.effort = self.effort.map_or(reasoning.effort, |EffortChoice(effort)| effort);
        reasoning.summaries = self.reasoning_summaries.unwrap_or(reasoning.summaries);
        definition.cost_shown_to = self.cost_shown_to.unwrap_or(definition.cost_shown_to);
        definition.model_reads = self.model_reads.map_or(definition.model_reads, |ModelReadsChoice(reads)| reads);
        definition.approvals = self.rules.apply(definition.approvals)?;
        let limits = &mut definition.limits;
        limits.max_turns = self.max_turns.unwrap_or(limits.max_turns);
        limits.max_duration_s = self.max_duration.unwrap_or(limits.max_duration_s);
        limits.concurrency = self.concurrency.unwrap_or(limits.concurrency);
        let budget = &mut limits.budget;
        budget.tokens = self.run_tokens.map_or(budget.tokens, |tokens| (tokens > 0).then_some(tokens));
        budget.cost = self.run_usd.map_or(budget.cost, |cost| (cost.0 > 0).then_some(cost));
        for (limit, said) in
            [(&mut limits.max_output_tokens, self.max_output_tokens), (&mut limits.context_tokens, self.context_tokens)]
        {
            *limit = said.map_or(*limit, |tokens| (tokens > 0).then_some(tokens));
        }
        Ok(definition)
    }
}

/// What answers have beside text, where it is not what a caller asks for.
fn answers(data: &TypedData) -> Option<&'static str> {
    match (&data.output_schema, data.caller_schema) {
        (Some(_), _) => Some("have data that fits a schema"),
        (None, false) => Some("are text; a caller's schema is refused"),
        (None, true) => None,
    }
}

/// What stands in a JSON file.
fn json_file(flag: &str, file: &Path) -> Result<Value, Failure> {
    let failed = |why: String| Failure::new(Exit::Failed, format!("{flag} {}: {why}", file.display()));
    let text = text_file::read(file).map_err(|error| failed(error.to_string()))?;
    serde_json::from_str(&text).map_err(|error| failed(format!("it is not JSON: {error}")))
}

/// Changes a service's tools, and with them its concurrency if that has the default value.
fn give(definition: &mut Definition, tools: impl FnOnce(&mut Definition)) {
    let usual = |definition: &Definition| RunLimits::default_for(&definition.tools, &definition.mcp).concurrency;
    let was_usual = definition.limits.concurrency == usual(definition);
    tools(definition);
    if was_usual {
        definition.limits.concurrency = usual(definition);
    }
}

fn skills_in(folders: &[PathBuf]) -> Result<Vec<Skill>, Failure> {
    if let [none] = folders
        && none.as_os_str() == "none"
    {
        return Ok(Vec::new());
    }
    let read =
        |folder: &PathBuf| Skill::read(folder).map_err(|error| Failure::new(Exit::Failed, format!("--skill: {error}")));
    folders.iter().map(read).collect()
}

fn tools_of(text: &str) -> Result<Vec<ToolName>, Failure> {
    if text == "none" {
        return Ok(Vec::new());
    }
    let tool = |name: &str| {
        name.trim().parse().map_err(|error| Failure::new(Exit::Usage, format!("--tools {name:?}: {error}, or none")))
    };
    text.split(',').map(tool).collect()
}

/// A service by one of its identifiers, or by a unique name. Of several with the name, one whose application has ended
/// is not meant.
pub(super) async fn find(agent: &AgentClient, wanted: &str) -> Result<Record, Failure> {
    let mut services = agent.request(ListServices {}).await?;
    let is_named = |service: &Record, by: &dyn Fn(&str) -> bool| {
        by(&service.draft_id.to_string())
            || by(&service.draft.name)
            || service.endpoint_id.is_some_and(|id| by(&id.to_string()))
    };
    let is_whole = |text: &str| text == wanted;
    if services.iter().any(|service| is_named(service, &is_whole)) {
        services.retain(|service| is_named(service, &is_whole));
    } else {
        let end = given::end_of_id(wanted);
        services.retain(|service| {
            let ids = [Some(service.draft_id.to_string()), service.endpoint_id.map(|id| id.to_string())];
            end.is_some_and(|end| ids.iter().flatten().any(|id| id.ends_with(end)))
        });
    }
    if services.len() > 1 {
        let standings = agent.request(ListStandings {}).await?;
        let has_ended = |service: &Record| standings.get(&service.draft_id) == Some(&ServiceStanding::Ended);
        if services.iter().any(|service| !has_ended(service)) {
            services.retain(|service| !has_ended(service));
        }
    }
    SERVICES.only(wanted, services)
}

/// The identifier of a published service, from its name or an identifier.
pub(super) async fn endpoint_of(agent: &AgentClient, wanted: &str) -> Result<EndpointId, Failure> {
    match wanted.parse() {
        Ok(endpoint_id) => Ok(endpoint_id),
        Err(_) => callable(&find(agent, wanted).await?),
    }
}

/// The service's identifier for callers.
fn callable(service: &Record) -> Result<EndpointId, Failure> {
    service.published.as_ref().and(service.endpoint_id).ok_or_else(|| {
        let message = format!("it is not published; run: deskgate service publish {}", service.draft_id);
        Failure::new(Exit::Refused, message)
    })
}

/// A service as JSON, by what is known on this computer.
pub(super) fn view(service: &Record) -> serde_json::Value {
    view_with(service, None)
}

fn view_with(service: &Record, standing: Option<ServiceStanding>) -> serde_json::Value {
    let mut view = serde_json::json!({
        "draft_id": service.draft_id,
        "app_id": service.app_id,
        "endpoint_id": service.published.as_ref().and(service.endpoint_id),
        "stage": stage(service, standing),
        "draft": service.draft,
        "checks": service.checks,
        "published": service.published,
    });
    if let Some(standing) = standing {
        view["standing"] = serde_json::json!(standing);
    }
    view
}

fn list(services: &[(&Record, Option<ServiceStanding>)]) -> String {
    records::list(
        services,
        "A service is what callers can use. Create one: deskgate service create NAME --app APP --dir FOLDER",
        &["NAME", "STAGE", "PUBLISHED", "FOLDER", "ID"],
        |(service, standing)| {
            let stage = stage(service, *standing);
            let version = service.published.as_ref();
            let endpoint = version.and(service.endpoint_id).map(|id| id.to_string());
            let about = match standing {
                _ if version.is_some_and(|version| version.paused.is_some()) => " (paused)".to_owned(),
                None | Some(ServiceStanding::Published) => String::new(),
                Some(ServiceStanding::Unknown) => " (gateway not reached)".to_owned(),
                Some(standing) if standing.as_str() == stage => String::new(),
                Some(standing) => format!(" ({standing})"),
            };
            vec![
                service.draft.name.clone().into(),
                stage.into(),
                version.map(|version| format!("v{}{about}", version.version)).unwrap_or_default().into(),
                service.draft.working_directory.display().to_string().into(),
                Cell::Id(endpoint.unwrap_or_else(|| service.draft_id.to_string())),
            ]
        },
    )
}

/// Which of them are at other gateways, and how they come to this one.
fn away(elsewhere: &[ElsewhereApplication]) -> String {
    let line = |app: &ElsewhereApplication| {
        let names: Vec<_> = app.services.iter().map(|service| service.draft.name.as_str()).collect();
        let next = match app.is_copied {
            true => "It is at this gateway too.".to_owned(),
            false => format!("To make it here too: deskgate app copy {}", app.app_id),
        };
        format!("\n{} of {} is at {}. {next}", names.join(", "), app.name, app.gateway)
    };
    elsewhere.iter().map(line).collect()
}

/// What is protected without being named, less what is taken off.
fn always_protected(patterns: &[&str]) -> String {
    let is_kept = |name: &&str| !patterns.iter().any(|pattern| is_taken_off(pattern, name));
    let names: Vec<_> = PROTECTED_NAMES.into_iter().filter(is_kept).collect();
    format!("the folders of version control, {}", names.join(", "))
}

fn show(service: &Record, standing: Option<ServiceStanding>, folder: &Folder, tool_name: Option<&str>) -> String {
    let definition = &service.draft;
    let tools: Vec<_> = definition.tools.iter().map(|tool| tool.as_str()).collect();
    let servers: Vec<_> = definition.mcp.iter().map(|server| server.name.as_str()).collect();
    let skills: Vec<_> = definition.skills.iter().map(|skill| skill.name.as_str()).collect();
    let RunLimits { max_turns, max_duration_s, .. } = definition.limits;
    let named = |names: &[&str], none: &str| if names.is_empty() { none.to_owned() } else { names.join(", ") };
    let protected: Vec<_> = definition.protected.iter().map(String::as_str).collect();
    let published = service.published.as_ref().zip(service.endpoint_id);
    let detail = Detail::new(format!("{} ({})", definition.name, service.draft_id))
        .field("stage", stage(service, standing))
        .fields("at the gateway", standing.and_then(ServiceStanding::words))
        .field(
            "folder",
            format!("{} ({})", definition.working_directory.display(), folder.words(&definition.working_directory)),
        )
        .field("provider", format!("{}, model {}", definition.provider, definition.model))
        .field("tools", named(&tools, "none: conversation only"))
        .field("skills", named(&skills, "none"))
        .field("MCP servers", named(&servers, "none"));
    let mut text = rules::fields(detail, &definition.approvals)
        .field("protected", named(&protected, "nothing more"))
        .field("always protected", always_protected(&protected))
        .fields(
            "callers send",
            definition.data.input_schema.is_some().then_some("data that fits a schema, beside text"),
        )
        .fields("files", definition.data.takes_files.then_some("callers may give files to runs"))
        .fields("answers", answers(&definition.data))
        .field("limits", format!("{max_turns} turns, {max_duration_s} s"))
        .field("at once", definition.limits.concurrency_in_words(&definition.tools, &definition.mcp))
        .fields(
            "network",
            (definition.network == Network::Host).then_some("commands have the whole network of this computer"),
        )
        .fields("published", published.map(|(version, endpoint)| format!("version {} as {endpoint}", version.version)))
        .fields("MCP tool", tool_name)
        .fields("paused", published.and_then(|(version, _)| version.paused.as_ref()))
        .text();
    text += &format!("instructions\n{}", visible::block(&definition.instructions, "  | "));
    if let Some(report) = &service.checks {
        if report.definition_sha256 != service.draft.digest() {
            let next = format!("deskgate service check {}", service.draft_id);
            text += &format!("checks of an older draft; it was changed since: {next}\n");
        }
        text += &checks::show_report(report);
    }
    text
}
