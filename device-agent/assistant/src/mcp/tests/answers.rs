//! Answers that are none to their request, and answers that are too large: each ends its request at once.

use std::time::Instant;

use super::server::greeting;
use super::*;

/// Far less than the time that a session is opened in, and than a call has.
const AT_ONCE: Duration = Duration::from_secs(5);

const JSON: &str = "content-type: application/json\r\n";
const EVENTS: &str = "content-type: text/event-stream\r\n";

fn answered_as(id: Value) -> impl Fn(&SeenRequest) -> ServerReply + Send + Sync + 'static {
    move |_| http("200 OK", JSON, &json!({ "jsonrpc": "2.0", "id": id, "result": says("canary") }).to_string())
}

/// One event, after which the server keeps the stream open.
fn streamed(event: Value) -> impl Fn(&SeenRequest) -> ServerReply + Send + Sync + 'static {
    move |_| ServerReply::Open(format!("HTTP/1.1 200 OK\r\n{EVENTS}\r\nid: 1\ndata:\n\ndata: {event}\n\n"))
}

#[tokio::test]
async fn a_call_whose_answer_is_none_to_it_ends_at_once_and_may_have_happened() {
    let error = json!({ "code": -32600, "message": "canary" });
    let answers: Vec<(&str, ReplyFn, &str)> = vec![
        ("another id", Box::new(answered_as(json!(4711))), "a request that was not asked"),
        ("an id that is text", Box::new(answered_as(json!("server-error"))), "a request that was not asked"),
        ("no id", Box::new(answered_as(Value::Null)), "makes no sense"),
        (
            "an error without an id",
            Box::new(|_| {
                http("200 OK", JSON, "{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-1,\"message\":\"canary\"}}")
            }),
            "to which request it belongs",
        ),
        (
            "a request",
            Box::new(|_| http("200 OK", JSON, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}")),
            "no answer in the protocol",
        ),
        ("taken", Box::new(|_| http("202 Accepted", "", "")), "gave no answer"),
        ("taken without a word", Box::new(|_| http("204 No Content", "", "")), "gave no answer"),
        (
            "an event with another id",
            Box::new(streamed(json!({ "jsonrpc": "2.0", "id": 4711, "result": {} }))),
            "a request that was not asked",
        ),
        (
            "an event with no id",
            Box::new(streamed(json!({ "jsonrpc": "2.0", "id": null, "error": error }))),
            "to which request it belongs",
        ),
        ("an event that is none", Box::new(streamed(json!("canary"))), "no answer in the protocol"),
    ];
    for (name, answer, part) in answers {
        let begun = Instant::now();
        let (output, sent) = called(answer).await;
        assert!(begun.elapsed() < AT_ONCE, "{name}: {:?}", begun.elapsed());
        assert!(output.is_unknown && output.text.contains(part), "{name}: {output:?}");
        assert!(output.text.contains("It may have happened") && !output.text.contains("canary"), "{name}: {output:?}");
        assert_eq!(sent, 1, "{name}");
    }
}

#[tokio::test]
async fn an_answer_whose_number_came_back_as_text_is_the_answer() {
    let (output, _) = called(|seen| {
        let id = seen.body["id"].to_string();
        http("200 OK", JSON, &json!({ "jsonrpc": "2.0", "id": id, "result": says("Noted.") }).to_string())
    })
    .await;
    assert_eq!(output, ToolOutput::ok("Noted."));
}

#[tokio::test]
async fn an_opening_whose_answers_are_none_ends_at_once_and_says_why() {
    for (method, part) in [("initialize", "gave no answer to it"), ("tools/list", "gave no answer to it")] {
        let server = FakeMcpServer::start(move |seen| match seen.method.as_str() {
            asked if asked == method => http("202 Accepted", "", ""),
            "initialize" => greeting(seen, "2025-11-25"),
            _ => polite(seen, tools()),
        })
        .await;
        let device = TrustingDevice::with(&server).await;
        let begun = Instant::now();
        let error = device.servers.look(&device.server).await.expect_err(method);
        assert!(begun.elapsed() < AT_ONCE, "{method}: {:?}", begun.elapsed());
        assert!(matches!(error, McpServerError::Answer(AnswerFault::Missing)), "{method}: {error:?}");
        assert!(error.to_string().contains(part), "{method}: {error}");
    }
}

#[tokio::test]
async fn a_message_above_its_limit_is_not_read_whether_it_is_an_event_or_not() {
    let limit = opening::MAX_SERVER_MESSAGE_BYTES;
    let long = |seen: &SeenRequest, bytes: usize| {
        json!({ "jsonrpc": "2.0", "id": seen.body["id"], "result": says(&"x".repeat(bytes)) }).to_string()
    };
    let (output, _) = called(move |seen| http("200 OK", JSON, &long(seen, limit - 1000))).await;
    assert!(!output.is_unknown && output.text.contains("more bytes are left out"), "{}", output.is_unknown);
    let (output, _) = called(move |seen| http("200 OK", JSON, &long(seen, limit))).await;
    assert!(output.is_unknown && output.text.contains("too large to be read"), "{:.300}", output.text);
    let (output, _) = called(move |seen| http("200 OK", EVENTS, &format!("data: {}\n\n", long(seen, limit)))).await;
    assert!(output.is_unknown, "{:.300}", output.text);
    let server = FakeMcpServer::start(move |seen| match seen.method.as_str() {
        "tools/list" => http("200 OK", JSON, &long(seen, limit)),
        _ => polite(seen, tools()),
    })
    .await;
    let device = TrustingDevice::with(&server).await;
    let error = device.servers.look(&device.server).await.expect_err("too large");
    assert!(matches!(error, McpServerError::TooLarge), "{error:?}");
}
