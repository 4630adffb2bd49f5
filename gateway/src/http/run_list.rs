//! A caller's runs, newest first.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::{RawQuery, State};
use deskgate_protocol::management::Scope;
use deskgate_protocol::run::{Phase, Run, RunState};
use deskgate_protocol::{ConversationId, EndpointId, Timestamp};

use super::Api;
use super::body::{MAX_LABEL_CHARS, MAX_LABEL_NAME_CHARS, MAX_LABELS};
use super::error::Error;
use super::openapi::bodies::SoughtLabels;
use super::openapi::examples;
use super::openapi::pages::RunPage;
use super::openapi::refusals::{COMMON_CODES, refusals};
use super::paging::{ListPage, PageRequest};
use super::problems::Code;
use super::query::{LABELS, QueryParameters};
use crate::domain::access::{AuthenticatedRequest, is_subject};
use crate::domain::run_list::{self, RunFilter};

const PARAMETER_NAMES: [&str; 10] = [
    "endpoint_id",
    "conversation_id",
    "state",
    "phase",
    "idempotency_key",
    "created_after",
    "created_before",
    LABELS,
    "limit",
    "cursor",
];

/// The rules for parameters.
pub(super) const SERVICE_ID_HINT: &str = "the identifier of a service: ep_ and 32 hexadecimal digits";
const CONVERSATION_ID_HINT: &str = "the identifier of a conversation: conv_ and 32 hexadecimal digits";

refusals!(ListRefusals = COMMON_CODES, &[Code::InvalidInput, Code::InvalidCursor]);

/// Lists runs, newest first.
///
/// These are the runs of this application and subject, without inputs and results, which each run's own address has.
/// Pages stay right while runs arrive. With `idempotency_key` the list answers whether a submission whose answer got
/// lost was accepted. Needs the scope `runs:read`.
#[utoipa::path(
    get,
    path = "/api/v1/runs",
    operation_id = "list_runs",
    tag = "Runs",
    params(
        ("endpoint_id" = Option<EndpointId>, Query, description = "Only runs of this service."),
        ("conversation_id" = Option<ConversationId>, Query, description = "Only messages of this conversation."),
        ("state" = inline(Option<RunState>), Query, description = "Only runs in this state at this moment."),
        ("phase" = inline(Option<Phase>), Query, description = "Only runs in this phase."),
        (
            "idempotency_key" = Option<String>,
            Query,
            pattern = "^[!-~]{1,255}$",
            description = "Only what was accepted under this key, without quotes.",
        ),
        ("created_after" = Option<Timestamp>, Query, description = "Only runs that were created later. A `+` in a time is written `%2B`."),
        ("created_before" = Option<Timestamp>, Query, description = "Only runs that were created earlier. A `+` in a time is written `%2B`."),
        (
            "metadata" = inline(Option<SoughtLabels>),
            Query,
            style = DeepObject,
            explode,
            description = "Only runs with these labels, each as `metadata[NAME]=VALUE`.",
        ),
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 100, description = "Entries in a page; 20 if absent."),
        ("cursor" = Option<String>, Query, description = "The `next_cursor` of the page before, with the same filters."),
    ),
    responses(
        (status = 200, description = "A page.", body = RunPage, example = json!(examples::runs())),
        ListRefusals,
    ),
)]
pub(super) async fn list(
    State(api): State<Arc<Api>>,
    authenticated: AuthenticatedRequest,
    RawQuery(query): RawQuery,
) -> Result<Json<ListPage<Run>>, Error> {
    let caller = authenticated.authorise(Scope::RunsRead)?;
    let query = QueryParameters::read(query.as_deref(), &PARAMETER_NAMES)?;
    let filter = filter(&query)?;
    let paging = PageRequest::read("runs", &caller, &query)?;
    Ok(paging.page(run_list::list(&api.store, &caller, &filter, paging.before, paging.limit).await?))
}

fn filter(query: &QueryParameters) -> Result<RunFilter, Error> {
    let key = query.text("idempotency_key");
    if key.is_some_and(|key| !is_subject(key)) {
        let detail = "idempotency_key is 1 to 255 visible ASCII characters, without quotes.";
        return Err(Error::invalid_parameter("idempotency_key", detail));
    }
    let labels: BTreeMap<_, _> = query.labels().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let is_label = |(name, value): (&String, &String)| {
        (1..=MAX_LABEL_NAME_CHARS).contains(&name.chars().count()) && value.chars().count() <= MAX_LABEL_CHARS
    };
    if labels.len() > MAX_LABELS || !labels.iter().all(is_label) {
        let detail = format!(
            "metadata[NAME]=VALUE seeks up to {MAX_LABELS} labels, with names of 1 to {MAX_LABEL_NAME_CHARS} characters \
             and values of up to {MAX_LABEL_CHARS}."
        );
        return Err(Error::invalid_parameter(LABELS, &detail));
    }
    Ok(RunFilter {
        labels,
        endpoint_id: query.value("endpoint_id", SERVICE_ID_HINT)?,
        conversation_id: query.value("conversation_id", CONVERSATION_ID_HINT)?,
        state: query.value("state", "the state of a run, as in its record")?,
        phase: query.value("phase", "accepted, started or final")?,
        idempotency_key: key.map(str::to_owned),
        created_after: query.moment("created_after")?,
        created_before: query.moment("created_before")?,
    })
}
