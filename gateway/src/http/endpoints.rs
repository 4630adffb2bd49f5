//! The published services a caller may use.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use deskgate_protocol::management::Scope;
use deskgate_protocol::service::Endpoint;
use serde::Serialize;

use super::Api;
use super::error::Error;
use crate::domain::access::Authenticated;
use crate::domain::refusal::Refusal;

/// The directory.
#[derive(Debug, Serialize)]
pub(super) struct Directory {
    endpoints: Vec<Endpoint>,
}

/// `GET /agent-endpoints`: the published and enabled services of the caller's application.
pub(super) async fn list(State(api): State<Arc<Api>>, authenticated: Authenticated) -> Result<Json<Directory>, Error> {
    let caller = authenticated.authorise(Scope::EndpointsRead)?;
    let mut endpoints = api.store.enabled_endpoints(caller.app_id()).await.map_err(Refusal::from)?;
    endpoints.retain(|endpoint| caller.may_use(endpoint.id));
    Ok(Json(Directory { endpoints }))
}
