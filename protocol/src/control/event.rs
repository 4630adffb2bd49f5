//! What a device reports while it executes a run.

use serde::{Deserialize, Serialize};

use crate::ids::ApprovalId;
use crate::run::Usage;
use crate::time::Timestamp;

/// What a device reports while it executes a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum DeviceEvent {
    /// A tool began. Its arguments stay on the device.
    ToolStarted {
        /// Unique within the run.
        call_id: String,
        /// The tool's name.
        tool: String,
        /// What kind of effect it can have.
        kind: ToolKind,
    },
    /// A tool ended.
    ToolCompleted {
        /// As in `tool_started`.
        call_id: String,
        /// The tool's name.
        tool: String,
        /// What kind of effect it can have.
        kind: ToolKind,
        /// How it ended.
        status: ToolStatus,
    },
    /// The assistant finished a message. Text beyond 60,000 bytes is cut.
    MessageCompleted {
        /// Unique within the run.
        message_id: String,
        /// The text of the message; may be empty beside a summary.
        text: String,
        /// A summary of the reasoning before it, of at most 4,100 bytes, if the service shows it to callers.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reasoning_summary: Option<String>,
    },
    /// The usage so far.
    UsageUpdated {
        /// Totals, not differences.
        usage: Usage,
        /// The model cannot be used at the moment: the run waits, and asks it again. False in the next such event
        /// after the model is back.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        model_unavailable: bool,
    },
    /// A tool call is held until the desktop user decides: from here on the run awaits approval. A run has at most one
    /// open request. Arguments stay on the device.
    ApprovalRequested {
        /// The request; unique among all requests of the device.
        approval_id: ApprovalId,
        /// The call that is held, as in its `tool_started`.
        call_id: String,
        /// The tool's name.
        tool: String,
        /// What kind of effect it can have.
        kind: ToolKind,
        /// When the request expires; later decisions have no effect.
        expires_at: Timestamp,
    },
    /// The open request ended: the run goes on, or ends.
    ApprovalResolved {
        /// As in `approval_requested`.
        approval_id: ApprovalId,
        /// How the request ended.
        resolution: ApprovalResolution,
    },
}

/// How a request for approval ended. Only the device can end one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalResolution {
    /// A person allowed the call.
    Approved,
    /// A person denied it.
    Denied,
    /// No decision was made in time, so the call is refused.
    Expired,
    /// The run ended, was stopped or restarts before a decision.
    Withdrawn,
}

/// The most bytes of text in one [`MessageDelta`]: even if each of them is escaped, it fits into a PostgreSQL
/// notification.
pub const MAX_DELTA_BYTES: usize = 1024;

/// A piece of a message that is being written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageDelta {
    /// As in the `message_completed` that follows.
    pub message_id: String,
    /// Characters (Unicode scalar values) of the message before this piece. Text from an offset replaces the text
    /// already there: a model that is asked again starts the message over.
    pub offset: u64,
    /// The next characters; at most [`MAX_DELTA_BYTES`] bytes.
    pub text: String,
}

/// What kind of effect a tool can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolKind {
    /// It only reads.
    Read,
    /// It changes something.
    Write,
}

/// How a tool call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolStatus {
    /// It succeeded.
    Ok,
    /// It failed, and the assistant got the error.
    Error,
}
