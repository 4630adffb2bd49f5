//! Errors of requests as problem documents (RFC 9457): their codes and details.

use axum::body::Body;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use super::problems::{Code, RetryAdvice};
use super::{mcp, openai};
use deskgate_protocol::RunId;
use deskgate_protocol::file::MAX_FILE_BYTES;
use deskgate_protocol::run::Run;

use crate::domain::refusal::{Flaw, PriorResult, Refusal};

/// The member that says how many bytes there are of what a range was asked of. Answers with it have `Content-Range` too.
const RANGE_SIZE_MEMBER: &str = "size_bytes";

/// The most characters of a caller's own text in a sentence.
const MAX_SHOWN_CHARS: usize = 80;

/// A failed request's answer. `request_id` is filled in when the answer is sent.
#[derive(Clone, Debug)]
pub struct Error {
    code: Code,
    detail: String,
    members: Map<String, Value>,
    /// The content coding that would have been taken.
    coding: Option<&'static str>,
}

impl Error {
    fn new(code: Code, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into(), members: Map::new(), coding: None }
    }

    /// What kind of problem it is.
    pub fn code(&self) -> Code {
        self.code
    }

    /// The sentence for people.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// What is wrong, place by place; null if it is no matter of places.
    pub fn errors(&self) -> &Value {
        self.members.get("errors").unwrap_or(&Value::Null)
    }

    /// Whether the same request may succeed later.
    pub fn is_retryable(&self) -> bool {
        self.code.facts().retry != RetryAdvice::No
    }

    fn with(mut self, member: &str, value: impl Into<Value>) -> Self {
        self.members.insert(member.to_owned(), value.into());
        self
    }

    /// The object does not exist, or the caller may not see it.
    pub fn not_found() -> Self {
        Refusal::NotFound.into()
    }

    /// The model of a request names no service.
    pub fn no_such_model(name: &str) -> Self {
        let name: String = name.chars().take(MAX_SHOWN_CHARS).collect();
        let detail = format!(
            "No service that this key may use has the identifier or the name {name:?}. GET /openai/v1/models lists them."
        );
        let flaw = json!([{ "pointer": "/model", "code": "not_found", "detail": detail }]);
        Self::new(Code::NotFound, detail).with("errors", flaw)
    }

    /// An answer that was held back for as long as it may be.
    pub fn run_still_going(run_id: RunId) -> Self {
        let detail = format!(
            "The run was accepted and goes on. Nothing has to be sent again: read it with GET /api/v1/runs/{run_id}."
        );
        Self::new(Code::RunStillGoing, detail).with("run_id", run_id.to_string())
    }

    /// A run that ended without the answer that was asked for.
    pub fn run_unsuccessful(run: &Run) -> Self {
        let why = openai::of_run(run.state, run.error.as_ref()).unwrap_or_default();
        let message = why["message"].as_str().unwrap_or("The run ended without an answer.");
        let error = Self::new(Code::RunUnsuccessful, message).with("run_id", run.run_id.to_string());
        run.error.iter().fold(error, |error, why| error.with("run_error", json!(why)))
    }

    /// No call has this path.
    pub fn path_not_found() -> Self {
        let detail = "No call has this path. Compare it with those in the reference at /api/v1/docs.";
        Self::new(Code::PathNotFound, detail)
    }

    /// A request that is not HTTP as it should be.
    pub fn malformed_request(detail: &str) -> Self {
        Self::new(Code::MalformedRequest, detail)
    }

    /// The address exists, the method does not.
    pub fn method_not_allowed(method: &Method) -> Self {
        let detail = format!("This address does not take {method}. The Allow header names what it takes.");
        Self::new(Code::MethodNotAllowed, detail)
    }

    /// A page of a browser that may not ask.
    pub fn origin_not_allowed() -> Self {
        let detail = "The request has the header Origin: it comes from a page in a browser. Only programs call this address, and pages \
                      of the computer that the gateway runs on.";
        Self::new(Code::OriginNotAllowed, detail)
    }

    /// A key in the query string, where it would be logged.
    pub fn credential_in_url() -> Self {
        let detail = "A credential was sent in the URL, where it can leak into logs. Send it in the Authorization header, \
                      and roll the key that was sent.";
        Self::new(Code::CredentialInUrl, detail)
    }

    /// The Accept header names no available form.
    pub fn not_acceptable() -> Self {
        let detail = "This address answers with text/event-stream or application/json, and Accept names neither.";
        Self::new(Code::NotAcceptable, detail)
    }

    /// The Content-Type is missing or wrong.
    pub fn unsupported_media_type() -> Self {
        let detail = "The body must be JSON: send Content-Type: application/json.";
        Self::new(Code::UnsupportedMediaType, detail)
    }

    /// A form where the body is a file.
    pub fn form_for_file() -> Self {
        let detail = "The body must be the file itself and no form: with curl --data-binary @FILE, and not --form.";
        Self::new(Code::UnsupportedMediaType, detail)
    }

    /// A Content-Type that was sent more than once.
    pub fn content_type_repeated() -> Self {
        Self::new(
            Code::UnsupportedMediaType,
            "Content-Type was sent more than once. Send Content-Type: application/json.",
        )
    }

    /// A body that is compressed.
    pub fn unsupported_content_encoding() -> Self {
        let detail = "The body must not be compressed: send it without Content-Encoding.";
        Self { coding: Some("identity"), ..Self::new(Code::UnsupportedMediaType, detail) }
    }

    /// Work of an assistant before which `depth` others stand.
    pub fn loop_detected(depth: u8) -> Self {
        let detail = format!(
            "Before this run would stand {depth} assistants that call each other. They may be calling in a circle, so it was not \
             accepted."
        );
        Self::new(Code::LoopDetected, detail)
    }

    /// A header whose value cannot be used.
    pub fn invalid_header(name: &str, detail: &str) -> Self {
        let errors = json!([{ "pointer": format!("{name}:"), "code": "out_of_range", "detail": detail }]);
        Self::new(Code::InvalidInput, detail).with("errors", errors)
    }

    /// A body that ended before it was complete.
    pub fn body_incomplete() -> Self {
        Self::new(Code::BodyIncomplete, "The body ended before it was complete. Nothing was stored; send it again.")
    }

    /// A range that begins behind the end.
    pub fn range_not_satisfiable(size: u64) -> Self {
        let detail = format!("The range begins behind the end: there are {size} bytes.");
        Self::new(Code::RangeNotSatisfiable, detail).with(RANGE_SIZE_MEMBER, size)
    }

    /// A body over the limit.
    pub fn payload_too_large(limit: usize) -> Self {
        Self::new(Code::PayloadTooLarge, format!("The body is larger than {limit} bytes.")).with("limit_bytes", limit)
    }

    /// A head over the limit.
    pub fn head_too_large(limit: usize) -> Self {
        let detail = format!("The address and the headers are together larger than {limit} bytes.");
        Self::new(Code::HeadTooLarge, detail).with("limit_bytes", limit)
    }

    /// A head over one of the two limits; which of them is not known.
    pub fn head_too_large_or_long(limit: usize, headers: usize) -> Self {
        let detail = format!(
            "The address and the headers are together larger than {limit} bytes, or there are more than {headers} headers."
        );
        Self::new(Code::HeadTooLarge, detail).with("limit_bytes", limit)
    }

    /// More requests at once than one source may have.
    pub fn too_many_at_once() -> Self {
        let detail = "There are too many requests of this address under way. Nothing was accepted; try again.";
        Self::new(Code::RateLimited, detail)
    }

    /// A body that did not arrive in time.
    pub fn body_timeout(seconds: u64) -> Self {
        Self::new(Code::BodyTimeout, format!("The body did not arrive within {seconds} seconds."))
    }

    /// A body that is not JSON.
    pub fn malformed_json(detail: impl Into<String>) -> Self {
        Self::new(Code::MalformedJson, detail)
    }

    /// A parameter in the query string that cannot be used.
    pub fn invalid_parameter(name: &str, detail: &str) -> Self {
        let flaw = json!([{ "pointer": format!("?{name}"), "code": "invalid_value", "detail": detail }]);
        Self::new(Code::InvalidInput, detail).with("errors", flaw)
    }

    /// A cursor that does not belong to this list.
    pub fn invalid_cursor() -> Self {
        let detail = "The cursor does not belong to this list with these filters. Begin the list again without it.";
        Self::new(Code::InvalidCursor, detail)
    }

    /// More than one place in a run's events.
    pub fn last_event_id_repeated() -> Self {
        Self::new(
            Code::InvalidCursor,
            "Last-Event-ID was sent more than once. Send the id of the last event that you received.",
        )
    }

    /// A top-level member that callers cannot set.
    pub fn unknown_field(name: &str) -> Self {
        let pointer = format!("/{}", name.replace('~', "~0").replace('/', "~1"));
        let detail = format!("{name:?} is not a member of this request. Business content goes into \"input\".");
        let flaw = json!([{ "pointer": pointer, "code": "unknown_field", "detail": detail }]);
        Self::new(Code::UnknownField, detail).with("errors", flaw)
    }

    /// The Idempotency-Key is missing.
    pub fn idempotency_key_missing() -> Self {
        let detail = "This request needs the header Idempotency-Key, so that it can be repeated safely: 1 to 255 visible \
                      ASCII characters that you choose.";
        Self::new(Code::IdempotencyKeyMissing, detail)
    }

    /// The Idempotency-Key is not usable.
    pub fn idempotency_key_invalid() -> Self {
        let detail =
            "Idempotency-Key must be sent once and hold 1 to 255 visible ASCII characters, bare or in double quotes.";
        Self::new(Code::IdempotencyKeyInvalid, detail)
    }
}

/// What is wrong, place by place.
fn errors(flaws: &[Flaw]) -> Vec<Value> {
    let error = |flaw: &Flaw| json!({ "pointer": flaw.pointer, "code": flaw.code, "detail": flaw.detail });
    flaws.iter().map(error).collect()
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        let detail = refusal.to_string();
        let new = |code| Self::new(code, detail.clone());
        match refusal {
            Refusal::CredentialMissing => new(Code::CredentialMissing),
            Refusal::CredentialInvalid { .. } => new(Code::CredentialInvalid),
            Refusal::ApplicationDisabled => new(Code::ApplicationDisabled),
            Refusal::InsufficientScope(scope) => new(Code::InsufficientScope).with("required_scope", scope.as_str()),
            Refusal::SubjectMissing => new(Code::SubjectMissing),
            Refusal::SubjectInvalid => new(Code::SubjectInvalid),
            Refusal::SubjectNotAllowed => new(Code::SubjectNotAllowed),
            Refusal::NotFound => new(Code::NotFound),
            Refusal::RunPurged => new(Code::RunPurged),
            Refusal::RunNotEnded => new(Code::RunNotEnded),
            Refusal::AccessPaused | Refusal::ServiceDisabled => new(Code::AccessPaused),
            Refusal::IdempotencyKeyReused { existing } => {
                let (member, id) = match existing {
                    PriorResult::Run(id) => ("existing_run_id", id.to_string()),
                    PriorResult::Conversation(id) => ("existing_conversation_id", id.to_string()),
                    PriorResult::Operation(id) => ("existing_operation_id", id.to_string()),
                    PriorResult::File(id) => ("existing_file_id", id.to_string()),
                };
                new(Code::IdempotencyKeyReused).with(member, id)
            }
            Refusal::GenerationMismatch { current_generation } => {
                new(Code::GenerationMismatch).with("current_generation", current_generation)
            }
            Refusal::ConversationBusy { active_run_id, operation_id, waiting_messages } => {
                let busy = new(Code::ConversationBusy);
                let busy = active_run_id.into_iter().fold(busy, |e, id| e.with("active_run_id", id.to_string()));
                let busy = operation_id.into_iter().fold(busy, |e, id| e.with("operation_id", id.to_string()));
                waiting_messages.into_iter().fold(busy, |e, waiting| e.with("waiting_messages", waiting))
            }
            Refusal::ConversationMovedOn { newest } => {
                newest.into_iter().fold(new(Code::ConversationMovedOn), |e, id| e.with("newest_run_id", id.to_string()))
            }
            Refusal::AttemptMismatch { current_attempt } => {
                new(Code::AttemptMismatch).with("current_attempt", current_attempt)
            }
            Refusal::RateLimited => new(Code::RateLimited),
            Refusal::QueueFull { .. } => new(Code::QueueFull),
            Refusal::TooManyFailures | Refusal::TooManyWaits { .. } => new(Code::RateLimited),
            Refusal::TooManyBodies => new(Code::RateLimited),
            Refusal::TooManyStreams { .. } | Refusal::TooManyDownloads { .. } => new(Code::RateLimited),
            Refusal::InvalidCursor => new(Code::InvalidCursor),
            Refusal::Invalid(flaws) => new(Code::InvalidInput).with("errors", errors(&flaws)),
            Refusal::SchemaUnsupported(flaw) => new(Code::SchemaUnsupported).with("errors", errors(&[flaw])),
            Refusal::InvalidMediaType => Self::invalid_header("Content-Type", &detail),
            Refusal::InvalidFileName { .. } => new(Code::InvalidName),
            Refusal::FileTooLarge => new(Code::PayloadTooLarge).with("limit_bytes", MAX_FILE_BYTES),
            Refusal::DigestMismatch => new(Code::DigestMismatch),
            Refusal::TooManyUploads { .. } => new(Code::TooManyUploads),
            Refusal::StorageFull { limit } => new(Code::StorageFull).with("limit_bytes", limit),
            Refusal::FileInUse => new(Code::FileInUse),
            Refusal::ArtifactMissing => new(Code::ArtifactMissing),
            Refusal::StorageUnavailable => new(Code::StorageUnavailable),
            Refusal::SignatureInvalid => new(Code::SignatureInvalid),
            Refusal::EventNotJson => new(Code::MalformedJson),
            Refusal::MappingFailed { .. } => new(Code::MappingFailed),
            Refusal::TooManyEvents => new(Code::RateLimited),
            Refusal::StoreUnavailable => new(Code::StoreUnavailable),
            Refusal::Draining => new(Code::Draining),
            Refusal::Internal => new(Code::Internal),
        }
    }
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        // The body is written when the request's identifier is known.
        let mut response = self.code.facts().status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// Writes the problem document of an error, now that the request's identifier is known; for SDKs of OpenAI with the member that
/// they read, and for a request of MCP in an answer to it.
pub(super) fn complete(response: &mut Response, request_id: &HeaderValue, is_openai: bool) {
    let Some(error) = response.extensions_mut().remove::<Error>() else { return };
    let (code, facts) = (error.code.as_str(), error.code.facts());
    let mut document = json!({
        "type": format!("/problems/{code}"),
        "title": facts.title,
        "status": facts.status.as_u16(),
        "detail": error.detail,
        "code": code,
        "request_id": request_id.to_str().unwrap_or_default(),
        "retryable": error.is_retryable(),
    });
    let range_size = error.members.get(RANGE_SIZE_MEMBER);
    let content_range = range_size.and_then(|size| HeaderValue::from_str(&format!("bytes */{size}")).ok());
    if let Value::Object(members) = &mut document {
        members.extend(error.members);
    }
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    headers.remove(header::CONTENT_LENGTH);
    if facts.status == StatusCode::UNAUTHORIZED {
        let key = error.code != Code::SignatureInvalid;
        let scheme = if key { "Bearer" } else { "Webhook-Signature" };
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(scheme));
    }
    if error.code == Code::HeadTooLarge {
        // A client that sends such a head is likely to send more.
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    if is_openai {
        openai::write_error(&mut document, facts.status, headers);
    }
    if let RetryAdvice::After(seconds) = facts.retry {
        headers.insert(header::RETRY_AFTER, HeaderValue::from_static(seconds));
    }
    if let Some(range) = content_range {
        headers.insert(header::CONTENT_RANGE, range);
    }
    if let Some(coding) = error.coding {
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(coding));
    }
    if let Some(mcp::RequestNumber(number)) = response.extensions_mut().remove() {
        document = mcp::in_answer(&number, document);
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    *response.body_mut() = Body::from(document.to_string());
}
