//! Stops and resets: who may ask for one, what it is fenced by, who may look at it.

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
use crate::store::operations::{Answer, Asked, By, What};
use crate::store::requests;

/// What a caller's request is known by.
#[derive(Clone, Debug)]
pub struct Request {
    /// The caller's name for this request.
    pub idempotency_key: String,
    /// Of the whole body, canonical.
    pub fingerprint: Sha256Digest,
}

/// An operation, new or open; `replayed` when it is the answer to a repeated request.
#[derive(Clone, Debug)]
pub struct Underway {
    /// Its record at this moment.
    pub operation: ControlOperation,
    /// Whether the request came before.
    pub replayed: bool,
}

/// A stop that a caller asks for.
#[derive(Clone, Debug)]
pub struct Stop {
    /// The attempt that the caller means; `None` for any.
    pub expected_attempt: Option<u32>,
    /// The caller's own words.
    pub reason: Option<String>,
}

/// Stops a run for a caller with `runs:control`. `retention`: how long the run is kept if it ends at once.
pub async fn stop(
    store: &Store,
    caller: &Caller,
    run_id: RunId,
    stop: Stop,
    request: Request,
    retention: Duration,
) -> Result<Underway, Refusal> {
    runs::read(store, caller, run_id, Duration::ZERO).await?;
    let Stop { expected_attempt, reason } = stop;
    let identity = identity(caller, "POST stop", &run_id.to_string(), &request.idempotency_key);
    let asked = ask(store, caller, identity, request, What::Stop { run_id, expected_attempt, reason, retention }).await;
    match asked {
        // Deleted since it was read: its owner is told that, not that it never was.
        Err(Refusal::NotFound) => {
            Err(runs::read(store, caller, run_id, Duration::ZERO).await.err().unwrap_or(Refusal::NotFound))
        }
        asked => asked,
    }
}

/// Resets a conversation for a caller with `conversations:control`.
pub async fn reset(
    store: &Store,
    caller: &Caller,
    conversation_id: ConversationId,
    expected_generation: u32,
    request: Request,
) -> Result<Underway, Refusal> {
    conversations::read(store, caller, conversation_id).await?;
    let identity = identity(caller, "POST reset", &conversation_id.to_string(), &request.idempotency_key);
    ask(store, caller, identity, request, What::Reset { conversation_id, expected_generation }).await
}

async fn ask(
    store: &Store,
    caller: &Caller,
    identity: Sha256Digest,
    request: Request,
    what: What,
) -> Result<Underway, Refusal> {
    let asked = Asked {
        operation_id: OperationId::new(),
        by: By::Application {
            app_id: caller.app_id(),
            key_id: caller.key_id(),
            subject: caller.subject().to_owned(),
            request: requests::Request { identity, fingerprint: request.fingerprint },
            within_rate: caller.is_within_rate(),
        },
        what,
    };
    match store.ask(&asked).await? {
        Answer::Operation { operation, replayed } => {
            let (operation_id, kind, state) = (operation.operation_id, operation.kind, operation.state);
            tracing::info!(%operation_id, %kind, %state, app_id = %caller.app_id(), "operation asked for");
            Ok(Underway { operation, replayed })
        }
        Answer::Reused(existing) => Err(Refusal::IdempotencyKeyReused { existing: existing.into() }),
        Answer::NoSuchTarget => Err(Refusal::NotFound),
        Answer::OverRate => Err(Refusal::RateLimited),
        Answer::OtherAttempt { current } => Err(Refusal::AttemptMismatch { current_attempt: current }),
        Answer::OtherGeneration { current } => Err(Refusal::GenerationMismatch { current_generation: current }),
        Answer::Busy { active_run_id } => {
            Err(Refusal::ConversationBusy { active_run_id: Some(active_run_id), operation_id: None })
        }
    }
}

/// The scopes of which a caller needs one to look at operations at all.
pub const READING: [Scope; 2] = [Scope::RunsRead, Scope::ConversationsRead];

/// Reads an operation of this caller, who needs the scope to read its target.
pub async fn read(store: &Store, caller: &Caller, operation_id: OperationId) -> Result<ControlOperation, Refusal> {
    let found = store.operation(caller.app_id(), caller.subject(), operation_id).await?;
    let stored = found.filter(|stored| caller.may_use(stored.endpoint_id)).ok_or(Refusal::NotFound)?;
    caller.needs(match stored.operation.kind {
        OperationKind::RunStop => Scope::RunsRead,
        OperationKind::ConversationReset => Scope::ConversationsRead,
    })?;
    Ok(stored.operation)
}
