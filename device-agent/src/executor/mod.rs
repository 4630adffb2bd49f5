//! One run, from its start to exactly one outcome.
//!
//! | file | part |
//! |---|---|
//! | `turn` | decides: a pure machine from events to effects; no I/O, no clock, no runtime |
//! | `drive` | performs the effects and reports what came of them |
//! | `record` | what is written down before it is done, and whom the run asks |
//! | `pieces` | gathers what the assistant writes, so that it travels in few frames |
//! | `outcome` | the outcomes, in words that a caller may read, within the size that fits |
//! | `prompt` | what the model is told, and what it is told about the caller's text |
//!
//! Trust: the definition is the owner's; the offer's input and everything a tool returns is content
//! from outside and decides nothing. Failure: a stop, a limit, a panic of a tool or of an assistant
//! all end here, as one outcome. Logs carry ids and codes only.

mod delta_buffer;
mod drive;
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
use deskgate_assistant::{self, Assistant};
use deskgate_definition::Definition;
use deskgate_definition::approvals::Rulebook;
use deskgate_definition::tool::Tool;
use deskgate_protocol::control::{DeviceEvent, MessageDelta, Offer};
use deskgate_protocol::run::{Effects, Input, Outcome, RunErrorCode, Usage};
use deskgate_store::ledger::PriorEffects;
use deskgate_store::{Ledger, Store};
use deskgate_tools::engine::workspace::WorkspaceOptions;
use deskgate_tools::{Toolbox, ToolboxError};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use drive::RunClock;
use recorder::RunRecorder;

/// A run to execute, with the definition it was accepted for.
#[derive(Clone, Debug)]
pub struct Job {
    /// What was offered.
    pub offer: Offer,
    /// What the device holds for it.
    pub definition: Arc<Definition>,
    /// What was said in its conversation before, oldest first.
    pub earlier: Vec<Exchange>,
    /// The agent is about to end: the run goes on, but waits for no person's decision. Where it would, it is stopped.
    pub leaving: CancellationToken,
}

/// An earlier message of a conversation.
#[derive(Clone, Debug, PartialEq)]
pub struct Exchange {
    /// What was submitted.
    pub request: Input,
    /// What was answered.
    pub answer: String,
}

/// How long an outcome waits for the run's temporary files to be removed. That goes on without it if they are very many,
/// and after a restart if it must.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(5);

/// What an execution reports while it goes on.
#[derive(Clone, Debug, PartialEq)]
pub enum Progress {
    /// Something happened.
    Event(DeviceEvent),
    /// The assistant writes. Whoever has no room for it drops it.
    Delta(MessageDelta),
    /// What was said in the conversation before this run, in fewer words.
    Summary(Exchange),
    /// The service is not what its owner published any more, and why: nothing of it may run until they look.
    Outdated(String),
}

/// Executes one run. `own` is the agent's own folder, which no tool reaches. What happens goes to `reports` in
/// order; `stop` ends the run early and the outcome says so. Always returns exactly one outcome and leaves nothing running.
///
/// Backpressure: a full `reports` holds the run up, and time goes on unless a person is asked. After `stop`, or after the
/// run's time is over, events that find no room are dropped, so the outcome never waits for them.
pub async fn execute(
    job: Job,
    accounts: Providers,
    servers: McpServers,
    own: PathBuf,
    store: Store,
    reports: mpsc::Sender<Progress>,
    stop: CancellationToken,
) -> Outcome {
    let ledger = store.ledger(job.offer.run_id, job.offer.attempt);
    let limit = job.offer.max_duration_s.min(job.definition.limits.max_duration_s);
    // tokio's clock is CLOCK_MONOTONIC, which stands still while the machine sleeps: awake time.
    let started = Instant::now();
    let clock = RunClock { started, deadline: started + Duration::from_secs(limit.into()) };
    let (run_id, attempt) = (job.offer.run_id, job.offer.attempt);
    tracing::debug!(%run_id, attempt, "run starts");
    let prepared = async {
        let mut prepared = prepare(&job, accounts, own, &ledger, clock, &stop).await?;
        let tools = connect(&job, &servers, prepared.before.effects, clock, &reports, &stop).await?;
        prepared.toolbox.add(tools);
        Ok(prepared)
    };
    let outcome = match prepared.await {
        Ok(RunResources { toolbox, assistant, rules, before }) => {
            let turn = turn_of(&job, &toolbox, rules, before);
            let record = RunRecorder::of(&job, ledger);
            let outcome = drive::run(turn, &toolbox, assistant.as_ref(), &record, clock, &reports, &stop).await;
            // Commands may have left any number of temporary files, which go with the tools.
            let tidying = tokio::task::spawn_blocking(move || drop(toolbox));
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

fn turn_of(job: &Job, toolbox: &Toolbox, rules: Rulebook, before: PriorEffects) -> turn::Turn {
    turn::Turn::new(turn::Setup {
        system: prompt::system(&job.definition),
        messages: prompt::messages(&job.earlier, &job.offer.input),
        tools: toolbox.specs().cloned().filter_map(|spec| Some((toolbox.kind(&spec.name)?, spec))).collect(),
        max_turns: job.definition.limits.max_turns,
        max_output_tokens: job.definition.limits.max_output_tokens,
        context_tokens: job.definition.context_tokens(),
        run_attempt: job.offer.attempt,
        rules,
        effects: before.effects,
        uncertain: before.uncertain,
    })
}

/// What a run works with.
struct RunResources {
    toolbox: Toolbox,
    assistant: Box<dyn Assistant>,
    rules: Rulebook,
    /// What earlier attempts did.
    before: PriorEffects,
}

/// Opens what the run works with. Folder and assistant are file work and may hang on a dead network mount:
/// such a thread cannot be ended, but the run does not wait for it.
async fn prepare(
    job: &Job,
    accounts: Providers,
    own: PathBuf,
    ledger: &Ledger,
    clock: RunClock,
    stop: &CancellationToken,
) -> Result<RunResources, Outcome> {
    let (run_id, definition) = (job.offer.run_id, Arc::clone(&job.definition));
    let usage = || Usage { active_seconds: clock.elapsed().as_secs_f64(), ..Usage::default() };
    let before = match ledger.before().await {
        Ok(before) => before,
        Err(error) => {
            tracing::warn!(%run_id, %error, "the journal cannot be read");
            return Err(outcome::failed(RunErrorCode::Internal, Effects::Possible, usage()));
        }
    };
    let effects = before.effects;
    let failed = |code| outcome::failed(code, effects, usage());
    let open = tokio::task::spawn_blocking(move || {
        let rules = definition.approvals.rulebook().map_err(|error| {
            tracing::warn!(%run_id, error, "approval rules");
            RunErrorCode::Internal
        })?;
        let Definition { working_directory, protected, network, .. } = definition.as_ref();
        let ground = WorkspaceOptions { directory: working_directory, own_folder: &own, protected, network: *network };
        let toolbox = Toolbox::open_under(&rules, &definition.tools, &definition.skills, ground).map_err(|error| {
            tracing::warn!(%run_id, %error, "the tools of the run cannot be had");
            match error {
                ToolboxError::Workspace(_) => RunErrorCode::ToolError,
                ToolboxError::Sandbox(_) => RunErrorCode::SandboxUnavailable,
            }
        })?;
        let assistant =
            deskgate_assistant::open(&accounts, &definition.provider, &definition.model).map_err(|error| {
                tracing::warn!(%run_id, %error, "assistant");
                RunErrorCode::ModelError
            })?;
        Ok(RunResources { toolbox, assistant, rules, before })
    });
    tokio::select! {
        biased;
        () = stop.cancelled() => Err(Outcome::Cancelled { effects, usage: usage() }),
        opened = open => match opened {
            Ok(opened) => opened.map_err(failed),
            Err(_panicked) => Err(failed(RunErrorCode::Internal)),
        },
        () = tokio::time::sleep_until(clock.deadline) => Err(failed(RunErrorCode::MaxDurationExceeded)),
    }
}

/// Opens the servers elsewhere that the service works with, each with the list of tools that its owner published.
async fn connect(
    job: &Job,
    servers: &McpServers,
    effects: Effects,
    clock: RunClock,
    reports: &mpsc::Sender<Progress>,
    stop: &CancellationToken,
) -> Result<Vec<Box<dyn Tool>>, Outcome> {
    let usage = || Usage { active_seconds: clock.elapsed().as_secs_f64(), ..Usage::default() };
    let opened = tokio::select! {
        biased;
        () = stop.cancelled() => return Err(Outcome::Cancelled { effects, usage: usage() }),
        opened = servers.open(&job.definition.mcp) => opened,
        () = tokio::time::sleep_until(clock.deadline) => {
            return Err(outcome::failed(RunErrorCode::MaxDurationExceeded, effects, usage()));
        }
    };
    opened.map_err(|unavailable| {
        tracing::warn!(run_id = %job.offer.run_id, error = %unavailable, "tools of another server");
        if let ServerUnavailable::Changed { .. } = unavailable {
            // Nothing else was reported yet, so there is room.
            let _ = reports.try_send(Progress::Outdated(unavailable.to_string()));
        }
        outcome::without_server(&unavailable, effects, usage())
    })
}
