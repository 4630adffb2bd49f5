//! Runs a call's work on a thread that may block.

use deskgate_definition::ToolName;
use deskgate_definition::tool::{Plan, PlanPreview, ToolFailure, ToolOutput, ToolResult};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::engine::access::AccessError;
use crate::engine::change::ChangeError;

/// Runs file work on a blocking thread. Its token is cancelled when the run stops or this future is dropped, so no
/// thread works on for an abandoned call.
pub fn on_blocking_thread<A, W>(
    tool: ToolName,
    arguments: Value,
    stop: &CancellationToken,
    work: W,
) -> BoxFuture<'static, ToolResult>
where
    A: DeserializeOwned,
    W: FnOnce(A, &CancellationToken) -> Result<ToolOutput, AccessError> + Send + 'static,
{
    blocking(tool, arguments, stop, |arguments, stop| told(work(arguments, stop)))
}

/// The same for work that returns the call's result itself.
pub(crate) fn blocking<A, W>(
    tool: ToolName,
    arguments: Value,
    stop: &CancellationToken,
    work: W,
) -> BoxFuture<'static, ToolResult>
where
    A: DeserializeOwned,
    W: FnOnce(A, &CancellationToken) -> ToolResult + Send + 'static,
{
    let stop = stop.clone();
    async move {
        let outcome = on_thread(&stop, move |stop| match parse(tool.as_str(), arguments) {
            Ok(arguments) => work(arguments, stop),
            Err(complaint) => Ok(ToolOutput::error(complaint)),
        });
        let stopping = || Ok(ToolOutput::error("The call was not run because the agent is stopping."));
        outcome.await.unwrap_or_else(stopping)
    }
    .boxed()
}

/// Runs any work on a blocking thread, with a token as in [`on_blocking_thread`]. `None`: the agent is stopping.
pub(crate) async fn on_thread<T: Send + 'static>(
    stop: &CancellationToken,
    work: impl FnOnce(&CancellationToken) -> T + Send + 'static,
) -> Option<T> {
    let stop = stop.child_token();
    let _guard = stop.clone().drop_guard();
    match tokio::task::spawn_blocking(move || work(&stop)).await {
        Ok(result) => Some(result),
        Err(error) => match error.try_into_panic() {
            // A fault of this program: the executor gets the panic.
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => None,
        },
    }
}

/// Works out on a blocking thread what a call would do.
pub(crate) fn plan_on_blocking_thread<A, W>(
    tool: ToolName,
    arguments: Value,
    work: W,
) -> BoxFuture<'static, Result<Plan, ToolOutput>>
where
    A: DeserializeOwned,
    W: FnOnce(A) -> Result<Plan, ChangeError> + Send + 'static,
{
    async move {
        let looked = tokio::task::spawn_blocking(move || {
            let arguments = parse(tool.as_str(), arguments).map_err(ToolOutput::error)?;
            work(arguments).or_else(|not| match not {
                // The call itself ends the run.
                ChangeError::Access(AccessError::Gone) => Ok(Plan { place: None, shown: PlanPreview::Arguments }),
                ChangeError::Access(error) => Err(ToolOutput::error(error.to_string())),
                ChangeError::Rule(text) | ChangeError::Outdated(text) => Err(ToolOutput::error(text)),
            })
        });
        match looked.await.map_err(tokio::task::JoinError::try_into_panic) {
            Ok(plan) => plan,
            Err(Ok(panic)) => std::panic::resume_unwind(panic),
            Err(Err(_)) => Err(ToolOutput::error("The call was not prepared because the agent is stopping.")),
        }
    }
    .boxed()
}

/// Arguments that do not fit become a result for the model, and the run continues.
pub(crate) fn parse<A: DeserializeOwned>(tool: &str, arguments: Value) -> Result<A, String> {
    if !arguments.is_object() {
        return Err(format!("The arguments of {tool} must be one JSON object."));
    }
    serde_json::from_value(arguments).map_err(|error| format!("These arguments do not fit {tool}: {error}."))
}

fn told(result: Result<ToolOutput, AccessError>) -> ToolResult {
    match result {
        Ok(output) => Ok(output),
        Err(AccessError::Gone) => Err(ToolFailure::WorkspaceGone),
        Err(error) => Ok(ToolOutput::error(error.to_string())),
    }
}
