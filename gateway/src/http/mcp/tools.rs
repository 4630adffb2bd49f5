//! The services that a key may use, as tools.

use deskgate_protocol::management::Scope;
use deskgate_protocol::service::Endpoint;
use serde_json::{Value, json};

use super::message::Message;
use super::schema::nested;
use super::{Failure, ask};
use crate::domain::access::Caller;
use crate::domain::refusal::{Flaw, Refusal};
use crate::http::Api;

/// The tool that reads a run, or waits for it.
pub(super) const RUN_TOOL: &str = "deskgate_run";
/// The tool that stops a run.
pub(super) const STOP_TOOL: &str = "deskgate_stop";

/// How many services are listed. Clients and models take no more.
const MAX_SERVICES: usize = 126;
/// How long the list may be with the schemas of services, in bytes.
const MAX_LIST_BYTES: usize = 256 * 1024;
/// How long a client may keep the list: it says whether computers are connected.
const LIST_TTL_MS: u32 = 60_000;

/// The result of `tools/list`.
pub(super) async fn list(api: &Api, caller: &Caller, message: &Message) -> Result<Value, Failure> {
    if message.params.get("cursor").is_some_and(|cursor| !cursor.is_null()) {
        return Err(message.invalid_params(&[Flaw::new("/cursor", "not_taken", "the list has one page")]).into());
    }
    let mut services = api.store.enabled_endpoints(caller.app_id()).await.map_err(Refusal::from)?;
    services.retain(|service| caller.may_use(service.id));
    services.truncate(MAX_SERVICES);
    if caller.needs(Scope::RunsWrite).is_err() || caller.needs(Scope::RunsRead).is_err() {
        services.clear();
    }
    let talks = caller.needs(Scope::ConversationsWrite).is_ok();
    let tools =
        |with_schemas| services.iter().map(|service| service_tool(service, talks, with_schemas)).collect::<Vec<_>>();
    let mut listed = tools(true);
    if listed.iter().map(|tool| tool.to_string().len()).sum::<usize>() > MAX_LIST_BYTES {
        listed = tools(false);
    }
    if caller.needs(Scope::RunsRead).is_ok() {
        listed.push(run_tool());
    }
    if caller.needs(Scope::RunsControl).is_ok() {
        listed.push(stop_tool());
    }
    Ok(json!({ "tools": listed, "ttlMs": LIST_TTL_MS, "cacheScope": "private" }))
}

/// `talks`: the key may use conversations.
fn service_tool(service: &Endpoint, talks: bool, with_schemas: bool) -> Value {
    let presence = if service.device.connected { "connected" } else { "not connected, so that work waits for it" };
    let mut properties = ask::properties(talks);
    let mut required = vec!["text"];
    if let Some(schema) = &service.input_schema {
        properties["data"] =
            if with_schemas { nested(schema, "#/properties/data") } else { json!({ "type": "object" }) };
        required.push("data");
    }
    let data = match &service.output_schema {
        Some(schema) if with_schemas => nested(schema, "#/properties/data"),
        Some(_) => json!({ "type": "object" }),
        None => json!({}),
    };
    json!({
        "name": service.tool_name,
        "title": service.name,
        "description": format!(
            "Asks the assistant {:?}, which works on its owner's own computer. {} It may take minutes, and may wait for a person. \
             The computer is {presence}.",
            service.name, sentence(&service.description),
        ),
        "inputSchema": {
            "type": "object", "properties": properties, "required": required, "additionalProperties": false,
        },
        "outputSchema": result_schema(data),
        "annotations": {
            "title": service.name,
            "readOnlyHint": service.read_only,
            "destructiveHint": !service.read_only,
            "idempotentHint": false,
            "openWorldHint": true,
        },
    })
}

fn sentence(text: &str) -> String {
    let text = text.trim();
    if text.is_empty() || text.ends_with(['.', '!', '?']) { text.to_owned() } else { format!("{text}.") }
}

/// The shape of what every call is answered with.
fn result_schema(data: Value) -> Value {
    let text = |description: &str| json!({ "type": "string", "description": description });
    json!({
        "type": "object",
        "properties": {
            "run_id": text("What deskgate_run and deskgate_stop take."),
            "phase": { "type": "string", "enum": ["accepted", "started", "final"], "description": "Only \"final\" is the end." },
            "state": text("Where the work stands."),
            "text": text("What the assistant answered."),
            "data": data,
            "waiting_for": text("What it waits for, while it has not ended."),
            "next": text("What to do next, while it has not ended."),
            "error": { "type": "object", "description": "Why it did not succeed, and whether anything may have changed." },
        },
        "required": ["run_id", "phase", "state"],
    })
}

fn run_id() -> Value {
    json!({ "type": "string", "description": "The run_id of an earlier answer." })
}

fn run_tool() -> Value {
    json!({
        "name": RUN_TOOL,
        "title": "Wait for work",
        "description": "Waits for work that was given to an assistant earlier, and gives its answer. Repeat it as often as needed.",
        "inputSchema": {
            "type": "object",
            "properties": { "run_id": run_id(), "wait_seconds": ask::wait_seconds() },
            "required": ["run_id"],
            "additionalProperties": false,
        },
        "outputSchema": result_schema(json!({})),
        "annotations": { "readOnlyHint": true, "openWorldHint": false },
    })
}

fn stop_tool() -> Value {
    json!({
        "name": STOP_TOOL,
        "title": "Stop work",
        "description": "Stops work that was given to an assistant. What it has done by then is not undone.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "run_id": run_id(),
                "reason": { "type": "string", "maxLength": ask::MAX_REASON_CHARS, "description": "Why, for the assistant's owner." },
            },
            "required": ["run_id"],
            "additionalProperties": false,
        },
        "outputSchema": result_schema(json!({})),
        "annotations": { "readOnlyHint": false, "destructiveHint": true, "idempotentHint": true, "openWorldHint": false },
    })
}
