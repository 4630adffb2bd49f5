//! One message of JSON-RPC, which era of the protocol it belongs to, and its answers.
//!
//! The rules are those of the specification's transport "Streamable HTTP", in its revisions 2026-07-28 and 2025-11-25.

use axum::Json;
use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::tasks::TASKS_EXTENSION;
use super::{Failure, SESSION_HEADER};
use crate::domain::refusal::{Flaw, Refusal};
use crate::http::error::Error;
use crate::http::problems::Code;

/// The versions that are served, newest first. All but the first begin with a handshake.
pub(super) const VERSIONS: [&str; 3] = [STATELESS_VERSION, LATEST_HANDSHAKE_VERSION, "2025-06-18"];
const STATELESS_VERSION: &str = "2026-07-28";
pub(super) const LATEST_HANDSHAKE_VERSION: &str = "2025-11-25";
/// The version of requests that say none. It differs in nothing that is used here but for lists of messages, which are not taken.
const UNSAID_VERSION: &str = "2025-03-26";
/// The versions that a handshake may agree on.
pub(super) const HANDSHAKE_VERSIONS: [&str; 3] = [LATEST_HANDSHAKE_VERSION, "2025-06-18", UNSAID_VERSION];
/// The most bytes of a text that a client wants to see again: the number of a request, and the token of its progress.
const MAX_ECHO_BYTES: usize = 256;

const VERSION_HEADER: HeaderName = HeaderName::from_static("mcp-protocol-version");
const METHOD_HEADER: HeaderName = HeaderName::from_static("mcp-method");
const NAME_HEADER: HeaderName = HeaderName::from_static("mcp-name");
const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES_KEY: &str = "io.modelcontextprotocol/clientCapabilities";

const PARSE_ERROR: i32 = -32700;
const INVALID_REQUEST: i32 = -32600;
const METHOD_NOT_FOUND: i32 = -32601;
const INVALID_PARAMS: i32 = -32602;
const INTERNAL_ERROR: i32 = -32603;
const HEADER_MISMATCH: i32 = -32020;
const MISSING_CLIENT_CAPABILITY: i32 = -32021;
const UNSUPPORTED_VERSION: i32 = -32022;

/// An error of JSON-RPC.
#[derive(Debug)]
pub(super) struct RpcError(Box<ErrorParts>);

#[derive(Debug)]
struct ErrorParts {
    id: Value,
    code: i32,
    message: String,
    data: Option<Value>,
    status: StatusCode,
}

impl RpcError {
    fn new(id: Value, code: i32, message: impl Into<String>, status: StatusCode) -> Self {
        Self(ErrorParts { id, code, message: message.into(), data: None, status }.into())
    }

    fn with(mut self, data: Value) -> Self {
        self.0.data = Some(data);
        self
    }

    pub(super) fn body(&self) -> Value {
        let ErrorParts { id, code, message, data, .. } = &*self.0;
        let mut error = json!({ "code": code, "message": message });
        if let Some(data) = data {
            error["data"] = data.clone();
        }
        let mut body = json!({ "jsonrpc": "2.0", "error": error });
        if !id.is_null() {
            body["id"] = id.clone();
        }
        body
    }
}

/// A problem document in the answer to a request.
pub(in crate::http) fn in_answer(number: &Value, document: Value) -> Value {
    let code =
        if document["status"].as_u64().is_some_and(|status| status >= 500) { INTERNAL_ERROR } else { INVALID_REQUEST };
    json!({ "jsonrpc": "2.0", "id": number, "error": { "code": code, "message": document["detail"], "data": document } })
}

/// Whether a text that a client wants to see again is not too long for that, or a number.
fn is_short(value: &Value) -> bool {
    value.as_str().map_or(value.is_number(), |text| text.len() <= MAX_ECHO_BYTES)
}

impl IntoResponse for RpcError {
    fn into_response(self) -> Response {
        (self.0.status, Json(self.body())).into_response()
    }
}

/// The era that a message belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Era {
    /// It was begun with a handshake, before 2026-07-28.
    Handshake {
        /// The session that its client was given then.
        session: Option<String>,
    },
    /// Each request stands for itself.
    Stateless {
        /// Whether the client takes a task for an answer.
        takes_tasks: bool,
    },
}

/// A message that was read.
#[derive(Clone, Debug)]
pub(super) struct Message {
    /// `None`: it is a notification.
    pub(super) id: Option<Value>,
    pub(super) method: String,
    pub(super) params: Map<String, Value>,
    /// The member `_meta` of the parameters.
    pub(super) meta: Map<String, Value>,
    pub(super) era: Era,
}

/// Reads a message from a request's body, and compares it with the headers.
///
/// # Errors
/// The body is no request or notification, or the headers say something else than it does.
pub(super) fn read(headers: &HeaderMap, body: Result<Map<String, Value>, Error>) -> Result<Message, Failure> {
    let mut members = body.map_err(unreadable)?;
    let id = members.remove("id");
    let told = id.clone().filter(is_short).unwrap_or_default();
    let invalid = |detail: &str| RpcError::new(told.clone(), INVALID_REQUEST, detail, StatusCode::BAD_REQUEST);
    if members.remove("jsonrpc").is_none_or(|version| version != "2.0") {
        return Err(invalid("jsonrpc must be \"2.0\"").into());
    }
    let is_number = |id: &Value| is_short(id) && !id.is_f64();
    if id.as_ref().is_some_and(|id| !is_number(id)) {
        return Err(invalid("id must be a string of at most 256 bytes, or a whole number").into());
    }
    let Some(Value::String(method)) = members.remove("method") else {
        return Err(invalid("this is no request: answers of clients are not taken").into());
    };
    let object = |from: &mut Map<String, Value>, name: &str| match from.remove(name) {
        None | Some(Value::Null) => Ok(Map::new()),
        Some(Value::Object(members)) => Ok(members),
        Some(_) => Err(invalid(&format!("{name} must be an object"))),
    };
    let mut params = object(&mut members, "params")?;
    let meta = object(&mut params, "_meta")?;
    if id.is_none() && !method.starts_with("notifications/") {
        return Err(invalid("a request needs an id").into());
    }
    let mut message = Message { id, method, params, meta, era: Era::Handshake { session: None } };
    message.era = message.era_by(headers)?;
    Ok(message)
}

/// What cannot be read as JSON is told as the protocol has it; everything else as for other calls.
fn unreadable(error: Error) -> Failure {
    let code = match error.code() {
        Code::MalformedJson => PARSE_ERROR,
        Code::InvalidInput => INVALID_REQUEST,
        _ => return error.into(),
    };
    RpcError::new(Value::Null, code, error.detail(), StatusCode::BAD_REQUEST).into()
}

/// The one value of a header.
fn header<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().ok(),
        _ => None,
    }
}

/// A value that may be encoded, because it is not fit for a header.
fn decoded(value: &str) -> Option<String> {
    match value.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?=")) {
        None => Some(value.to_owned()),
        Some(text) => String::from_utf8(STANDARD.decode(text).ok()?).ok(),
    }
}

impl Message {
    fn era_by(&self, headers: &HeaderMap) -> Result<Era, RpcError> {
        let (said, meant) = (header(headers, &VERSION_HEADER), self.meta.get(VERSION_KEY));
        if self.method == "initialize" && meant.is_none() {
            return Ok(Era::Handshake { session: None });
        }
        let is_stateless = [said, meant.and_then(Value::as_str)].contains(&Some(STATELESS_VERSION));
        if self.is_notification() {
            let session = header(headers, &SESSION_HEADER).map(str::to_owned);
            return Ok(if is_stateless { Era::Stateless { takes_tasks: false } } else { Era::Handshake { session } });
        }
        let is_discovery = self.method == "server/discover";
        let meant = match meant {
            Some(Value::String(version)) => Some(version.as_str()),
            None if !is_stateless && !is_discovery => None,
            _ => return Err(self.malformed(&format!("_meta needs the member \"{VERSION_KEY}\", a string"))),
        };
        if headers.contains_key(VERSION_HEADER) && said.is_none() || meant.is_some() && meant != said {
            return Err(self.mismatch("MCP-Protocol-Version says another version than _meta, or is not there once"));
        }
        let version = said.unwrap_or(UNSAID_VERSION);
        let is_known = VERSIONS.contains(&version) || version == UNSAID_VERSION;
        if !is_known || is_discovery && !is_stateless {
            let error = self.error(UNSUPPORTED_VERSION, "Unsupported protocol version", StatusCode::BAD_REQUEST);
            return Err(error.with(json!({ "supported": VERSIONS, "requested": version })));
        }
        if !is_stateless {
            return Ok(Era::Handshake { session: header(headers, &SESSION_HEADER).map(str::to_owned) });
        }
        if header(headers, &METHOD_HEADER) != Some(self.method.as_str()) {
            return Err(self.mismatch("Mcp-Method says another method than the body, or is missing"));
        }
        let named = match self.method.as_str() {
            "tools/call" => Some("name"),
            "tasks/get" | "tasks/cancel" | "tasks/update" => Some("taskId"),
            _ => None,
        };
        if let Some(member) = named {
            let said = header(headers, &NAME_HEADER).and_then(decoded);
            if said.is_none() || said.as_deref() != self.params.get(member).and_then(Value::as_str) {
                return Err(self.mismatch(&format!("Mcp-Name says something else than {member}, or is missing")));
            }
        }
        match self.meta.get(CAPABILITIES_KEY) {
            Some(Value::Object(can)) => Ok(Era::Stateless {
                takes_tasks: can.get("extensions").is_some_and(|of| of[TASKS_EXTENSION].is_object()),
            }),
            _ => Err(self.malformed(&format!("_meta needs the member \"{CAPABILITIES_KEY}\", an object"))),
        }
    }

    /// What an answer needs of it: not what was asked, which may be long.
    pub(super) fn without_params(self) -> Self {
        let token = self.meta.into_iter().filter(|(name, value)| name == "progressToken" && is_short(value));
        Self { method: String::new(), params: Map::new(), meta: token.collect(), ..self }
    }

    pub(super) fn is_notification(&self) -> bool {
        self.id.is_none()
    }

    fn is_stateless(&self) -> bool {
        matches!(self.era, Era::Stateless { .. })
    }

    /// A parameter that is a text.
    pub(super) fn text(&self, name: &str) -> Result<&str, RpcError> {
        let text = self.params.get(name).and_then(Value::as_str);
        text.ok_or_else(|| self.invalid_params(&[Flaw::new(format!("/{name}"), "required", "a string")]))
    }

    /// The token under which the client wants to be told how it goes.
    pub(super) fn progress_token(&self) -> Option<&Value> {
        self.meta.get("progressToken").filter(|token| is_short(token))
    }

    /// The body of an answer with a result.
    pub(super) fn result_body(&self, mut result: Value) -> Value {
        if self.is_stateless() && result.get("resultType").is_none() {
            result["resultType"] = json!("complete");
        }
        json!({ "jsonrpc": "2.0", "id": self.id, "result": result })
    }

    /// An answer with a result.
    pub(super) fn result(&self, result: Value) -> Response {
        Json(self.result_body(result)).into_response()
    }

    fn error(&self, code: i32, message: &str, status: StatusCode) -> RpcError {
        RpcError::new(self.id.clone().unwrap_or_default(), code, message, status)
    }

    fn mismatch(&self, detail: &str) -> RpcError {
        self.error(HEADER_MISMATCH, &format!("Header mismatch: {detail}"), StatusCode::BAD_REQUEST)
    }

    /// The request itself is not as the protocol has it.
    fn malformed(&self, detail: &str) -> RpcError {
        self.error(INVALID_PARAMS, &format!("Invalid params: {detail}"), StatusCode::BAD_REQUEST)
    }

    /// Parameters that are not taken.
    pub(super) fn invalid_params(&self, flaws: &[Flaw]) -> RpcError {
        let error = Error::from(Refusal::Invalid(flaws.to_vec()));
        let wrong = self.error(INVALID_PARAMS, &format!("Invalid params: {}", error.detail()), StatusCode::OK);
        wrong.with(json!({ "code": error.code().as_str(), "errors": error.errors() }))
    }

    /// There is no tool, or no task, of this name.
    pub(super) fn unknown(&self, what: &str) -> RpcError {
        self.error(INVALID_PARAMS, what, StatusCode::OK)
    }

    /// The method is none of this server.
    pub(super) fn unknown_method(&self) -> RpcError {
        let status = if self.is_stateless() { StatusCode::NOT_FOUND } else { StatusCode::OK };
        let mut method: String = self.method.chars().take(80).collect();
        method.retain(|letter| !letter.is_control());
        self.error(METHOD_NOT_FOUND, &format!("Method not found: {method}"), status)
    }

    /// The client did not say that it takes tasks.
    pub(super) fn tasks_not_declared(&self) -> RpcError {
        let needed = json!({ "requiredCapabilities": { "extensions": { TASKS_EXTENSION: {} } } });
        let error =
            self.error(MISSING_CLIENT_CAPABILITY, "Missing required client capability", StatusCode::BAD_REQUEST);
        error.with(needed)
    }

    /// An answer that has begun cannot be completed.
    pub(super) fn broken(&self, error: &Error) -> RpcError {
        self.error(INTERNAL_ERROR, error.detail(), StatusCode::OK).with(json!({ "code": error.code().as_str() }))
    }
}
