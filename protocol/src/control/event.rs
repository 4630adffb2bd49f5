//! What a device reports of a run while it executes.

use serde::{Deserialize, Serialize};

use crate::run::Usage;

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
}

/// Bytes of text in one [`MessageDelta`] at most: even when each of them is escaped, it fits into a
/// notification of PostgreSQL.
pub const DELTA_LIMIT: usize = 1024;

/// A piece of a message that is being written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageDelta {
    /// As in the `message_completed` that follows.
    pub message_id: String,
    /// Characters (Unicode scalar values) of the message before it. Text from an offset on replaces
    /// what was there: a model that is asked again begins anew.
    pub offset: u64,
    /// The next characters; at most [`DELTA_LIMIT`] bytes.
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
