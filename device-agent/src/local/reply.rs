//! The reply to a request, and the requester.

use deskgate_program::socket;
use deskgate_protocol::management::AskedBy;
use serde::{Deserialize, Serialize};

/// The reply to a request.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentReply {
    /// The answer of the request's type.
    Ok(serde_json::Value),
    /// Why the request failed.
    No(ErrorReply),
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorReply {
    /// The code for programs.
    pub code: ErrorReplyCode,
    /// The message for people: what was wrong and what to do next.
    pub message: String,
}

/// The codes of [`ErrorReply`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorReplyCode {
    /// A value is not acceptable.
    Invalid,
    /// There is no such thing.
    NotFound,
    /// Refused in this state.
    Refused,
    /// The gateway cannot be reached.
    CannotReach,
    /// The gateway refuses this device.
    NotAuthorised,
    /// Versions do not match.
    VersionMismatch,
    /// The agent failed.
    Failed,
}

/// The source of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requester {
    /// The process that the kernel identifies at the other end of the private socket.
    Socket(socket::Peer),
    /// A signed-in browser, which is the agent's own user.
    Page,
}

impl From<Requester> for AskedBy {
    fn from(asker: Requester) -> Self {
        match asker {
            Requester::Socket(_) => Self::Cli,
            Requester::Page => Self::Page,
        }
    }
}
