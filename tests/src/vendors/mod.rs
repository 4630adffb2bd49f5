//! Strict stand-ins for model vendors: they enforce the rules that the vendors document, and refuse what those refuse.
//!
//! | file | vendor |
//! |---|---|
//! | `messages` | Anthropic: thinking that goes back unchanged, the cache and its count |
//! | `responses` | OpenAI's Responses: reasoning that goes back encrypted |
//! | `chat` | Google, Mistral, DeepSeek, OpenRouter, xAI, Groq, and OpenAI's Chat Completions |
//!
//! The rules were taken from the vendors' documentation, their SDKs and reported answers, in November 2026. A stand-in
//! that accepts a request proves less than the vendor would; one that refuses it says what the vendor says.

mod chat;
mod messages;
mod responses;

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;

/// The only key that a stand-in accepts.
pub const VENDOR_KEY: &str = "sk-vendor-key-of-the-tests";

/// A vendor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vendor {
    /// Messages.
    Anthropic,
    /// Responses, and Chat Completions without tools.
    Openai,
    /// Chat Completions, each with its own rules.
    Google,
    /// Refuses every member that it does not know.
    Mistral,
    /// Wants reasoning back, even an empty one.
    Deepseek,
    /// Wants details of reasoning back, in order.
    Openrouter,
    /// Counts reasoning apart.
    Xai,
    /// Refuses every member that it does not know, in messages too.
    Groq,
}

impl Vendor {
    /// The profile for it.
    pub fn profile(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::Openai => "openai",
            Self::Google => "google",
            Self::Mistral => "mistral",
            Self::Deepseek => "deepseek",
            Self::Openrouter => "openrouter",
            Self::Xai => "xai",
            Self::Groq => "groq",
        }
    }

    /// A current model of it.
    pub fn model(self) -> &'static str {
        match self {
            Self::Anthropic => "claude-opus-5-5",
            Self::Openai => "gpt-5.6-terra",
            Self::Google => "gemini-3.8-flash",
            Self::Mistral => "mistral-medium-3-5",
            Self::Deepseek => "deepseek-flash",
            Self::Openrouter => "anthropic/claude-opus-5.5",
            Self::Xai => "grok-4.7",
            Self::Groq => "openai/gpt-oss-120b",
        }
    }

    fn path(self) -> &'static str {
        match self {
            Self::Anthropic => "",
            _ => "/v1",
        }
    }
}

/// What a model does in one call.
#[derive(Clone, Debug)]
pub enum Move {
    /// Calls tools, each with its arguments.
    Call(Vec<(&'static str, Value)>),
    /// Answers.
    Say(String),
    /// Reaches its limit of tokens inside the arguments of a call.
    CutCall(&'static str),
    /// Refuses with a status, headers and a body.
    Refuse(u16, Vec<(&'static str, String)>, Value),
    /// Closes the connection in the middle of an answer.
    HangUp,
}

/// A refusal: the status and the body.
type Refusal = (u16, Value);

/// A running stand-in.
#[derive(Debug)]
pub struct ModelVendor {
    folder: TempDir,
    address: SocketAddr,
    vendor: Vendor,
    state: Arc<Mutex<VendorState>>,
    serving: tokio::task::JoinHandle<()>,
}

#[derive(Debug)]
struct VendorState {
    vendor: Vendor,
    moves: VecDeque<Move>,
    /// The accepted bodies, oldest first.
    asked: Vec<Value>,
    /// The refusals, oldest first.
    refused: Vec<Value>,
    /// What was given with reasoning, and must come back: opaque text, and the digest of what stood before it.
    issued: Vec<(String, String)>,
    /// Prefixes in the cache, by their digest.
    cached: Vec<String>,
    /// What answers the check of a service in the place of its own answer.
    instead_of_checks: Option<Move>,
    /// Whether any key is good.
    takes_any_key: bool,
    /// Whether reasoning was refused: from then on it need not come back.
    forgives: bool,
    /// Tokens of all accepted calls, and those of them that came from the cache.
    tokens: (u64, u64),
}

impl Drop for ModelVendor {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl ModelVendor {
    /// Starts one that makes these moves, one for each call. The check of a service is answered beside them.
    pub async fn start(vendor: Vendor, moves: Vec<Move>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("loopback");
        let address = listener.local_addr().expect("bound");
        let state = Arc::new(Mutex::new(VendorState {
            vendor,
            moves: moves.into(),
            asked: Vec::new(),
            refused: Vec::new(),
            issued: Vec::new(),
            cached: Vec::new(),
            instead_of_checks: None,
            takes_any_key: false,
            forgives: false,
            tokens: (0, 0),
        }));
        let router = Router::new().fallback(answer).with_state(Arc::clone(&state));
        let serving = tokio::spawn(async move { axum::serve(listener, router).await.expect("serves") });
        let folder = TempDir::with_prefix("deskgate-vendor-").expect("a temporary folder");
        Self { folder, address, vendor, state, serving }
    }

    /// Its API base URL.
    pub fn base_url(&self) -> String {
        format!("http://{}{}", self.address, self.vendor.path())
    }

    /// Takes any key from now on.
    pub fn take_any_key(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).takes_any_key = true;
    }

    /// A file with its key.
    pub fn key_file(&self) -> PathBuf {
        let path = self.folder.path().join("key");
        std::fs::write(&path, VENDOR_KEY).expect("writable");
        path
    }

    /// The bodies that it accepted so far, oldest first.
    pub fn asked(&self) -> Vec<Value> {
        lock(&self.state).asked.clone()
    }

    /// The refusals so far, oldest first.
    pub fn refused(&self) -> Vec<Value> {
        lock(&self.state).refused.clone()
    }

    /// Further moves.
    pub fn then(&self, moves: Vec<Move>) {
        lock(&self.state).moves.extend(moves);
    }

    /// Answers the checks of services so, from now on.
    pub fn answer_checks_with(&self, answer: Move) {
        lock(&self.state).instead_of_checks = Some(answer);
    }

    /// Forgets the moves that were not made.
    pub fn forget_moves(&self) {
        lock(&self.state).moves.clear();
    }

    /// The tokens that its models read, and those of them that came from the cache.
    pub fn read_tokens(&self) -> (u64, u64) {
        lock(&self.state).tokens
    }
}

fn lock(state: &Mutex<VendorState>) -> MutexGuard<'_, VendorState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn answer(State(state): State<Arc<Mutex<VendorState>>>, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
    let mut state = lock(&state);
    match state.answer(uri.path(), &headers, &body) {
        Ok(response) => response,
        Err((status, error)) => {
            state.refused.push(error.clone());
            (StatusCode::from_u16(status).expect("a status"), axum::Json(error)).into_response()
        }
    }
}

impl VendorState {
    fn answer(&mut self, path: &str, headers: &HeaderMap, body: &[u8]) -> Result<Response, Refusal> {
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let key = match self.vendor {
            Vendor::Anthropic => header("x-api-key"),
            _ => header("authorization").strip_prefix("Bearer ").unwrap_or_default(),
        };
        if key != VENDOR_KEY && !self.takes_any_key {
            return Err((
                401,
                refusal("authentication_error", "invalid_api_key", &format!("Incorrect API key: {key}")),
            ));
        }
        if path.ends_with("/models") {
            let data = json!([{ "id": self.vendor.model(), "object": "model", "context_window": 400_000 }]);
            return Ok(axum::Json(json!({ "object": "list", "data": data, "has_more": false })).into_response());
        }
        let body: Value = serde_json::from_slice(body).map_err(|_| bad("the body is no JSON"))?;
        let format = match (self.vendor, path) {
            (Vendor::Anthropic, "/v1/messages") => Format::Messages,
            (Vendor::Openai | Vendor::Xai, "/v1/responses") => Format::Responses,
            (Vendor::Anthropic, _) => return Err((404, refusal("not_found_error", "", "Not found"))),
            (_, "/v1/chat/completions") => Format::Chat,
            _ => return Err((404, refusal("invalid_request_error", "", "Unknown path"))),
        };
        match format {
            Format::Messages => {
                if header("anthropic-version") != "2023-06-01" {
                    return Err(bad("anthropic-version: header is required"));
                }
                self.check_messages(&body)?;
            }
            Format::Responses => self.check_responses(&body)?,
            Format::Chat => self.check_chat(&body)?,
        }
        let next = match check_of_a_service(&body) {
            Some(checked) => self.instead_of_checks.clone().unwrap_or(checked),
            None => self.moves.pop_front().ok_or_else(|| bad("the stand-in has no further move"))?,
        };
        self.asked.push(body.clone());
        if let Move::Refuse(status, headers, body) = next {
            self.forgives |= body["error"]["code"] == "invalid_encrypted_content";
            let mut response = (StatusCode::from_u16(status).expect("a status"), axum::Json(body)).into_response();
            for (name, value) in headers {
                response.headers_mut().insert(HeaderName::from_static(name), value.parse().expect("a value"));
            }
            return Ok(response);
        }
        let stream = match format {
            Format::Messages => self.messages(&body, &next),
            Format::Responses => self.responses(&body, &next),
            Format::Chat => self.chat(&body, &next),
        };
        let stream = match next {
            // The end of the stream is missing.
            Move::HangUp => stream.split_at(stream.len() / 2).0.to_owned(),
            _ => stream,
        };
        Ok(([(header::CONTENT_TYPE, "text/event-stream")], Body::from(stream)).into_response())
    }

    /// Something opaque to give, bound to what stood before it.
    fn issue(&mut self, before: String) -> String {
        let opaque = format!("opaque-{}", self.issued.len());
        self.issued.push((opaque.clone(), before));
        opaque
    }

    fn was_issued(&self, opaque: &str) -> bool {
        self.issued.iter().any(|(issued, _)| issued == opaque)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Messages,
    Responses,
    Chat,
}

/// The move that answers the check of a service, in any format: a call of its tool, and the answer after it. `None`
/// for other requests.
pub fn check_of_a_service(body: &Value) -> Option<Move> {
    let messages = body.get("input").unwrap_or(&body["messages"]);
    let text = messages.to_string();
    if text.contains("Call the tool Check") {
        let is_answered =
            ["tool_result", "function_call_output", "\"role\":\"tool\""].iter().any(|word| text.contains(word));
        return Some(match is_answered {
            true => Move::Say("ready".to_owned()),
            false => Move::Call(vec![("Check", json!({ "word": "ready" }))]),
        });
    }
    text.contains("Say: ready").then(|| Move::Say("ready".to_owned()))
}

fn refusal(kind: &str, code: &str, message: &str) -> Value {
    let code = if code.is_empty() { Value::Null } else { code.into() };
    json!({ "type": "error", "error": { "type": kind, "code": code, "param": null, "message": message } })
}

fn bad(message: &str) -> Refusal {
    (400, refusal("invalid_request_error", "", message))
}

/// Refuses members that are not among these.
fn only(value: &Value, members: &[&str], path: &str) -> Result<(), Refusal> {
    let object = value.as_object().ok_or_else(|| bad(&format!("{path}: an object is expected")))?;
    match object.keys().find(|name| !members.contains(&name.as_str())) {
        Some(name) => Err(bad(&format!("{path}.{name}: Extra inputs are not permitted"))),
        None => Ok(()),
    }
}

/// Refuses an image or a document that is not what it claims to be.
fn check_media(media_type: &str, data: &str, path: &str) -> Result<(), Refusal> {
    let bytes =
        base64::engine::general_purpose::STANDARD.decode(data).map_err(|_| bad(&format!("{path}: no base64")))?;
    let begins: &[u8] = match media_type {
        "image/png" => b"\x89PNG",
        "image/jpeg" => b"\xff\xd8\xff",
        "application/pdf" => b"%PDF-",
        _ => return Err(bad(&format!("{path}: media type {media_type} is not supported"))),
    };
    if bytes.starts_with(begins) { Ok(()) } else { Err(bad(&format!("{path}: Could not process image"))) }
}

/// The same, of an address that begins with `data:`.
fn check_data_url(url: &Value, kind: &str, path: &str) -> Result<(), Refusal> {
    let url = url.as_str().unwrap_or_default();
    let parts = url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
    let (media_type, data) = parts.ok_or_else(|| bad(&format!("{path}: Expected a base64-encoded data URL")))?;
    if !media_type.starts_with(kind) {
        return Err(bad(&format!("{path}: {media_type} is not supported here")));
    }
    check_media(media_type, data, path)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// A rough number of tokens.
fn tokens(text: &str) -> u64 {
    (text.len() / 4) as u64
}
