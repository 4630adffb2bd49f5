//! The published services, as models.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use deskgate_protocol::management::Scope;
use deskgate_protocol::service::Endpoint;
use serde_json::{Value, json};

use crate::domain::access::{AuthenticatedRequest, Caller};
use crate::domain::refusal::Refusal;
use crate::http::Api;
use crate::http::error::Error;

/// `GET /openai/v1/models`
pub(super) async fn list(
    State(api): State<Arc<Api>>,
    authenticated: AuthenticatedRequest,
) -> Result<Json<Value>, Error> {
    let caller = authenticated.authorise(Scope::EndpointsRead)?;
    let models: Vec<_> = services(&api, &caller).await?.iter().map(model).collect();
    Ok(Json(json!({ "object": "list", "data": models })))
}

/// `GET /openai/v1/models/{model}`
pub(super) async fn read(
    State(api): State<Arc<Api>>,
    authenticated: AuthenticatedRequest,
    name: Result<Path<String>, PathRejection>,
) -> Result<Json<Value>, Error> {
    let caller = authenticated.authorise(Scope::EndpointsRead)?;
    let Path(name) = name.map_err(|_| Refusal::NotFound)?;
    Ok(Json(model(&service(&api, &caller, &name).await?)))
}

/// The service that a request means by its model: an identifier, or the exact name of a service.
pub(super) async fn service(api: &Api, caller: &Caller, name: &str) -> Result<Endpoint, Error> {
    let found = services(api, caller).await?.into_iter().find(|of| of.id.to_string() == name || of.name == name);
    found.ok_or_else(|| Error::no_such_model(name))
}

/// The services that the caller may use.
async fn services(api: &Api, caller: &Caller) -> Result<Vec<Endpoint>, Refusal> {
    let mut services = api.store.enabled_endpoints(caller.app_id()).await?;
    services.retain(|service| caller.may_use(service.id));
    Ok(services)
}

fn model(service: &Endpoint) -> Value {
    // The identifier has the time in which the service was first published.
    let created = service.id.uuid().get_timestamp().map_or(0, |moment| moment.to_unix().0);
    json!({
        "id": service.id,
        "object": "model",
        "created": created,
        "owned_by": "deskgate",
        "name": service.name,
        "description": service.description,
    })
}
