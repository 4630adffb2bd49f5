//! Asking the running agent, and what its refusals mean for the exit code.

use std::path::PathBuf;

use deskgate_program::exit::{Exit, Failure};
use deskgate_program::socket;
use deskgate_program::socket::CallError;
use deskgate_protocol::management::Call;
use serde::de::DeserializeOwned;

use crate::config::Home;
use crate::local::export::Passes;
use crate::local::{Ask, No, NoCode, Reply, Request};

/// The running agent of this home.
#[derive(Clone, Debug)]
pub(super) struct Agent {
    socket: PathBuf,
}

impl Agent {
    /// The agent that the environment names.
    pub(super) fn find() -> Result<Self, Failure> {
        Ok(Self { socket: home()?.socket() })
    }

    /// Asks the agent.
    pub(super) async fn ask<A: Ask>(&self, ask: A) -> Result<A::Answer, Failure> {
        self.send(ask.into()).await
    }

    /// Asks the gateway, through the agent.
    pub(super) async fn manage<C: Call>(&self, call: C) -> Result<C::Reply, Failure> {
        self.send(Request::Manage { request: call.into() }).await
    }

    async fn send<T: DeserializeOwned>(&self, request: Request) -> Result<T, Failure> {
        let reply = socket::call(&self.socket, &request).await.map_err(|error| match error {
            CallError::NotRunning { .. } => {
                Failure::new(Exit::CannotReach, "the agent is not running. Start it with: deskgate start")
            }
            CallError::NotAllowed { .. } => Failure::new(Exit::NotAuthorised, error.to_string()),
            CallError::Broken { .. } => Failure::new(Exit::Failed, error.to_string()),
        })?;
        match reply {
            Reply::Ok(value) => serde_json::from_value(value).map_err(|error| {
                Failure::new(Exit::VersionMismatch, format!("the agent's answer cannot be read ({error}); restart it"))
            }),
            Reply::No(no) => Err(failure(no)),
        }
    }
}

/// The folder that the environment names.
pub(super) fn home() -> Result<Home, Failure> {
    Home::find().map_err(|error| Failure::new(Exit::NotSetUp, error.to_string()))
}

impl Passes for Agent {
    type No = Failure;

    async fn pass<C: Call + Send>(&self, call: C) -> Result<C::Reply, Failure> {
        self.manage(call).await
    }
}

/// What a refusal means for the exit code.
pub(super) fn failure(no: No) -> Failure {
    let exit = match no.code {
        NoCode::Invalid => Exit::Usage,
        NoCode::NotFound | NoCode::Failed => Exit::Failed,
        NoCode::Refused => Exit::Refused,
        NoCode::CannotReach => Exit::CannotReach,
        NoCode::NotAuthorised => Exit::NotAuthorised,
        NoCode::VersionMismatch => Exit::VersionMismatch,
    };
    Failure::new(exit, no.message)
}
