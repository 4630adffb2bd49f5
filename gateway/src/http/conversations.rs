//! Conversations: opening and reading one, sending a message, asking for a reset.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use deskgate_protocol::conversation::Conversation;
use deskgate_protocol::management::Scope;
use deskgate_protocol::{ConversationId, EndpointId};
use serde_json::Value;

use super::error::Error;
use super::operations::underway;
use super::runs::{accepted, identifier, request};
use super::{Api, body, caller, replayed_if};
use crate::domain::access::Authenticated;
use crate::domain::conversations::{self, There, Wanted};
use crate::domain::operations;
use crate::domain::refusal::{Flaw, Refusal};

/// `POST /conversations`: 201 with a new one, 200 with the one that is there already.
pub(super) async fn open(
    State(api): State<Arc<Api>>,
    authenticated: Authenticated,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Error> {
    api.admits()?;
    let caller = authenticated.authorise(Scope::ConversationsWrite)?;
    let idempotency_key = caller::idempotency_key(&headers)?;
    let (fingerprint, mut members) =
        body::members(&headers, body, api.time_for_body, &["endpoint_id", "conversation_key"]).await?;
    let mut flaws = Vec::new();
    let endpoint_id = text(members.remove("endpoint_id"), "/endpoint_id", &mut flaws);
    let conversation_key = text(members.remove("conversation_key"), "/conversation_key", &mut flaws);
    if !flaws.is_empty() {
        return Err(Refusal::Invalid(flaws).into());
    }
    let endpoint_id: EndpointId = endpoint_id.parse().map_err(|_| Refusal::NotFound)?;
    let wanted = Wanted { endpoint_id, conversation_key, idempotency_key, fingerprint };
    let There { conversation, made, replayed } = conversations::open(&api.store, &caller, wanted).await?;
    let status = if made { StatusCode::CREATED } else { StatusCode::OK };
    let location = format!("/api/v1/conversations/{}", conversation.conversation_id);
    let mut response = (status, Json(conversation)).into_response();
    let location = HeaderValue::from_str(&location).expect("a path of letters, digits, slashes and underscores");
    response.headers_mut().insert(header::LOCATION, location);
    Ok(replayed_if(replayed, response))
}

/// `GET /conversations/{conversation_id}`.
pub(super) async fn read(
    State(api): State<Arc<Api>>,
    authenticated: Authenticated,
    conversation_id: Result<Path<String>, PathRejection>,
) -> Result<Json<Conversation>, Error> {
    let caller = authenticated.authorise(Scope::ConversationsRead)?;
    Ok(Json(conversations::read(&api.store, &caller, identifier(conversation_id)?).await?))
}

/// `POST /conversations/{conversation_id}/messages`: 202 after the commit.
pub(super) async fn say(
    State(api): State<Arc<Api>>,
    authenticated: Authenticated,
    conversation_id: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Error> {
    api.admits()?;
    let caller = authenticated.authorise_all(&[Scope::ConversationsWrite, Scope::RunsWrite])?;
    let idempotency_key = caller::idempotency_key(&headers)?;
    let (submitted, expected_generation) = body::message(&headers, body, api.time_for_body).await?;
    let conversation_id: ConversationId = identifier(conversation_id)?;
    // The conversation says which service it is.
    let request = request(EndpointId::from(uuid::Uuid::nil()), idempotency_key, submitted, &headers);
    Ok(accepted(api.desk.say(&caller, conversation_id, expected_generation, request).await?))
}

/// `POST /conversations/{conversation_id}/reset`: 202 with the operation.
pub(super) async fn reset(
    State(api): State<Arc<Api>>,
    authenticated: Authenticated,
    conversation_id: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Error> {
    api.admits()?;
    let caller = authenticated.authorise(Scope::ConversationsControl)?;
    let idempotency_key = caller::idempotency_key(&headers)?;
    let (fingerprint, mut members) = body::members(&headers, body, api.time_for_body, &["expected_generation"]).await?;
    let mut flaws = Vec::new();
    let Some(expected) = body::generation(members.remove("expected_generation"), &mut flaws) else {
        return Err(Refusal::Invalid(flaws).into());
    };
    let request = operations::Request { idempotency_key, fingerprint };
    let conversation_id: ConversationId = identifier(conversation_id)?;
    Ok(underway(operations::reset(&api.store, &caller, conversation_id, expected, request).await?))
}

/// A text that names something.
fn text(value: Option<Value>, pointer: &str, flaws: &mut Vec<Flaw>) -> String {
    match value {
        Some(Value::String(text)) if (1..=255).contains(&text.len()) && !text.contains(char::is_control) => {
            return text;
        }
        Some(Value::String(_)) => {
            flaws.push(Flaw::new(pointer, "out_of_range", "1 to 255 bytes without control characters"));
        }
        Some(_) => flaws.push(Flaw::new(pointer, "wrong_type", "a string")),
        None => flaws.push(Flaw::new(pointer, "required", "a string")),
    }
    String::new()
}
