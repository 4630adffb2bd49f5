//! An MCP server whose only tool notes something in a book: it is out of order when it is told to, and keeps a journal of its
//! own.
//!
//! It speaks the protocol's streamable HTTP, version 2025-06-18: every answer is one JSON object, and there is no stream of the
//! server's own.

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

/// What devices know it as.
pub(crate) const TOOL_SERVER_NAME: &str = "book";
/// Its tool, as a model calls it.
pub(crate) const TOOL_NAME: &str = "mcp__book__note";
/// Where it is.
pub(crate) const TOOL_SERVER_URL: &str = "https://localhost:8443/mcp";
const TOOL_SERVER_PORT: u16 = 8443;

/// How it behaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ToolServerBehaviour {
    #[default]
    Answers,
    /// 500 to everything; nothing is noted.
    Fails,
    /// It knows no session any more; nothing is noted.
    Forgets,
    /// It notes, and closes the connection instead of answering.
    Vanishes,
    /// It notes, says nothing until it is well again, and then closes the connection.
    Hangs,
}

impl ToolServerBehaviour {
    /// Those that are faults.
    pub(crate) const FAULTS: [Self; 4] = [Self::Fails, Self::Forgets, Self::Vanishes, Self::Hangs];
}

/// One call as the book saw it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct NoteCall {
    pub(crate) job: String,
    /// Which call of the job.
    pub(crate) call: usize,
    pub(crate) at: u64,
    /// Whether it is in the book.
    pub(crate) is_noted: bool,
    /// `Answers`, or what it did instead.
    pub(crate) manner: String,
}

impl NoteCall {
    /// Whether it is in the book, and whoever asked for that was not told.
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
    desk: ToolServerState,
    receiver: Receiver,
}

impl FakeToolServer {
    /// Starts it.
    pub(crate) async fn start(clock: Clock) -> Self {
        let manner = watch::Sender::new(ToolServerBehaviour::default());
        let desk = ToolServerState { clock, manner, journal: Arc::default(), disturbed: Arc::default() };
        let answering = desk.clone();
        let receiver =
            Receiver::start_at(TOOL_SERVER_PORT, &["localhost"], move |got| answer(answering.clone(), got)).await;
        Self { desk, receiver }
    }

    /// Who vouches for it.
    pub(crate) fn ca_file(&self) -> PathBuf {
        self.receiver.ca_file()
    }

    /// From now on.
    pub(crate) fn set_behaviour(&self, manner: ToolServerBehaviour) {
        self.desk.manner.send_replace(manner);
    }

    /// Every call that came.
    pub(crate) fn journal(&self) -> Vec<NoteCall> {
        lock(&self.desk.journal).clone()
    }

    /// What is in the book.
    pub(crate) fn effects(&self) -> Vec<Effect> {
        let noted = |note: NoteCall| note.is_noted.then_some(Effect { job: note.job, call: note.call, at: note.at });
        self.journal().into_iter().filter_map(noted).collect()
    }

    /// How many requests it answered in some other way than it should.
    pub(crate) fn disturbed(&self) -> usize {
        self.desk.disturbed.load(Ordering::SeqCst)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn answer(desk: ToolServerState, got: ReceivedRequest) -> Response {
    if !got.line.starts_with("POST ") {
        return StatusCode::METHOD_NOT_ALLOWED.into_response();
    }
    let request: Value = serde_json::from_slice(&got.body).unwrap_or_default();
    let mut manner = desk.manner.subscribe();
    let now = *manner.borrow();
    let is_call = request["method"] == "tools/call";
    // Whoever opens a session finds it as it is before anything is noted.
    let is_hit = now == ToolServerBehaviour::Fails || (now != ToolServerBehaviour::Answers && is_call);
    if is_hit {
        desk.disturbed.fetch_add(1, Ordering::SeqCst);
    }
    if is_call {
        note(&desk, &request["params"]["arguments"], now);
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

/// The task that serves the connection ends here, without the message of a panic.
fn close() -> Response {
    std::panic::resume_unwind(Box::new("closed on purpose"))
}

fn note(desk: &ToolServerState, arguments: &Value, manner: ToolServerBehaviour) {
    let job = arguments["job"].as_str().unwrap_or_default().to_owned();
    let call = arguments["call"].as_u64().and_then(|call| call.try_into().ok()).unwrap_or_default();
    let is_noted = !matches!(manner, ToolServerBehaviour::Fails | ToolServerBehaviour::Forgets);
    lock(&desk.journal).push(NoteCall { job, call, at: desk.clock.now(), is_noted, manner: format!("{manner:?}") });
}

/// What the protocol wants to be answered.
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
