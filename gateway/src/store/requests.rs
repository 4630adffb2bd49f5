//! Requests that made no run of their own, by their identity, so that a repetition finds the first result.
//!
//! (The identity of a request that made a run stands in the run.)

use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::{ConversationId, OperationId};
use tokio_postgres::{Row, Transaction};

use super::Error;
use super::columns::digest;

/// The identity of a request: the same identity and the same fingerprint are the same request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestKey {
    /// The digest of application, subject, method and target, and Idempotency-Key.
    pub identity: Sha256Digest,
    /// The digest of the body.
    pub fingerprint: Sha256Digest,
}

/// The result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestResult {
    /// A conversation.
    Conversation(ConversationId),
    /// A control operation.
    Operation(OperationId),
}

/// A request that was made before.
#[derive(Clone, Copy, Debug)]
pub(super) struct StoredRequest {
    pub(super) fingerprint: Sha256Digest,
    pub(super) existing: RequestResult,
    pub(super) made: bool,
}

/// The stored request of an identity.
pub(super) async fn find_request(
    transaction: &Transaction<'_>,
    request: &RequestKey,
) -> Result<Option<StoredRequest>, Error> {
    let sql = "-- requests::known
        SELECT fingerprint, conversation_id, operation_id, made FROM request_identities WHERE identity = $1";
    let row = transaction.query_opt(sql, &[&request.identity.0.as_slice()]).await?;
    row.as_ref().map(known_of).transpose()
}

/// Stores a request's result. False when a twin was faster: then this transaction must be rolled back. Waits for a twin
/// that is under way.
pub(super) async fn remember(
    transaction: &Transaction<'_>,
    request: &RequestKey,
    existing: RequestResult,
    made: bool,
) -> Result<bool, Error> {
    let sql = "-- requests::remember
        INSERT INTO request_identities (identity, fingerprint, conversation_id, operation_id, made)
        VALUES ($1, $2, $3, $4, $5) ON CONFLICT (identity) DO NOTHING";
    let (conversation_id, operation_id) = match existing {
        RequestResult::Conversation(id) => (Some(id.uuid()), None),
        RequestResult::Operation(id) => (None, Some(id.uuid())),
    };
    let (identity, fingerprint) = (request.identity.0.as_slice(), request.fingerprint.0.as_slice());
    let made = transaction.execute(sql, &[&identity, &fingerprint, &conversation_id, &operation_id, &made]).await?;
    Ok(made == 1)
}

fn known_of(row: &Row) -> Result<StoredRequest, Error> {
    let conversation: Option<uuid::Uuid> = row.try_get(1)?;
    let operation: Option<uuid::Uuid> = row.try_get(2)?;
    let existing = match (conversation, operation) {
        (Some(id), _) => RequestResult::Conversation(id.into()),
        (None, Some(id)) => RequestResult::Operation(id.into()),
        (None, None) => return Err(Error::Data("a request that was answered with nothing".to_owned())),
    };
    Ok(StoredRequest { fingerprint: digest(row.try_get(0)?)?, existing, made: row.try_get(3)? })
}
