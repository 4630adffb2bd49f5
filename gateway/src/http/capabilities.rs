//! `GET /capabilities`: what this gateway can do and how much of it.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use deskgate_protocol::VERSION;
use deskgate_protocol::run::EventType;
use serde::Serialize;

use super::error::Error;
use super::{Api, body, run_list};
use crate::domain::access::Authenticated;

/// What can be relied on beyond the calls of the first version.
const FEATURES: [&str; 3] = ["wait", "run_lists", "idempotency_key_lookup"];

/// The answer.
#[derive(Debug, Serialize)]
pub(super) struct Capabilities {
    api_versions: [&'static str; 1],
    server_version: &'static str,
    features: [&'static str; 3],
    limits: Limits,
    event_types: Vec<&'static str>,
}

/// What callers can meet. Bytes, seconds and counts.
#[derive(Debug, Serialize)]
struct Limits {
    requests_per_second: u32,
    burst: u32,
    waiting_runs_per_application: u32,
    input_text_bytes: usize,
    body_bytes: usize,
    head_bytes: usize,
    body_seconds: u64,
    head_seconds: u64,
    queue_ttl_seconds: u32,
    max_duration_seconds: u32,
    wait_seconds: u32,
    page_entries: u32,
    retention_seconds: u64,
}

/// For any key, whatever it may do.
pub(super) async fn read(
    State(api): State<Arc<Api>>,
    authenticated: Authenticated,
) -> Result<Json<Capabilities>, Error> {
    authenticated.authorise_any()?;
    let limits = &api.limits;
    Ok(Json(Capabilities {
        api_versions: ["v1"],
        server_version: VERSION,
        features: FEATURES,
        limits: Limits {
            requests_per_second: limits.rate.per_second.get(),
            burst: limits.rate.burst.get(),
            waiting_runs_per_application: limits.waiting_runs_per_application,
            input_text_bytes: body::MAX_TEXT,
            body_bytes: body::MAX_BODY,
            head_bytes: api.listener.head_bytes,
            body_seconds: api.listener.body.as_secs(),
            head_seconds: api.listener.head.as_secs(),
            queue_ttl_seconds: body::MAX_QUEUE_TTL_S,
            max_duration_seconds: body::MAX_DURATION_S,
            wait_seconds: super::runs::LONGEST_WAIT_S,
            page_entries: run_list::LONGEST_PAGE,
            retention_seconds: limits.retention.as_secs(),
        },
        event_types: EventType::ALL.iter().map(|kind| kind.as_str()).collect(),
    }))
}
