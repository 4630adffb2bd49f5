//! Control operations: stopping a run, reading the state of a stop or a reset.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use deskgate_protocol::management::Scope;
use deskgate_protocol::operation::ControlOperation;
use deskgate_protocol::{OperationId, RunId};
use serde_json::Value;

use super::created::created_response;
use super::error::Error;
use super::openapi::bodies::NewStop;
use super::openapi::examples;
use super::openapi::refusals::{COMMON_CODES, JSON_BODY_CODES, NEW_WORK_CODES, refusals};
use super::problems::Code;
use super::request_body::{ReceivedRequest, RequestBody};
use super::runs::identifier;
use super::{Api, body, caller};
use crate::domain::access::AuthenticatedRequest;
use crate::domain::operations::{self, AcceptedOperation, RequestIdentity, StopRequest};
use crate::domain::refusal::{Flaw, Refusal};

refusals!(
    StopRefusals = COMMON_CODES,
    JSON_BODY_CODES,
    NEW_WORK_CODES,
    &[Code::NotFound, Code::RunPurged, Code::AttemptMismatch]
);

/// Stops a run.
///
/// What has not started is cancelled at once. What has started is `cancelling` until the device confirms that nothing of
/// it works any more. Repeated, it answers with the same open operation. Needs the scope `runs:control`.
#[utoipa::path(
    post,
    path = "/api/v1/runs/{run_id}/stop",
    operation_id = "stop_run",
    tag = "Runs",
    params(("run_id" = RunId, Path, description = "The run, as the submission's answer names it.")),
    request_body(
        content = Option<NewStop>,
        description = "May be left out.",
        example = json!({ "reason": "no longer needed" }),
    ),
    responses(
        (
            status = 202,
            description = "The operation: a new one, or the stop that is under way already.",
            body = ControlOperation,
            headers(
                ("Location" = String, description = "The path of the operation."),
                ("Idempotency-Replayed" = String, description = "`true`: the request was made before."),
            ),
            example = json!(examples::stop()),
        ),
        StopRefusals,
    ),
)]
pub(super) async fn stop(
    State(api): State<Arc<Api>>,
    authenticated: AuthenticatedRequest,
    run_id: Result<Path<String>, PathRejection>,
    ReceivedRequest { headers, body }: ReceivedRequest,
) -> Result<Response, Error> {
    api.admits()?;
    let caller = authenticated.authorise_work(&[Scope::RunsControl])?;
    let idempotency_key = caller::idempotency_key(&headers)?;
    let mut incoming = RequestBody::of(&api, &caller, &headers, body)?;
    let (fingerprint, mut members) = incoming.optional_members(&body::STOP_MEMBERS).await?;
    let mut flaws = Vec::new();
    let expected_attempt = members.remove("expected_attempt").and_then(|value| {
        let attempt = body::whole(&value).filter(|attempt| *attempt <= body::MAX_COUNT);
        if attempt.is_none() {
            let detail = format!("a whole number from 0 to {}", body::MAX_COUNT);
            flaws.push(Flaw::new("/expected_attempt", "out_of_range", detail));
        }
        attempt
    });
    let reason = members.remove("reason").and_then(|value| reason(value, &mut flaws));
    if !flaws.is_empty() {
        return Err(Refusal::Invalid(flaws).into());
    }
    let (stop, request) = (StopRequest { expected_attempt, reason }, RequestIdentity { idempotency_key, fingerprint });
    let run_id: RunId = identifier(run_id)?;
    Ok(underway(operations::stop(&api.store, &caller, run_id, stop, request, api.limits.retention).await?))
}

refusals!(ReadRefusals = COMMON_CODES, &[Code::NotFound]);

/// Reads a control operation.
///
/// It is confirmed when its `state` is `completed`. Needs the scope `runs:read` for a stop, `conversations:read` for a
/// reset.
#[utoipa::path(
    get,
    path = "/api/v1/control-operations/{operation_id}",
    operation_id = "read_control_operation",
    tag = "Control operations",
    params(("operation_id" = OperationId, Path, description = "The operation, as the request's answer names it.")),
    responses(
        (
            status = 200,
            description = "The operation as it is now.",
            body = ControlOperation,
            example = json!(examples::stopped()),
        ),
        ReadRefusals,
    ),
)]
pub(super) async fn read(
    State(api): State<Arc<Api>>,
    authenticated: AuthenticatedRequest,
    operation_id: Result<Path<String>, PathRejection>,
) -> Result<Json<ControlOperation>, Error> {
    let caller = authenticated.authorise_any(&operations::READ_SCOPES)?;
    Ok(Json(operations::read(&api.store, &caller, identifier(operation_id)?).await?))
}

/// The answer to a request for an operation.
pub(super) fn underway(AcceptedOperation { operation, replayed }: AcceptedOperation) -> Response {
    let location = format!("/api/v1/control-operations/{}", operation.operation_id);
    created_response(StatusCode::ACCEPTED, &location, operation, replayed)
}

fn reason(value: Value, flaws: &mut Vec<Flaw>) -> Option<String> {
    match value {
        Value::String(text) if text.len() <= 500 && !text.contains('\0') => return Some(text),
        Value::String(_) => flaws.push(Flaw::new("/reason", "out_of_range", "at most 500 bytes, none of them zero")),
        _ => flaws.push(Flaw::new("/reason", "wrong_type", "a string")),
    }
    None
}
