//! The OpenAPI document: checked in, served, and in the subset that client generators digest.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::LazyLock;

use deskgate_gateway::http::openapi;
use deskgate_gateway::http::problems::Code;
use deskgate_protocol::delivery::CallbackEvent;
use serde_json::Value;

use crate::pages::assert_reference_page;
use crate::support::gateway::TestGateway;

static DOCUMENT: LazyLock<Value> = LazyLock::new(|| serde_json::from_str(&openapi::json()).expect("JSON"));

/// Whether the document says that a request may be answered with a code. A path that no call has is
/// answered before there is a call.
pub(crate) fn is_documented(method: &str, path: &str, code: &str) -> bool {
    let path = path.split('?').next().unwrap_or_default();
    let fits = |template: &str| {
        let (mut steps, mut own) = (template.split('/'), path.split('/'));
        steps.by_ref().zip(own.by_ref()).all(|(step, own)| step == own || step.starts_with('{') && !own.is_empty())
            && template.split('/').count() == path.split('/').count()
    };
    let paths = DOCUMENT["paths"].as_object().expect("an object");
    let call = paths
        .iter()
        .find(|(template, _)| fits(template))
        .and_then(|(_, methods)| methods.get(method.to_lowercase().replace("head", "get")));
    call.is_none_or(|call| {
        let responses = call["responses"].as_object().expect("an object").values();
        responses
            .into_iter()
            .any(|response| response["content"]["application/problem+json"]["examples"].get(code).is_some())
    })
}

/// Fails unless a value has the members that a record of the document promises, and no others, at every depth.
#[track_caller]
pub(crate) fn assert_fits(record: &str, value: &Value) {
    let fault = misfit(&serde_json::json!({ "$ref": format!("#/components/schemas/{record}") }), value);
    assert_eq!(fault, None, "{record}: {value}");
}

fn misfit(schema: &Value, value: &Value) -> Option<String> {
    if let Some(reference) = schema["$ref"].as_str() {
        return misfit(DOCUMENT.pointer(reference.strip_prefix('#')?)?, value)
            .map(|fault| format!("{reference}: {fault}"));
    }
    let known = schema["properties"].as_object()?;
    let Some(members) = value.as_object() else { return Some("no object".to_owned()) };
    let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let missing = required.into_iter().find(|name| !members.contains_key(*name)).map(|name| format!("lacks {name}"));
    let is_closed = schema.get("additionalProperties").is_none();
    missing.or_else(|| {
        members.iter().find_map(|(name, member)| match known.get(name) {
            Some(schema) => misfit(schema, member).map(|fault| format!("{name}: {fault}")),
            None => is_closed.then(|| format!("{name} is not documented")),
        })
    })
}

/// Every call, with its address for messages.
fn calls() -> impl Iterator<Item = (String, &'static Value)> {
    let paths = DOCUMENT["paths"].as_object().expect("an object").iter();
    paths.flat_map(|(path, methods)| {
        let methods = methods.as_object().expect("an object").iter();
        methods.map(move |(method, call)| (format!("{method} {path}"), call))
    })
}

/// Every object inside a value.
fn objects(value: &Value, found: &mut Vec<Value>) {
    match value {
        Value::Array(values) => values.iter().for_each(|value| objects(value, found)),
        Value::Object(members) => {
            found.push(value.clone());
            members.values().for_each(|value| objects(value, found));
        }
        _ => {}
    }
}

#[test]
fn the_words_in_the_document_are_those_on_the_wire() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../protocol/tests/golden/words.json");
    let golden: BTreeMap<String, String> =
        serde_json::from_str(&std::fs::read_to_string(path).expect("it is there")).expect("words");
    let mut checked = 0;
    for (name, schema) in DOCUMENT["components"]["schemas"].as_object().expect("an object") {
        let documented = schema.get("enum").or(schema.get("x-extensible-enum"));
        let sent: BTreeSet<_> = golden.iter().filter(|(of, _)| of.split(' ').next() == Some(name)).collect();
        let (Some(Value::Array(documented)), false) = (documented, sent.is_empty()) else { continue };
        let documented: BTreeSet<_> = documented.iter().filter_map(Value::as_str).collect();
        assert_eq!(documented, sent.into_iter().map(|(_, word)| word.as_str()).collect(), "{name}");
        checked += 1;
    }
    assert!(checked >= 12, "only {checked} enums were found in both");
}

#[test]
fn the_checked_in_document_is_what_the_program_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/openapi.json");
    if std::env::var_os("DESKGATE_REWRITE_GOLDEN").is_some() {
        std::fs::write(&path, openapi::json()).expect("writable");
    }
    let checked_in = std::fs::read_to_string(&path).expect("readable");
    let hint = "docs/openapi.json is out of date: cargo run --bin deskgate-gateway openapi > docs/openapi.json";
    assert!(checked_in == openapi::json(), "{hint}");
}

#[tokio::test]
async fn the_document_is_served_without_a_key_and_so_are_its_pages() {
    let gateway = TestGateway::new().await;
    let served = gateway.call("GET", "/api/v1/openapi.json").send().await;
    assert_eq!((served.status, served.header("content-type")), (200, Some("application/json")));
    assert_eq!(served.json(), *DOCUMENT);
    let index = gateway.call("GET", "/api/v1/docs").send().await;
    assert_reference_page(&index);
    let ids = calls().map(|(address, call)| (address, call["operationId"].as_str().expect("a text")));
    let records = DOCUMENT["components"]["schemas"].as_object().expect("an object").keys();
    let records = records.map(|name| (name.clone(), name.as_str()));
    for (what, name) in ids.chain(records).chain([("the callbacks".to_owned(), "callbacks")]) {
        let path = format!("/api/v1/docs/{name}");
        assert!(index.text.contains(&format!("href=\"{path}\"")), "{what} is not in the list");
        let page = gateway.call("GET", &path).send().await;
        assert_reference_page(&page);
        assert!(page.text.contains(&format!("href=\"{path}\" aria-current=\"page\"")), "{path} is another page");
    }
    gateway.call("GET", "/api/v1/docs/made_up").send().await.assert_problem(&crate::support::call::not_found());
    gateway.stop().await;
}

#[tokio::test]
async fn the_search_knows_every_operation_record_callback_and_problem() {
    let gateway = TestGateway::new().await;
    let script = gateway.call("GET", "/api/v1/docs/search.js").send().await;
    assert_eq!((script.status, script.header("content-type")), (200, Some("text/javascript; charset=utf-8")));
    assert!(!script.text.contains("//api") && !script.text.contains("http"), "it asks this gateway alone");
    let index = gateway.call("GET", "/api/v1/docs/search.json").send().await.json();
    let pages = index.as_array().expect("a list").iter();
    let addresses: BTreeSet<_> = pages.filter_map(|page| page["address"].as_str().map(str::to_owned)).collect();
    let operations = calls().map(|(_, call)| format!("/api/v1/docs/{}", call["operationId"].as_str().expect("a text")));
    let records = DOCUMENT["components"]["schemas"].as_object().expect("an object").keys();
    let callbacks = DOCUMENT["webhooks"].as_object().expect("an object").keys();
    let problems = Code::ALL.iter().map(|code| format!("/problems/{}", code.as_str()));
    let expected = operations.chain(records.map(|name| format!("/api/v1/docs/{name}")));
    let expected = expected.chain(callbacks.map(|event| format!("/api/v1/docs/callbacks#{event}"))).chain(problems);
    assert_eq!(addresses, expected.collect());
    gateway.stop().await;
}

#[test]
fn every_callback_event_has_a_named_body() {
    let webhooks = DOCUMENT["webhooks"].as_object().expect("an object");
    for event in CallbackEvent::ALL {
        let call = &webhooks[event.as_str()]["post"];
        let content = &call["requestBody"]["content"]["application/json"];
        let body = content["schema"]["$ref"].as_str().expect("a named body");
        let wanted = match event {
            CallbackEvent::ConversationReset => "ConversationCallback",
            CallbackEvent::WebhookTest => "TestCallback",
            _ => "RunCallback",
        };
        assert_eq!(body, format!("#/components/schemas/{wanted}"), "{event}");
        assert_eq!(content["example"]["type"], event.as_str());
    }
    assert_eq!(webhooks.len(), CallbackEvent::ALL.len());
}

#[test]
fn a_generator_finds_only_what_it_digests() {
    let mut found = Vec::new();
    objects(&DOCUMENT, &mut found);
    for object in found {
        for keyword in ["anyOf", "allOf", "oneOf"] {
            assert!(object.get(keyword).is_none(), "{object}");
        }
        assert!(object["type"] != "null" && !object["type"].is_array(), "{object}");
        if let Some(reference) = object["$ref"].as_str() {
            let target = DOCUMENT.pointer(reference.strip_prefix('#').expect("inside the document"));
            assert!(target.is_some(), "{reference} leads nowhere");
        }
    }
}

#[test]
fn every_call_is_named_and_shows_every_answer_by_an_example() {
    let mut ids = std::collections::BTreeSet::new();
    for (address, call) in calls() {
        let id = call["operationId"].as_str().unwrap_or_default();
        let is_verb_noun = id.split('_').count() >= 2 && id.bytes().all(|b| b == b'_' || b.is_ascii_lowercase());
        assert!(is_verb_noun && ids.insert(id), "{address}: {id:?}");
        for member in ["summary", "description", "tags", "security"] {
            assert!(call.get(member).is_some(), "{address} has no {member}");
        }
        for (status, response) in call["responses"].as_object().expect("an object") {
            assert!(response["headers"].get("X-Request-Id").is_some(), "{address} {status}");
            for (form, content) in response["content"].as_object().into_iter().flatten() {
                // A file is what it is, and has no record.
                if form == "application/octet-stream" {
                    continue;
                }
                let named = content["schema"]["$ref"].is_string();
                let shown = content.get("example").or(content.get("examples")).is_some_and(|shown| !shown.is_null());
                assert!(named && shown, "{address} {status} {form}");
            }
        }
    }
}
