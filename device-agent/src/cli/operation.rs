//! Shows the progress of a stop or a reset: once, or until it has ended.

use std::time::{Duration, Instant};

use deskgate_program::exit::{Exit, Failure};
use deskgate_program::output::Output;
use deskgate_protocol::management::ShowOperation;
use deskgate_protocol::operation::{ControlOperation, OperationState, OutcomeCode};

use super::socket::AgentClient;

/// Prints an operation's status and returns its result; with `wait`, once it has ended or the time is over.
///
/// Without `wait`, an unfinished operation is no failure: it is kept until the device carries it out.
pub(super) async fn follow(
    agent: AgentClient,
    mut operation: ControlOperation,
    wait: Option<Duration>,
    out: Output,
) -> Result<(), Failure> {
    let deadline = wait.map(|wait| Instant::now() + wait);
    while operation.completed_at.is_none()
        && let Some(left) = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
        && !left.is_zero()
    {
        // Waits up to a second longer than the time left; the request counts in seconds.
        let wait_s = u32::try_from(left.as_secs() + 1).map_or(60, |seconds| seconds.min(60));
        operation = agent.manage(ShowOperation { operation_id: operation.operation_id, wait_s }).await?;
    }
    out.result("operation/1", &operation, || describe(&operation));
    verdict(&operation, wait.is_some())
}

fn verdict(operation: &ControlOperation, waited: bool) -> Result<(), Failure> {
    let outcome = operation.outcome.as_ref().map(|outcome| outcome.code);
    match (operation.state, outcome) {
        (OperationState::Pending | OperationState::Delivered, _) if waited => {
            Err(Failure::new(Exit::Pending, "the device has not confirmed it yet; it stays asked for"))
        }
        (OperationState::Failed, _) => {
            let why = operation.error.as_ref().map_or("it failed", |error| error.message.as_str());
            Err(Failure::new(Exit::Failed, why))
        }
        (_, Some(OutcomeCode::OutcomeUnknown)) => {
            Err(Failure::new(Exit::Failed, "what became of the run before the stop is not known"))
        }
        _ => Ok(()),
    }
}

fn describe(operation: &ControlOperation) -> String {
    let target = match (operation.target.run_id, operation.target.conversation_id) {
        (Some(run_id), _) => run_id.to_string(),
        (None, Some(conversation_id)) => conversation_id.to_string(),
        (None, None) => String::new(),
    };
    let stands = match &operation.outcome {
        Some(outcome) => match (outcome.code, outcome.run_state, outcome.new_generation) {
            (OutcomeCode::Reset, _, Some(generation)) => format!("reset, now in generation {generation}"),
            (code, Some(state), _) => format!("{code}, the run is {state}"),
            (code, None, _) => code.to_string(),
        },
        None => match operation.state {
            OperationState::Pending => "asked for; the device was not told yet".to_owned(),
            OperationState::Delivered => "asked for; the device was told".to_owned(),
            state => state.to_string(),
        },
    };
    format!("{target}: {stands}")
}
