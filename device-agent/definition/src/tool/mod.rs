//! What a tool is: what a model is told of it, what a call would do, and what it answered.
//!
//! A tool tells the assistant what went wrong and the run goes on. Only a [`ToolFailure`] ends the run: what every
//! tool stands on is gone. The text of a result is never interpreted.

mod planned_call;

use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::control::ToolKind;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

pub use planned_call::PlannedCall;

/// The most bytes of a result's text.
pub const RESULT_LIMIT: usize = 64 * 1024;

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

/// What a call would do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The file or folder it is about, relative to the working directory as it resolves at this moment; `None`
    /// for a call that is about no single place, as a command, or a tool of an MCP server.
    pub place: Option<String>,
    /// What a person sees.
    pub shown: PlanPreview,
}

impl Plan {
    /// Whether both would do the same. How a change is drawn does not count: a large difference is drawn in the time
    /// there is for it, and not always in the same lines.
    pub fn does_the_same_as(&self, other: &Self) -> bool {
        let same = match (&self.shown, &other.shown) {
            (PlanPreview::Change { before, after, .. }, PlanPreview::Change { before: from, after: to, .. }) => {
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
pub enum PlanPreview {
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
        std::future::ready(Ok(Plan { place: None, shown: PlanPreview::Arguments })).boxed()
    }

    /// Runs one call. Arguments that do not fit are answered with an error output. The future ends
    /// soon after `stop` is cancelled; what it returns then is of no interest to anybody.
    fn run(&self, arguments: Value, stop: CancellationToken) -> BoxFuture<'static, ToolResult>;
}
