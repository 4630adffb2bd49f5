//! The executor: one run, from its start to exactly one outcome.
//!
//! | file | part |
//! |---|---|
//! | `turn` | decides: a pure machine from events to effects; no I/O, no clock, no runtime |
//! | `drive` | performs the effects and reports their results |
//! | `recorder` | records steps before they happen, and asks people |
//! | `delta_buffer` | collects the assistant's text, so that it is sent in few frames |
//! | `outbox` | what it hands out |
//! | `outcome` | the outcomes, in words for callers, within the size limit |
//! | `prompt` | the system prompt, and the caller's text |
//!
//! Trust: the definition is the owner's; the offer's input and every tool result is external content and decides
//! nothing. Failure: a stop, a limit, a panic of a tool or of an assistant all end here, as one outcome. Logs carry ids
//! and codes only.

mod delta_buffer;
mod drive;
mod outbox;
mod outcome;
mod prompt;
mod recorder;
mod turn;

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use deskgate_assistant::mcp::{McpServers, ServerUnavailable};
use deskgate_assistant::providers::Providers;
use deskgate_assistant::{self, Assistant, ModelFacts};
use deskgate_definition::approvals::Rulebook;
use deskgate_definition::tool::Tool;
use deskgate_definition::{CostShownTo, Definition, FolderIdentity, Provider, Spending};
use deskgate_protocol::control::{DeviceEvent, MessageDelta, Offer};
use deskgate_protocol::ids::RunId;
use deskgate_protocol::run::{Effects, Input, Outcome, Output, RunErrorCode, Usage, is_output_name};
use deskgate_schema::DataSchema;
use deskgate_store::Store;
use deskgate_store::ledger::PriorEffects;
use deskgate_tools::engine::workspace::{WorkspaceError, WorkspaceOptions};
use deskgate_tools::{Toolbox, ToolboxError};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use drive::RunClock;
use outbox::RunOutbox;
use recorder::RunRecorder;

use crate::transfers::{HeldAttempt, RunFolder, Transfers};
use turn::ResultSchema;

/// A run to execute, with the definition it was accepted for.
#[derive(Clone, Debug)]
pub struct Job {
    /// The gateway's offer.
    pub offer: Offer,
    /// The service's definition on this device.
    pub definition: Arc<Definition>,
    /// The exchanges of its conversation before, oldest first.
    pub earlier: Vec<Exchange>,
    /// Cancelled when the agent is about to end: the run continues, but where it would wait for a person it is stopped.
    pub leaving: CancellationToken,
}

/// An earlier message of a conversation.
#[derive(Clone, Debug, PartialEq)]
pub struct Exchange {
    /// The submitted message.
    pub request: Input,
    /// Its answer.
    pub answer: String,
}

/// How long an outcome waits for the run's temporary files to be removed. With very many files the removal continues
/// without it, after a restart if needed.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(5);

/// A report of a running execution.
#[derive(Clone, Debug, PartialEq)]
pub enum Progress {
    /// An event of the run.
    Event(DeviceEvent),
    /// The events that follow are the last, and the outcome comes with them.
    Ends,
    /// A piece of the assistant's text. A full receiver drops it.
    Delta(MessageDelta),
    /// A summary of the conversation before this run.
    Summary(Exchange),
    /// The service differs from its published version, and why: no run of it starts until its owner has looked.
    Outdated(String),
}

/// Executes one run. The agent's own folder, which `transfers` knows, is closed to tools. Events go to `reports` in order; `stop`
/// ends the run early and is the outcome's reason. Always returns exactly one outcome, after everything that it started
/// has ended. Exceptions: a thread that hangs in the file system, and the removal of very many temporary files.
///
/// Backpressure: a full `reports` delays the run, and its time goes on unless a person is asked. After `stop`, or after
/// the run's time is over, events that do not fit are dropped, so the outcome never waits for them.
pub async fn execute(
    job: Job,
    accounts: Providers,
    servers: McpServers,
    transfers: Transfers,
    store: Store,
    reports: mpsc::Sender<Progress>,
    stop: CancellationToken,
) -> Outcome {
    let limit = job.offer.max_duration_s.min(job.definition.limits.max_duration_s);
    // tokio's clock is CLOCK_MONOTONIC, which stands still while the machine sleeps: awake time.
    let started = Instant::now();
    let clock = RunClock { started, deadline: started + Duration::from_secs(limit.into()) };
    let (run_id, attempt) = (job.offer.run_id, job.offer.attempt);
    tracing::debug!(%run_id, attempt, "run starts");
    let prepared = async {
        let files = fetch(&job, &transfers, &store, clock, &stop).await?;
        let held = HeldAttempt { run_id, attempt };
        let outbox = RunOutbox { transfers: transfers.clone(), artifacts: store.artifacts(), held };
        let folders = OwnFolders { own: transfers.own_folder().to_owned(), files, outbox };
        let mut prepared = prepare(&job, accounts, folders, &store, clock, &reports, &stop).await?;
        let tools = connect(&job, &servers, &prepared, clock, &reports, &stop).await?;
        prepared.toolbox.add(tools);
        Ok(prepared)
    };
    let outcome = match prepared.await {
        Ok(RunResources { toolbox, files, assistant, terms }) => {
            let spent = spent_before(&store, job.offer.run_id).await;
            let turn = turn_of(&job, &toolbox, assistant.facts(), terms, spent, clock.limit());
            let record = RunRecorder::of(&job, store.ledger(run_id, attempt));
            let outcome = drive::run(turn, &toolbox, assistant.as_ref(), &record, clock, &reports, &stop).await;
            // Commands may have left any number of temporary files, which are removed with the tools.
            let tidying = tokio::task::spawn_blocking(move || drop((toolbox, files)));
            let _ = tokio::time::timeout(CLEANUP_TIMEOUT, tidying).await;
            outcome
        }
        Err(outcome) => outcome,
    };
    match &outcome {
        Outcome::Failed { error, .. } => tracing::warn!(%run_id, attempt, code = ?error.code, "run failed"),
        other => tracing::debug!(%run_id, attempt, state = %other.state(), "run ended"),
    }
    outcome
}

/// What earlier attempts of the run used up. If that cannot be read, it counts as nothing.
async fn spent_before(store: &Store, run_id: RunId) -> Spending {
    store
        .run_spending(run_id)
        .await
        .unwrap_or_else(|error| {
            tracing::warn!(%run_id, %error, "what earlier attempts used up cannot be read");
            None
        })
        .unwrap_or_default()
}

fn turn_of(
    job: &Job,
    toolbox: &Toolbox,
    facts: ModelFacts,
    RunTerms { rules, output, before }: RunTerms,
    spent: Spending,
    max_duration: Duration,
) -> turn::Turn {
    let has_files = job.offer.input.files().is_ok_and(|files| !files.is_empty());
    turn::Turn::new(turn::Setup {
        system: prompt::system(
            &job.definition,
            &prompt::Surroundings::now(&rules, toolbox, output.is_some(), has_files),
        ),
        messages: prompt::messages(&job.earlier, &job.offer.input),
        tools: toolbox.specs().cloned().filter_map(|spec| Some((toolbox.kind(&spec.name)?, spec))).collect(),
        output,
        max_turns: job.definition.limits.max_turns,
        max_output_tokens: job.definition.limits.max_output_tokens,
        context_tokens: job.definition.context_tokens(facts.context_tokens),
        facts,
        shares_cost: job.definition.cost_shown_to == CostShownTo::Callers,
        budget: job.definition.limits.budget,
        spent,
        // The scripted assistant uses up nothing.
        is_counted: job.definition.provider != Provider::Scripted,
        effort: job.definition.reasoning.effort,
        summaries: job.definition.reasoning.summaries,
        max_duration,
        run_attempt: job.offer.attempt,
        rules,
        effects: before.effects,
        uncertain: before.uncertain,
    })
}

/// The resources of a run.
struct RunResources {
    toolbox: Toolbox,
    /// The files that the run was given.
    files: Option<RunFolder>,
    assistant: Box<dyn Assistant>,
    terms: RunTerms,
}

/// What holds for a run.
struct RunTerms {
    rules: Rulebook,
    /// The data that its result has.
    output: Option<ResultSchema>,
    /// The effects of earlier attempts.
    before: PriorEffects,
}

/// Why the resources of a run cannot be had.
enum Unavailable {
    /// They fail with this code.
    Failed(RunErrorCode),
    /// The folder is another one than was published, and the reason in words.
    Replaced(String),
    /// The gateway accepted what the service does not take, and the reason in words.
    NotTaken(String),
}

/// The data that the result of a run has, by the service's schema or the caller's. What was submitted fits the service's.
fn typed_data(definition: &Definition, offer: &Offer) -> Result<Option<ResultSchema>, String> {
    if let Some(schema) = &definition.data.input_schema {
        let schema = DataSchema::read(schema.clone()).map_err(|error| error.to_string())?;
        let data = offer.input.data().ok_or("there is no `input.data`")?;
        schema.check(data).map_err(|mismatch| format!("`input.data` does not fit: {mismatch}"))?;
    }
    let Some(Output { name, schema }) = definition.data.output().or_else(|| offer.output.as_deref().cloned()) else {
        return Ok(None);
    };
    if !is_output_name(&name) {
        return Err("the name of the output is none".to_owned());
    }
    let schema = DataSchema::read(schema).map_err(|error| error.to_string())?;
    Ok(Some(ResultSchema { name, schema: Arc::new(schema) }))
}

/// The folder of the run's service as it was published, and those of all others.
struct RunFolders {
    expected: Option<FolderIdentity>,
    others: Vec<PathBuf>,
}

impl RunFolders {
    async fn read(store: &Store, offer: &Offer) -> Result<Self, deskgate_store::Error> {
        let (expected, others) = store.services().folders(offer.endpoint_id, offer.endpoint_version).await?;
        Ok(Self { expected, others })
    }
}

/// Fetches the files that the run was given. Its time goes on meanwhile.
async fn fetch(
    job: &Job,
    transfers: &Transfers,
    store: &Store,
    clock: RunClock,
    stop: &CancellationToken,
) -> Result<Option<RunFolder>, Outcome> {
    let Job { offer, definition, .. } = job;
    let usage = || Usage { active_seconds: clock.elapsed().as_secs_f64(), ..Usage::default() };
    let effects = async || match store.ledger(offer.run_id, offer.attempt).before().await {
        Ok(before) => before.effects,
        Err(_) => Effects::Possible,
    };
    let not_taken = async |why: &str| Err(outcome::not_taken(why, effects().await, usage()));
    let files = match offer.input.files() {
        Ok(files) if files.is_empty() => return Ok(None),
        Ok(_) if !definition.data.takes_files => return not_taken("it takes no files").await,
        Ok(files) => files,
        Err(_) => return not_taken("`input.files` is no list of files").await,
    };
    let held = HeldAttempt { run_id: offer.run_id, attempt: offer.attempt };
    let fetched = tokio::select! {
        biased;
        () = stop.cancelled() => return Err(Outcome::Cancelled { effects: effects().await, usage: usage() }),
        fetched = transfers.fetch(held, &files) => fetched,
        () = tokio::time::sleep_until(clock.deadline) => {
            return Err(outcome::failed(RunErrorCode::MaxDurationExceeded, effects().await, usage()));
        }
    };
    match fetched {
        Ok(folder) => Ok(Some(folder)),
        Err(error) => {
            tracing::warn!(run_id = %offer.run_id, %error, "the files of the run cannot be had");
            Err(outcome::without_files(&error.to_string(), effects().await, usage()))
        }
    }
}

/// The agent's own folder, the one in it with the files that the run was given, and the one for what it hands out.
struct OwnFolders {
    own: PathBuf,
    files: Option<RunFolder>,
    outbox: RunOutbox,
}

/// Opens the run's resources. Folder and assistant need file work and may hang on a dead network mount: such a thread
/// cannot be ended, but the run does not wait for it.
async fn prepare(
    job: &Job,
    accounts: Providers,
    OwnFolders { own, files, outbox }: OwnFolders,
    store: &Store,
    clock: RunClock,
    reports: &mpsc::Sender<Progress>,
    stop: &CancellationToken,
) -> Result<RunResources, Outcome> {
    let (run_id, definition) = (job.offer.run_id, Arc::clone(&job.definition));
    let usage = || Usage { active_seconds: clock.elapsed().as_secs_f64(), ..Usage::default() };
    let before = match store.ledger(run_id, job.offer.attempt).before().await {
        Ok(before) => before,
        Err(error) => {
            tracing::warn!(%run_id, %error, "the journal cannot be read");
            return Err(outcome::failed(RunErrorCode::Internal, Effects::Possible, usage()));
        }
    };
    let effects = before.effects;
    let failed = |code| outcome::failed(code, effects, usage());
    let RunFolders { expected, others } = RunFolders::read(store, &job.offer).await.map_err(|error| {
        tracing::warn!(%run_id, %error, "the services' folders cannot be read");
        failed(RunErrorCode::Internal)
    })?;
    let offer = job.offer.clone();
    let open = tokio::task::spawn_blocking(move || {
        let output = typed_data(&definition, &offer).map_err(Unavailable::NotTaken)?;
        let rules = definition.approvals.rulebook().map_err(|error| {
            tracing::warn!(%run_id, error, "approval rules");
            Unavailable::Failed(RunErrorCode::Internal)
        })?;
        let assistant = deskgate_assistant::open(&accounts, &definition).map_err(|error| {
            tracing::warn!(%run_id, %error, "assistant");
            Unavailable::Failed(RunErrorCode::ModelError)
        })?;
        let Definition { working_directory, protected, network, .. } = definition.as_ref();
        let options = WorkspaceOptions {
            directory: working_directory,
            own_folder: &own,
            expected: expected.as_ref(),
            others: &others,
            protected,
            network: *network,
            files: files.as_ref().map(RunFolder::path),
        };
        let reads = assistant.facts().reads;
        let opened =
            Toolbox::open_under(&rules, &definition.tools, &definition.skills, reads, Some(Arc::new(outbox)), options);
        let toolbox = opened.map_err(|error| {
            tracing::warn!(%run_id, %error, "the tools of the run cannot be had");
            match error {
                ToolboxError::Workspace(error @ WorkspaceError::Replaced(_)) => {
                    Unavailable::Replaced(error.to_string())
                }
                ToolboxError::Workspace(_) => Unavailable::Failed(RunErrorCode::ToolError),
                ToolboxError::Sandbox(_) => Unavailable::Failed(RunErrorCode::SandboxUnavailable),
            }
        })?;
        Ok(RunResources { toolbox, files, assistant, terms: RunTerms { rules, output, before } })
    });
    tokio::select! {
        biased;
        () = stop.cancelled() => Err(Outcome::Cancelled { effects, usage: usage() }),
        opened = open => match opened {
            Ok(opened) => opened.map_err(|unavailable| match unavailable {
                Unavailable::Replaced(why) => {
                    // This is the first report, so it fits.
                    let _ = reports.try_send(Progress::Outdated(why));
                    outcome::in_another_folder(effects, usage())
                }
                Unavailable::NotTaken(why) => outcome::not_taken(&why, effects, usage()),
                Unavailable::Failed(code) => failed(code),
            }),
            Err(_panicked) => Err(failed(RunErrorCode::Internal)),
        },
        () = tokio::time::sleep_until(clock.deadline) => Err(failed(RunErrorCode::MaxDurationExceeded)),
    }
}

/// Opens the service's MCP servers, each with the pinned list of tools.
async fn connect(
    job: &Job,
    servers: &McpServers,
    RunResources { assistant, terms, .. }: &RunResources,
    clock: RunClock,
    reports: &mpsc::Sender<Progress>,
    stop: &CancellationToken,
) -> Result<Vec<Box<dyn Tool>>, Outcome> {
    let effects = terms.before.effects;
    let usage = || Usage { active_seconds: clock.elapsed().as_secs_f64(), ..Usage::default() };
    let opened = tokio::select! {
        biased;
        () = stop.cancelled() => return Err(Outcome::Cancelled { effects, usage: usage() }),
        opened = servers.open(&job.definition.mcp, assistant.facts().reads, job.offer.depth) => opened,
        () = tokio::time::sleep_until(clock.deadline) => {
            return Err(outcome::failed(RunErrorCode::MaxDurationExceeded, effects, usage()));
        }
    };
    opened.map_err(|unavailable| {
        tracing::warn!(run_id = %job.offer.run_id, error = %unavailable, "tools of another server");
        if let ServerUnavailable::Changed { .. } = unavailable {
            // This is the first report, so it fits.
            let _ = reports.try_send(Progress::Outdated(unavailable.to_string()));
        }
        outcome::without_server(&unavailable, effects, usage())
    })
}
