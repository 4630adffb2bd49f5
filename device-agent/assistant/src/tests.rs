//! The two remote providers against a server that replays real providers' bytes.

use std::sync::Arc;
use std::time::Duration;

use deskgate_secrets::Secret;
use futures_util::StreamExt;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::providers::{KeyChange, ProviderChange};
use super::*;
use deskgate_definition::Definition;

const API_KEY: &str = "sk-canary-4711";

/// Answers one request with these bytes, in pieces of this size, and returns the request.
async fn server(answer: String, pieces: usize) -> (String, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
    let address = format!("http://{}", listener.local_addr().expect("bound"));
    let served = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a caller");
        let mut asked = Vec::new();
        let mut buffer = [0; 4096];
        while !is_whole(&asked) {
            let read = stream.read(&mut buffer).await.expect("a request");
            assert!(read > 0, "the request broke off");
            asked.extend_from_slice(&buffer[..read]);
        }
        for piece in answer.as_bytes().chunks(pieces) {
            // The caller may have closed the connection.
            if stream.write_all(piece).await.is_err() || stream.flush().await.is_err() {
                break;
            }
            tokio::task::yield_now().await;
        }
        String::from_utf8(asked).expect("text")
    });
    (address, served)
}

fn is_whole(asked: &[u8]) -> bool {
    let text = String::from_utf8_lossy(asked);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
    body.len() >= length.unwrap_or(0_usize)
}

fn ok(events: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n{events}")
}

fn no(status: &str, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\nconnection: close\r\n\r\n{body}", body.len())
}

fn definition(model: &str) -> Definition {
    let definition = json!({
        "name": "Reader", "description": "", "working_directory": "/srv/work", "provider": "work", "model": model,
        "instructions": "Answer.", "tools": [],
        "limits": { "max_turns": 5, "max_duration_s": 60, "concurrency": 1 },
    });
    serde_json::from_value(definition).expect("a definition")
}

fn opened(profile: &str, base_url: &str) -> (tempfile::TempDir, Box<dyn Assistant>) {
    let folder = tempfile::tempdir().expect("a folder");
    let accounts = Providers::new(folder.path().to_owned());
    let key = KeyChange::Replace(Secret::new(API_KEY).expect("a key"));
    let change = ProviderChange {
        profile: Some(profile.to_owned()),
        api: None,
        base_url: Some(base_url.to_owned()),
        api_version: None,
        plain_http: None,
        key,
        key_place: None,
    };
    accounts.set("work", change).expect("saved");
    let assistant = open(&accounts, &definition("m-1-high")).expect("opens");
    (folder, assistant)
}

fn request() -> ModelRequest {
    let asked = ToolCall { id: "t1".to_owned(), name: "Grep".to_owned(), arguments: json!({ "pattern": "x" }) };
    let answered = ToolAnswer::text("t1".to_owned(), "nothing".to_owned(), true);
    let messages = vec![
        Message::User { text: "before".to_owned(), details: None },
        Message::assistant("answered", Vec::new()),
        Message::User { text: "now".to_owned(), details: Some("{\"order\":1}".to_owned()) },
        Message::assistant("", vec![asked]),
        Message::ToolResults(vec![answered]),
    ];
    let tool = ToolSpec {
        name: "Grep".to_owned(),
        description: "Searches.".to_owned(),
        parameters: json!({ "type": "object", "properties": { "pattern": { "type": "string" } } }),
    };
    ModelRequest {
        system: "You are careful.".into(),
        messages: Arc::new(messages),
        tools: Arc::new([tool]),
        max_output_tokens: Some(100),
        effort: None,
    }
}

/// The model's events, and the request: the head in lower case, and the body.
async fn talk(profile: &str, answer: String, pieces: usize) -> (Vec<ModelEvent>, String, Value) {
    let (address, served) = server(answer, pieces).await;
    let (_folder, assistant) = opened(profile, &format!("{address}/base"));
    let events = without_progress(assistant.respond(request()).collect().await);
    let asked = served.await.expect("no panic");
    let (head, body) = asked.split_once("\r\n\r\n").expect("a whole request");
    (events, head.to_lowercase(), serde_json::from_str(body).expect("JSON"))
}

/// The events that say something.
fn without_progress(mut events: Vec<ModelEvent>) -> Vec<ModelEvent> {
    events.retain(|event| !matches!(event, ModelEvent::Progress(_)));
    events
}

async fn events(profile: &str, answer: String) -> Vec<ModelEvent> {
    talk(profile, answer, 7).await.0
}

fn call(id: &str, name: &str, arguments: Value) -> ModelEvent {
    ModelEvent::ToolCall(ToolCall { id: id.to_owned(), name: name.to_owned(), arguments })
}

fn text(text: &str) -> ModelEvent {
    ModelEvent::TextDelta(text.to_owned())
}

fn usage(input_tokens: u64, output_tokens: u64) -> ModelEvent {
    ModelEvent::Usage(TokenUsage { input_tokens, output_tokens, ..TokenUsage::default() })
}

/// The same for the stream of Messages, where some were read from the cache and some written to it.
fn cached_usage(output_tokens: u64) -> ModelEvent {
    let tokens = TokenUsage {
        input_tokens: 27,
        cached_input_tokens: 4,
        cache_write_tokens: 3,
        output_tokens,
        reasoning_tokens: 0,
        cost: None,
    };
    ModelEvent::Usage(tokens)
}

/// The events without the message in the provider's own form, and that form.
fn split(heard: Vec<ModelEvent>) -> (Vec<ModelEvent>, Value) {
    let native = heard.iter().find_map(|event| match event {
        ModelEvent::Native(NativeMessage(value)) => Some(Value::clone(value)),
        _ => None,
    });
    let others = heard.into_iter().filter(|event| !matches!(event, ModelEvent::Native(_))).collect();
    (others, native.unwrap_or_default())
}

const ANTHROPIC: &str = r#"event: message_start
data: {"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","content":[],"model":"m-1","stop_reason":null,"usage":{"input_tokens":20,"cache_creation_input_tokens":3,"cache_read_input_tokens":4,"output_tokens":1}}}

event: ping
data: {"type": "ping"}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: content_block_start
data: {"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"Größe "}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"prüfen"}}

event: content_block_stop
data: {"type":"content_block_stop","index":1}

event: content_block_start
data: {"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"toolu_1","name":"Grep","input":{}}}

event: content_block_delta
data: {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"pattern\": \"si"}}

event: content_block_delta
data: {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"ze\"}"}}

event: content_block_stop
data: {"type":"content_block_stop","index":2}

event: content_block_start
data: {"type":"content_block_start","index":3,"content_block":{"type":"tool_use","id":"toolu_2","name":"Glob","input":{}}}

event: content_block_stop
data: {"type":"content_block_stop","index":3}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":15}}

event: message_stop
data: {"type":"message_stop"}

"#;

const OPENAI: &str = r#"data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}],"usage":null}

data: {"id":"c","choices":[{"index":0,"delta":{"content":"Größe"},"finish_reason":null}]}

data: {"id":"c","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call_a","type":"function","function":{"name":"Grep","arguments":""}}]},"finish_reason":null}]}

data: {"id":"c","choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"id":"call_b","type":"function","function":{"name":"Glob","arguments":"{\"pat"}}]},"finish_reason":null}]}

data: {"id":"c","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"pattern\": \"size\"}"}}]},"finish_reason":null}]}

data: {"id":"c","choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"function":{"arguments":"tern\":\"*\"}"}}]},"finish_reason":null}]}

data: {"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}

data: {"id":"c","choices":[],"usage":{"prompt_tokens":22,"completion_tokens":11,"total_tokens":33}}

data: [DONE]

"#;

const RESPONSES: &str = r#"event: response.created
data: {"type":"response.created","sequence_number":0,"response":{"id":"resp_1","status":"in_progress","error":null}}

event: response.output_item.added
data: {"type":"response.output_item.added","output_index":0,"item":{"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":"half"}}

event: response.reasoning_summary_part.added
data: {"type":"response.reasoning_summary_part.added","summary_index":0}

event: response.reasoning_summary_text.delta
data: {"type":"response.reasoning_summary_text.delta","delta":"hm"}

event: response.output_item.done
data: {"type":"response.output_item.done","output_index":0,"item":{"id":"rs_1","type":"reasoning","summary":[{"type":"summary_text","text":"hm"}],"encrypted_content":"whole","status":null}}

event: response.output_text.delta
data: {"type":"response.output_text.delta","delta":"Größe"}

event: response.output_item.done
data: {"type":"response.output_item.done","output_index":1,"item":{"id":"msg_1","type":"message","status":"completed","role":"assistant","phase":"commentary","content":[{"type":"output_text","text":"Größe","annotations":[]}]}}

event: response.output_item.added
data: {"type":"response.output_item.added","output_index":2,"item":{"id":"fc_1","type":"function_call","status":"in_progress","arguments":"","call_id":"call_a","name":"Grep"}}

event: response.function_call_arguments.delta
data: {"type":"response.function_call_arguments.delta","output_index":2,"delta":"{\"pattern\": \"size\"}"}

event: response.output_item.done
data: {"type":"response.output_item.done","output_index":2,"item":{"id":"fc_1","type":"function_call","status":"completed","arguments":"{\"pattern\": \"size\"}","call_id":"call_a","name":"Grep"}}

event: response.completed
data: {"type":"response.completed","response":{"status":"completed","error":null,"usage":{"input_tokens":22,"input_tokens_details":{"cached_tokens":20},"output_tokens":11,"output_tokens_details":{"reasoning_tokens":5},"total_tokens":33}}}

"#;

#[tokio::test]
async fn an_answer_with_text_and_tool_calls_is_understood_however_its_bytes_arrive() {
    let thought = || ModelEvent::ReasoningDelta("hm".to_owned());
    let end = || ModelEvent::End(StopReason::Completed);
    let anthropic = [
        cached_usage(0),
        thought(),
        text("Größe "),
        text("prüfen"),
        call("toolu_1", "Grep", json!({ "pattern": "size" })),
        call("toolu_2", "Glob", json!({})),
        cached_usage(15),
        end(),
    ];
    let openai = [
        text("Größe"),
        call("call_a", "Grep", json!({ "pattern": "size" })),
        call("call_b", "Glob", json!({ "pattern": "*" })),
        usage(22, 11),
        end(),
    ];
    let spent = TokenUsage {
        input_tokens: 22,
        cached_input_tokens: 20,
        cache_write_tokens: 0,
        output_tokens: 11,
        reasoning_tokens: 5,
        cost: None,
    };
    let responses = [
        thought(),
        text("Größe"),
        call("call_a", "Grep", json!({ "pattern": "size" })),
        ModelEvent::Usage(spent),
        end(),
    ];
    for pieces in [1, 17, 1 << 20] {
        assert_eq!(split(talk("anthropic", ok(ANTHROPIC), pieces).await.0).0, anthropic);
        assert_eq!(split(talk("compatible", ok(OPENAI), pieces).await.0).0, openai);
        assert_eq!(split(talk("openai", ok(RESPONSES), pieces).await.0).0, responses);
    }
}

#[tokio::test]
async fn a_message_is_kept_as_its_provider_wrote_it_and_goes_back_so() {
    let (_, native) = split(events("anthropic", ok(ANTHROPIC)).await);
    let message = json!({ "role": "assistant", "content": [
        { "type": "thinking", "thinking": "hm", "signature": "" },
        { "type": "text", "text": "Größe prüfen" },
        { "type": "tool_use", "id": "toolu_1", "name": "Grep", "input": { "pattern": "size" } },
        { "type": "tool_use", "id": "toolu_2", "name": "Glob", "input": {} },
    ] });
    assert_eq!(native, message);
    let (_, native) = split(events("openai", ok(RESPONSES)).await);
    // Nothing is stored there: calls and messages have no identifier, and reasoning has its own.
    let items = json!([
        { "type": "reasoning", "id": "rs_1", "summary": [{ "type": "summary_text", "text": "hm" }],
            "encrypted_content": "whole" },
        { "type": "message", "status": "completed", "role": "assistant", "phase": "commentary",
            "content": [{ "type": "output_text", "text": "Größe", "annotations": [] }] },
        { "type": "function_call", "status": "completed", "call_id": "call_a", "name": "Grep",
            "arguments": "{\"pattern\":\"size\"}" },
    ]);
    assert_eq!(native, items);
    for (profile, native) in [("anthropic", message), ("openai", items)] {
        let stream = if profile == "openai" { RESPONSES } else { ANTHROPIC };
        let (address, served) = server(ok(stream), 4096).await;
        let (_folder, assistant) = opened(profile, &address);
        let answered = ToolAnswer::text("t1".to_owned(), "nothing".to_owned(), false);
        let messages = vec![
            Message::User { text: "now".to_owned(), details: None },
            Message::Assistant {
                text: "other".to_owned(),
                tool_calls: Vec::new(),
                native: Some(NativeMessage(Arc::new(native.clone()))),
            },
            Message::ToolResults(vec![answered]),
        ];
        let _heard: Vec<_> =
            assistant.respond(ModelRequest { messages: Arc::new(messages), ..request() }).collect().await;
        let asked = served.await.expect("no panic");
        let body: Value = serde_json::from_str(asked.split_once("\r\n\r\n").expect("whole").1).expect("JSON");
        match profile {
            "openai" => {
                assert_eq!(body["input"].as_array().expect("a list")[1..4], native.as_array().expect("a list")[..])
            }
            _ => assert_eq!(body["messages"][1], native),
        }
    }
}

#[tokio::test]
async fn a_conversation_is_asked_in_each_providers_own_form_and_the_model_by_its_exact_name() {
    let (_, head, body) = talk("anthropic", ok(ANTHROPIC), 4096).await;
    assert!(head.starts_with("post /base/v1/messages "), "{head}");
    assert!(
        head.contains(&format!("x-api-key: {API_KEY}")) && head.contains("anthropic-version: 2023-06-01"),
        "{head}"
    );
    assert_eq!(
        body,
        json!({
            "model": "m-1-high", "max_tokens": 100, "stream": true,
            "system": [{ "type": "text", "text": "You are careful.", "cache_control": { "type": "ephemeral" } }],
            "messages": [
                { "role": "user", "content": [{ "type": "text", "text": "before" }] },
                { "role": "assistant", "content": [{ "type": "text", "text": "answered" }] },
                { "role": "user", "content": [
                    { "type": "text", "text": "now" },
                    { "type": "text", "text": "{\"order\":1}", "cache_control": { "type": "ephemeral" } }] },
                { "role": "assistant", "content": [
                    { "type": "tool_use", "id": "t1", "name": "Grep", "input": { "pattern": "x" } }] },
                { "role": "user", "content": [
                    { "type": "tool_result", "tool_use_id": "t1", "content": "nothing", "is_error": true,
                        "cache_control": { "type": "ephemeral" } }] },
            ],
            "tools": [{ "name": "Grep", "description": "Searches.", "cache_control": { "type": "ephemeral" },
                "input_schema": { "type": "object", "properties": { "pattern": { "type": "string" } } } }],
        })
    );
    let (_, head, body) = talk("compatible", ok(OPENAI), 4096).await;
    assert!(head.starts_with("post /base/chat/completions "), "{head}");
    assert!(head.contains(&format!("authorization: bearer {API_KEY}")), "{head}");
    assert_eq!(
        body,
        json!({
            "model": "m-1-high", "max_tokens": 100,
            "stream": true, "stream_options": { "include_usage": true },
            "messages": [
                { "role": "system", "content": "You are careful." },
                { "role": "user", "content": "before" },
                { "role": "assistant", "content": "answered" },
                { "role": "user", "content": "now\n\n{\"order\":1}" },
                { "role": "assistant", "content": null, "tool_calls": [{ "id": "t1", "type": "function",
                    "function": { "name": "Grep", "arguments": "{\"pattern\":\"x\"}" } }] },
                { "role": "tool", "tool_call_id": "t1", "content": "Error: nothing" },
            ],
            "tools": [{ "type": "function", "function": { "name": "Grep", "description": "Searches.",
                "parameters": { "type": "object", "properties": { "pattern": { "type": "string" } } } } }],
        })
    );
}

#[tokio::test]
async fn an_answer_that_was_cut_anywhere_never_ends_as_a_whole_one() {
    let last = "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{},";
    for (profile, whole, last) in [
        ("anthropic", ANTHROPIC, "event: message_stop"),
        // The answer is complete once its reason is given, even if the final event is lost.
        ("compatible", OPENAI, last),
        ("openai", RESPONSES, "event: response.completed"),
    ] {
        let last = whole.rfind(last).expect("there");
        for cut in (0..=last).step_by(97).chain([last]) {
            let cut = (0..=cut).rev().find(|cut| whole.is_char_boundary(*cut)).unwrap_or(0);
            let heard = events(profile, ok(&whole[..cut])).await;
            let is_whole = |event: &ModelEvent| matches!(event, ModelEvent::End(_) | ModelEvent::ToolCall(_));
            assert!(!heard.iter().any(is_whole), "cut at {cut}: {heard:?}");
        }
    }
}

#[tokio::test]
async fn what_a_call_read_is_known_before_its_first_word_so_that_a_stopped_one_counts() {
    let (address, _served) = server(ok(ANTHROPIC), 4096).await;
    let (_folder, assistant) = opened("anthropic", &address);
    let mut heard = assistant.respond(request());
    assert_eq!(heard.next().await, Some(ModelEvent::Progress(0)));
    assert_eq!(heard.next().await, Some(cached_usage(0)));
    let broken = &ANTHROPIC[..ANTHROPIC.find("event: content_block_stop").expect("there")];
    let heard = events("anthropic", ok(broken)).await;
    assert_eq!(heard.first(), Some(&cached_usage(0)), "{heard:?}");
}

#[tokio::test]
async fn a_call_that_is_still_being_written_says_how_far_it_has_come() {
    for (profile, whole, last) in [
        ("anthropic", ANTHROPIC, "\"partial_json\""),
        ("compatible", OPENAI, "\"arguments\""),
        ("openai", RESPONSES, "function_call_arguments.delta\""),
    ] {
        let at = whole.rfind(last).expect("there");
        let end = at + whole[at..].find("\n\n").expect("an event") + 2;
        let (address, _served) = server(ok(&whole[..end]), 4096).await;
        let (_folder, assistant) = opened(profile, &address);
        let heard: Vec<_> = assistant.respond(request()).collect().await;
        let far = heard.iter().filter_map(|event| match event {
            ModelEvent::Progress(bytes) => Some(*bytes),
            _ => None,
        });
        let far: Vec<_> = far.collect();
        assert!(far.first() == Some(&0) && far.last().is_some_and(|bytes| *bytes > 10), "{profile}: {heard:?}");
        assert!(far.is_sorted(), "{profile}: {far:?}");
    }
}

#[tokio::test]
async fn a_tool_call_that_a_limit_cut_off_is_not_made_and_is_told() {
    let cut_anthropic = ANTHROPIC
        .replace("\"stop_reason\":\"tool_use\"", "\"stop_reason\":\"max_tokens\"")
        .replace("\"index\":3}", "\"index\":3},");
    let cut_anthropic = cut_anthropic.replace(",\n", "\n");
    let cut_openai = OPENAI
        .replace("\"finish_reason\":\"tool_calls\"", "\"finish_reason\":\"length\"")
        .replace("tern\\\":\\\"*\\\"}", "tern");
    let cut_responses = RESPONSES
        .replace("\"status\":\"completed\",\"arguments\"", "\"status\":\"incomplete\",\"arguments\"")
        .replace("event: response.completed", "event: response.incomplete")
        .replace(
            "{\"type\":\"response.completed\",\"response\":{\"status\":\"completed\"",
            "{\"type\":\"response.incomplete\",\"response\":{\"incomplete_details\":{\"reason\":\"max_output_tokens\"}",
        );
    for (profile, stream, tool, whole) in [
        ("anthropic", cut_anthropic, "Glob", 1),
        ("compatible", cut_openai, "Glob", 1),
        ("openai", cut_responses, "Grep", 0),
    ] {
        let (heard, native) = split(events(profile, ok(&stream)).await);
        assert!(heard.contains(&ModelEvent::End(StopReason::Length)), "{profile}: {heard:?}");
        assert!(heard.contains(&ModelEvent::CutCall(tool.to_owned())), "{profile}: {heard:?}");
        let calls = heard.iter().filter(|event| matches!(event, ModelEvent::ToolCall(_))).count();
        assert_eq!(calls, whole, "{profile}: {heard:?}");
        assert!(!native.to_string().contains(&format!("\"name\":\"{tool}\"")), "{profile}: {native}");
    }
}

#[tokio::test]
async fn texts_of_white_space_alone_are_left_out_where_they_would_be_refused() {
    let (address, served) = server(ok(ANTHROPIC), 4096).await;
    let (_folder, assistant) = opened("anthropic", &address);
    let call = ToolCall { id: "t1".to_owned(), name: "Grep".to_owned(), arguments: json!({}) };
    let said = |text: &str| Message::User { text: text.to_owned(), details: None };
    let messages =
        vec![said(" "), Message::assistant("\n\n", Vec::new()), said("now"), Message::assistant("\n\n", vec![call])];
    let request = ModelRequest { messages: Arc::new(messages), ..request() };
    let _heard: Vec<_> = assistant.respond(request).collect().await;
    let asked = served.await.expect("no panic");
    let body: Value = serde_json::from_str(asked.split_once("\r\n\r\n").expect("whole").1).expect("JSON");
    for message in 0..2 {
        assert_eq!(body["messages"][message]["content"][0]["text"], "(nothing)", "{body}");
    }
    assert_eq!(body["messages"][3]["content"][0]["type"], "tool_use", "{body}");
}

#[tokio::test]
async fn servers_that_speak_openai_a_little_differently_are_understood() {
    // An empty reason with every piece means nothing: this stream breaks off.
    let broken = "data: {\"choices\":[{\"delta\":{\"content\":\"half\"},\"finish_reason\":\"\"}]}\n\n";
    assert_eq!(events("compatible", ok(broken)).await, [text("half")], "no end");
    // Complete calls that are all numbered 0, without usage or a final event.
    let other = concat!(
        "data: {\"choices\":[{\"delta\":{\"content\":null,\"tool_calls\":[",
        "{\"index\":0,\"id\":\"a\",\"function\":{\"name\":\"Read\",\"arguments\":\"{}\"}}]}}]}\n\n",
        "data: {\"choices\":[{\"delta\":{\"tool_calls\":[",
        "{\"index\":0,\"id\":\"b\",\"function\":{\"name\":\"Glob\",\"arguments\":\"not json\"}}]},",
        "\"finish_reason\":\"stop\"}]}\n\n"
    );
    assert_eq!(
        split(events("compatible", ok(other)).await).0,
        [call("a", "Read", json!({})), call("b", "Glob", json!("not json")), ModelEvent::End(StopReason::Completed)]
    );
}

#[tokio::test]
async fn each_refusal_is_told_apart_and_repeats_nothing_that_the_provider_wrote() {
    let quota =
        "{\"error\":{\"message\":\"sk-canary\",\"type\":\"insufficient_quota\",\"code\":\"insufficient_quota\"}}";
    let overloaded = "{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"sk-canary\"}}";
    let long = "{\"error\":{\"type\":\"invalid_request_error\",\"message\":\"prompt is too long: 9 > 8, sk-canary\"}}";
    let context = "{\"error\":{\"message\":\"sk-canary\",\"type\":\"invalid_request_error\",\"code\":\"context_length_exceeded\"}}";
    let cases = [
        (no("401 Unauthorized", "", "sk-canary"), ErrorKind::Auth, false, None),
        (no("403 Forbidden", "", "{}"), ErrorKind::Auth, false, None),
        (no("404 Not Found", "", "<html>sk-canary</html>"), ErrorKind::Model, false, None),
        (no("400 Bad Request", "", context), ErrorKind::TooLong, false, None),
        (no("400 Bad Request", "", long), ErrorKind::TooLong, false, None),
        (no("429 Too Many Requests", "retry-after: 7\r\n", "{}"), ErrorKind::Overloaded, true, Some(7)),
        (no("429 Too Many Requests", "", quota), ErrorKind::Auth, false, None),
        (no("500 Internal Server Error", "", "{}"), ErrorKind::Overloaded, true, None),
        (no("529 Overloaded", "retry-after: soon\r\n", overloaded), ErrorKind::Overloaded, true, None),
        (no("302 Found", "location: http://127.0.0.1:1/\r\n", ""), ErrorKind::Model, false, None),
        (ok(&format!("event: error\ndata: {overloaded}\n\n")), ErrorKind::Overloaded, true, None),
        (ok("data: {\"type\": sk-canary\n\n"), ErrorKind::Protocol, true, None),
        (ok(&format!("data: {}\n\n", "x".repeat(5 << 20))), ErrorKind::Protocol, true, None),
        ("not HTTP at all\r\n\r\n".to_owned(), ErrorKind::Unreachable, true, None),
        (String::new(), ErrorKind::Unreachable, true, None),
    ];
    for (answer, kind, retryable, pause) in cases {
        for provider in ["anthropic", "compatible", "openai"] {
            let shown: String = answer.chars().take(120).collect();
            let heard = talk(provider, answer.clone(), 1 << 16).await.0;
            let [ModelEvent::Error(error)] = &heard[..] else { panic!("{shown}: {heard:?}") };
            assert_eq!((error.kind, error.retryable), (kind, retryable), "{shown}: {error}");
            assert_eq!(error.retry_after, pause.map(Duration::from_secs), "{shown}");
            assert!(!error.message.contains("canary"), "{error}");
        }
    }
}

#[tokio::test]
async fn nobody_at_the_address_is_a_failure_that_may_pass() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
    let address = format!("http://{}", listener.local_addr().expect("bound"));
    drop(listener);
    let (_folder, assistant) = opened("compatible", &address);
    let heard: Vec<_> = assistant.respond(request()).collect().await;
    let [ModelEvent::Error(error)] = &heard[..] else { panic!("{heard:?}") };
    assert!(error.retryable && error.message.contains("reached"), "{error}");
}
