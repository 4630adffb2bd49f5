//! The same submissions by the other forms of the API: OpenAI's, and MCP's.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{ApiRequest, Caller, SUBJECT, submission};
use crate::history::CallAction;
use crate::testbed::REPLICA_COUNT;

/// Submits by one of the three doors, always by the same for one job.
pub(crate) fn submission_by_some_door(
    caller: &Caller,
    desktop: usize,
    tool: Option<&str>,
    job: &str,
    text: &str,
    changed: bool,
) -> ApiRequest {
    let number = job.trim_start_matches(|letter: char| !letter.is_ascii_digit()).parse().unwrap_or(0u64);
    match (number % 4, tool) {
        (1, _) => by_openai(caller, desktop, job, text, changed),
        (3, Some(tool)) => by_mcp(desktop, tool, job, text, changed),
        _ => submission(caller, desktop, job, text, changed),
    }
}

fn by_openai(caller: &Caller, desktop: usize, job: &str, text: &str, changed: bool) -> ApiRequest {
    let service = &caller.service(desktop).endpoint_id;
    ApiRequest {
        name: "submit",
        asked: CallAction::Submit { job: job.to_owned(), changed },
        desktop,
        method: Method::POST,
        path: "/openai/v1/responses".to_owned(),
        key: Some(job.to_owned()),
        body: Some(json!({ "model": service, "input": text, "background": true, "store": false })),
        ..ApiRequest::default()
    }
}

fn by_mcp(desktop: usize, tool: &str, job: &str, text: &str, changed: bool) -> ApiRequest {
    let version = "2026-07-28".to_owned();
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": version, "io.modelcontextprotocol/clientCapabilities": {},
    });
    let arguments = json!({ "text": text, "wait_seconds": 0, "request_id": job });
    ApiRequest {
        name: "submit",
        asked: CallAction::Submit { job: job.to_owned(), changed },
        desktop,
        method: Method::POST,
        path: "/mcp".to_owned(),
        headers: vec![
            ("MCP-Protocol-Version", version),
            ("Mcp-Method", "tools/call".to_owned()),
            ("Mcp-Name", tool.to_owned()),
            ("Accept", "application/json, text/event-stream".to_owned()),
        ],
        body: Some(json!({
            "jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": { "name": tool, "arguments": arguments, "_meta": meta },
        })),
        ..ApiRequest::default()
    }
}

/// What an answer of another door says, with the members and the status that the API has for it.
pub(super) fn as_native(path: &str, status: u16, body: Value) -> (u16, Value) {
    if path.starts_with("/openai/") && body["object"] == "response" {
        let run_id = body["id"].as_str().unwrap_or_default().replacen("resp_", "run_", 1);
        return (status, json!({ "door": "openai", "run_id": run_id }));
    }
    if path != "/mcp" {
        return (status, body);
    }
    if let Some(run_id) = body["result"]["structuredContent"]["run_id"].as_str() {
        return (status, json!({ "door": "mcp", "run_id": run_id }));
    }
    if body["result"]["isError"] == true {
        // "Not accepted (idempotency_key_reused; …"
        let text = body["result"]["content"][0]["text"].as_str().unwrap_or_default();
        let code = text.split_once('(').and_then(|(_, rest)| rest.split_once(';')).map_or("", |(code, _)| code);
        let status = if matches!(code, "rate_limited" | "queue_full") { 429 } else { 409 };
        return (status, json!({ "code": code }));
    }
    (status, body["error"]["data"].clone())
}

/// What a desktop's service is called as a tool. `None`: the pass ended before anybody said so.
pub(crate) async fn tool_name(caller: &mut Caller, desktop: usize) -> Option<String> {
    while caller.business.is_open() {
        let replica = caller.dice.below(REPLICA_COUNT);
        let service = caller.service(desktop);
        let url = format!("http://{}/api/v1/agent-endpoints", caller.business.testbed.address(replica));
        let asked = caller.business.http.get(url).bearer_auth(&service.key).header("X-Gateway-Subject", SUBJECT);
        let told: Option<Value> = match asked.send().await {
            Ok(answer) => answer.json().await.ok(),
            Err(_) => None,
        };
        let services = told.as_ref().and_then(|told| told["endpoints"].as_array()).cloned().unwrap_or_default();
        let own = services.iter().find(|one| one["id"] == service.endpoint_id.as_str());
        if let Some(name) = own.and_then(|own| own["tool_name"].as_str()) {
            return Some(name.to_owned());
        }
        sleep(Duration::from_millis(200)).await;
    }
    None
}
