//! A desktop user's operations: stops and resets of callers' work, and their outcomes.

use std::time::Duration;

use deskgate_protocol::management::{ConversationDetail, ResetConversation, ShowConversation, ShowOperation, StopRun};
use deskgate_protocol::operation::ControlOperation;
use deskgate_protocol::{OperationId, RunId};
use tokio::time::Instant;

use super::lists::listed;
use super::{Desktop, DesktopResult, MAX_WAIT, conflict, not_found};
use crate::notify::Topic;
use crate::store::operations::{self, OperationAction, OperationRequest, Requester};

/// Messages that are shown of one conversation.
const MAX_MESSAGES: i64 = 50;

impl Desktop {
    /// Stops a run, whichever attempt it is in.
    ///
    /// # Errors
    /// `NotFound`: the device has no such run. `Unavailable`: the database does not answer, or refuses the statement.
    pub async fn stop_run(&self, request: StopRun) -> DesktopResult<ControlOperation> {
        self.stop(request.run_id, None).await
    }

    /// Stops a run only while it is in this attempt: a later attempt is not interrupted by mistake.
    ///
    /// # Errors
    /// `NotFound`: the device has no such run. `Conflict`: the run has not ended and is in another attempt.
    /// `Unavailable`: the database does not answer, or refuses the statement.
    pub async fn stop_attempt(&self, run_id: RunId, attempt: u32) -> DesktopResult<ControlOperation> {
        self.stop(run_id, Some(attempt)).await
    }

    async fn stop(&self, run_id: RunId, expected_attempt: Option<u32>) -> DesktopResult<ControlOperation> {
        let what = OperationAction::Stop { run_id, expected_attempt, reason: None, retention: self.retention };
        self.order(what, format!("there is no run {run_id}")).await
    }

    /// One conversation with its newest messages.
    ///
    /// # Errors
    /// `NotFound`: the device has no such conversation. `Unavailable`: the database does not answer, or refuses the
    /// statement.
    pub async fn conversation(&self, request: ShowConversation) -> DesktopResult<ConversationDetail> {
        let found = self.store.conversation_of_device(self.device_id, request.conversation_id).await?;
        let conversation =
            found.ok_or_else(|| not_found(format!("there is no conversation {}", request.conversation_id)))?;
        let messages = self.store.runs_of_conversation(&conversation, MAX_MESSAGES).await?;
        Ok(ConversationDetail { conversation, messages: messages.into_iter().map(listed).collect() })
    }

    /// Begins a conversation anew.
    ///
    /// # Errors
    /// `NotFound`: the device has no such conversation. `Conflict`: it is in another generation, or a message of it has
    /// not ended. `Unavailable`: the database does not answer, or refuses the statement.
    pub async fn reset_conversation(&self, request: ResetConversation) -> DesktopResult<ControlOperation> {
        let ResetConversation { conversation_id, expected_generation } = request;
        let what = OperationAction::Reset { conversation_id, expected_generation };
        self.order(what, format!("there is no conversation {conversation_id}")).await
    }

    async fn order(&self, what: OperationAction, unknown: String) -> DesktopResult<ControlOperation> {
        let asked = OperationRequest { operation_id: OperationId::new(), by: Requester::Person(self.owner()), what };
        match self.store.request_operation(&asked).await? {
            operations::OperationReply::Operation { operation, .. } => {
                let (operation_id, kind, state) = (operation.operation_id, operation.kind, operation.state);
                tracing::info!(%operation_id, %kind, %state, device_id = %self.device_id, "operation asked for");
                Ok(operation)
            }
            operations::OperationReply::NoSuchTarget => Err(not_found(unknown)),
            operations::OperationReply::OtherGeneration { current } => Err(conflict(format!(
                "the conversation is in generation {current}; look at it and decide whether it is still to be reset"
            ))),
            operations::OperationReply::Busy { active_run_id } => Err(conflict(format!(
                "the conversation is busy with {active_run_id}; wait for its end, or stop it with: deskgate run stop {active_run_id}"
            ))),
            operations::OperationReply::OtherAttempt { .. } => Err(conflict(
                "the run was taken up meanwhile; look at it and decide whether it is still to be stopped".to_owned(),
            )),
            operations::OperationReply::Reused(_) | operations::OperationReply::OverRate => {
                unreachable!("a desktop user names no key, and has no rate")
            }
        }
    }

    /// One operation. With `wait_s`, waits until it has ended.
    ///
    /// # Errors
    /// `NotFound`: the device has no such operation. `Unavailable`: the database does not answer, or refuses the
    /// statement.
    pub async fn operation(&self, request: ShowOperation) -> DesktopResult<ControlOperation> {
        let deadline = Instant::now() + Duration::from_secs(request.wait_s.into()).min(MAX_WAIT);
        let mut watcher = self.store.notifier().watch(Topic::Control(self.device_id));
        loop {
            let found = self.store.operation_of_device(self.device_id, request.operation_id).await?;
            let operation =
                found.ok_or_else(|| not_found(format!("there is no operation {}", request.operation_id)))?;
            if operation.completed_at.is_some() || Instant::now() >= deadline {
                return Ok(operation);
            }
            // A hint can be lost, or reach another replica only as a change of the run.
            let look_again = (Instant::now() + Duration::from_secs(1)).min(deadline);
            let _ = tokio::time::timeout_at(look_again, watcher.changed()).await;
        }
    }
}
