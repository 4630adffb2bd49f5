//! A model provider that answers at once: some turns that call Read, and then an answer. In OpenAI's wire format.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::http::header;
use axum::routing::post;
use deskgate_gateway::http::server;
use deskgate_tests::vendors::{Move, check_of_a_service};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// A running provider.
pub(crate) struct ModelProvider {
    address: SocketAddr,
    spent: Arc<Mutex<Duration>>,
    _serving: AbortOnDropHandle<()>,
}

impl ModelProvider {
    /// Starts one whose runs read `file` in `turns` turns.
    pub(crate) async fn start(turns: usize, file: &'static str) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let spent = Arc::new(Mutex::new(Duration::ZERO));
        let counted = Arc::clone(&spent);
        let respond = async move |asked: Bytes| {
            let began = Instant::now();
            let said = answer(&asked, turns, file);
            *counted.lock().unwrap_or_else(PoisonError::into_inner) += began.elapsed();
            ([(header::CONTENT_TYPE, "text/event-stream")], said)
        };
        let router = Router::new().route("/v1/chat/completions", post(respond));
        let entrance = server::ListenerAccess::default();
        let serving = server::serve(listener, entrance, router, Default::default(), CancellationToken::new());
        Ok(Self { address, spent, _serving: AbortOnDropHandle::new(tokio::spawn(serving)) })
    }

    /// Its address, for the command line.
    pub(crate) fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// The time it needed for all its answers since the last call.
    pub(crate) fn take_spent(&self) -> Duration {
        std::mem::take(&mut *self.spent.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The stream of an answer. The conversation shows how many turns there were.
fn answer(asked: &[u8], turns: usize, file: &str) -> String {
    let asked: Value = serde_json::from_slice(asked).unwrap_or_default();
    let messages = asked["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let played = messages.iter().filter(|message| message["role"] == "tool").count();
    let choice = |delta: Value, end: Option<&str>| json!({ "choices": [{ "delta": delta, "finish_reason": end }] });
    let checked = check_of_a_service(&asked);
    let goes_on = match &checked {
        Some(checked) => matches!(checked, Move::Call(_)),
        None => asked["tools"].is_array() && played < turns,
    };
    let chunks = if goes_on {
        let (name, arguments) = match checked {
            Some(Move::Call(calls)) => calls[0].clone(),
            _ => ("Read", json!({ "file_path": file })),
        };
        let function = json!({ "name": name, "arguments": arguments.to_string() });
        let call = json!({ "index": 0, "id": format!("call_{played}"), "type": "function", "function": function });
        [
            choice(json!({ "content": "I look." }), None),
            choice(json!({ "tool_calls": [call] }), None),
            choice(json!({}), Some("tool_calls")),
        ]
    } else {
        let usage = json!({ "choices": [], "usage": { "prompt_tokens": 1, "completion_tokens": 1 } });
        [choice(json!({ "content": "Done." }), None), choice(json!({}), Some("stop")), usage]
    };
    let events: String = chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect();
    events + "data: [DONE]\n\n"
}
