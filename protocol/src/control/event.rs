//! What a device reports of a run while it executes.

use serde::{Deserialize, Serialize};

use crate::ids::ApprovalId;
use crate::run::Usage;
use crate::time::Timestamp;

/// What a device reports of a run while it executes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum DeviceEvent {
    /// A tool began. No arguments: they stay on the device.
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
        /// What it said.
        text: String,
    },
    /// The usage so far.
    UsageUpdated {
        /// Totals, not differences.
        usage: Usage,
    },
    /// A tool call is held until the desktop user decides: the run awaits approval from here on. One request of a run
    /// is open at a time. No arguments: they stay on the device.
    ApprovalRequested {
        /// The request; unique among all requests of the device.
        approval_id: ApprovalId,
        /// The call that is held, as in its `tool_started`.
        call_id: String,
        /// The tool's name.
        tool: String,
        /// What kind of effect it can have.
        kind: ToolKind,
        /// When nobody's decision counts any more.
        expires_at: Timestamp,
    },
    /// The open request is no longer open: the run goes on, or ends.
    ApprovalResolved {
        /// As in `approval_requested`.
        approval_id: ApprovalId,
        /// How.
        resolution: ApprovalResolution,
    },
}

/// How a request for approval ended. Only the device ends one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalResolution {
    /// A person allowed the call.
    Approved,
    /// A person refused it.
    Denied,
    /// Nobody decided in time, so it is refused.
    Expired,
    /// The run ended, was stopped or begins again before anybody decided.
    Withdrawn,
}

/// Bytes of text in one [`MessageDelta`] at most: even when each of them is escaped, it fits into a
/// notification of PostgreSQL.
pub const MAX_DELTA_BYTES: usize = 1024;

/// A piece of a message that is being written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageDelta {
    /// As in the `message_completed` that follows.
    pub message_id: String,
    /// Characters (Unicode scalar values) of the message before it. Text from an offset on replaces
    /// what was there: a model that is asked again begins anew.
    pub offset: u64,
    /// The next characters; at most [`MAX_DELTA_BYTES`] bytes.
    pub text: String,
}

/// What kind of effect a tool can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolKind {
    /// It only looks.
    Read,
    /// It changes something.
    Write,
}

/// How a tool call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolStatus {
    /// It did what was asked.
    Ok,
    /// It could not, and the assistant was told why.
    Error,
}
