//! A caller's deliveries, newest first.

use std::sync::Arc;

use axum::Json;
use axum::extract::{RawQuery, State};
use deskgate_protocol::RunId;
use deskgate_protocol::delivery::{Delivery, DeliveryState};
use deskgate_protocol::management::Scope;

use super::Api;
use super::error::Error;
use super::openapi::examples;
use super::openapi::pages::DeliveryPage;
use super::openapi::refusals::{COMMON_CODES, refusals};
use super::paging::{ListPage, PageRequest};
use super::problems::Code;
use super::query::QueryParameters;
use crate::domain::access::AuthenticatedRequest;
use crate::domain::deliveries::{self, DeliveryFilter};

const PARAMETER_NAMES: [&str; 4] = ["run_id", "state", "limit", "cursor"];

refusals!(ListRefusals = COMMON_CODES, &[Code::InvalidInput, Code::InvalidCursor]);

/// Lists deliveries, newest first.
///
/// These are the callbacks that tell of this subject's runs and conversations, and what came of the last attempt of
/// each. What is here says whether somebody was told, never what became of the run. Needs the scope `deliveries:read`.
#[utoipa::path(
    get,
    path = "/api/v1/deliveries",
    operation_id = "list_deliveries",
    tag = "Deliveries",
    params(
        ("run_id" = Option<RunId>, Query, description = "Only deliveries that tell of this run."),
        ("state" = inline(Option<DeliveryState>), Query, description = "Only deliveries in this state."),
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 100, description = "Entries in a page; 20 if absent."),
        ("cursor" = Option<String>, Query, description = "The `next_cursor` of the page before, with the same filters."),
    ),
    responses(
        (status = 200, description = "A page.", body = DeliveryPage, example = json!(examples::deliveries())),
        ListRefusals,
    ),
)]
pub(super) async fn list(
    State(api): State<Arc<Api>>,
    authenticated: AuthenticatedRequest,
    RawQuery(query): RawQuery,
) -> Result<Json<ListPage<Delivery>>, Error> {
    let caller = authenticated.authorise(Scope::DeliveriesRead)?;
    let query = QueryParameters::read(query.as_deref(), &PARAMETER_NAMES)?;
    let filter = DeliveryFilter {
        run_id: query.value("run_id", "the identifier of a run: run_ and 32 hexadecimal digits")?,
        state: query.value("state", "pending, delivered, exhausted or discarded")?,
    };
    let paging = PageRequest::read("deliveries", &caller, &query)?;
    Ok(paging.page(deliveries::list(&api.store, &caller, &filter, paging.before, paging.limit).await?))
}
