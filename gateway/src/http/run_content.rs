//! The deletion of an ended run's content.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use deskgate_protocol::RunId;
use deskgate_protocol::management::Scope;

use super::Api;
use super::error::Error;
use super::openapi::refusals::{COMMON_CODES, refusals};
use super::problems::Code;
use super::runs::identifier;
use crate::domain::access::AuthenticatedRequest;
use crate::domain::run_content;

refusals!(DeleteRefusals = COMMON_CODES, &[Code::NotFound, Code::RunPurged, Code::RunNotEnded]);

/// Deletes a run's content.
///
/// The input and the result of an ended run are deleted here, and what its events say in words. The record stays, with
/// `content_deleted_at`; so do its labels, its usage and its receipt. Callbacks that are sent later have no content
/// either. The desktop keeps what it has. Asked again, nothing changes. Needs the scope `runs:control`.
#[utoipa::path(
    delete,
    path = "/api/v1/runs/{run_id}/content",
    operation_id = "delete_run_content",
    tag = "Runs",
    params(("run_id" = RunId, Path, description = "The run.")),
    responses((status = 204, description = "The content is gone."), DeleteRefusals),
)]
pub(super) async fn delete(
    State(api): State<Arc<Api>>,
    authenticated: AuthenticatedRequest,
    run_id: Result<Path<String>, PathRejection>,
) -> Result<StatusCode, Error> {
    let caller = authenticated.authorise(Scope::RunsControl)?;
    run_content::delete(&api.store, &caller, identifier(run_id)?).await?;
    Ok(StatusCode::NO_CONTENT)
}
