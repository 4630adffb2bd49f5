//! OpenAI's own SDKs, and what is built on them, call published services.

use std::path::Path;

use deskgate_tests::third_party::run_client;
use deskgate_tests::{Folder, TestDevice, third_party};
use serde_json::{Value, json};

/// What a client's program saw of three services: one that answers in two messages, one that gives data, and a slow one.
async fn seen_by(client: &Path, script: &str, clients: Option<&Path>) -> (Value, [String; 3]) {
    let (device, folder) = (TestDevice::built_in().await, Folder::new());
    folder.write("a.txt", "A file.\n");
    let looks = folder.script(
        "looks",
        json!([
            { "text": "I look. " }, { "tool": "Glob", "arguments": { "pattern": "*.txt" } },
            { "text": "Found, for " }, { "text": "{{input}}" }, { "delay_ms": 200 }, { "text": ": grüße." },
        ]),
    );
    let counts = folder.script("counts", json!([{ "result": { "ids": ["2026-102"], "count": 1 } }]));
    let slow = folder.slow_answer(600_000, "late");
    let backend = device.publish_here("shop", &folder, &["--model", &looks]).await;
    let mut services = vec![backend.endpoint_id().to_owned()];
    for (name, model) in [("typed", &counts), ("slow", &slow)] {
        services.push(device.add_service("shop", name, &folder, &["--model", model]).await);
    }
    let url = backend.request(reqwest::Method::GET, "").build().expect("a request").url().origin();
    let mut arguments: Vec<_> = clients.iter().map(|path| path.display().to_string()).collect();
    arguments.extend([url.ascii_serialization(), backend.key().to_owned()]);
    arguments.extend(services.iter().cloned());
    let seen = run_client(client, script, &folder, &arguments).await;
    (seen, services.try_into().expect("three"))
}

#[tokio::test]
async fn the_python_sdk_lists_asks_streams_resumes_continues_parses_and_cancels() {
    let (seen, [service, ..]) = seen_by(&third_party::python_tool("python"), "openai_sdk.py", None).await;
    let found = |asked: &str| format!("Found, for {asked}: grüße.");
    let expected = json!({
        "model": "shop",
        "answer": ["completed", format!("I look. {}", found("orders")), 2, "Be brief.", { "case": "7" }, null],
        "usage": true,
        "retrieved": [true, true],
        "items": ["orders"],
        "by name": format!("I look. {}", found("names")),
        "headers": ["top_p", "true", true],
        "stream": ["response.created", "response.queued", "response.completed", format!("I look. {}", found("streamed"))],
        "texts": ["I look. ", found("streamed")],
        "growing": true,
        "lost": [],
        "helper": format!("I look. {}", found("helped")),
        "asynchronous": format!("I look. {}", found("asynchronous")),
        "parsed": [1, ["2026-102"]],
        "parsed stream": 1,
        "parsed chat": 1,
        "continued": [true, true],
        "moved on": [409, "conversation_moved_on", null, "ConflictError"],
        "in conversation": true,
        "alone": [422, "invalid_input", "previous_response_id", "UnprocessableEntityError"],
        "background": ["queued", true],
        "cancelled": ["cancelled", "run_cancelled"],
        "stream of a cancelled one": "response.failed",
        "chat": [found("chat"), "stop", true],
        "chunks": format!("I look. \n\n{}", found("chat")),
        "chunks end": ["stop", true],
        "no model": [404, "not_found", "model", "NotFoundError"],
        "tools": [422, "invalid_input", "tools", "UnprocessableEntityError"],
        "no user": [422, "invalid_input", "input", "UnprocessableEntityError"],
        "no key": [401, "credential_invalid", null, "AuthenticationError"],
        "unknown": [422, "unknown_field", "tool_output", "UnprocessableEntityError"],
        "no response": [404, "not_found", null, "NotFoundError"],
    });
    assert!(seen["models"].as_array().expect("a list").contains(&json!([service, "shop"])), "{}", seen["models"]);
    for (what, expected) in expected.as_object().expect("an object") {
        assert_eq!(&seen[what], expected, "{what}");
    }
}

#[tokio::test]
async fn the_javascript_sdk_and_the_ai_sdk_ask_stream_resume_parse_and_cancel() {
    let Some(clients) = third_party::install_dir().await else { return };
    let (seen, [service, ..]) = seen_by(Path::new("node"), "openai_sdk.mjs", Some(&clients)).await;
    let found = |asked: &str| format!("Found, for {asked}: grüße.");
    let (looked, chatted) = (|asked: &str| format!("I look. {}", found(asked)), found("chat"));
    let generated = |whole: &str| json!([whole, "stop", looked("generated"), "stop"]);
    let expected = json!({
        "answer": ["completed", looked("orders"), 2],
        "stream": ["response.created", "response.completed", found("streamed")],
        "helper": looked("helped"),
        "resumed": true,
        "background": "queued",
        "cancelled": ["cancelled", "run_cancelled"],
        "chat": chatted,
        "chat stream": format!("I look. \n\n{chatted}"),
        "ai responses": generated(&looked("generated")),
        "ai chat": json!([found("generated"), "stop", format!("I look. \n\n{}", found("generated")), "stop"]),
        "ai compatible": json!([found("generated"), "stop", format!("I look. \n\n{}", found("generated")), "stop"]),
        "ai turns": looked("c"),
        "ai refers": looked("second"),
        "ai object": 1,
        "ai output": 1,
    });
    assert!(seen["models"].as_array().expect("a list").contains(&json!(service)), "{}", seen["models"]);
    for (what, expected) in expected.as_object().expect("an object") {
        assert_eq!(&seen[what], expected, "{what}");
    }
    assert_eq!(seen["no model"][0], 404);
    assert!(seen["no model"][3].to_string().contains("/openai/v1/models lists them"), "{}", seen["no model"]);
    assert_eq!((&seen["wrong input"][0], &seen["wrong input"][2]), (&json!(422), &json!("input")));
    assert!(seen["ai no model"].to_string().contains("No service"), "{}", seen["ai no model"]);
}

/// Requests whose answers are cut at any byte, twice each, while the SDK repeats them by itself.
const CUT_REQUESTS: usize = 200;

#[tokio::test]
async fn an_answer_that_is_cut_at_any_byte_and_repeated_by_the_sdk_is_one_run() {
    let (device, folder) = (TestDevice::built_in().await, Folder::new());
    let model = folder.script("answers", json!([{ "text": "Answer to {{input}}." }]));
    let backend = device.publish_here("shop", &folder, &["--model", &model]).await;
    let origin = backend.request(reqwest::Method::GET, "").build().expect("a request").url().origin();
    let number = CUT_REQUESTS.to_string();
    let arguments =
        [origin.ascii_serialization().as_str(), backend.key(), backend.endpoint_id(), &number].map(str::to_owned);
    let seen = run_client(&third_party::python_tool("python"), "openai_cuts.py", &folder, &arguments).await;
    assert_eq!((&seen["right"], &seen["runs"]), (&json!(CUT_REQUESTS), &json!(CUT_REQUESTS)), "{seen}");
    assert!(seen["cuts"].as_u64().is_some_and(|cuts| cuts as usize > CUT_REQUESTS), "{seen}");
}
