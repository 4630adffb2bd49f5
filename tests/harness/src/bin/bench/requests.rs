//! The requests of the load: made beforehand, and different in a few bytes.

use anyhow::Context;
use deskgate_gateway::signing::{SigningSecret, sign};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::http::HttpConnection;

/// The target and credentials of submissions.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LoadTarget {
    /// The gateway.
    pub address: std::net::SocketAddr,
    /// The application's key.
    pub key: String,
    /// The service.
    pub endpoint_id: String,
}

/// A webhook that accepts events in the Standard Webhooks format.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LoadWebhook {
    /// Its identifier.
    pub hook_id: String,
    /// The secret of its events.
    pub secret: String,
}

/// The kind of requests.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum RequestKind {
    /// Submit runs.
    Submit,
    /// Ask for responses of OpenAI's API in the background, which are runs.
    Responses,
    /// Call this tool of MCP without waiting, which makes runs.
    ToolCalls(String),
    /// Read this run.
    Read(String),
    /// Send signed events; each connection uses the next of these webhooks.
    Events(Vec<LoadWebhook>),
    /// Send these bytes unchanged.
    Same(String),
}

/// The body of every submission: an order of a usual size.
pub(crate) const SUBMISSION_BODY: &str = r#"{"input":{"text":"Please check order 2026-004711: two chairs arrived damaged, the customer asks for a replacement before Friday and wants to know who pays the return.","order_id":"2026-004711"},"metadata":{"shop":"de-1","channel":"mail"}}"#;

/// The text of every submission.
fn text() -> Value {
    let body: Value = serde_json::from_str(SUBMISSION_BODY).expect("it is JSON");
    body["input"]["text"].clone()
}

/// For whom requests are made.
pub(crate) const SUBJECT: &str = "customer-10042";

/// Characters of the number that makes a request unique.
const NUMBER_CHARS: usize = 32;

/// The requests of one connection.
pub(crate) enum RequestTemplate {
    /// The same request each time, and its expected status.
    Same(Vec<u8>, u16),
    /// Each request has its own key, and a new run as its answer, with this status.
    Submissions { bytes: Vec<u8>, key_at: usize, status: u16 },
    /// Each request has its own identifier and signature.
    Events { bytes: Vec<u8>, id_at: usize, signature_at: usize, secret: SigningSecret, time: i64 },
}

impl RequestTemplate {
    /// The requests of the connection with this number.
    pub(crate) fn new(asks: &RequestKind, target: &LoadTarget, connection: usize) -> anyhow::Result<Self> {
        Ok(match asks {
            RequestKind::Submit => Self::submissions(target),
            RequestKind::Responses => Self::responses(target),
            RequestKind::ToolCalls(tool) => Self::tool_calls(target, tool),
            RequestKind::Read(run_id) => Self::Same(read(target, run_id, 0).into_bytes(), 200),
            RequestKind::Same(bytes) => Self::Same(bytes.clone().into_bytes(), 204),
            RequestKind::Events(hooks) => {
                Self::events(target, hooks.get(connection % hooks.len()).context("no webhook")?)?
            }
        })
    }

    /// Submissions to a target.
    pub(crate) fn submissions(target: &LoadTarget) -> Self {
        let head = format!(
            "POST /api/v1/agent-endpoints/{}/runs HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\
             X-Gateway-Subject: {SUBJECT}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nIdempotency-Key: ",
            target.endpoint_id,
            target.address,
            target.key,
            SUBMISSION_BODY.len()
        );
        let key_at = head.len();
        let bytes = format!("{head}{:NUMBER_CHARS$}\r\n\r\n{SUBMISSION_BODY}", "").into_bytes();
        Self::Submissions { bytes, key_at, status: 202 }
    }

    /// The same work as responses that nothing waits for and nothing can go on from.
    fn responses(target: &LoadTarget) -> Self {
        let body =
            json!({ "model": target.endpoint_id, "input": text(), "background": true, "store": false }).to_string();
        let head = format!(
            "POST /openai/v1/responses HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nX-Gateway-Subject: {SUBJECT}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\nIdempotency-Key: ",
            target.address,
            target.key,
            body.len()
        );
        let key_at = head.len();
        let bytes = format!("{head}{:NUMBER_CHARS$}\r\n\r\n{body}", "").into_bytes();
        Self::Submissions { bytes, key_at, status: 200 }
    }

    /// The same work as calls of a tool of MCP.
    fn tool_calls(target: &LoadTarget, tool: &str) -> Self {
        let number = "0".repeat(NUMBER_CHARS);
        let body = json!({
            "jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": {
                "name": tool,
                "arguments": { "text": text(), "wait_seconds": 0, "request_id": number },
                "_meta": {
                    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                    "io.modelcontextprotocol/clientCapabilities": {},
                },
            },
        })
        .to_string();
        let head = format!(
            "POST /mcp HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nX-Gateway-Subject: {SUBJECT}\r\n\
             Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: {tool}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            target.address,
            target.key,
            body.len()
        );
        let key_at = head.len() + body.find(&number).unwrap_or_default();
        Self::Submissions { bytes: (head + &body).into_bytes(), key_at, status: 200 }
    }

    fn events(target: &LoadTarget, hook: &LoadWebhook) -> anyhow::Result<Self> {
        let secret = SigningSecret::parse(&hook.secret)?;
        let time = i64::try_from(std::time::UNIX_EPOCH.elapsed()?.as_secs())?;
        let head = format!(
            "POST /api/v1/webhooks/{} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
             webhook-timestamp: {time}\r\nwebhook-id: ",
            hook.hook_id,
            target.address,
            SUBMISSION_BODY.len()
        );
        let id_at = head.len();
        let head = format!("{head}{:NUMBER_CHARS$}\r\nwebhook-signature: ", "");
        let signature_at = head.len();
        let signature = sign(&[&secret], "", time, SUBMISSION_BODY.as_bytes());
        let bytes = format!("{head}{signature}\r\n\r\n{SUBMISSION_BODY}").into_bytes();
        Ok(Self::Events { bytes, id_at, signature_at, secret, time })
    }

    /// The status of a successful answer.
    pub(crate) fn wanted(&self) -> u16 {
        match self {
            Self::Same(_, status) => *status,
            Self::Submissions { status, .. } => *status,
            Self::Events { .. } => 202,
        }
    }

    /// The next request, made unique by a session's number and a number within it.
    pub(crate) fn next(&mut self, session: u64, number: u64) -> &[u8] {
        let number = format!("{session:016x}{number:016x}");
        match self {
            Self::Same(bytes, _) => bytes,
            Self::Submissions { bytes, key_at, .. } => {
                bytes[*key_at..*key_at + NUMBER_CHARS].copy_from_slice(number.as_bytes());
                bytes
            }
            Self::Events { bytes, id_at, signature_at, secret, time } => {
                bytes[*id_at..*id_at + NUMBER_CHARS].copy_from_slice(number.as_bytes());
                // As long as any other identifier.
                let signature = sign(&[secret], &number, *time, SUBMISSION_BODY.as_bytes());
                bytes[*signature_at..*signature_at + signature.len()].copy_from_slice(signature.as_bytes());
                bytes
            }
        }
    }
}

/// The request that reads a run, and waits this many seconds for a change.
pub(crate) fn read(target: &LoadTarget, run_id: &str, wait_s: u32) -> String {
    format!(
        "GET /api/v1/runs/{run_id}?wait={wait_s} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nX-Gateway-Subject: {SUBJECT}\r\n\r\n",
        target.address, target.key
    )
}

/// Reads a run until it has ended.
pub(crate) async fn until_ended(
    connection: &mut HttpConnection,
    target: &LoadTarget,
    run_id: &str,
) -> anyhow::Result<Value> {
    loop {
        let status = connection.exchange(read(target, run_id, 30).as_bytes()).await?;
        anyhow::ensure!(status == 200, "a run could not be read: {status}");
        let run: Value = serde_json::from_slice(connection.body())?;
        if run["phase"] == "final" {
            return Ok(run);
        }
    }
}
