//! Stops and resets: who may ask for one, its fence, and who may read it.

use std::time::Duration;

use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::management::Scope;
use deskgate_protocol::operation::{ControlOperation, OperationKind};
use deskgate_protocol::{ConversationId, OperationId, RunId};

use super::access::Caller;
use super::admission::identity;
use super::conversations;
use super::refusal::Refusal;
use super::runs;
use crate::store::Store;
use crate::store::activity::ActivityActor;
use crate::store::operations::{OperationAction, OperationReply, OperationRequest, Requester};
use crate::store::requests;

/// The identity of a caller's request.
#[derive(Clone, Debug)]
pub struct RequestIdentity {
    /// The caller's name for this request.
    pub idempotency_key: String,
    /// The digest of the whole body, canonical.
    pub fingerprint: Sha256Digest,
}

/// An operation, new or open; `replayed` when it is the answer to a repeated request.
#[derive(Clone, Debug)]
pub struct AcceptedOperation {
    /// Its record at this moment.
    pub operation: ControlOperation,
    /// Whether the request was repeated.
    pub replayed: bool,
}

/// A stop that a caller asks for.
#[derive(Clone, Debug)]
pub struct StopRequest {
    /// The attempt that the caller means; `None` for any.
    pub expected_attempt: Option<u32>,
    /// The caller's own words.
    pub reason: Option<String>,
}

/// Stops a run for a caller with `runs:control`. `retention`: how long the run is kept if it ends at once.
///
/// # Errors
/// [`Refusal::NotFound`]: no such run, or another application's or subject's, or of a service that the key may not use.
/// [`Refusal::RunPurged`]: the run ended and was deleted. [`Refusal::AttemptMismatch`]: the run has not ended and is in
/// another attempt. [`Refusal::IdempotencyKeyReused`]: the key belongs to another request. [`Refusal::RateLimited`]:
/// the key made too many requests. [`Refusal::StoreUnavailable`] or [`Refusal::Internal`]: the database does not answer
/// or refuses the statement, or a twin of the request is faster at each try.
pub async fn stop(
    store: &Store,
    caller: &Caller,
    run_id: RunId,
    stop: StopRequest,
    request: RequestIdentity,
    retention: Duration,
) -> Result<AcceptedOperation, Refusal> {
    runs::read(store, caller, run_id, Duration::ZERO).await?;
    let StopRequest { expected_attempt, reason } = stop;
    let identity = identity(caller, "POST stop", &run_id.to_string(), &request.idempotency_key);
    let asked =
        ask(store, caller, identity, request, OperationAction::Stop { run_id, expected_attempt, reason, retention })
            .await;
    match asked {
        // Deleted since it was read: its owner learns that, not that it never existed.
        Err(Refusal::NotFound) => {
            Err(runs::read(store, caller, run_id, Duration::ZERO).await.err().unwrap_or(Refusal::NotFound))
        }
        asked => asked,
    }
}

/// Resets a conversation for a caller with `conversations:control`.
///
/// # Errors
/// [`Refusal::NotFound`]: no such conversation, or another application's or subject's, or with a service that the key
/// may not use. [`Refusal::GenerationMismatch`]: the conversation is in another generation.
/// [`Refusal::ConversationBusy`]: a message of it has not ended. [`Refusal::IdempotencyKeyReused`]: the key belongs to
/// another request. [`Refusal::RateLimited`]: the key made too many requests. [`Refusal::StoreUnavailable`] or
/// [`Refusal::Internal`]: the database does not answer or refuses the statement, or a twin of the request is faster at
/// each try.
pub async fn reset(
    store: &Store,
    caller: &Caller,
    conversation_id: ConversationId,
    expected_generation: u32,
    request: RequestIdentity,
) -> Result<AcceptedOperation, Refusal> {
    conversations::read(store, caller, conversation_id).await?;
    let identity = identity(caller, "POST reset", &conversation_id.to_string(), &request.idempotency_key);
    ask(store, caller, identity, request, OperationAction::Reset { conversation_id, expected_generation }).await
}

async fn ask(
    store: &Store,
    caller: &Caller,
    identity: Sha256Digest,
    request: RequestIdentity,
    what: OperationAction,
) -> Result<AcceptedOperation, Refusal> {
    let asked = OperationRequest {
        operation_id: OperationId::new(),
        by: Requester::Application {
            app_id: caller.app_id(),
            actor: ActivityActor::Key(caller.key_id()),
            subject: caller.subject().to_owned(),
            request: Some(requests::RequestKey { identity, fingerprint: request.fingerprint }),
            within_rate: caller.is_within_rate(),
        },
        what,
    };
    match store.request_operation(&asked).await? {
        OperationReply::Operation { operation, replayed } => {
            let (operation_id, kind, state) = (operation.operation_id, operation.kind, operation.state);
            tracing::info!(%operation_id, %kind, %state, app_id = %caller.app_id(), "operation asked for");
            Ok(AcceptedOperation { operation, replayed })
        }
        OperationReply::Reused(existing) => Err(Refusal::IdempotencyKeyReused { existing: existing.into() }),
        OperationReply::NoSuchTarget => Err(Refusal::NotFound),
        OperationReply::OverRate => Err(Refusal::RateLimited),
        OperationReply::OtherAttempt { current } => Err(Refusal::AttemptMismatch { current_attempt: current }),
        OperationReply::OtherGeneration { current } => Err(Refusal::GenerationMismatch { current_generation: current }),
        OperationReply::Busy { active_run_id } => Err(Refusal::ConversationBusy {
            active_run_id: Some(active_run_id),
            operation_id: None,
            waiting_messages: None,
        }),
    }
}

/// A caller needs one of these scopes to read operations at all.
pub const READ_SCOPES: [Scope; 2] = [Scope::RunsRead, Scope::ConversationsRead];

/// Reads an operation of this caller, who needs the scope to read its target.
///
/// # Errors
/// [`Refusal::NotFound`]: no such operation, or another application's or subject's, or on a service that the key may
/// not use. [`Refusal::InsufficientScope`]: the key lacks the scope to read the target. [`Refusal::StoreUnavailable`]
/// or [`Refusal::Internal`]: the database does not answer, or refuses the statement.
pub async fn read(store: &Store, caller: &Caller, operation_id: OperationId) -> Result<ControlOperation, Refusal> {
    let found = store.operation(caller.app_id(), caller.subject(), operation_id).await?;
    let stored = found.filter(|stored| caller.may_use(stored.endpoint_id)).ok_or(Refusal::NotFound)?;
    caller.needs(match stored.operation.kind {
        OperationKind::RunStop => Scope::RunsRead,
        OperationKind::ConversationReset => Scope::ConversationsRead,
    })?;
    Ok(stored.operation)
}
