//! Conversations: opening and reading one, sending a message, asking for a reset.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use deskgate_protocol::conversation::Conversation;
use deskgate_protocol::management::Scope;
use deskgate_protocol::operation::ControlOperation;
use deskgate_protocol::run::Run;
use deskgate_protocol::{ConversationId, EndpointId};
use serde_json::Value;

use super::created::created_response;
use super::error::Error;
use super::openapi::bodies::{Message, NewConversation, NewReset};
use super::openapi::examples;
use super::openapi::pages::{ConversationPage, RunPage};
use super::openapi::refusals::{COMMON_CODES, JSON_BODY_CODES, NEW_WORK_CODES, refusals};
use super::openapi::submission_answers::submission_answers;
use super::operations::underway;
use super::paging::{ListPage, PageRequest};
use super::problems::Code;
use super::query::QueryParameters;
use super::request_body::{ReceivedRequest, RequestBody};
use super::run_list::SERVICE_ID_HINT;
use super::runs::{identifier, request};
use super::submission_answer::SubmissionAnswer;
use super::{Api, body, caller};
use crate::domain::access::AuthenticatedRequest;
use crate::domain::conversations::{self, ConversationFilter, MessagePage, OpenConversation, OpenedConversation};
use crate::domain::operations;
use crate::domain::refusal::{Flaw, Refusal};

refusals!(OpenRefusals = COMMON_CODES, JSON_BODY_CODES, NEW_WORK_CODES, &[Code::NotFound, Code::AccessPaused]);

/// Opens a conversation.
///
/// 201 with a new one, 200 with the one that is there already under the same key, for the same subject and service.
/// Needs the scope `conversations:write`.
#[utoipa::path(
    post,
    path = "/api/v1/conversations",
    operation_id = "open_conversation",
    tag = "Conversations",
    request_body(
        content = NewConversation,
        description = "Which conversation is to be there.",
        example = json!(examples::new_conversation()),
    ),
    responses(
        (
            status = 201,
            description = "It is new.",
            body = Conversation,
            headers(
                ("Location" = String, description = "The path of the conversation."),
                ("Idempotency-Replayed" = String, description = "`true`: the request was made before."),
            ),
            example = json!(examples::conversation()),
        ),
        (
            status = 200,
            description = "It is there already.",
            body = Conversation,
            headers(
                ("Location" = String, description = "The path of the conversation."),
                ("Idempotency-Replayed" = String, description = "`true`: the request was made before."),
            ),
            example = json!(examples::conversation()),
        ),
        OpenRefusals,
    ),
)]
pub(super) async fn open(
    State(api): State<Arc<Api>>,
    authenticated: AuthenticatedRequest,
    ReceivedRequest { headers, body }: ReceivedRequest,
) -> Result<Response, Error> {
    api.admits()?;
    let caller = authenticated.authorise_work(&[Scope::ConversationsWrite])?;
    let idempotency_key = caller::idempotency_key(&headers)?;
    let mut incoming = RequestBody::of(&api, &caller, &headers, body)?;
    let (fingerprint, mut members) = incoming.members(&body::CONVERSATION_MEMBERS).await?;
    let mut flaws = Vec::new();
    let endpoint_id = text(members.remove("endpoint_id"), "/endpoint_id", &mut flaws);
    let conversation_key = text(members.remove("conversation_key"), "/conversation_key", &mut flaws);
    if !flaws.is_empty() {
        return Err(Refusal::Invalid(flaws).into());
    }
    let endpoint_id: EndpointId = endpoint_id.parse().map_err(|_| Refusal::NotFound)?;
    let wanted = OpenConversation { endpoint_id, conversation_key, idempotency_key, fingerprint };
    let OpenedConversation { conversation, made: is_new, replayed } =
        conversations::open(&api.store, &caller, wanted).await?;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    let location = format!("/api/v1/conversations/{}", conversation.conversation_id);
    Ok(created_response(status, &location, conversation, replayed))
}

refusals!(ReadRefusals = COMMON_CODES, &[Code::NotFound]);

/// Reads a conversation.
///
/// A message has to name the `generation` that stands here. Needs the scope `conversations:read`.
#[utoipa::path(
    get,
    path = "/api/v1/conversations/{conversation_id}",
    operation_id = "read_conversation",
    tag = "Conversations",
    params(("conversation_id" = ConversationId, Path, description = "The conversation.")),
    responses(
        (
            status = 200,
            description = "The conversation as it is now.",
            body = Conversation,
            example = json!(examples::conversation()),
        ),
        ReadRefusals,
    ),
)]
pub(super) async fn read(
    State(api): State<Arc<Api>>,
    authenticated: AuthenticatedRequest,
    conversation_id: Result<Path<String>, PathRejection>,
) -> Result<Json<Conversation>, Error> {
    let caller = authenticated.authorise(Scope::ConversationsRead)?;
    Ok(Json(conversations::read(&api.store, &caller, identifier(conversation_id)?).await?))
}

refusals!(ListRefusals = COMMON_CODES, &[Code::InvalidInput, Code::InvalidCursor]);

/// Lists conversations, newest first.
///
/// These are the conversations of this application and subject. With `endpoint_id` and `conversation_key` the list
/// answers whether one is there. Needs the scope `conversations:read`.
#[utoipa::path(
    get,
    path = "/api/v1/conversations",
    operation_id = "list_conversations",
    tag = "Conversations",
    params(
        ("endpoint_id" = Option<EndpointId>, Query, description = "Only conversations with this service."),
        (
            "conversation_key" = Option<String>,
            Query,
            pattern = "^[^\\u0000-\\u001f\\u007f-\\u009f]{1,255}$",
            description = "Only conversations that the caller named so.",
        ),
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 100, description = "Entries in a page; 20 if absent."),
        ("cursor" = Option<String>, Query, description = "The `next_cursor` of the page before, with the same filters."),
    ),
    responses(
        (status = 200, description = "A page.", body = ConversationPage, example = json!(examples::conversations())),
        ListRefusals,
    ),
)]
pub(super) async fn list(
    State(api): State<Arc<Api>>,
    authenticated: AuthenticatedRequest,
    RawQuery(query): RawQuery,
) -> Result<Json<ListPage<Conversation>>, Error> {
    let caller = authenticated.authorise(Scope::ConversationsRead)?;
    let query = QueryParameters::read(query.as_deref(), &["endpoint_id", "conversation_key", "limit", "cursor"])?;
    let conversation_key = query.text("conversation_key").map(str::to_owned);
    if conversation_key.as_deref().is_some_and(|key| !is_key(key)) {
        return Err(Error::invalid_parameter(
            "conversation_key",
            &format!("conversation_key is {CONVERSATION_KEY_HINT}."),
        ));
    }
    let filter = ConversationFilter { endpoint_id: query.value("endpoint_id", SERVICE_ID_HINT)?, conversation_key };
    let paging = PageRequest::read("conversations", &caller, &query)?;
    Ok(paging.page(conversations::list(&api.store, &caller, &filter, paging.before, paging.limit).await?))
}

submission_answers!(SayAnswers = examples::said());
refusals!(
    SayRefusals = COMMON_CODES,
    JSON_BODY_CODES,
    NEW_WORK_CODES,
    &[
        Code::NotFound,
        Code::GenerationMismatch,
        Code::ConversationBusy,
        Code::QueueFull,
        Code::AccessPaused,
        Code::LoopDetected,
    ]
);

/// Sends a message.
///
/// It becomes a run that sees what was said in the same generation before. A conversation works on one run at a time:
/// `on_busy` says what becomes of a message that comes meanwhile. `wait` and `Accept` do what they do when a run is
/// submitted. Needs the scopes `conversations:write` and `runs:write`, `runs:control` to interrupt, and `runs:read` to wait
/// or stream.
#[utoipa::path(
    post,
    path = "/api/v1/conversations/{conversation_id}/messages",
    operation_id = "send_message",
    tag = "Conversations",
    params(
        ("conversation_id" = ConversationId, Path, description = "The conversation."),
        ("wait" = Option<u32>, Query, minimum = 0, maximum = 60, description = "Seconds to wait for the run's end at most."),
    ),
    request_body(content = Message, description = "What is said.", example = json!(examples::message())),
    responses(
        SayAnswers,
        SayRefusals,
    ),
)]
pub(super) async fn say(
    State(api): State<Arc<Api>>,
    authenticated: AuthenticatedRequest,
    conversation_id: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
    ReceivedRequest { headers, body }: ReceivedRequest,
) -> Result<Response, Error> {
    api.admits()?;
    let caller = authenticated.authorise_work(&[Scope::ConversationsWrite, Scope::RunsWrite])?;
    let idempotency_key = caller::idempotency_key(&headers)?;
    let answer = SubmissionAnswer::read(&caller, query.as_deref(), &headers)?;
    let mut incoming = RequestBody::of(&api, &caller, &headers, body)?;
    let body::MessageBody { submission, expected_generation, on_busy } = body::message(&mut incoming).await?;
    drop(incoming);
    let conversation_id: ConversationId = identifier(conversation_id)?;
    // The service follows from the conversation.
    let request = request(EndpointId::from(uuid::Uuid::nil()), idempotency_key, submission, &headers)?;
    let admitted = api.admission.say(&caller, conversation_id, expected_generation, on_busy, request).await?;
    Ok(answer.of(&api, &caller, admitted).await)
}

refusals!(MessagesRefusals = COMMON_CODES, &[Code::NotFound, Code::InvalidInput, Code::InvalidCursor]);

/// Lists the messages of a conversation, newest first.
///
/// Each is the run that it became, with what was said and what was answered. A page ends early when its texts are
/// long. Needs the scopes `conversations:read` and `runs:read`.
#[utoipa::path(
    get,
    path = "/api/v1/conversations/{conversation_id}/messages",
    operation_id = "list_messages",
    tag = "Conversations",
    params(
        ("conversation_id" = ConversationId, Path, description = "The conversation."),
        ("generation" = Option<u32>, Query, minimum = 1, description = "Only messages of this generation."),
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 100, description = "Entries in a page; 20 if absent."),
        ("cursor" = Option<String>, Query, description = "The `next_cursor` of the page before, with the same filters."),
    ),
    responses(
        (status = 200, description = "A page.", body = RunPage, example = json!(examples::messages())),
        MessagesRefusals,
    ),
)]
pub(super) async fn messages(
    State(api): State<Arc<Api>>,
    authenticated: AuthenticatedRequest,
    conversation_id: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
) -> Result<Json<ListPage<Run>>, Error> {
    let caller = authenticated.authorise_work(&[Scope::ConversationsRead, Scope::RunsRead])?.within_rate()?;
    let conversation_id: ConversationId = identifier(conversation_id)?;
    let query = QueryParameters::read(query.as_deref(), &["generation", "limit", "cursor"])?;
    let generation = match query.text("generation") {
        None => None,
        Some(_) => Some(query.number("generation", 1..=i32::MAX.unsigned_abs(), 1)?),
    };
    let paging = PageRequest::read(&format!("messages of {conversation_id}"), &caller, &query)?;
    let page = MessagePage { conversation_id, generation, before: paging.before, limit: paging.limit };
    Ok(paging.page(conversations::messages(&api.store, &caller, &page).await?))
}

refusals!(
    ResetRefusals = COMMON_CODES,
    JSON_BODY_CODES,
    NEW_WORK_CODES,
    &[Code::NotFound, Code::GenerationMismatch, Code::ConversationBusy]
);

/// Resets a conversation.
///
/// The device forgets what was said, and the next generation begins; files and other effects stay. While the device is
/// away the operation waits. Needs the scope `conversations:control`.
#[utoipa::path(
    post,
    path = "/api/v1/conversations/{conversation_id}/reset",
    operation_id = "reset_conversation",
    tag = "Conversations",
    params(("conversation_id" = ConversationId, Path, description = "The conversation.")),
    request_body(
        content = NewReset,
        description = "The generation that is meant.",
        example = json!({ "expected_generation": 1 }),
    ),
    responses(
        (
            status = 202,
            description = "The operation: a new one, or the reset that is under way already.",
            body = ControlOperation,
            headers(
                ("Location" = String, description = "The path of the operation."),
                ("Idempotency-Replayed" = String, description = "`true`: the request was made before."),
            ),
            example = json!(examples::reset()),
        ),
        ResetRefusals,
    ),
)]
pub(super) async fn reset(
    State(api): State<Arc<Api>>,
    authenticated: AuthenticatedRequest,
    conversation_id: Result<Path<String>, PathRejection>,
    ReceivedRequest { headers, body }: ReceivedRequest,
) -> Result<Response, Error> {
    api.admits()?;
    let caller = authenticated.authorise_work(&[Scope::ConversationsControl])?;
    let idempotency_key = caller::idempotency_key(&headers)?;
    let mut incoming = RequestBody::of(&api, &caller, &headers, body)?;
    let (fingerprint, mut members) = incoming.members(&body::RESET_MEMBERS).await?;
    let mut flaws = Vec::new();
    let Some(expected) = body::generation(members.remove("expected_generation"), &mut flaws) else {
        return Err(Refusal::Invalid(flaws).into());
    };
    let request = operations::RequestIdentity { idempotency_key, fingerprint };
    let conversation_id: ConversationId = identifier(conversation_id)?;
    Ok(underway(operations::reset(&api.store, &caller, conversation_id, expected, request).await?))
}

/// The rule for a conversation key.
const CONVERSATION_KEY_HINT: &str = "1 to 255 characters, none of them a control character";

fn is_key(text: &str) -> bool {
    (1..=255).contains(&text.chars().count()) && !text.contains(char::is_control)
}

/// A text that names something.
fn text(value: Option<Value>, pointer: &str, flaws: &mut Vec<Flaw>) -> String {
    match value {
        Some(Value::String(text)) if is_key(&text) => return text,
        Some(Value::String(_)) => flaws.push(Flaw::new(pointer, "out_of_range", CONVERSATION_KEY_HINT)),
        Some(_) => flaws.push(Flaw::new(pointer, "wrong_type", "a string")),
        None => flaws.push(Flaw::new(pointer, "required", "a string")),
    }
    String::new()
}
