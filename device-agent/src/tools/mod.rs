//! The tools an assistant may call, confined to the working directory.
//!
//! ```text
//! Toolbox::open(tools, skills, ground)   once for each run
//!    specs()                what the model is told it may call
//!    kind(name)             whether a call may change something; None: there is no such tool here
//!    plan(name, arguments)  what a call would do, for the rules and for the person who decides
//!    call(name, arguments)  runs it; what it says goes back to the model, also when it is an error
//! ```
//!
//! A tool tells the assistant what went wrong and the run goes on. Only a [`ToolFailure`] ends the
//! run: the ground that every tool stands on is gone. The text of a result is never interpreted.

mod access;
mod attributes;
mod bash;
mod change;
mod diff;
mod display;
mod edit;
mod glob;
mod grep;
mod guard;
mod hits;
mod ignores;
mod known;
mod nearest;
mod output;
mod pieces;
mod planned;
mod read;
mod replace;
pub mod sandbox;
mod skill;
mod spot;
mod temporary;
#[cfg(test)]
mod tests;
mod text;
mod walk;
pub mod workspace;
mod write;
mod writer;

use std::sync::Arc;

use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::control::ToolKind;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::services::approvals::Rulebook;
use crate::services::{Skill, ToolName};
use change::Not;
use known::Known;
pub(crate) use output::LIMIT as RESULT_LIMIT;
pub use planned::PlannedCall;
use sandbox::{Limits, Sandbox, Unavailable};
use spot::Spot;
use workspace::{AccessError, Ground, Links, Workspace, WorkspaceError};

/// What a model is told of a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolSpec {
    /// The name it calls the tool by.
    pub name: String,
    /// What the tool does, in words for a model.
    pub description: String,
    /// The JSON Schema of the arguments: always an object.
    pub parameters: Value,
}

/// What a tool answered. It goes back to the model as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolOutput {
    /// At most 64 KiB; says so when something was cut.
    pub text: String,
    /// Whether the tool could not do what was asked, or nobody knows whether it did.
    pub is_error: bool,
    /// Nobody knows what came of it: the call may have happened, in part or as a whole.
    pub is_unknown: bool,
}

impl ToolOutput {
    /// What was asked for.
    pub fn ok(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_error: false, is_unknown: false }
    }

    /// Why it could not be done, and what to do instead.
    pub fn error(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_error: true, is_unknown: false }
    }

    /// Why nobody knows whether it was done.
    pub fn unknown(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_error: true, is_unknown: true }
    }
}

/// A trouble that no other call can get around: it ends the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ToolFailure {
    /// The working directory was removed while the run was under way.
    #[error("the working directory was removed while the run was under way")]
    WorkspaceGone,
    /// No command can be run any more.
    #[error("no sandbox could be made for a command")]
    SandboxUnavailable,
}

/// Why a run's tools cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The working directory.
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
    /// What commands need.
    #[error("{}; to do: {}", .0, .0.next())]
    Sandbox(#[from] Unavailable),
}

/// What a call would do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The file or folder it is about, relative to the working directory as it resolves at this moment; `None`
    /// for a call that is about no single place, as a command, or a tool of an MCP server.
    pub place: Option<String>,
    /// What a person sees.
    pub shown: Shown,
}

impl Plan {
    /// Whether both would do the same. How a change is drawn does not count: a large difference is drawn in the time
    /// there is for it, and not always in the same lines.
    pub fn does_the_same_as(&self, other: &Self) -> bool {
        let same = match (&self.shown, &other.shown) {
            (Shown::Change { before, after, .. }, Shown::Change { before: from, after: to, .. }) => {
                (before, after) == (from, to)
            }
            (one, other) => one == other,
        };
        same && self.place == other.place
    }
}

/// What a person sees of a call before they decide.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Shown {
    /// Nothing better than the arguments.
    Arguments,
    /// A file changes.
    Change {
        /// Its content at this moment; `None`: it is not there yet.
        before: Option<Sha256Digest>,
        /// Its content afterwards.
        after: Sha256Digest,
        /// The difference, in the unified format, bounded; says so when it was cut.
        diff: String,
    },
    /// A command runs.
    Command {
        /// As the shell gets it.
        command: String,
        /// Its words, one by one, as far as they can be told apart without running it.
        words: Vec<String>,
    },
}

/// How a call ends.
pub type ToolResult = Result<ToolOutput, ToolFailure>;

/// One tool. It holds what it needs; dropping the future of a call stops the call.
pub trait Tool: Send + Sync {
    /// What a model is told of it.
    fn spec(&self) -> ToolSpec;

    /// What kind of effect a call can have.
    fn kind(&self) -> ToolKind;

    /// What a call with these arguments would do: what rules are matched against, what a person is shown
    /// before they decide, and what is compared with the disk when nobody knows whether it was done. Looks,
    /// and changes nothing. Arguments that do not fit are the error that [`Self::run`] would answer with.
    fn plan(&self, _arguments: &Value) -> BoxFuture<'static, Result<Plan, ToolOutput>> {
        std::future::ready(Ok(Plan { place: None, shown: Shown::Arguments })).boxed()
    }

    /// Runs one call. Arguments that do not fit are answered with an error output. The future ends
    /// soon after `stop` is cancelled; what it returns then is of no interest to anybody.
    fn run(&self, arguments: Value, stop: CancellationToken) -> BoxFuture<'static, ToolResult>;
}

/// The tools of one run.
pub struct Toolbox {
    tools: Vec<(ToolSpec, Arc<dyn Tool>)>,
}

impl Toolbox {
    /// Opens the working directory, once, and puts `names` to work in it, and the skills beside them. Without
    /// tools the directory is not touched. Blocks for a few system calls; with Bash for an empty command.
    pub fn open(names: &[ToolName], skills: &[Skill], ground: Ground<'_>) -> Result<Self, OpenError> {
        Self::open_under(&Rulebook::default(), names, skills, ground)
    }

    /// The same for a service with rules: what they keep a tool from, it never sees.
    pub fn open_under(
        rules: &Rulebook,
        names: &[ToolName],
        skills: &[Skill],
        ground: Ground<'_>,
    ) -> Result<Self, OpenError> {
        let skills = (!skills.is_empty()).then(|| -> Box<dyn Tool> { Box::new(skill::Skill::new(skills)) });
        if names.is_empty() {
            return Ok(Self::with(skills.into_iter().collect()));
        }
        let workspace = Arc::new(Workspace::open(ground)?);
        let known = Arc::new(Known::default());
        let seen_by = |name: &ToolName| match (name, rules.hidden_from(name.as_str())) {
            // What changes a file is judged by its place, which no link can exchange.
            (ToolName::Read | ToolName::Grep | ToolName::Glob, hidden) if !hidden.is_empty() => {
                workspace.hiding(hidden).map(Arc::new)
            }
            _ => Ok(Arc::clone(&workspace)),
        };
        let make = |name: &ToolName| -> Result<Box<dyn Tool>, OpenError> {
            let (workspace, known) = (seen_by(name)?, Arc::clone(&known));
            Ok(match name {
                ToolName::Read => Box::new(read::Read::new(workspace, known)),
                ToolName::Grep => Box::new(grep::Grep::new(workspace)),
                ToolName::Glob => Box::new(glob::Glob::new(workspace)),
                ToolName::Edit => Box::new(edit::Edit::new(workspace, known)),
                ToolName::Write => Box::new(write::Write::new(workspace, known)),
                ToolName::Bash => {
                    let sandbox = Sandbox::open(workspace, ground.own, ground.network, Limits::default())?;
                    Box::new(bash::Bash::new(sandbox, ground.network))
                }
            })
        };
        Ok(Self::with(names.iter().map(make).chain(skills.map(Ok)).collect::<Result<_, _>>()?))
    }

    /// Puts tools that stand ready beside the others.
    pub fn add(&mut self, tools: Vec<Box<dyn Tool>>) {
        self.tools.extend(Self::with(tools).tools);
    }

    /// A toolbox of tools that stand ready.
    pub fn with(tools: Vec<Box<dyn Tool>>) -> Self {
        Self { tools: tools.into_iter().map(|tool| (tool.spec(), Arc::from(tool))).collect() }
    }

    /// What the model is told it may call.
    pub fn specs(&self) -> impl Iterator<Item = &ToolSpec> {
        self.tools.iter().map(|(spec, _)| spec)
    }

    /// What kind of effect a tool can have; `None` when the run has no tool of this name.
    pub fn kind(&self, name: &str) -> Option<ToolKind> {
        self.find(name).map(|tool| tool.kind())
    }

    /// What a call would do; `None` when the run has no tool of this name.
    pub fn plan(&self, name: &str, arguments: &Value) -> Option<BoxFuture<'static, Result<Plan, ToolOutput>>> {
        self.find(name).map(|tool| tool.plan(arguments))
    }

    /// Runs one call. A name that the run has no tool for is an error output, like any other
    /// mistake of a model. Nothing begins before the future is polled, nor after `stop`.
    pub fn call(&self, name: &str, arguments: Value, stop: CancellationToken) -> BoxFuture<'static, ToolResult> {
        let tool = self.find(name).cloned();
        async move {
            match tool {
                _ if stop.is_cancelled() => Ok(ToolOutput::error(AccessError::Stopped.to_string())),
                Some(tool) => tool.run(arguments, stop).await,
                None => Ok(ToolOutput::error("There is no such tool in this service.")),
            }
        }
        .boxed()
    }

    fn find(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        self.tools.iter().find(|(spec, _)| spec.name == name).map(|(_, tool)| tool)
    }
}

/// Runs file work on a blocking thread. The work sees a token that is cancelled when the run stops
/// and also when this future is dropped, so no thread works on for a call that nobody waits for.
pub(crate) fn on_blocking_thread<A, W>(
    tool: ToolName,
    arguments: Value,
    stop: &CancellationToken,
    work: W,
) -> BoxFuture<'static, ToolResult>
where
    A: DeserializeOwned,
    W: FnOnce(A, &CancellationToken) -> Result<ToolOutput, AccessError> + Send + 'static,
{
    blocking(tool, arguments, stop, |arguments, stop| told(work(arguments, stop)))
}

/// The same for work that says itself how the call ends.
fn blocking<A, W>(tool: ToolName, arguments: Value, stop: &CancellationToken, work: W) -> BoxFuture<'static, ToolResult>
where
    A: DeserializeOwned,
    W: FnOnce(A, &CancellationToken) -> ToolResult + Send + 'static,
{
    let stop = stop.child_token();
    async move {
        let guard = stop.clone().drop_guard();
        let outcome = tokio::task::spawn_blocking(move || match parse(tool.as_str(), arguments) {
            Ok(arguments) => work(arguments, &stop),
            Err(complaint) => Ok(ToolOutput::error(complaint)),
        })
        .await;
        drop(guard);
        match outcome {
            Ok(result) => result,
            Err(error) => match error.try_into_panic() {
                // A fault of ours: let the executor see it as the panic that it is.
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => Ok(ToolOutput::error("The call was not run because the agent is stopping.")),
            },
        }
    }
    .boxed()
}

/// Looks on a blocking thread at what a call would do.
fn plan_on_blocking_thread<A, W>(
    tool: ToolName,
    arguments: Value,
    work: W,
) -> BoxFuture<'static, Result<Plan, ToolOutput>>
where
    A: DeserializeOwned,
    W: FnOnce(A) -> Result<Plan, Not> + Send + 'static,
{
    async move {
        let looked = tokio::task::spawn_blocking(move || {
            let arguments = parse(tool.as_str(), arguments).map_err(ToolOutput::error)?;
            work(arguments).or_else(|not| match not {
                // The call itself ends the run.
                Not::Access(AccessError::Gone) => Ok(Plan { place: None, shown: Shown::Arguments }),
                Not::Access(error) => Err(ToolOutput::error(error.to_string())),
                Not::Told(text) => Err(ToolOutput::error(text)),
            })
        });
        match looked.await.map_err(tokio::task::JoinError::try_into_panic) {
            Ok(plan) => plan,
            Err(Ok(panic)) => std::panic::resume_unwind(panic),
            Err(Err(_)) => Err(ToolOutput::error("The call was not prepared because the agent is stopping.")),
        }
    }
    .boxed()
}

/// The plan of a call that only looks at the place that a path leads to.
fn plan_of_looking(workspace: &Workspace, path: &str) -> Result<Plan, Not> {
    // Also of a place that the tool never sees: it is the rules that deny it.
    let spot = Spot::find(workspace, &workspace.relative(path)?, Links::Inside)?;
    if !spot.missing().is_empty() {
        return Err(AccessError::Missing.into());
    }
    let path = spot.path();
    let place = if path.as_os_str().is_empty() { ".".to_owned() } else { path.to_string_lossy().into_owned() };
    Ok(Plan { place: Some(place), shown: Shown::Arguments })
}

/// What two equal calls have in common.
fn call(tool: ToolName, arguments: &Value) -> Value {
    json!([tool, arguments])
}

/// Arguments that do not fit are an answer to the model, not a failure of the run.
fn parse<A: DeserializeOwned>(tool: &str, arguments: Value) -> Result<A, String> {
    if !arguments.is_object() {
        return Err(format!("The arguments of {tool} must be one JSON object."));
    }
    serde_json::from_value(arguments).map_err(|error| format!("These arguments do not fit {tool}: {error}."))
}

fn told(result: Result<ToolOutput, AccessError>) -> ToolResult {
    match result {
        Ok(output) => Ok(output),
        Err(AccessError::Gone) => Err(ToolFailure::WorkspaceGone),
        Err(error) => Ok(ToolOutput::error(error.to_string())),
    }
}
