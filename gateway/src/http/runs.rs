//! Runs: submitting one, reading one.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::management::Scope;
use deskgate_protocol::run::Run;
use deskgate_protocol::{EndpointId, RunId};

use super::error::Error;
use super::openapi::bodies::Submission;
use super::openapi::examples;
use super::openapi::refusals::{COMMON_CODES, JSON_BODY_CODES, NEW_WORK_CODES, refusals};
use super::openapi::submission_answers::submission_answers;
use super::problems::Code;
use super::query::QueryParameters;
use super::request_body::{ReceivedRequest, RequestBody};
use super::submission_answer::SubmissionAnswer;
use super::{Api, body, caller};
use crate::domain::access::{AuthenticatedRequest, Caller};
use crate::domain::admission::RunRequest;
use crate::domain::refusal::Refusal;
use crate::domain::runs;

submission_answers!(SubmitAnswers = examples::accepted());
refusals!(
    SubmitRefusals = COMMON_CODES,
    JSON_BODY_CODES,
    NEW_WORK_CODES,
    &[Code::NotFound, Code::QueueFull, Code::AccessPaused, Code::SchemaUnsupported, Code::LoopDetected]
);

/// Submits a run.
///
/// 202 means that the run is stored durably, not that it succeeded: read it until its `phase` is `final`. A repetition
/// under the same `Idempotency-Key` answers with the same run as it is now. With `wait` the answer is held back until the run has
/// ended, which is 200, or the time is over. If `Accept` names `text/event-stream`, the answer is the run's stream, as `GET`
/// of its events gives it. Closing the connection cancels nothing. Needs the scope `runs:write`, and `runs:read` to wait or stream.
#[utoipa::path(
    post,
    path = "/api/v1/agent-endpoints/{endpoint_id}/runs",
    operation_id = "submit_run",
    tag = "Runs",
    params(
        ("endpoint_id" = EndpointId, Path, description = "The service, as the directory names it."),
        ("wait" = Option<u32>, Query, minimum = 0, maximum = 60, description = "Seconds to wait for the run's end at most."),
    ),
    request_body(content = Submission, description = "What is to be done.", example = json!(examples::submission())),
    responses(
        SubmitAnswers,
        SubmitRefusals,
    ),
)]
pub(super) async fn submit(
    State(api): State<Arc<Api>>,
    authenticated: AuthenticatedRequest,
    endpoint_id: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
    ReceivedRequest { headers, body }: ReceivedRequest,
) -> Result<Response, Error> {
    api.admits()?;
    let caller = authenticated.authorise_work(&[Scope::RunsWrite])?;
    let idempotency_key = caller::idempotency_key(&headers)?;
    let answer = SubmissionAnswer::read(&caller, query.as_deref(), &headers)?;
    let mut incoming = RequestBody::of(&api, &caller, &headers, body)?;
    let submitted = body::submission(&mut incoming).await?;
    // Its place among the bodies of the key is free while the answer waits.
    drop(incoming);
    let request = request(identifier(endpoint_id)?, idempotency_key, submitted, &headers)?;
    let admitted = api.admission.admit(&caller, request).await?;
    Ok(answer.of(&api, &caller, admitted).await)
}

/// A submission as the admission service takes it.
///
/// # Errors
/// Assistants may be calling each other in a circle.
pub(super) fn request(
    endpoint_id: EndpointId,
    idempotency_key: String,
    submitted: body::SubmissionBody,
    headers: &HeaderMap,
) -> Result<RunRequest, Error> {
    Ok(RunRequest {
        endpoint_id,
        idempotency_key,
        fingerprint: submitted.fingerprint,
        input: submitted.input,
        files: submitted.files,
        input_json: submitted.input_json,
        output: submitted.output,
        metadata: submitted.metadata,
        queue_ttl_s: submitted.queue_ttl_s,
        max_duration_s: submitted.max_duration_s,
        traceparent: caller::traceparent(headers),
        depth: caller::depth(headers)?,
    })
}

refusals!(ReadRefusals = COMMON_CODES, &[Code::NotFound, Code::RunPurged, Code::InvalidInput]);

/// Reads a run.
///
/// With `wait` the answer is held back until something changes or the time is over, whichever comes first. Needs the
/// scope `runs:read`.
#[utoipa::path(
    get,
    path = "/api/v1/runs/{run_id}",
    operation_id = "read_run",
    tag = "Runs",
    params(
        ("run_id" = RunId, Path, description = "The run, as the submission's answer names it."),
        ("wait" = Option<u32>, Query, minimum = 0, maximum = 60, description = "Seconds to wait for a change at most."),
        ("If-None-Match" = Option<String>, Header, description = "An `ETag` that was read before."),
    ),
    responses(
        (
            status = 200,
            description = "The run as it is now.",
            body = Run,
            headers(("ETag" = String, description = "Changes whenever the record does.")),
            example = json!(examples::succeeded()),
        ),
        (
            status = 304,
            description = "The record is the one that `If-None-Match` names.",
            headers(("ETag" = String, description = "The same as before.")),
        ),
        ReadRefusals,
    ),
)]
pub(super) async fn read(
    State(api): State<Arc<Api>>,
    authenticated: AuthenticatedRequest,
    run_id: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Error> {
    let caller = authenticated.authorise(Scope::RunsRead)?;
    let run_id = identifier(run_id)?;
    let wait = wait(query.as_deref())?;
    let run = match wait {
        Duration::ZERO => runs::read(&api.store, &caller, run_id, wait).await?,
        _ => changed(&api, &caller, run_id, wait).await?,
    };
    let record = serde_json::to_vec(&run).map_err(|_| Refusal::Internal)?;
    let etag = etag(&record);
    let unchanged = headers.get_all(header::IF_NONE_MATCH).iter().any(|sent| names(sent, &etag));
    let mut response = match unchanged {
        true => StatusCode::NOT_MODIFIED.into_response(),
        false => ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], record).into_response(),
    };
    response.headers_mut().insert(header::ETAG, etag);
    Ok(response)
}

/// The run once it has changed or the time is over; sooner when the gateway stops or the key is no longer valid.
async fn changed(api: &Api, caller: &Caller, run_id: RunId, wait: Duration) -> Result<Run, Refusal> {
    let waiting = api.streams.wait(caller)?;
    tokio::select! {
        run = runs::read(&api.store, caller, run_id, wait) => run,
        refusal = waiting.ended() => Err(refusal),
        () = api.draining.cancelled() => runs::read(&api.store, caller, run_id, Duration::ZERO).await,
    }
}

/// The identifier in a path. An invalid one names nothing.
pub(super) fn identifier<T: FromStr>(path: Result<Path<String>, PathRejection>) -> Result<T, Refusal> {
    path.ok().and_then(|Path(text)| text.parse().ok()).ok_or(Refusal::NotFound)
}

/// A weak validator over the whole record, as it is sent.
fn etag(record: &[u8]) -> HeaderValue {
    let text = format!("W/\"{}\"", &Sha256Digest::of(record).to_string()[..32]);
    HeaderValue::from_str(&text).expect("hexadecimal digits in quotes")
}

/// Whether an If-None-Match names this validator: a list of them, or `*` (RFC 9110, section 13.1.2).
fn names(sent: &HeaderValue, etag: &HeaderValue) -> bool {
    let opaque = |text: &str| text.trim().trim_start_matches("W/").to_owned();
    match (sent.to_str(), etag.to_str()) {
        (Ok(sent), Ok(etag)) => sent.trim() == "*" || sent.split(',').any(|one| opaque(one) == opaque(etag)),
        _ => false,
    }
}

/// Seconds that a caller may wait for a change.
pub(super) const MAX_WAIT_S: u32 = 60;

fn wait(query: Option<&str>) -> Result<Duration, Error> {
    let seconds = QueryParameters::read(query, &["wait"])?.number("wait", 0..=MAX_WAIT_S, 0)?;
    Ok(Duration::from_secs(seconds.into()))
}
