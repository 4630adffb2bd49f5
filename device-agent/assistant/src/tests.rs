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

fn opened(kind: ProviderKind, base_url: &str) -> (tempfile::TempDir, Box<dyn Assistant>) {
    let folder = tempfile::tempdir().expect("a folder");
    let accounts = Providers::new(folder.path().to_owned());
    let key = KeyChange::Replace(Secret::new(API_KEY).expect("a key"));
    let change = ProviderChange { kind: Some(kind), base_url: Some(base_url.to_owned()), key, key_place: None };
    accounts.set("work", change).expect("saved");
    let assistant = open(&accounts, &Provider::Account("work".to_owned()), "m-1-high").expect("opens");
    (folder, assistant)
}

fn request() -> ModelRequest {
    let asked = ToolCall { id: "t1".to_owned(), name: "Grep".to_owned(), arguments: json!({ "pattern": "x" }) };
    let answered = ToolAnswer { call_id: "t1".to_owned(), text: "nothing".to_owned(), is_error: true };
    let messages = vec![
        Message::User { text: "before".to_owned(), details: None },
        Message::Assistant { text: "answered".to_owned(), tool_calls: Vec::new() },
        Message::User { text: "now".to_owned(), details: Some("{\"order\":1}".to_owned()) },
        Message::Assistant { text: String::new(), tool_calls: vec![asked] },
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
    }
}

/// The model's events, and the request: the head in lower case, and the body.
async fn talk(kind: ProviderKind, answer: String, pieces: usize) -> (Vec<ModelEvent>, String, Value) {
    let (address, served) = server(answer, pieces).await;
    let (_folder, assistant) = opened(kind, &format!("{address}/base"));
    let events: Vec<_> = assistant.respond(request()).collect().await;
    let asked = served.await.expect("no panic");
    let (head, body) = asked.split_once("\r\n\r\n").expect("a whole request");
    (events, head.to_lowercase(), serde_json::from_str(body).expect("JSON"))
}

async fn events(kind: ProviderKind, answer: String) -> Vec<ModelEvent> {
    talk(kind, answer, 7).await.0
}

fn call(id: &str, name: &str, arguments: Value) -> ModelEvent {
    ModelEvent::ToolCall(ToolCall { id: id.to_owned(), name: name.to_owned(), arguments })
}

fn text(text: &str) -> ModelEvent {
    ModelEvent::TextDelta(text.to_owned())
}

fn usage(input_tokens: u64, output_tokens: u64) -> ModelEvent {
    ModelEvent::Usage(TokenUsage { input_tokens, output_tokens })
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

#[tokio::test]
async fn an_answer_with_text_and_tool_calls_is_understood_however_its_bytes_arrive() {
    let calls = [
        call("toolu_1", "Grep", json!({ "pattern": "size" })),
        call("toolu_2", "Glob", json!({})),
        usage(27, 15),
        ModelEvent::End(StopReason::Completed),
    ];
    let anthropic: Vec<_> = [usage(27, 0), text("Größe "), text("prüfen")].into_iter().chain(calls).collect();
    let calls = [
        call("call_a", "Grep", json!({ "pattern": "size" })),
        call("call_b", "Glob", json!({ "pattern": "*" })),
        usage(22, 11),
        ModelEvent::End(StopReason::Completed),
    ];
    let openai: Vec<_> = [text("Größe")].into_iter().chain(calls).collect();
    for pieces in [1, 17, 1 << 20] {
        assert_eq!(talk(ProviderKind::Anthropic, ok(ANTHROPIC), pieces).await.0, anthropic);
        assert_eq!(talk(ProviderKind::Openai, ok(OPENAI), pieces).await.0, openai);
    }
}

#[tokio::test]
async fn a_conversation_is_asked_in_each_providers_own_form_and_the_model_by_its_exact_name() {
    let (_, head, body) = talk(ProviderKind::Anthropic, ok(ANTHROPIC), 4096).await;
    assert!(head.starts_with("post /base/v1/messages "), "{head}");
    assert!(
        head.contains(&format!("x-api-key: {API_KEY}")) && head.contains("anthropic-version: 2023-06-01"),
        "{head}"
    );
    assert_eq!(
        body,
        json!({
            "model": "m-1-high", "max_tokens": 100, "system": "You are careful.", "stream": true,
            "messages": [
                { "role": "user", "content": [{ "type": "text", "text": "before" }] },
                { "role": "assistant", "content": [{ "type": "text", "text": "answered" }] },
                { "role": "user", "content": [
                    { "type": "text", "text": "now" }, { "type": "text", "text": "{\"order\":1}" }] },
                { "role": "assistant", "content": [
                    { "type": "tool_use", "id": "t1", "name": "Grep", "input": { "pattern": "x" } }] },
                { "role": "user", "content": [
                    { "type": "tool_result", "tool_use_id": "t1", "content": "nothing", "is_error": true }] },
            ],
            "tools": [{ "name": "Grep", "description": "Searches.",
                "input_schema": { "type": "object", "properties": { "pattern": { "type": "string" } } } }],
        })
    );
    let (_, head, body) = talk(ProviderKind::Openai, ok(OPENAI), 4096).await;
    assert!(head.starts_with("post /base/chat/completions "), "{head}");
    assert!(head.contains(&format!("authorization: bearer {API_KEY}")), "{head}");
    assert_eq!(
        body,
        json!({
            "model": "m-1-high", "max_completion_tokens": 100,
            "stream": true, "stream_options": { "include_usage": true },
            "messages": [
                { "role": "system", "content": "You are careful." },
                { "role": "user", "content": "before" },
                { "role": "assistant", "content": "answered" },
                { "role": "user", "content": [
                    { "type": "text", "text": "now" }, { "type": "text", "text": "{\"order\":1}" }] },
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
    for (kind, whole) in [(ProviderKind::Anthropic, ANTHROPIC), (ProviderKind::Openai, OPENAI)] {
        // The answer is complete once its reason is given, even if the final event is lost.
        let last = match kind {
            ProviderKind::Anthropic => whole.rfind("event: message_stop").expect("there"),
            ProviderKind::Openai => {
                whole.find("data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{},").expect("there")
            }
        };
        for cut in (0..=last).step_by(97).chain([last]) {
            let cut = (0..=cut).rev().find(|cut| whole.is_char_boundary(*cut)).unwrap_or(0);
            let heard = events(kind, ok(&whole[..cut])).await;
            let is_whole = |event: &ModelEvent| matches!(event, ModelEvent::End(_) | ModelEvent::ToolCall(_));
            assert!(!heard.iter().any(is_whole), "cut at {cut}: {heard:?}");
        }
    }
}

#[tokio::test]
async fn what_a_call_read_is_known_before_its_first_word_so_that_a_stopped_one_counts() {
    let (address, _served) = server(ok(ANTHROPIC), 4096).await;
    let (_folder, assistant) = opened(ProviderKind::Anthropic, &address);
    let mut heard = assistant.respond(request());
    assert_eq!(heard.next().await, Some(usage(27, 0)));
    let broken = &ANTHROPIC[..ANTHROPIC.find("event: content_block_stop").expect("there")];
    let heard = events(ProviderKind::Anthropic, ok(broken)).await;
    assert_eq!(heard.first(), Some(&usage(27, 0)), "{heard:?}");
}

#[tokio::test]
async fn a_tool_call_that_a_limit_cut_off_is_not_made() {
    let cut = ANTHROPIC.replace("\"stop_reason\":\"tool_use\"", "\"stop_reason\":\"max_tokens\"");
    let last = "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":3}\n\n";
    let heard = events(ProviderKind::Anthropic, ok(&cut.replace(last, ""))).await;
    assert!(heard.contains(&ModelEvent::End(StopReason::Length)), "{heard:?}");
    let calls = heard.iter().filter(|event| matches!(event, ModelEvent::ToolCall(_))).count();
    assert_eq!(calls, 1, "{heard:?}");
    let heard = events(
        ProviderKind::Openai,
        ok(&OPENAI.replace("\"finish_reason\":\"tool_calls\"", "\"finish_reason\":\"length\"")),
    )
    .await;
    assert!(heard.contains(&ModelEvent::End(StopReason::Length)), "{heard:?}");
    assert!(!heard.iter().any(|event| matches!(event, ModelEvent::ToolCall(_))), "{heard:?}");
}

#[tokio::test]
async fn texts_of_white_space_alone_are_left_out_where_they_would_be_refused() {
    let (address, served) = server(ok(ANTHROPIC), 4096).await;
    let (_folder, assistant) = opened(ProviderKind::Anthropic, &address);
    let call = ToolCall { id: "t1".to_owned(), name: "Grep".to_owned(), arguments: json!({}) };
    let said = |text: &str| Message::User { text: text.to_owned(), details: None };
    let messages = vec![
        said(" "),
        Message::Assistant { text: "\n\n".to_owned(), tool_calls: Vec::new() },
        said("now"),
        Message::Assistant { text: "\n\n".to_owned(), tool_calls: vec![call] },
    ];
    let request = ModelRequest { messages: Arc::new(messages), ..request() };
    let _heard: Vec<_> = assistant.respond(request).collect().await;
    let asked = served.await.expect("no panic");
    let body: Value = serde_json::from_str(asked.split_once("\r\n\r\n").expect("whole").1).expect("JSON");
    let nothing = json!([{ "type": "text", "text": "(nothing)" }]);
    assert_eq!((&body["messages"][0]["content"], &body["messages"][1]["content"]), (&nothing, &nothing), "{body}");
    assert_eq!(body["messages"][3]["content"][0]["type"], "tool_use", "{body}");
}

#[tokio::test]
async fn servers_that_speak_openai_a_little_differently_are_understood() {
    // An empty reason with every piece means nothing: this stream breaks off.
    let broken = "data: {\"choices\":[{\"delta\":{\"content\":\"half\"},\"finish_reason\":\"\"}]}\n\n";
    assert_eq!(events(ProviderKind::Openai, ok(broken)).await, [text("half")]);
    // Complete calls that are all numbered 0, without usage or a final event.
    let other = concat!(
        "data: {\"choices\":[{\"delta\":{\"content\":null,\"tool_calls\":[",
        "{\"index\":0,\"id\":\"a\",\"function\":{\"name\":\"Read\",\"arguments\":\"{}\"}}]}}]}\n\n",
        "data: {\"choices\":[{\"delta\":{\"tool_calls\":[",
        "{\"index\":0,\"id\":\"b\",\"function\":{\"name\":\"Glob\",\"arguments\":\"not json\"}}]},",
        "\"finish_reason\":\"stop\"}]}\n\n"
    );
    assert_eq!(
        events(ProviderKind::Openai, ok(other)).await,
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
        ("not HTTP at all\r\n\r\n".to_owned(), ErrorKind::Protocol, true, None),
        (String::new(), ErrorKind::Protocol, true, None),
    ];
    for (answer, kind, retryable, pause) in cases {
        for provider in [ProviderKind::Anthropic, ProviderKind::Openai] {
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
    let (_folder, assistant) = opened(ProviderKind::Openai, &address);
    let heard: Vec<_> = assistant.respond(request()).collect().await;
    let [ModelEvent::Error(error)] = &heard[..] else { panic!("{heard:?}") };
    assert!(error.retryable && error.message.contains("reached"), "{error}");
}
