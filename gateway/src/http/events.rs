//! The events of a run: as a stream of server-sent events, or as pages of JSON.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use deskgate_protocol::RunId;
use deskgate_protocol::management::Scope;
use deskgate_protocol::run::RunEvent;
use futures_util::stream::unfold;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::timeout;
use utoipa::ToSchema;

use super::Api;
use super::accept::{self, EventFormat};
use super::cursor;
use super::error::Error;
use super::openapi::examples;
use super::openapi::pages::ServerSentEvent;
use super::openapi::refusals::{COMMON_CODES, refusals};
use super::problems::Code;
use super::query::QueryParameters;
use super::runs::identifier;
use crate::domain::access::AuthenticatedRequest;
use crate::domain::events::{EventStream, MAX_PAGE_EVENTS, RunEventPage, StreamFrame};
use crate::domain::refusal::Refusal;

const LAST_EVENT_ID_HEADER: HeaderName = HeaderName::from_static("last-event-id");
const KEEP_ALIVE_COMMENT: Bytes = Bytes::from_static(b": nothing new\n\n");
/// The headers of every stream.
pub(super) const STREAM_HEADERS: [(HeaderName, HeaderValue); 2] = [
    (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
    // Some proxies hold back data until a buffer is full.
    (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
];
/// The first line of every stream: milliseconds after which to come again when it broke.
const RETRY_FIELD: &str = "retry: 3000\n";

refusals!(
    EventsRefusals = COMMON_CODES,
    &[Code::NotFound, Code::RunPurged, Code::InvalidInput, Code::InvalidCursor, Code::NotAcceptable, Code::RateLimited]
);

/// A page of a run's events.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct EventPage {
    /// The events, oldest first.
    data: Vec<RunEvent>,
    /// Where to go on, also when there is nothing more yet: the `sequence` of the last event.
    next_cursor: String,
    /// Whether there is more already.
    has_more: bool,
}

/// Follows a run.
///
/// The stream begins with `run.snapshot`, the run's record; then come the stored events behind the cursor, each with its
/// `sequence` as `id`, and every further one as it happens; after the final event the stream ends. Without an `id`, and
/// kept nowhere, are `run.snapshot`, `run.waiting_for_device`, `message.delta` (what the assistant is writing; text from
/// an `offset` on, counted in characters, replaces what was there, and `message.completed` is what counts) and
/// `stream.closing` (come again, here or at another gateway). A stream that broke goes on exactly where it was with
/// `Last-Event-ID`, at any gateway. Closing it cancels nothing. Only a request whose `Accept` names `text/event-stream`
/// is answered with a stream. Every other, also one without `Accept` or with `*/*`, is answered with the stored events as pages
/// of JSON. Needs the scope `runs:read`.
#[utoipa::path(
    get,
    path = "/api/v1/runs/{run_id}/events",
    operation_id = "stream_run_events",
    tag = "Runs",
    params(
        ("run_id" = RunId, Path, description = "The run, as the submission's answer names it."),
        ("after" = Option<u64>, Query, description = "Only events with a higher `sequence`."),
        (
            "cursor" = Option<String>,
            Query,
            pattern = "^[0-9]{1,18}$",
            description = "The `next_cursor` of the page before; the same as `after`.",
        ),
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 100, description = "Events in a page; 100 if absent."),
        (
            "Last-Event-ID" = Option<String>,
            Header,
            pattern = "^[0-9]{0,18}$",
            description = "The last `id` that was received; wins over `after`.",
        ),
    ),
    responses(
        (
            status = 200,
            description = "A page; or the stream, if `Accept` names `text/event-stream`.",
            content(
                (EventPage = "application/json", example = json!(examples::events())),
                (ServerSentEvent = "text/event-stream", example = json!(examples::server_sent_event())),
            ),
        ),
        (
            status = 204,
            description = "Only for streams: the run has ended, and there is no event behind the last one that was received. \
                           An EventSource ends with this answer.",
        ),
        EventsRefusals,
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
    let query = QueryParameters::read(query.as_deref(), &["after", "cursor", "limit"])?;
    let limit = query.number("limit", 1..=MAX_PAGE_EVENTS, MAX_PAGE_EVENTS)?;
    let after = after(&query, &headers)?;
    match accept::form(&headers).ok_or_else(Error::not_acceptable)? {
        EventFormat::Stream => Ok(match api.streams.open(&caller, run_id, after).await? {
            Some(events) => stream(events, api.listener.heartbeat),
            None => StatusCode::NO_CONTENT.into_response(),
        }),
        EventFormat::Json => Ok(page(api.streams.page(&caller, run_id, after, limit).await?)),
    }
}

/// The event after which to continue. The header is newer than the address: a reconnecting client repeats its first
/// address. An empty header means nothing (HTML, section 9.2).
fn after(query: &QueryParameters, headers: &HeaderMap) -> Result<u64, Error> {
    let sequence = |text: &str| cursor::sequence(text).ok_or_else(|| Refusal::InvalidCursor.into());
    let mut sent = headers.get_all(LAST_EVENT_ID_HEADER).iter();
    match (sent.next().filter(|id| !id.is_empty()), sent.next()) {
        (_, Some(_)) => Err(Error::last_event_id_repeated()),
        (Some(id), None) => sequence(id.to_str().unwrap_or_default()),
        (None, None) => query.text("after").or(query.text("cursor")).map_or(Ok(0), sequence),
    }
}

fn page(page: RunEventPage) -> Response {
    let RunEventPage { events, last, has_more } = page;
    Json(EventPage { data: events, next_cursor: last.to_string(), has_more }).into_response()
}

/// The stream as it is sent, with a comment after each `heartbeat` of silence.
pub(super) fn stream(stream: EventStream, heartbeat: Duration) -> Response {
    let pieces = unfold((stream, RETRY_FIELD), move |(mut stream, begin)| async move {
        let piece = match timeout(heartbeat, stream.next()).await {
            Ok(frame) => written(begin, stream.run_id(), &frame?),
            Err(_) => KEEP_ALIVE_COMMENT,
        };
        Some((Ok::<_, Infallible>(piece), (stream, "")))
    });
    (STREAM_HEADERS, Body::from_stream(pieces)).into_response()
}

/// A frame as a server-sent event. Only stored events have an id, from which a client can continue.
fn written(begin: &str, run_id: RunId, frame: &StreamFrame) -> Bytes {
    let mut text = begin.to_owned();
    // Writing to a String cannot fail.
    let _ = match frame {
        StreamFrame::Event(told) => {
            write!(text, "id: {}\nevent: {}\ndata: {}\n\n", told.sequence, told.kind, told.json)
        }
        StreamFrame::Snapshot(run) => passing(&mut text, run_id, "run.snapshot", json!(run)),
        StreamFrame::Waiting(reason) => {
            passing(&mut text, run_id, "run.waiting_for_device", json!({ "state_reason": reason }))
        }
        StreamFrame::Said(said) => passing(&mut text, run_id, "message.delta", json!(said.delta)),
        StreamFrame::Closing => passing(&mut text, run_id, "stream.closing", json!({ "reason": "draining" })),
    };
    text.into()
}

/// A frame that is not stored: it has neither an identifier nor a sequence number.
fn passing(text: &mut String, run_id: RunId, name: &str, data: Value) -> std::fmt::Result {
    write!(text, "event: {name}\ndata: {}\n\n", json!({ "run_id": run_id, "type": name, "data": data }))
}
