//! The public HTTP service: the API under `/api/v1`.
//!
//! | file | what it does |
//! |---|---|
//! | [`server`] | the accept loop: time limits, connection limits, graceful stop |
//! | [`gate`] | who may use a listener at all |
//! | `connection` | one connection: TLS, HTTP/1.1 or HTTP/2 |
//! | `header_timeout` | a connection whose requests must begin in time |
//! | `write_timeout` `stream_timeout` | a connection, and a stream of HTTP/2, whose peer must read what is sent |
//! | `unread_body` `half_close` | what is left of a body that no answer waited for: thrown away, or the connection's end |
//! | `response_body` `active_requests` | the body of an answer, and whether a connection has any |
//! | [`connection_service`] `forwarded` `sources` | the caller's address, and its requests under way |
//! | `caller` | the extractor that makes a `Caller` |
//! | `request_body` `body` | JSON bodies: reading them within limits, and checking their content |
//! | `query` `paging` `cursor` | parameters, pages of lists, and the positions where they end |
//! | `held` | answers that are held back until a run has ended |
//! | `watched` | whether the answer to a request without an `Idempotency-Key` was sent |
//! | `created` `submission_answer` | answers to requests that create something, and to submissions: at once, with the end, or as a stream |
//! | [`error`] | every refusal as a problem document |
//! | [`openapi`] | the document of all calls, and its readable page |
//! | [`problems`] | the closed list of problems, with a page for each |
//! | `html` | pages for people |
//! | `automatic_answer` `host` | what is no request at all, and a host that is none |
//! | `accept` `compression` | the form of an answer that a caller wants |
//! | `rates` | the rate limit's status, in every answer |
//! | `endpoints` `runs` `run_list` `events` `files` `artifacts` `conversations` `operations` `deliveries` `capabilities` | the resources |
//! | `mcp` | the same runs as calls of tools of MCP |
//! | `openai` | the same runs as responses and chat completions of OpenAI's API |
//! | `trial` | a stream for `doctor`, which is not part of the API |
//! | `webhooks` | the endpoint for other systems' events |
//! | [`hosted`] | the entry of devices with accounts |

mod accept;
mod active_requests;
mod artifacts;
mod automatic_answer;
mod body;
mod caller;
mod capabilities;
mod compression;
mod connection;
pub mod connection_service;
mod conversations;
mod created;
pub mod cursor;
mod deliveries;
mod endpoints;
pub mod error;
mod events;
mod exact_json;
mod files;
mod forwarded;
pub mod gate;
mod half_close;
mod header_timeout;
mod held;
mod host;
pub mod hosted;
mod html;
mod mcp;
mod openai;
pub mod openapi;
mod operations;
mod paging;
pub mod problems;
mod query;
mod rates;
mod request_body;
mod response_body;
mod run_content;
mod run_list;
mod runs;
pub mod server;
mod sources;
mod stream_timeout;
mod submission_answer;
mod trial;
mod unread_body;
mod watched;
mod webhooks;
mod write_timeout;

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{DefaultBodyLimit, MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use deskgate_protocol::VERSION;
use deskgate_protocol::control::trace_id;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span, field};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::domain::access::Access;
use crate::domain::admission::AdmissionService;
use crate::domain::artifacts::ArtifactService;
use crate::domain::body_quota::BodyQuota;
use crate::domain::events::EventStreams;
use crate::domain::files::FileService;
use crate::domain::mcp_calls::McpCalls;
use crate::domain::refusal::Refusal;
use crate::domain::trial::TrialTickets;
use crate::domain::unkeyed_requests::UnkeyedRequests;
use crate::domain::webhooks::reception::Reception;
use crate::metrics::Metrics;
use crate::store::Store;
use connection_service::OverLimit;
use error::Error;
use submission_answer::HeldBack;

/// What the handlers need.
pub struct Api {
    /// Reads records.
    pub store: Store,
    /// Checks keys.
    pub access: Access,
    /// Limits the bodies of each key.
    pub bodies: BodyQuota,
    /// Admits runs.
    pub admission: AdmissionService,
    /// Uploads, reads and deletes files.
    pub files: FileService,
    /// Reads artifacts.
    pub artifacts: ArtifactService,
    /// Receives events of other systems.
    pub reception: Reception,
    /// Opens event streams.
    pub streams: EventStreams,
    /// Requests of clients that send no Idempotency-Key.
    pub unkeyed: UnkeyedRequests,
    /// Calls of MCP that are under way.
    pub mcp_calls: McpCalls,
    /// Checks the tickets of trial streams.
    pub trials: TrialTickets,
    /// Cancelled when no more work is to be admitted.
    pub draining: CancellationToken,
    /// The limits of callers.
    pub limits: crate::domain::CallerLimits,
    /// The limits of the listener.
    pub listener: server::ListenerLimits,
    /// The entry of devices with accounts, if they may connect.
    pub hosted: Option<hosted::HostedIngress>,
}

impl Api {
    /// Refuses new work while the gateway stops.
    fn admits(&self) -> Result<(), Refusal> {
        if self.draining.is_cancelled() { Err(Refusal::Draining) } else { Ok(()) }
    }
}

/// Every call, in one list. Paths, methods and their documentation stand beside the handlers.
fn calls() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::with_openapi(openapi::base())
        .routes(routes!(endpoints::list))
        .routes(routes!(runs::submit))
        .routes(routes!(runs::read))
        .routes(routes!(run_list::list))
        .routes(routes!(run_content::delete))
        .routes(routes!(artifacts::download))
        .routes(routes!(events::read))
        .routes(routes!(files::upload, files::list))
        .routes(routes!(files::read, files::delete))
        .routes(routes!(capabilities::read))
        .routes(routes!(operations::stop))
        .routes(routes!(conversations::open))
        .routes(routes!(conversations::list))
        .routes(routes!(conversations::read))
        .routes(routes!(conversations::say, conversations::messages))
        .routes(routes!(conversations::reset))
        .routes(routes!(operations::read))
        .routes(routes!(deliveries::list))
        .routes(routes!(webhooks::receive))
}

/// Every call, and the pages that explain them.
pub fn router(api: Api) -> Router {
    let (calls, _) = calls().split_for_parts();
    let calls = match &api.hosted {
        Some(entry) => hosted::routes(calls, entry),
        None => calls,
    };
    calls
        .merge(openai::routes())
        .merge(mcp::routes())
        .route("/api/v1/openapi.json", get(openapi::document))
        .route("/api/v1/docs", get(openapi::reference::index))
        .route("/api/v1/docs/{name}", get(openapi::reference::page))
        .route("/api/v1/docs/search.js", get(openapi::reference::script))
        .route("/api/v1/docs/search.json", get(openapi::reference::search_index))
        .route("/api/v1/docs/style.css", get(html::style))
        .route(trial::TRIAL_PATH, get(trial::stream))
        .route("/problems", get(problems::index))
        .route("/problems/{code}", get(problems::page))
        .fallback(async || Error::path_not_found())
        .method_not_allowed_fallback(async |method: Method| Error::method_not_allowed(&method))
        .layer(DefaultBodyLimit::disable())
        .layer(from_fn_with_state(api.store.metrics().clone(), envelope))
        .with_state(Arc::new(api))
}

/// The identifier of one request, in its answer and in the log.
#[derive(Clone, Debug)]
pub struct RequestId(pub HeaderValue);

const REQUEST_ID_HEADER: HeaderName = HeaderName::from_static("x-request-id");
const GATEWAY_VERSION_HEADER: HeaderName = HeaderName::from_static("gateway-version");

/// Adds what every answer has, whatever its status.
async fn envelope(State(meters): State<Metrics>, mut request: Request, next: Next) -> Response {
    let began = Instant::now();
    let (route, method) = (request.extensions().get::<MatchedPath>().cloned(), request.method().clone());
    let id = request.headers().get(&REQUEST_ID_HEADER).filter(|id| usable(id)).cloned().unwrap_or_else(fresh_id);
    request.extensions_mut().insert(RequestId(id.clone()));
    let left = rates::RateLimitSlot::with(request.extensions_mut());
    let wants_gzip = compression::is_asked_for(request.headers());
    let is_openai = openai::is_call(request.uri().path());
    let mut response = match unacceptable(&request) {
        Some(error) => error.into_response(),
        None => {
            let span = span(&request, &id);
            next.run(request).instrument(span).await
        }
    };
    error::complete(&mut response, &id, is_openai);
    let held_back = response.extensions().get::<HeldBack>().map_or(Duration::ZERO, |held| held.0);
    let headers = response.headers_mut();
    left.write(headers);
    write_common_headers(headers, id);
    let response = watched::watched(compression::compress(response, wants_gzip).await);
    let route = route.as_ref().map_or("none", MatchedPath::as_str);
    let took = began.elapsed().saturating_sub(held_back);
    meters.request(route, method.as_str(), response.status().as_u16(), took);
    response
}

/// Writes the headers of every answer.
fn write_common_headers(headers: &mut HeaderMap, id: HeaderValue) {
    headers.insert(REQUEST_ID_HEADER, id);
    headers.insert(GATEWAY_VERSION_HEADER, HeaderValue::from_static(VERSION));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
}

/// The log fields of a request.
fn span(request: &Request, id: &HeaderValue) -> Span {
    let span = tracing::info_span!("request", request_id = id.to_str().unwrap_or_default(), trace_id = field::Empty);
    if let Some(traceparent) = caller::traceparent(request.headers()) {
        span.record("trace_id", trace_id(&traceparent));
    }
    span
}

/// Requests that are refused for every caller and address.
fn unacceptable(request: &Request) -> Option<Error> {
    if head_bytes(request) > server::MAX_HEAD_BYTES {
        return Some(Error::head_too_large(server::MAX_HEAD_BYTES));
    }
    if let Some(flaw) = host::host_flaw(request) {
        return Some(Error::malformed_request(flaw));
    }
    if caller::credential_in_url(request.uri()) {
        return Some(Error::credential_in_url());
    }
    request.extensions().get::<OverLimit>().map(|_| Error::too_many_at_once())
}

/// About as many bytes as the head had in HTTP/1.1.
fn head_bytes(request: &Request) -> usize {
    let target = request.uri().path().len() + request.uri().query().map_or(0, |query| query.len() + 1);
    let headers = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + ": \r\n".len());
    target + headers.sum::<usize>()
}

fn usable(id: &HeaderValue) -> bool {
    (1..=128).contains(&id.len()) && id.as_bytes().iter().all(u8::is_ascii_graphic)
}

fn fresh_id() -> HeaderValue {
    let text = format!("req_{}", uuid::Uuid::now_v7().simple());
    HeaderValue::from_str(&text).expect("letters, digits and an underscore make a header value")
}
