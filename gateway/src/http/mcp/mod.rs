//! Published services as tools of MCP (Model Context Protocol), at `/mcp`: a door to the same runs and conversations.
//!
//! | file | what it does |
//! |---|---|
//! | `origin` | which pages of browsers may ask |
//! | `message` | one message of JSON-RPC, and which era of the protocol it belongs to |
//! | `tools` | the services, as tools |
//! | `schema` | a service's schema as a part of a tool's |
//! | `ask` | from a call of a service's tool to its run |
//! | `answer` | an answer that waits for a run |
//! | `told` | a run as the result of a call, and what is said of one that goes on |
//! | `tasks` | a run as a task, for clients that declare the extension |
//!
//! Two eras are served at one address. From revision 2026-07-28 on each request stands for itself: it says its version and what its
//! client can do. Before, a client shakes hands first, and may cancel a call by its number. No session is kept: its identifier is given
//! to the client, and is only a part of the name of a call.

mod answer;
mod ask;
mod message;
mod origin;
mod schema;
mod tasks;
mod told;
mod tools;

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use deskgate_protocol::VERSION;
use deskgate_protocol::management::Scope;
use serde_json::{Value, json};

use super::Api;
use super::error::Error;
use super::request_body::{ReceivedRequest, RequestBody};
use crate::domain::access::{AuthenticatedRequest, Caller};
use crate::domain::refusal::Refusal;
pub(super) use message::in_answer;
use message::{Era, HANDSHAKE_VERSIONS, LATEST_HANDSHAKE_VERSION, Message, RpcError, VERSIONS};
use origin::AllowedOrigin;
use tasks::TASKS_EXTENSION;

/// The address of this door.
pub(super) fn routes() -> Router<Arc<Api>> {
    Router::new().route("/mcp", post(receive))
}

const SESSION_HEADER: HeaderName = HeaderName::from_static("mcp-session-id");

/// Why a message gets no result.
enum Failure {
    /// As an error of JSON-RPC.
    Rpc(RpcError),
    /// As a problem document: the caller may not ask at all, or not now.
    Problem(Error),
    /// As the result of a tool, which the model that called it reads.
    Told(Box<Response>),
}

impl<E: Into<Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Problem(error.into())
    }
}

impl From<RpcError> for Failure {
    fn from(error: RpcError) -> Self {
        Self::Rpc(error)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        match self {
            Self::Rpc(error) => error.into_response(),
            Self::Problem(error) => error.into_response(),
            Self::Told(response) => *response,
        }
    }
}

/// The number of a request that is refused with a problem document. Clients wait for an answer that has it, some of them for ever.
#[derive(Clone)]
pub(super) struct RequestNumber(pub(super) Value);

/// `POST /mcp`
async fn receive(
    State(api): State<Arc<Api>>,
    _: AllowedOrigin,
    authenticated: AuthenticatedRequest,
    ReceivedRequest { headers, body }: ReceivedRequest,
) -> Result<Response, Failure> {
    let caller = authenticated.authorise_work(&[])?;
    let mut incoming = RequestBody::of(&api, &caller, &headers, body)?;
    let message = message::read(&headers, incoming.object().await)?;
    // Its place among the bodies of the key is free while the answer waits.
    drop(incoming);
    let number = message.id.clone();
    let answered = answered(api, caller, &headers, message).await;
    Ok(answered.unwrap_or_else(|failure| {
        let mut response = failure.into_response();
        if let Some(number) = number {
            response.extensions_mut().insert(RequestNumber(number));
        }
        response
    }))
}

async fn answered(api: Arc<Api>, caller: Caller, headers: &HeaderMap, message: Message) -> Result<Response, Failure> {
    match (message.method.as_str(), &message.era) {
        _ if message.is_notification() => noted(&api, &caller.within_rate()?, &message).await,
        ("initialize", Era::Handshake { .. }) => Ok(initialized(&message)),
        ("ping", Era::Handshake { .. }) => Ok(message.result(json!({}))),
        ("server/discover", Era::Stateless { .. }) => Ok(message.result(discovered())),
        ("tools/list", _) => {
            caller.needs(Scope::EndpointsRead)?;
            let caller = caller.within_rate()?;
            Ok(message.result(tools::list(&api, &caller, &message).await?))
        }
        ("tools/call", _) => match message.text("name")? {
            tools::RUN_TOOL if caller.is_within_rate() => answer::read(api, caller, headers, message).await,
            tools::STOP_TOOL => answer::stop(api, caller, message).await,
            tools::RUN_TOOL => Ok(message.result(told::refused(&Refusal::RateLimited.into()))),
            _ => ask::call(api, caller, headers, message).await,
        },
        ("tasks/get", Era::Stateless { .. }) => tasks::get(&api, &caller.within_rate()?, &message).await,
        ("tasks/cancel", Era::Stateless { .. }) => tasks::cancel(&api, &caller, &message).await,
        ("tasks/update", Era::Stateless { .. }) => tasks::update(&api, &caller.within_rate()?, &message).await,
        _ => Err(message.unknown_method().into()),
    }
}

/// What the gateway says of itself.
const INSTRUCTIONS: &str = "Each tool but deskgate_run and deskgate_stop gives work to an assistant on somebody's own computer. The work may \
    take minutes, and may wait until that person allows a step. An answer with the phase \"accepted\" or \"started\" is no failure: \
    call deskgate_run with its run_id to wait on, and do not ask again. Use the same value of \"conversation\" to go on where an \
    earlier question ended.";

fn server_info() -> Value {
    json!({ "name": "deskgate", "title": "Deskgate", "version": VERSION })
}

/// The answer to the handshake of clients from before 2026-07-28.
fn initialized(message: &Message) -> Response {
    let wanted = message.params.get("protocolVersion").and_then(Value::as_str).unwrap_or_default();
    let known = HANDSHAKE_VERSIONS.into_iter().find(|version| *version == wanted);
    let version = known.unwrap_or(LATEST_HANDSHAKE_VERSION);
    let mut response = message.result(json!({
        "protocolVersion": version,
        "capabilities": { "tools": {} },
        "serverInfo": server_info(),
        "instructions": INSTRUCTIONS,
    }));
    let session = HeaderValue::from_str(&uuid::Uuid::now_v7().simple().to_string()).expect("hexadecimal digits");
    response.headers_mut().insert(SESSION_HEADER, session);
    response
}

fn discovered() -> Value {
    json!({
        "supportedVersions": VERSIONS,
        "capabilities": { "tools": {}, "extensions": { TASKS_EXTENSION: {} } },
        "instructions": INSTRUCTIONS,
        "_meta": { "io.modelcontextprotocol/serverInfo": server_info() },
        "ttlMs": 3_600_000,
        "cacheScope": "public",
    })
}

/// A notification. Of them only the cancelling of a call says something here.
async fn noted(api: &Api, caller: &Caller, message: &Message) -> Result<Response, Failure> {
    if let ("notifications/cancelled", Era::Handshake { session: Some(session) }, Some(number)) =
        (message.method.as_str(), &message.era, message.params.get("requestId"))
    {
        // A client whose own time is over has not been told by anybody to end the work.
        let reason = message.params.get("reason").and_then(Value::as_str).unwrap_or_default().to_ascii_lowercase();
        if !reason.contains("timed out") && !reason.contains("timeout") {
            api.mcp_calls.cancel(caller, session, number).await?;
        }
    }
    Ok(StatusCode::ACCEPTED.into_response())
}
