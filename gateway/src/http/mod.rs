//! The public door: the HTTP API under `/api/v1`.
//!
//! | file | what it does |
//! |---|---|
//! | [`server`] | the accept loop: time limits, connection limits, graceful stop |
//! | `first_bytes` | a connection that must begin in time |
//! | `caller` | the extractor that makes a `Caller` |
//! | `body` | JSON bodies, with their limits |
//! | [`error`] | every refusal as a problem document |
//! | `endpoints` `runs` `conversations` `operations` | the resources |

mod body;
mod caller;
mod conversations;
mod endpoints;
pub mod error;
mod first_bytes;
mod operations;
mod runs;
pub mod server;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::{HeaderName, HeaderValue, Method, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use deskgate_protocol::VERSION;
use tokio_util::sync::CancellationToken;

use crate::domain::access::Access;
use crate::domain::admission::AdmissionDesk;
use crate::domain::refusal::Refusal;
use crate::store::Store;
use error::Error;

/// What the handlers need.
pub struct Api {
    /// Reads.
    pub store: Store,
    /// Checks keys.
    pub access: Access,
    /// Admits runs.
    pub desk: AdmissionDesk,
    /// Cancelled when nothing more is to be admitted.
    pub draining: CancellationToken,
    /// Time for a body to arrive.
    pub time_for_body: Duration,
    /// How long ended runs are kept.
    pub retention: Duration,
}

impl Api {
    /// Refuses new work while the gateway stops.
    fn admits(&self) -> Result<(), Refusal> {
        if self.draining.is_cancelled() { Err(Refusal::Draining) } else { Ok(()) }
    }
}

/// Marks the answer to a repeated request.
fn replayed_if(replayed: bool, mut response: Response) -> Response {
    if replayed {
        response.headers_mut().insert("idempotency-replayed", HeaderValue::from_static("true"));
    }
    response
}

/// Every route, in one list.
pub fn router(api: Api) -> Router {
    Router::new()
        .route("/api/v1/agent-endpoints", get(endpoints::list))
        .route("/api/v1/agent-endpoints/{endpoint_id}/runs", post(runs::submit))
        .route("/api/v1/runs/{run_id}", get(runs::read))
        .route("/api/v1/runs/{run_id}/stop", post(operations::stop))
        .route("/api/v1/conversations", post(conversations::open))
        .route("/api/v1/conversations/{conversation_id}", get(conversations::read))
        .route("/api/v1/conversations/{conversation_id}/messages", post(conversations::say))
        .route("/api/v1/conversations/{conversation_id}/reset", post(conversations::reset))
        .route("/api/v1/control-operations/{operation_id}", get(operations::read))
        .fallback(async || Error::not_found())
        .method_not_allowed_fallback(async |method: Method| Error::method_not_allowed(&method))
        .layer(DefaultBodyLimit::disable())
        .layer(from_fn(envelope))
        .with_state(Arc::new(api))
}

/// The identifier of one request, in its answer and in the log.
#[derive(Clone, Debug)]
pub struct RequestId(pub HeaderValue);

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const GATEWAY_VERSION: HeaderName = HeaderName::from_static("gateway-version");

/// What every answer has, whatever became of the request.
async fn envelope(mut request: Request, next: Next) -> Response {
    let id = request.headers().get(&REQUEST_ID).filter(|id| usable(id)).cloned().unwrap_or_else(fresh_id);
    request.extensions_mut().insert(RequestId(id.clone()));
    let mut response = match caller::credential_in_url(request.uri()) {
        true => Error::credential_in_url().into_response(),
        false => next.run(request).await,
    };
    error::complete(&mut response, &id);
    let headers = response.headers_mut();
    headers.insert(REQUEST_ID, id);
    headers.insert(GATEWAY_VERSION, HeaderValue::from_static(VERSION));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

fn usable(id: &HeaderValue) -> bool {
    (1..=128).contains(&id.len()) && id.as_bytes().iter().all(u8::is_ascii_graphic)
}

fn fresh_id() -> HeaderValue {
    let text = format!("req_{}", uuid::Uuid::now_v7().simple());
    HeaderValue::from_str(&text).expect("letters, digits and an underscore make a header value")
}
