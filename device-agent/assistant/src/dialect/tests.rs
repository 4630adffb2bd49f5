//! What a request's body says of the effort, for each vendor.

use std::sync::Arc;

use deskgate_definition::Effort;
use deskgate_definition::tool::{RESULT_TOOL, ToolSpec};
use serde_json::{Value, json};

use super::chat::Chat;
use super::messages::Messages;
use super::responses::Responses;
use super::*;
use crate::Message;
use crate::profile::Api;

fn asked(profile: &str, api: Api, model: &str, effort: Option<Effort>) -> Value {
    asked_for(profile, api, model, effort, None)
}

/// The body of a request whose answer has at most so many tokens.
fn asked_for(profile: &str, api: Api, model: &str, effort: Option<Effort>, most: Option<u64>) -> Value {
    let profile = Profile::named(profile).expect("a profile");
    let entry = profile.model(model);
    let options = ModelOptions {
        model: model.to_owned(),
        profile,
        entry,
        reasons: entry.is_none_or(|entry| entry.reasons),
        max_output_tokens: entry.and_then(|entry| entry.max_output_tokens),
        reasoning: Reasoning::default(),
        cache_key: "key".to_owned(),
    };
    let request = ModelRequest {
        system: "Answer.".into(),
        messages: Arc::new(vec![Message::User { text: "Hello".to_owned(), details: None }]),
        tools: Arc::new([]),
        max_output_tokens: most,
        effort,
    };
    let body = match api {
        Api::Responses => Responses::body(&options, &request),
        Api::Chat => Chat::body(&options, &request),
        Api::Messages => Messages::body(&options, &request),
    };
    serde_json::to_value(body).expect("JSON")
}

/// The words of a body about the effort; `-` where it has none.
fn words(body: &Value) -> String {
    let places = ["/reasoning_effort", "/reasoning/effort", "/thinking/type", "/thinking/budget_tokens"];
    let places = places.into_iter().chain(["/output_config/effort"]);
    let found = places.filter_map(|place| match body.pointer(place)? {
        Value::String(word) => Some(word.clone()),
        other => Some(other.to_string()),
    });
    let found = found.collect::<Vec<_>>().join(":");
    if found.is_empty() { "-".to_owned() } else { found }
}

const EFFORTS: [Option<Effort>; 8] = [
    None,
    Some(Effort::None),
    Some(Effort::Minimal),
    Some(Effort::Low),
    Some(Effort::Medium),
    Some(Effort::High),
    Some(Effort::Xhigh),
    Some(Effort::Max),
];

#[test]
fn each_effort_is_asked_in_the_nearest_word_that_the_vendors_model_takes() {
    for (profile, api, model, expected) in [
        ("openai", Api::Responses, "gpt-5.6-terra", "- none low low medium high xhigh max"),
        ("openai", Api::Responses, "gpt-6.1-sol", "- low low low medium high xhigh max"),
        ("openai", Api::Responses, "gpt-5.1-2025-11-13", "- none low low medium high high high"),
        ("openai", Api::Responses, "gpt-5-mini", "- minimal minimal low medium high high high"),
        ("openai", Api::Responses, "gpt-5.4-pro", "- medium medium medium medium high xhigh xhigh"),
        ("openai", Api::Responses, "gpt-4.1", "- - - - - - - -"),
        ("openai", Api::Chat, "gpt-4.1", "- - - - - - - -"),
        ("openai", Api::Chat, "gpt-5.5", "- none low low medium high xhigh xhigh"),
        ("google", Api::Chat, "gemini-3.8-flash", "- low low low medium high high high"),
        ("mistral", Api::Chat, "mistral-medium-3-5", "- none high high high high high high"),
        ("mistral", Api::Chat, "mistral-large-latest", "- - - - - - - -"),
        ("deepseek", Api::Chat, "deepseek-flash", "- disabled minimal low medium high xhigh max"),
        ("openrouter", Api::Chat, "any/model", "- none minimal low medium high xhigh max"),
        ("xai", Api::Responses, "grok-4.7", "- low low low medium high xhigh xhigh"),
        ("xai", Api::Chat, "grok-4.5", "- low low low medium high high high"),
        ("xai", Api::Chat, "grok-4.3", "- none low low medium high high high"),
        ("groq", Api::Chat, "openai/gpt-oss-120b", "- low low low medium high high high"),
        // It reasons or it does not: the vendor's own word for reasoning is the default.
        ("groq", Api::Chat, "qwen/qwen3.8-27b", "- none - - - - - -"),
        // Nothing is known of what runs there.
        ("ollama", Api::Chat, "m-1", "- none minimal low medium high xhigh max"),
        (
            "anthropic",
            Api::Messages,
            "claude-opus-5-5",
            "adaptive adaptive:low adaptive:low adaptive:low adaptive:medium adaptive:high adaptive:xhigh adaptive:max",
        ),
        (
            "anthropic",
            Api::Messages,
            "claude-sonnet-5-5",
            "adaptive between_tools adaptive:low adaptive:low adaptive:medium adaptive:high adaptive:xhigh adaptive:max",
        ),
        (
            "anthropic",
            Api::Messages,
            "claude-sonnet-4-6",
            "- disabled adaptive:low adaptive:low adaptive:medium adaptive:high adaptive:high adaptive:max",
        ),
        (
            "anthropic",
            Api::Messages,
            "claude-haiku-4-5-20251001",
            "- disabled enabled:1024 enabled:4096 enabled:8192 enabled:16384 enabled:32000 enabled:32000",
        ),
    ] {
        let said = EFFORTS.map(|effort| words(&asked(profile, api, model, effort))).join(" ");
        assert_eq!(said, expected, "{profile} {api:?} {model}");
    }
}

#[test]
fn a_budget_of_thinking_leaves_room_for_the_answer() {
    let of = |most| words(&asked_for("anthropic", Api::Messages, "claude-haiku-4-5", Some(Effort::High), Some(most)));
    assert_eq!((of(10_000).as_str(), of(2_000).as_str()), ("enabled:5000", "-"));
}

fn result_tool(parameters: Value) -> ToolSpec {
    ToolSpec { name: RESULT_TOOL.to_owned(), description: "Gives it.".to_owned(), parameters }
}

#[test]
fn references_are_put_in_place_without_end_for_nobody() {
    let shown = |parameters: Value| {
        let options = &Profile::named("google").expect("a profile").chat;
        super::chat::tool(options, &result_tool(parameters))["function"]["parameters"].clone()
    };
    let lamp = json!({ "type": "object", "properties": { "definitions": { "const": "x" }, "watts": { "$ref": "#/$defs/watts" } } });
    let plain = json!({ "type": "object", "properties": { "lamp": { "$ref": "#/$defs/lamp", "title": "One" } },
        "$defs": { "lamp": lamp, "watts": { "type": "number" } } });
    let expected = json!({ "type": "object", "properties": { "lamp": { "type": "object", "title": "One",
        "properties": { "definitions": { "enum": ["x"] }, "watts": { "type": "number" } } } } });
    assert_eq!(shown(plain), expected);

    // Each part leads to itself twenty times.
    let again: serde_json::Map<_, _> = (0..20).map(|n| (format!("p{n}"), json!({ "$ref": "#" }))).collect();
    let bytes = shown(json!({ "type": "object", "properties": again })).to_string().len();
    assert!(bytes < 200_000, "{bytes} bytes");
}

#[test]
fn only_a_schema_that_the_vendor_takes_as_strict_is_sent_as_that() {
    let strict = |parameters: Value| super::responses::tool(&result_tool(parameters))["strict"] == true;
    let closed = |properties: Value, required: Value| json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false });
    let text = json!({ "type": "string" });
    assert!(strict(closed(json!({ "a": text, "b": { "type": ["integer", "null"] } }), json!(["b", "a"]))));
    assert!(strict(closed(json!({ "a": { "anyOf": [text, { "type": "null" }] } }), json!(["a"]))));
    for wide in [
        closed(json!({ "a": text, "b": text }), json!(["a"])),
        closed(json!({ "a": text }), json!(["b"])),
        closed(json!({ "a": {} }), json!(["a"])),
        closed(json!({ "a": { "type": "string", "minLength": 1 } }), json!(["a"])),
        closed(json!({ "a": { "$ref": "#/$defs/a", "title": "A" } }), json!(["a"])),
        closed(json!({ "a": { "type": "object" } }), json!(["a"])),
        json!({ "type": "object", "properties": {}, "required": [] }),
        (0..9).fold(closed(json!({}), json!([])), |inner, _| closed(json!({ "a": inner }), json!(["a"]))),
    ] {
        assert!(!strict(wide.clone()), "{wide}");
    }
}
