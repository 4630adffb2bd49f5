//! `GET /capabilities`: the gateway's features and limits.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use deskgate_protocol::VERSION;
use deskgate_protocol::file::{
    MAX_FILE_BYTES, MAX_RUN_ARTIFACT_BYTES, MAX_RUN_ARTIFACTS, MAX_RUN_FILE_BYTES, MAX_RUN_FILES,
};
use deskgate_protocol::run::EventType;
use serde::Serialize;
use utoipa::ToSchema;

use super::error::Error;
use super::openapi::examples;
use super::openapi::refusals::{COMMON_CODES, refusals};
use super::{Api, body, paging, server};
use crate::domain::access::AuthenticatedRequest;
use crate::domain::body_quota::MAX_BODY_BYTES;
use crate::domain::files::UNUSED_FILE_TTL;
use crate::domain::webhooks::reception::MAX_EVENT_BYTES;

/// Features beyond the calls of the first version.
const FEATURE_NAMES: [&str; 12] = [
    "wait",
    "run_lists",
    "idempotency_key_lookup",
    "events",
    "message_deltas",
    "conversations",
    "control_operations",
    "deliveries",
    "webhooks",
    "typed_data",
    "files",
    "artifacts",
];

/// What this gateway can do.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Capabilities {
    /// The versions of the API.
    api_versions: Vec<&'static str>,
    /// The version of the program.
    server_version: &'static str,
    /// What can be relied on beyond the calls that every gateway of this version has.
    features: Vec<&'static str>,
    /// What callers can meet.
    limits: Limits,
    /// The events that are stored.
    event_types: Vec<&'static str>,
}

/// What callers can meet.
#[derive(Debug, Serialize, ToSchema)]
struct Limits {
    /// Requests that a key may make a second in the long run.
    requests_per_second: u32,
    /// Requests that a key may make at once after a while of silence.
    burst: u32,
    /// Requests of one address a minute that may come without a good key.
    failed_authentications_per_minute: u32,
    /// Runs of one application that may wait for a start.
    waiting_runs_per_application: u32,
    /// Event streams of one application that may be open on this gateway.
    streams_per_application: usize,
    /// Reads and submissions with `wait` of one application that may wait on this gateway.
    waits_per_application: usize,
    /// Requests with a body of one key that may be under way on this gateway at once.
    bodies_per_key: usize,
    /// Bytes that these bodies may have together. One that does not announce its length counts as `body_bytes`.
    body_bytes_per_key: usize,
    /// Bytes of `input.text`.
    input_text_bytes: usize,
    /// Uploads of one key that may be under way on this gateway at once.
    uploads_per_key: usize,
    /// Bytes of a file or an artifact.
    file_bytes: u64,
    /// Files that a run may be given.
    run_files: usize,
    /// Bytes that they may have together.
    run_file_bytes: u64,
    /// Files that a run may hand out.
    run_artifacts: usize,
    /// Bytes that they may have together.
    run_artifact_bytes: u64,
    /// Bytes of an application's files and artifacts together.
    stored_bytes_per_application: u64,
    /// Seconds after which a file is deleted that no run has.
    unused_file_seconds: u64,
    /// Bytes of `result.data`.
    data_bytes: usize,
    /// Bytes of a schema.
    schema_bytes: usize,
    /// How deep a schema may be nested.
    schema_depth: usize,
    /// Properties that a schema may have.
    schema_properties: usize,
    /// Bytes of a body.
    body_bytes: usize,
    /// Bytes of an event that a webhook receives.
    webhook_body_bytes: usize,
    /// Bytes of a head.
    head_bytes: usize,
    /// Seconds for a body to arrive.
    body_seconds: u64,
    /// Seconds for a head to arrive.
    head_seconds: u64,
    /// The longest time a run may wait for a start.
    queue_ttl_seconds: u32,
    /// The longest time a run may execute.
    max_duration_seconds: u32,
    /// The longest `wait`.
    wait_seconds: u32,
    /// Entries in a page.
    page_entries: u32,
    /// How long ended runs are kept.
    retention_seconds: u64,
}

refusals!(ReadRefusals = COMMON_CODES);

/// Tells what this gateway can do.
///
/// For any key, whatever its scopes.
#[utoipa::path(
    get,
    path = "/api/v1/capabilities",
    operation_id = "get_capabilities",
    tag = "Services",
    responses(
        (status = 200, description = "Versions, limits, events.", body = Capabilities, example = json!(examples::capabilities())),
        ReadRefusals,
    ),
)]
pub(super) async fn read(
    State(api): State<Arc<Api>>,
    authenticated: AuthenticatedRequest,
) -> Result<Json<Capabilities>, Error> {
    authenticated.authorise_every()?;
    Ok(Json(capabilities(&api.limits, &api.listener)))
}

/// The capabilities that follow from the settings.
pub(super) fn capabilities(limits: &crate::domain::CallerLimits, listener: &server::ListenerLimits) -> Capabilities {
    Capabilities {
        api_versions: vec!["v1"],
        server_version: VERSION,
        features: FEATURE_NAMES.to_vec(),
        limits: Limits {
            requests_per_second: limits.rate.per_second.get(),
            burst: limits.rate.burst.get(),
            failed_authentications_per_minute: limits.failed_authentications_per_minute.get(),
            waiting_runs_per_application: limits.waiting_runs_per_application,
            streams_per_application: limits.streams_per_application,
            waits_per_application: limits.waits_per_application,
            bodies_per_key: limits.bodies_per_key,
            body_bytes_per_key: limits.body_bytes_per_key,
            input_text_bytes: body::MAX_TEXT_BYTES,
            uploads_per_key: limits.uploads_per_key,
            file_bytes: MAX_FILE_BYTES,
            run_files: MAX_RUN_FILES,
            run_file_bytes: MAX_RUN_FILE_BYTES,
            run_artifacts: MAX_RUN_ARTIFACTS,
            run_artifact_bytes: MAX_RUN_ARTIFACT_BYTES,
            stored_bytes_per_application: limits.storage.bytes_per_application,
            unused_file_seconds: UNUSED_FILE_TTL.as_secs(),
            data_bytes: deskgate_schema::MAX_DATA_BYTES,
            schema_bytes: deskgate_schema::MAX_SCHEMA_BYTES,
            schema_depth: deskgate_schema::MAX_DEPTH,
            schema_properties: deskgate_schema::MAX_PROPERTIES,
            body_bytes: MAX_BODY_BYTES,
            webhook_body_bytes: MAX_EVENT_BYTES,
            head_bytes: listener.head_bytes,
            body_seconds: listener.body.as_secs(),
            head_seconds: listener.head.as_secs(),
            queue_ttl_seconds: body::MAX_QUEUE_TTL_S,
            max_duration_seconds: body::MAX_DURATION_S,
            wait_seconds: super::runs::MAX_WAIT_S,
            page_entries: paging::MAX_PAGE_ENTRIES,
            retention_seconds: limits.retention.as_secs(),
        },
        event_types: EventType::ALL.iter().map(|kind| kind.as_str()).collect(),
    }
}
