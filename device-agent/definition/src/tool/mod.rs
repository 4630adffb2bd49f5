//! The contract of tools: the specification a model gets, what a call would do, and its result.
//!
//! A tool's errors go to the assistant and the run continues. Only a [`ToolFailure`] ends the run: the workspace or the
//! sandbox is gone. The text of a result is never interpreted.

mod ended_call;
mod planned_call;

use std::sync::Arc;

use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::control::ToolKind;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

pub use ended_call::EndedCall;
pub use planned_call::PlannedCall;

/// The tool that gives the data of a run's result, and ends the run.
pub const RESULT_TOOL: &str = "Result";

/// The name under which tools find the files that the run was given, as if it were a folder.
pub const FILES_NAME: &str = "@files";

/// Files are written only while the agent's own disk has this much more than they take: for the agent's journal.
pub const MIN_JOURNAL_ROOM_BYTES: u64 = 64 << 20;

/// The size limit of a result's text, in bytes.
pub const RESULT_LIMIT: usize = 64 * 1024;

/// A tool's specification, as a model gets it.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolSpec {
    /// The name that the model calls.
    pub name: String,
    /// What the tool does, in words for a model.
    pub description: String,
    /// The JSON Schema of the arguments: always an object.
    pub parameters: Value,
}

deskgate_protocol::words! {
    /// The types of content that models are shown beside text (RFC 6838).
    pub enum MediaType {
        /// A PNG image.
        Png = "image/png",
        /// A JPEG image.
        Jpeg = "image/jpeg",
        /// A PDF document.
        Pdf = "application/pdf",
    }
}

/// Content beside a result's text. Cheap to clone.
#[derive(Clone, PartialEq, Eq)]
pub struct Attachment {
    /// What it is.
    pub media_type: MediaType,
    /// The content.
    pub bytes: Arc<[u8]>,
    /// How many pages it has; an image is one.
    pub pages: u32,
    /// About how many tokens a model reads it in.
    pub tokens: u64,
    /// A sentence about it, for the model.
    pub about: String,
}

impl std::fmt::Debug for Attachment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {} bytes", self.media_type, self.bytes.len())
    }
}

/// A tool's result. It goes to the model unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolOutput {
    /// At most 64 KiB; a notice marks a cut.
    pub text: String,
    /// Images and documents, as [`super::ModelReads`] allows them.
    pub attachments: Vec<Attachment>,
    /// Whether the call failed, or its effect is unknown.
    pub is_error: bool,
    /// The effect is unknown: the call may have happened, in part or as a whole.
    pub is_unknown: bool,
    /// Nothing was done: what the call was planned from has changed since.
    pub is_outdated: bool,
}

impl ToolOutput {
    /// The result of a call that succeeded.
    pub fn ok(text: impl Into<String>) -> Self {
        let attachments = Vec::new();
        Self { text: text.into(), attachments, is_error: false, is_unknown: false, is_outdated: false }
    }

    /// The result of a call that shows something beside text.
    pub fn showing(attachment: Attachment) -> Self {
        let text = attachment.about.clone();
        Self { attachments: vec![attachment], ..Self::ok(text) }
    }

    /// The error of a call that failed: why, and what to do instead.
    pub fn error(text: impl Into<String>) -> Self {
        Self { is_error: true, ..Self::ok(text) }
    }

    /// The result of a call whose effect is unknown, and why.
    pub fn unknown(text: impl Into<String>) -> Self {
        Self { is_error: true, is_unknown: true, ..Self::ok(text) }
    }

    /// The result of a call that did nothing, because what it was planned from has changed since.
    pub fn outdated(text: impl Into<String>) -> Self {
        Self { is_error: true, is_outdated: true, ..Self::ok(text) }
    }
}

/// A failure that every further call would meet: it ends the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ToolFailure {
    /// The working directory was removed while the run was under way.
    #[error("the working directory was removed while the run was under way")]
    WorkspaceGone,
    /// Commands can no longer be run.
    #[error("no sandbox could be made for a command")]
    SandboxUnavailable,
}

/// What a call would do, worked out before it runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The file or folder it is about, relative to the working directory as it resolves now; for Fetch the host; `None`
    /// for a call that is about no single one, such as a command or a tool of an MCP server.
    pub place: Option<String>,
    /// The preview for a person.
    pub shown: PlanPreview,
}

impl Plan {
    /// Whether both plans have the same effect. The drawn difference is not compared: drawing a large one is bounded in
    /// time, and may give different lines.
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

/// The preview of a call that a person sees before deciding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum PlanPreview {
    /// Only the arguments can be shown.
    Arguments,
    /// A file changes.
    Change {
        /// Its content now; `None`: the file does not exist.
        before: Option<Sha256Digest>,
        /// Its content afterwards.
        after: Sha256Digest,
        /// The difference in the unified format, bounded; a notice marks a cut.
        diff: String,
    },
    /// A command runs.
    Command {
        /// The command line for the shell.
        command: String,
        /// Its words, as far as they can be split without running it.
        words: Vec<String>,
    },
    /// A file is handed out.
    Delivery {
        /// The name that the application gets it by.
        name: String,
        /// What it is, as its name says.
        media_type: String,
        /// Bytes.
        size: u64,
        /// Their digest: exactly these leave.
        sha256: Sha256Digest,
        /// How it begins, if it is text; a notice marks a cut.
        text: Option<String>,
    },
    /// A page is asked for.
    Page {
        /// Its whole URL, as it is sent.
        url: String,
    },
}

/// How a call ends: with a result for the model, or with a failure that ends the run.
pub type ToolResult = Result<ToolOutput, ToolFailure>;

/// One tool. It owns its resources; dropping the future of a call stops the call.
pub trait Tool: Send + Sync {
    /// The specification for the model.
    fn spec(&self) -> ToolSpec;

    /// What kind of effect a call can have.
    fn kind(&self) -> ToolKind;

    /// What a call with these arguments would do. Rules are matched against it, a person sees it before deciding, and
    /// it is compared with the disk when the effect is unknown. It reads only. Arguments that do not fit give the same
    /// error as [`Self::run`].
    fn plan(&self, _arguments: &Value) -> BoxFuture<'static, Result<Plan, ToolOutput>> {
        std::future::ready(Ok(Plan { place: None, shown: PlanPreview::Arguments })).boxed()
    }

    /// The plan of a call that a person has allowed: what it would do to what is there now, also where that is not what
    /// the run has seen, because a person sees the difference. A run of the call that follows does exactly this.
    fn plan_again(&self, arguments: &Value) -> BoxFuture<'static, Result<Plan, ToolOutput>> {
        self.plan(arguments)
    }

    /// Runs one call. Arguments that do not fit give an error output. The future ends soon after `stop` is cancelled;
    /// its result is then ignored.
    fn run(&self, arguments: Value, stop: CancellationToken) -> BoxFuture<'static, ToolResult>;
}
