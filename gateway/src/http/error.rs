//! Every refusal as a problem document (RFC 9457): which status, which code, what may be said.

use axum::body::Body;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use crate::domain::refusal::{Existing, Refusal};

/// An answer that is no success. `request_id` is filled in when the answer leaves.
#[derive(Clone, Debug)]
pub struct Error {
    status: StatusCode,
    code: &'static str,
    title: &'static str,
    detail: String,
    retryable: bool,
    members: Map<String, Value>,
}

impl Error {
    fn new(status: StatusCode, code: &'static str, title: &'static str, detail: impl Into<String>) -> Self {
        Self { status, code, title, detail: detail.into(), retryable: false, members: Map::new() }
    }

    fn retryable(mut self) -> Self {
        self.retryable = true;
        self
    }

    fn with(mut self, member: &str, value: impl Into<Value>) -> Self {
        self.members.insert(member.to_owned(), value.into());
        self
    }

    /// Nothing there, or nothing this caller may see.
    pub fn not_found() -> Self {
        Refusal::NotFound.into()
    }

    /// The address exists, the method does not.
    pub fn method_not_allowed(method: &Method) -> Self {
        let detail = format!("This address does not take {method}. The Allow header names what it takes.");
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "Method not allowed", detail)
    }

    /// A key in the query string, where it would be logged.
    pub fn credential_in_url() -> Self {
        let detail = "A credential was sent in the URL, where it can leak into logs. Send it in the Authorization header, \
                      and roll the key that was sent.";
        Self::new(StatusCode::BAD_REQUEST, "credential_in_url", "Credential in the URL", detail)
    }

    /// No or a wrong Content-Type.
    pub fn unsupported_media_type() -> Self {
        let detail = "The body must be JSON: send Content-Type: application/json.";
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", "Unsupported media type", detail)
    }

    /// A body over the limit.
    pub fn payload_too_large(limit: usize) -> Self {
        let detail = format!("The body is larger than {limit} bytes.");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "payload_too_large", "Payload too large", detail)
            .with("limit_bytes", limit)
    }

    /// A body that did not arrive in time.
    pub fn body_timeout(seconds: u64) -> Self {
        let detail = format!("The body did not arrive within {seconds} seconds.");
        Self::new(StatusCode::REQUEST_TIMEOUT, "body_timeout", "Body too slow", detail).retryable()
    }

    /// A body that is not JSON.
    pub fn malformed_json(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "malformed_json", "Malformed JSON", detail)
    }

    /// A parameter in the query string that cannot be used.
    pub fn invalid_parameter(name: &str, detail: &str) -> Self {
        let flaw = json!([{ "pointer": format!("?{name}"), "code": "invalid_value", "detail": detail }]);
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_input", "Invalid input", detail).with("errors", flaw)
    }

    /// A top-level member that callers cannot set.
    pub fn unknown_field(name: &str) -> Self {
        let pointer = format!("/{}", name.replace('~', "~0").replace('/', "~1"));
        let detail = format!("{name:?} is not a member of this request. Business content goes into \"input\".");
        let flaw = json!([{ "pointer": pointer, "code": "unknown_field", "detail": detail }]);
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "unknown_field", "Unknown field", detail).with("errors", flaw)
    }

    /// No Idempotency-Key.
    pub fn idempotency_key_missing() -> Self {
        let detail = "A request that creates work needs an Idempotency-Key, so that it can be repeated safely.";
        Self::new(StatusCode::BAD_REQUEST, "idempotency_key_missing", "Idempotency-Key missing", detail)
    }

    /// An unusable Idempotency-Key.
    pub fn idempotency_key_invalid() -> Self {
        let detail =
            "Idempotency-Key must be sent once and hold 1 to 255 visible ASCII characters, bare or in double quotes.";
        Self::new(StatusCode::BAD_REQUEST, "idempotency_key_invalid", "Idempotency-Key invalid", detail)
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        let detail = refusal.to_string();
        let new = |status, code, title| Self::new(status, code, title, detail.clone());
        match refusal {
            Refusal::CredentialMissing => new(StatusCode::UNAUTHORIZED, "credential_missing", "Credential missing"),
            Refusal::CredentialInvalid { .. } => {
                new(StatusCode::UNAUTHORIZED, "credential_invalid", "Credential invalid")
            }
            Refusal::InsufficientScope(scope) => new(StatusCode::FORBIDDEN, "insufficient_scope", "Insufficient scope")
                .with("required_scope", scope.as_str()),
            Refusal::SubjectMissing => new(StatusCode::BAD_REQUEST, "subject_missing", "Subject missing"),
            Refusal::SubjectInvalid => new(StatusCode::BAD_REQUEST, "subject_invalid", "Subject invalid"),
            Refusal::SubjectNotAllowed => new(StatusCode::FORBIDDEN, "subject_not_allowed", "Subject not allowed"),
            Refusal::NotFound => new(StatusCode::NOT_FOUND, "not_found", "Not found"),
            Refusal::AccessPaused => new(StatusCode::SERVICE_UNAVAILABLE, "access_paused", "Access paused").retryable(),
            Refusal::IdempotencyKeyReused { existing } => {
                let (member, id) = match existing {
                    Existing::Run(id) => ("existing_run_id", id.to_string()),
                    Existing::Conversation(id) => ("existing_conversation_id", id.to_string()),
                    Existing::Operation(id) => ("existing_operation_id", id.to_string()),
                };
                new(StatusCode::CONFLICT, "idempotency_key_reused", "Idempotency-Key reused").with(member, id)
            }
            Refusal::GenerationMismatch { current_generation } => {
                new(StatusCode::CONFLICT, "generation_mismatch", "Generation mismatch")
                    .with("current_generation", current_generation)
            }
            Refusal::ConversationBusy { active_run_id, operation_id } => {
                let busy = new(StatusCode::CONFLICT, "conversation_busy", "Conversation busy").retryable();
                let busy = active_run_id.into_iter().fold(busy, |e, id| e.with("active_run_id", id.to_string()));
                operation_id.into_iter().fold(busy, |e, id| e.with("operation_id", id.to_string()))
            }
            Refusal::AttemptMismatch { current_attempt } => {
                new(StatusCode::CONFLICT, "attempt_mismatch", "Attempt mismatch")
                    .with("current_attempt", current_attempt)
            }
            Refusal::QueueFull { .. } => new(StatusCode::TOO_MANY_REQUESTS, "queue_full", "Queue full").retryable(),
            Refusal::Invalid(flaws) => {
                let errors: Vec<_> = flaws
                    .iter()
                    .map(|flaw| json!({ "pointer": flaw.pointer, "code": flaw.code, "detail": flaw.detail }))
                    .collect();
                new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_input", "Invalid input").with("errors", errors)
            }
            Refusal::StoreUnavailable => {
                new(StatusCode::SERVICE_UNAVAILABLE, "store_unavailable", "Store unavailable").retryable()
            }
            Refusal::Draining => new(StatusCode::SERVICE_UNAVAILABLE, "draining", "Draining").retryable(),
            Refusal::Internal => new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "Internal error").retryable(),
        }
    }
}

/// Seconds after which a refusal that may pass is worth another try.
fn retry_after(code: &str) -> Option<&'static str> {
    match code {
        "access_paused" => Some("60"),
        "queue_full" => Some("5"),
        "store_unavailable" => Some("2"),
        "draining" => Some("1"),
        _ => None,
    }
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        // The body is written when the request's identifier is known.
        let mut response = self.status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// Writes the problem document of a refusal, now that the request's identifier is known.
pub(super) fn complete(response: &mut Response, request_id: &HeaderValue) {
    let Some(error) = response.extensions_mut().remove::<Error>() else { return };
    let mut document = json!({
        "type": format!("/problems/{}", error.code),
        "title": error.title,
        "status": error.status.as_u16(),
        "detail": error.detail,
        "code": error.code,
        "request_id": request_id.to_str().unwrap_or_default(),
        "retryable": error.retryable,
    });
    if let Value::Object(members) = &mut document {
        members.extend(error.members);
    }
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    headers.remove(header::CONTENT_LENGTH);
    if error.status == StatusCode::UNAUTHORIZED {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    if let Some(seconds) = retry_after(error.code) {
        headers.insert(header::RETRY_AFTER, HeaderValue::from_static(seconds));
    }
    *response.body_mut() = Body::from(document.to_string());
}
