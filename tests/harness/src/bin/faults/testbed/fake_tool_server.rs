//! An MCP server whose only tool adds a note to a book: it can be made faulty, and records a journal.
//!
//! It implements the protocol's streamable HTTP, version 2025-06-18: every answer is one JSON object, and the server
//! opens no stream.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use deskgate_tests::receiver::{ReceivedRequest, Receiver};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::effect_log::Effect;
use crate::history::Clock;

/// Its name on devices.
pub(crate) const TOOL_SERVER_NAME: &str = "book";
/// Its tool, as a model calls it.
pub(crate) const TOOL_NAME: &str = "mcp__book__note";
/// Its URL.
pub(crate) const TOOL_SERVER_URL: &str = "https://localhost:8443/mcp";
const TOOL_SERVER_PORT: u16 = 8443;

/// Its behaviour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ToolServerBehaviour {
    #[default]
    Answers,
    /// It answers 500 to everything and adds no note.
    Fails,
    /// It loses its sessions and adds no note.
    Forgets,
    /// It adds the note, and closes the connection instead of answering.
    Vanishes,
    /// It adds the note, stays silent until it is healed, and then closes the connection.
    Hangs,
}

impl ToolServerBehaviour {
    /// The faulty behaviours.
    pub(crate) const FAULTS: [Self; 4] = [Self::Fails, Self::Forgets, Self::Vanishes, Self::Hangs];
}

/// One call as the book saw it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct NoteCall {
    pub(crate) job: String,
    /// The number of the job's call.
    pub(crate) call: usize,
    pub(crate) at: u64,
    /// Whether the note was added.
    pub(crate) is_noted: bool,
    /// `Answers`, or its faulty behaviour.
    pub(crate) manner: String,
}

impl NoteCall {
    /// Whether the note was added and the caller got no answer.
    pub(crate) fn is_untold(&self) -> bool {
        self.is_noted && self.manner != "Answers"
    }
}

#[derive(Clone)]
struct ToolServerState {
    clock: Clock,
    manner: watch::Sender<ToolServerBehaviour>,
    journal: Arc<Mutex<Vec<NoteCall>>>,
    disturbed: Arc<AtomicUsize>,
}

/// The running server.
pub(crate) struct FakeToolServer {
    desktop: ToolServerState,
    receiver: Receiver,
}

impl FakeToolServer {
    /// Starts it.
    pub(crate) async fn start(clock: Clock) -> Self {
        let manner = watch::Sender::new(ToolServerBehaviour::default());
        let desktop = ToolServerState { clock, manner, journal: Arc::default(), disturbed: Arc::default() };
        let answering = desktop.clone();
        let receiver =
            Receiver::start_at(TOOL_SERVER_PORT, &["localhost"], move |got| answer(answering.clone(), got)).await;
        Self { desktop, receiver }
    }

    /// The root certificate of its name.
    pub(crate) fn ca_file(&self) -> PathBuf {
        self.receiver.ca_file()
    }

    /// Sets its behaviour from now on.
    pub(crate) fn set_behaviour(&self, manner: ToolServerBehaviour) {
        self.desktop.manner.send_replace(manner);
    }

    /// All calls so far.
    pub(crate) fn journal(&self) -> Vec<NoteCall> {
        lock(&self.desktop.journal).clone()
    }

    /// The notes in the book.
    pub(crate) fn effects(&self) -> Vec<Effect> {
        let noted = |note: NoteCall| note.is_noted.then_some(Effect { job: note.job, call: note.call, at: note.at });
        self.journal().into_iter().filter_map(noted).collect()
    }

    /// How many requests it answered in a faulty way.
    pub(crate) fn disturbed(&self) -> usize {
        self.desktop.disturbed.load(Ordering::SeqCst)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn answer(desktop: ToolServerState, got: ReceivedRequest) -> Response {
    if !got.line.starts_with("POST ") {
        return StatusCode::METHOD_NOT_ALLOWED.into_response();
    }
    let request: Value = serde_json::from_slice(&got.body).unwrap_or_default();
    let mut manner = desktop.manner.subscribe();
    let now = *manner.borrow();
    let is_call = request["method"] == "tools/call";
    // A client that opens a session sees the behaviour before any note is added.
    let is_hit = now == ToolServerBehaviour::Fails || (now != ToolServerBehaviour::Answers && is_call);
    if is_hit {
        desktop.disturbed.fetch_add(1, Ordering::SeqCst);
    }
    if is_call {
        note(&desktop, &request["params"]["arguments"], now);
    }
    match now {
        ToolServerBehaviour::Fails => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        // A session that is unknown (streamable HTTP, session management).
        ToolServerBehaviour::Forgets if is_hit => StatusCode::NOT_FOUND.into_response(),
        ToolServerBehaviour::Vanishes if is_hit => close(),
        ToolServerBehaviour::Hangs if is_hit => {
            let _ = manner.wait_for(|manner| *manner != ToolServerBehaviour::Hangs).await;
            close()
        }
        _ => spoken(&request),
    }
}

/// Ends the connection's task without a panic message.
fn close() -> Response {
    std::panic::resume_unwind(Box::new("closed on purpose"))
}

fn note(desktop: &ToolServerState, arguments: &Value, manner: ToolServerBehaviour) {
    let job = arguments["job"].as_str().unwrap_or_default().to_owned();
    let call = arguments["call"].as_u64().and_then(|call| call.try_into().ok()).unwrap_or_default();
    let is_noted = !matches!(manner, ToolServerBehaviour::Fails | ToolServerBehaviour::Forgets);
    lock(&desktop.journal).push(NoteCall {
        job,
        call,
        at: desktop.clock.now(),
        is_noted,
        manner: format!("{manner:?}"),
    });
}

/// The protocol's answer to a request.
fn spoken(request: &Value) -> Response {
    let schema = json!({
        "type": "object",
        "properties": { "job": { "type": "string" }, "call": { "type": "integer" } },
        "required": ["job", "call"],
    });
    let result = match request["method"].as_str().unwrap_or_default() {
        "initialize" => json!({
            "protocolVersion": "2025-06-18",
            "capabilities": { "tools": {} },
            "serverInfo": { "name": TOOL_SERVER_NAME, "version": "1" },
        }),
        "tools/list" => {
            json!({ "tools": [{ "name": "note", "description": "Notes it.", "inputSchema": schema }] })
        }
        "tools/call" => json!({ "content": [{ "type": "text", "text": "noted" }] }),
        _ => return StatusCode::ACCEPTED.into_response(),
    };
    let said = json!({ "jsonrpc": "2.0", "id": request["id"], "result": result });
    ([("mcp-session-id", "the-one")], Json(said)).into_response()
}
