//! What comes back for a request, and who asked.

use deskgate_program::socket;
use deskgate_protocol::management::AskedBy;
use serde::{Deserialize, Serialize};

/// What came of a request.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// The answer that belongs to the request.
    Ok(serde_json::Value),
    /// Why not.
    No(No),
}

/// Why a request was not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct No {
    /// For programs.
    pub code: NoCode,
    /// For people: what was wrong and what to do next.
    pub message: String,
}

/// The codes of [`No`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoCode {
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
pub enum Asker {
    /// Whoever the kernel names at the other end of the private socket.
    Socket(socket::Peer),
    /// A signed-in browser, which is the agent's own user.
    Page,
}

impl From<Asker> for AskedBy {
    fn from(asker: Asker) -> Self {
        match asker {
            Asker::Socket(_) => Self::Cli,
            Asker::Page => Self::Page,
        }
    }
}
