//! The endpoint for other systems' events: the signature is the authority, over the bytes as received.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Extension, Path, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use deskgate_protocol::{HookId, RunId};
use serde::Serialize;
use utoipa::ToSchema;

use super::error::Error;
use super::openapi::examples;
use super::openapi::refusals::refusals;
use super::problems::Code;
use super::rates::RateLimitSlot;
use super::request_body::{ReceivedRequest, bytes};
use super::runs::identifier;
use super::{Api, caller};
use crate::domain::refusal::Refusal;
use crate::domain::webhooks::Headers;
use crate::domain::webhooks::reception::{self, MAX_EVENT_BYTES};

/// When a sender may try again whose conversation is busy.
const BUSY_RETRY_AFTER_S: &str = "30";

/// An event that is accepted.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct AcceptedEvent {
    /// Its run, made now or when the event came first.
    run_id: RunId,
}

/// An event that makes no run, and need not come again.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct IgnoredEvent {
    /// Always true.
    ignored: bool,
    /// Why.
    reason: String,
}

refusals!(
    ReceiveRefusals = &[
        Code::MalformedRequest,
        Code::MalformedJson,
        Code::CredentialInUrl,
        Code::SignatureInvalid,
        Code::ApplicationDisabled,
        Code::NotFound,
        Code::BodyTimeout,
        Code::ConversationBusy,
        Code::GenerationMismatch,
        Code::PayloadTooLarge,
        Code::UnsupportedMediaType,
        Code::MappingFailed,
        Code::RateLimited,
        Code::QueueFull,
        Code::HeadTooLarge,
        Code::Internal,
        Code::AccessPaused,
        Code::StoreUnavailable,
        Code::Draining,
    ]
);

/// Receives an event.
///
/// Another system sends it, signed as the webhook's owner has chosen. No application key is needed. An event that comes again
/// is answered with the run that it made first.
#[utoipa::path(
    post,
    path = "/api/v1/webhooks/{hook_id}",
    operation_id = "receive_event",
    tag = "Webhooks",
    params(("hook_id" = HookId, Path, description = "The webhook, as its address says.")),
    request_body(
        content = serde_json::Value,
        content_type = "application/json",
        description = "Whatever the other system says, at most 256 KiB.",
        example = json!(examples::event()),
    ),
    responses(
        (status = 202, description = "The event's run is stored.", body = AcceptedEvent, example = json!(examples::accepted_event())),
        (status = 200, description = "The event is not wanted.", body = IgnoredEvent, example = json!(examples::ignored_event())),
        ReceiveRefusals,
    ),
)]
pub(super) async fn receive(
    State(api): State<Arc<Api>>,
    Extension(note): Extension<RateLimitSlot>,
    hook_id: Result<Path<String>, PathRejection>,
    ReceivedRequest { headers, mut body }: ReceivedRequest,
) -> Result<Response, Error> {
    api.admits()?;
    let _room = api.reception.room()?;
    let body = bytes(&headers, &mut body, api.listener.body, MAX_EVENT_BYTES).await?;
    // An invalid identifier looks like an unknown one.
    let hook_id: Option<HookId> = identifier(hook_id).ok();
    let signed: Headers<'_> = headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    let genuine = api.reception.authenticate(hook_id, signed, &body).await?;
    note.say("webhook", genuine.rate_status());
    answer(api.reception.take(genuine, caller::traceparent(&headers)).await)
}

fn answer(taken: Result<reception::ReceptionOutcome, Refusal>) -> Result<Response, Error> {
    match taken {
        Ok(reception::ReceptionOutcome::Run(run_id)) => {
            Ok((StatusCode::ACCEPTED, Json(AcceptedEvent { run_id })).into_response())
        }
        Ok(reception::ReceptionOutcome::Ignored(reason)) => {
            Ok(Json(IgnoredEvent { ignored: true, reason }).into_response())
        }
        Err(refusal @ (Refusal::ConversationBusy { .. } | Refusal::GenerationMismatch { .. })) => {
            let mut response = Error::from(refusal).into_response();
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static(BUSY_RETRY_AFTER_S));
            Ok(response)
        }
        Err(refusal) => Err(refusal.into()),
    }
}
