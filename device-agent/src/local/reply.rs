//! What comes back for a request, and who asked.

use deskgate_program::socket;
use deskgate_protocol::management::AskedBy;
use serde::{Deserialize, Serialize};

/// What came of a request.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentReply {
    /// The answer that belongs to the request.
    Ok(serde_json::Value),
    /// Why not.
    No(ErrorReply),
}

/// Why a request was not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorReply {
    /// For programs.
    pub code: ErrorReplyCode,
    /// For people: what was wrong and what to do next.
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
    /// Not in this state.
    Refused,
    /// The gateway cannot be reached.
    CannotReach,
    /// The gateway lets this device not in.
    NotAuthorised,
    /// Versions do not match.
    VersionMismatch,
    /// The agent failed.
    Failed,
}

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requester {
    /// Whoever the kernel names at the other end of the private socket.
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
