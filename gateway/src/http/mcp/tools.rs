//! The services that a key may use, as tools.

use deskgate_protocol::management::Scope;
use deskgate_protocol::service::Endpoint;
use serde_json::{Map, Value, json};

use super::message::Message;
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

/// The services that the caller may use.
pub(super) async fn services(api: &Api, caller: &Caller) -> Result<Vec<Endpoint>, Refusal> {
    let mut services = api.store.enabled_endpoints(caller.app_id()).await?;
    services.retain(|service| caller.may_use(service.id));
    Ok(services)
}

/// The result of `tools/list`.
pub(super) async fn list(api: &Api, caller: &Caller, message: &Message) -> Result<Value, Failure> {
    if message.params.get("cursor").is_some_and(|cursor| !cursor.is_null()) {
        return Err(message.invalid_params(&[Flaw::new("/cursor", "not_taken", "the list has one page")]).into());
    }
    let mut services = services(api, caller).await?;
    services.truncate(MAX_SERVICES);
    if caller.needs(Scope::RunsWrite).is_err() || caller.needs(Scope::RunsRead).is_err() {
        services.clear();
    }
    let tools = |with_schemas| services.iter().map(|service| service_tool(service, with_schemas)).collect::<Vec<_>>();
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

fn service_tool(service: &Endpoint, with_schemas: bool) -> Value {
    let presence = if service.device.connected { "connected" } else { "not connected, so that work waits for it" };
    let mut properties = ask::properties();
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

/// A schema as a part of another one: what it refers to in itself is found at its new place.
fn nested(schema: &Value, place: &str) -> Value {
    match schema {
        Value::Object(members) => {
            let member = |(name, value): (&String, &Value)| {
                let value = match value.as_str() {
                    Some(target) if name == "$ref" && (target == "#" || target.starts_with("#/")) => {
                        json!(format!("{place}{}", &target[1..]))
                    }
                    _ => nested(value, place),
                };
                (name.clone(), value)
            };
            // Which draft it is, the whole says.
            Value::Object(members.iter().filter(|(name, _)| *name != "$schema").map(member).collect::<Map<_, _>>())
        }
        Value::Array(items) => items.iter().map(|item| nested(item, place)).collect(),
        other => other.clone(),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_is_whole_as_a_part_of_another() {
        let schema = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
            "properties": { "a": { "$ref": "#/$defs/a" }, "b": { "$ref": "#" }, "c": { "$ref": "#anchor" } },
            "$defs": { "a": { "type": "string" } },
        });
        let expected = json!({
            "type": "object",
            "properties": { "a": { "$ref": "#/properties/data/$defs/a" }, "b": { "$ref": "#/properties/data" }, "c": { "$ref": "#anchor" } },
            "$defs": { "a": { "type": "string" } },
        });
        assert_eq!(nested(&schema, "#/properties/data"), expected);
    }
}
