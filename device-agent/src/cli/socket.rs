//! Requests to the running agent, and the exit codes for its refusals.

use std::path::PathBuf;
use std::str::FromStr;

use deskgate_program::exit::{Exit, Failure};
use deskgate_program::socket;
use deskgate_program::socket::CallError;
use deskgate_protocol::management::{FindByEnd, ManagementCall, RecordKind};
use serde::de::DeserializeOwned;

use crate::config::Home;
use crate::local::GLANCE_TIMEOUT;
use crate::local::export::ManagementClient;
use crate::local::{AgentReply, AgentRequest, ErrorReply, ErrorReplyCode, TypedRequest};

/// The client of this home's running agent.
#[derive(Clone, Debug)]
pub(super) struct AgentClient {
    socket: PathBuf,
}

impl AgentClient {
    /// The agent that the environment names.
    pub(super) fn find() -> Result<Self, Failure> {
        Ok(Self { socket: home()?.socket() })
    }

    /// Sends a request to the agent.
    pub(super) async fn request<A: TypedRequest>(&self, ask: A) -> Result<A::Response, Failure> {
        self.send(ask.into()).await
    }

    /// Sends a request to the gateway, through the agent.
    pub(super) async fn manage<C: ManagementCall>(&self, call: C) -> Result<C::Reply, Failure> {
        self.send(AgentRequest::Manage { request: call.into() }).await
    }

    /// The same for what is shown beside something else; `None`: no answer came at once.
    pub(super) async fn glance<C: ManagementCall>(&self, call: C) -> Option<C::Reply> {
        tokio::time::timeout(GLANCE_TIMEOUT, self.manage(call)).await.ok()?.ok()
    }

    /// The records at the gateway whose identifiers end like this.
    pub(super) async fn by_end<I: FromStr>(&self, kind: RecordKind, end: &str) -> Result<Vec<I>, Failure> {
        Ok(self.manage(FindByEnd { kind, end: end.to_owned() }).await?.parsed().collect())
    }

    async fn send<T: DeserializeOwned>(&self, request: AgentRequest) -> Result<T, Failure> {
        let reply = socket::call(&self.socket, &request).await.map_err(|error| match error {
            CallError::NotRunning { .. } => {
                Failure::new(Exit::CannotReach, "the agent is not running. Start it with: deskgate start")
            }
            CallError::NotAllowed { .. } => Failure::new(Exit::NotAuthorised, error.to_string()),
            CallError::Broken { .. } => Failure::new(Exit::Failed, error.to_string()),
        })?;
        match reply {
            AgentReply::Ok(value) => serde_json::from_value(value).map_err(|error| {
                Failure::new(Exit::VersionMismatch, format!("the agent's answer cannot be read ({error}); restart it"))
            }),
            AgentReply::No(no) => Err(failure(no)),
        }
    }
}

/// The folder that the environment names.
pub(super) fn home() -> Result<Home, Failure> {
    Home::find().map_err(|error| Failure::new(Exit::NotSetUp, error.to_string()))
}

impl ManagementClient for AgentClient {
    type Error = Failure;

    async fn call_gateway<C: ManagementCall + Send>(&self, call: C) -> Result<C::Reply, Failure> {
        self.manage(call).await
    }
}

/// The exit code for a refusal.
pub(super) fn failure(no: ErrorReply) -> Failure {
    let exit = match no.code {
        ErrorReplyCode::Invalid => Exit::Usage,
        ErrorReplyCode::NotFound | ErrorReplyCode::Failed => Exit::Failed,
        ErrorReplyCode::Refused => Exit::Refused,
        ErrorReplyCode::CannotReach => Exit::CannotReach,
        ErrorReplyCode::NotAuthorised => Exit::NotAuthorised,
        ErrorReplyCode::VersionMismatch => Exit::VersionMismatch,
    };
    Failure::new(exit, no.message)
}
