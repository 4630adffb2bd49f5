//! The events of a run: as a stream of server-sent events, or as pages of JSON.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use deskgate_protocol::RunId;
use deskgate_protocol::management::Scope;
use futures_util::stream::unfold;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::Api;
use super::accept::{self, Form};
use super::error::Error;
use super::openapi::examples;
use super::openapi::pages::{EventPage, ServerSentEvent};
use super::openapi::refusals::{EVERY_CALL, refusals};
use super::problems::Code;
use super::runs::identifier;
use crate::domain::access::Authenticated;
use crate::domain::events::{Frame, PAGE_LIMIT, Page, Stream};
use crate::domain::refusal::Refusal;

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// After so long without anything a comment shows that the line is alive.
const SILENCE: Duration = Duration::from_secs(15);
const COMMENT: Bytes = Bytes::from_static(b": nothing new\n\n");
/// The first line of every stream: milliseconds after which to come again when it broke.
const RETRY: &str = "retry: 3000\n";

refusals!(
    ReadRefusals = EVERY_CALL,
    &[Code::NotFound, Code::RunPurged, Code::InvalidInput, Code::InvalidCursor, Code::NotAcceptable]
);

/// Follows a run's events.
///
/// As `text/event-stream` the first event is `run.snapshot` with the run as it is; then follow the stored events, each
/// with its sequence as `id`, until the run has ended. A client that was cut off sends the last `id` it saw in
/// `Last-Event-ID`, to any gateway, and misses nothing. Closing a stream stops nothing. As `application/json` the stored events come page by page. Needs the
/// scope `runs:read`.
#[utoipa::path(
    get,
    path = "/api/v1/runs/{run_id}/events",
    operation_id = "read_events",
    tag = "Runs",
    params(
        ("run_id" = RunId, Path, description = "The run."),
        ("after" = Option<u64>, Query, description = "Only events with a greater sequence."),
        ("cursor" = Option<String>, Query, pattern = "^[0-9]{1,18}$", description = "The `next_cursor` of the page before."),
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 100, description = "Events in a page; 100 if absent."),
        ("Last-Event-ID" = Option<String>, Header, pattern = "^[0-9]{0,18}$", description = "As `after`, and stronger."),
    ),
    responses(
        (
            status = 200,
            description = "The events.",
            content(
                (ServerSentEvent = "text/event-stream", example = json!(examples::stream())),
                (EventPage = "application/json", example = json!(examples::events())),
            ),
        ),
        ReadRefusals,
    ),
)]
pub(super) async fn read(
    State(api): State<Arc<Api>>,
    authenticated: Authenticated,
    run_id: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Error> {
    let caller = authenticated.authorise(Scope::RunsRead)?;
    let run_id = identifier(run_id)?;
    let wanted = Wanted::read(query.as_deref().unwrap_or_default(), &headers)?;
    match accept::form(&headers).ok_or_else(Error::not_acceptable)? {
        Form::Stream => Ok(stream(api.streams.open(&caller, run_id, wanted.after).await?)),
        Form::Json => Ok(page(api.streams.page(&caller, run_id, wanted.after, wanted.limit).await?)),
    }
}

/// Which events are asked for.
struct Wanted {
    after: u64,
    limit: u32,
}

impl Wanted {
    /// The header is newer than the address: a client that comes again sends the address of its
    /// first time with it. An empty one says nothing (HTML, section 9.2).
    fn read(query: &str, headers: &HeaderMap) -> Result<Self, Error> {
        let mut wanted = Self { after: 0, limit: PAGE_LIMIT };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("after" | "cursor", text)) => wanted.after = sequence(text)?,
                Some(("limit", text)) => {
                    let limit = text.parse().ok().filter(|limit| (1..=PAGE_LIMIT).contains(limit));
                    let detail = "limit is a whole number from 1 to 100.";
                    wanted.limit = limit.ok_or_else(|| Error::invalid_parameter("limit", detail))?;
                }
                _ => {
                    let detail = "The parameters here are \"after\", \"cursor\" and \"limit\".";
                    return Err(Error::invalid_parameter(pair.split('=').next().unwrap_or_default(), detail));
                }
            }
        }
        if let Some(id) = headers.get(LAST_EVENT_ID).filter(|id| !id.is_empty()) {
            wanted.after = sequence(id.to_str().unwrap_or_default())?;
        }
        Ok(wanted)
    }
}

/// An event's number. Digits only: `+1` is none.
fn sequence(text: &str) -> Result<u64, Refusal> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits).ok_or(Refusal::InvalidCursor)
}

fn page(page: Page) -> Response {
    let next = page.last.to_string();
    Json(json!({ "data": page.events, "next_cursor": next, "has_more": page.has_more })).into_response()
}

fn stream(stream: Stream) -> Response {
    let pieces = unfold((stream, RETRY), |(mut stream, begin)| async move {
        let piece = match timeout(SILENCE, stream.next()).await {
            Ok(frame) => written(begin, stream.run_id(), &frame?),
            Err(_) => COMMENT,
        };
        Some((Ok::<_, Infallible>(piece), (stream, "")))
    });
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        // Some proxies keep back what they pass on until a buffer is full.
        (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
    ];
    (headers, Body::from_stream(pieces)).into_response()
}

/// A frame as server-sent event. Only what is stored has an id, from which a client can go on.
fn written(begin: &str, run_id: RunId, frame: &Frame) -> Bytes {
    let mut text = begin.to_owned();
    // Writing to a String cannot fail.
    let _ = match frame {
        Frame::Event(told) => {
            write!(text, "id: {}\nevent: {}\ndata: {}\n\n", told.sequence, told.kind, told.json)
        }
        Frame::Snapshot(run) => passing(&mut text, run_id, "run.snapshot", json!(run)),
        Frame::Waiting(reason) => {
            passing(&mut text, run_id, "run.waiting_for_device", json!({ "state_reason": reason }))
        }
        Frame::Closing => passing(&mut text, run_id, "stream.closing", json!({ "reason": "draining" })),
    };
    text.into()
}

/// A frame that is not stored: neither an identifier nor a place in the sequence.
fn passing(text: &mut String, run_id: RunId, name: &str, data: Value) -> std::fmt::Result {
    write!(text, "event: {name}\ndata: {}\n\n", json!({ "run_id": run_id, "type": name, "data": data }))
}
