//! The published services a caller may use.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use deskgate_protocol::management::Scope;
use deskgate_protocol::service::Endpoint;
use serde::Serialize;
use utoipa::ToSchema;

use super::Api;
use super::error::Error;
use super::openapi::examples;
use super::openapi::refusals::{COMMON_CODES, refusals};
use crate::domain::access::AuthenticatedRequest;
use crate::domain::refusal::Refusal;

/// The directory.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Directory {
    /// The services, oldest first.
    endpoints: Vec<Endpoint>,
}

refusals!(ListRefusals = COMMON_CODES);

/// Lists the services that can be called.
///
/// These are the published and enabled services of the caller's application. A key that is limited to some services sees those
/// only. Needs the scope `endpoints:read`.
#[utoipa::path(
    get,
    path = "/api/v1/agent-endpoints",
    operation_id = "list_services",
    tag = "Services",
    responses(
        (status = 200, description = "The services.", body = Directory, example = json!(examples::directory())),
        ListRefusals,
    ),
)]
pub(super) async fn list(
    State(api): State<Arc<Api>>,
    authenticated: AuthenticatedRequest,
) -> Result<Json<Directory>, Error> {
    let caller = authenticated.authorise(Scope::EndpointsRead)?;
    let mut endpoints = api.store.enabled_endpoints(caller.app_id()).await.map_err(Refusal::from)?;
    endpoints.retain(|endpoint| caller.may_use(endpoint.id));
    Ok(Json(Directory { endpoints }))
}
