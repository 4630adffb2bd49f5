//! The parts of every call: the security scheme, request headers and answer headers.

use serde_json::{Map, Value, json};

/// Adds them to every call of the document.
pub(super) fn add(document: &mut Value) {
    document["components"]["securitySchemes"] = json!({
        "application_key": {
            "type": "http",
            "scheme": "bearer",
            "description": "An application key, `dgk_…`. The desktop's owner creates keys; a browser must not hold one.",
        },
    });
    document["components"]["parameters"] = parameters();
    document["components"]["headers"] = headers();
    for (path, methods) in object(&mut document["paths"]) {
        for (method, call) in object(methods) {
            let call = call.as_object_mut().unwrap_or_else(|| panic!("{method} {path} is described"));
            if path.starts_with(WEBHOOK_PATH_PREFIX) { signed(call) } else { complete(call) }
        }
    }
}

/// The path prefix of calls with a signature in place of a key.
const WEBHOOK_PATH_PREFIX: &str = "/api/v1/webhooks/";

/// Completes a call with a signature.
fn signed(call: &mut Map<String, Value>) {
    call.insert("security".to_owned(), json!([]));
    if let Value::Array(parameters) = call.entry("parameters").or_insert_with(|| json!([])) {
        let names = ["RequestId", "TraceParent"].into_iter();
        parameters.extend(names.map(|name| json!({ "$ref": format!("#/components/parameters/{name}") })));
    }
    for (status, response) in object(&mut call["responses"]) {
        add_headers(response, if status == "409" { Some("Retry-After") } else { by_status(status) });
    }
}

fn by_status(status: &str) -> Option<&'static str> {
    match status {
        "401" => Some("WWW-Authenticate"),
        "429" | "503" => Some("Retry-After"),
        _ => None,
    }
}

fn add_headers(response: &mut Value, more: Option<&'static str>) {
    let names = ["X-Request-Id", "Gateway-Version", "RateLimit", "RateLimit-Policy"].into_iter().chain(more);
    let references = names.map(|name| (name.to_owned(), json!({ "$ref": format!("#/components/headers/{name}") })));
    match &mut response["headers"] {
        Value::Object(headers) => headers.extend(references),
        none => *none = Value::Object(references.collect()),
    }
}

fn complete(call: &mut Map<String, Value>) {
    call.insert("security".to_owned(), json!([{ "application_key": [] }]));
    // Calls that create work have the answer for a missing key.
    let creates_work =
        call["responses"].pointer("/400/content/application~1problem+json/examples/idempotency_key_missing");
    let names = ["Subject", "RequestId"].into_iter();
    let names = names.chain(creates_work.into_iter().flat_map(|_| ["IdempotencyKey", "TraceParent"]));
    // And those that a circle of assistants would make have the answer for one.
    let circles = call["responses"].pointer("/422/content/application~1problem+json/examples/loop_detected");
    let names = names.chain(circles.map(|_| "Depth"));
    let references: Vec<_> = names.map(|name| json!({ "$ref": format!("#/components/parameters/{name}") })).collect();
    if let Value::Array(parameters) = call.entry("parameters").or_insert_with(|| json!([])) {
        parameters.extend(references);
    }
    for (status, response) in object(&mut call["responses"]) {
        add_headers(response, by_status(status));
    }
}

fn parameters() -> Value {
    let name = json!({ "type": "string", "pattern": "^[!-~]{1,255}$", "minLength": 1, "maxLength": 255 });
    json!({
        "Subject": {
            "name": "X-Gateway-Subject",
            "in": "header",
            "required": true,
            "description": "Your own identifier of the business user on whose behalf you call: 1 to 255 visible ASCII \
                characters. With a key that is bound to one subject it may be left out.",
            "schema": name,
            "example": "customer-4711",
        },
        "IdempotencyKey": {
            "name": "Idempotency-Key",
            "in": "header",
            "required": true,
            "description": "Your name for this piece of work: 1 to 255 visible ASCII characters. The same key with the same \
                body is the same work, however often it is sent.",
            "schema": { "type": "string", "pattern": "^[!#-~]{1,255}$", "minLength": 1, "maxLength": 255 },
            "example": "order-4711",
        },
        "RequestId": {
            "name": "X-Request-Id",
            "in": "header",
            "required": false,
            "description": "A name for this request in both logs, 1 to 128 visible ASCII characters. Without it the gateway \
                makes one.",
            "schema": { "type": "string" },
        },
        "Depth": {
            "name": "Deskgate-Depth",
            "in": "header",
            "required": false,
            "description": "How many assistants that call each other stand before this work. From four on it is refused, as \
                they may be calling in a circle. A desktop sends it with the calls of its assistants' own tools.",
            "schema": { "type": "integer", "minimum": 0, "maximum": 255, "default": 0 },
        },
        "TraceParent": {
            "name": "traceparent",
            "in": "header",
            "required": false,
            "description": "A W3C trace context, handed on to the device. One that is malformed is ignored.",
            "schema": { "type": "string" },
        },
    })
}

fn headers() -> Value {
    let header = |description: &str, example: &str| json!({ "description": description, "schema": { "type": "string" }, "example": example });
    json!({
        "X-Request-Id": header("The request in the gateway's log.", "req_01a1fdacce837753badf368b3b8b6a04"),
        "Gateway-Version": header("The version of the gateway.", deskgate_protocol::VERSION),
        "RateLimit": header("What the key has left, and seconds until all of it is back. Absent before the key is known.", "\"key\";r=199;t=1"),
        "RateLimit-Policy": header("How many requests the key may make in how many seconds.", "\"key\";q=200;w=4"),
        "WWW-Authenticate": header("How to authenticate.", "Bearer"),
        "Retry-After": header("Seconds after which the same request is worth another try.", "2"),
    })
}

/// The members of a value that is an object.
fn object(value: &mut Value) -> impl Iterator<Item = (&String, &mut Value)> {
    value.as_object_mut().into_iter().flatten()
}
