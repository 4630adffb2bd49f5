//! Runs as tasks: the extension `io.modelcontextprotocol/tasks`, for requests whose clients declare it.

use std::time::Duration;

use axum::response::Response;
use deskgate_protocol::RunId;
use deskgate_protocol::management::Scope;
use serde_json::json;

use super::message::{Era, Message, RpcError};
use super::{Failure, told};
use crate::domain::access::Caller;
use crate::domain::refusal::Refusal;
use crate::domain::runs;
use crate::http::Api;

/// The name of the extension.
pub(super) const TASKS_EXTENSION: &str = "io.modelcontextprotocol/tasks";

/// `tasks/get`
pub(super) async fn get(api: &Api, caller: &Caller, message: &Message) -> Result<Response, Failure> {
    let run_id = declared(message)?;
    caller.needs(Scope::RunsRead)?;
    let run = runs::read(&api.store, caller, run_id, Duration::ZERO).await.map_err(|refusal| gone(message, refusal))?;
    Ok(message.result(told::task(&run)))
}

/// `tasks/cancel`
pub(super) async fn cancel(api: &Api, caller: &Caller, message: &Message) -> Result<Response, Failure> {
    let run_id = declared(message)?;
    caller.needs(Scope::RunsControl)?;
    api.mcp_calls.stop(caller, run_id, None, None).await.map_err(|refusal| gone(message, refusal))?;
    Ok(message.result(json!({})))
}

/// `tasks/update`: a run never asks its caller for anything, so that there is nothing to take of it.
pub(super) async fn update(api: &Api, caller: &Caller, message: &Message) -> Result<Response, Failure> {
    get(api, caller, message).await?;
    Ok(message.result(json!({})))
}

/// The run of a task, for a client that declares the extension.
fn declared(message: &Message) -> Result<RunId, RpcError> {
    if message.era != (Era::Stateless { takes_tasks: true }) {
        return Err(message.tasks_not_declared());
    }
    message.text("taskId")?.parse().map_err(|_| message.unknown(NO_SUCH_TASK))
}

const NO_SUCH_TASK: &str = "Invalid params: there is no such task";

fn gone(message: &Message, refusal: Refusal) -> Failure {
    match refusal {
        Refusal::NotFound | Refusal::RunPurged => message.unknown(NO_SUCH_TASK).into(),
        other => other.into(),
    }
}
