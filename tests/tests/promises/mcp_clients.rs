//! SDKs of MCP call published services.

use std::path::Path;

use deskgate_tests::third_party::run_client;
use deskgate_tests::{Folder, TestDevice, third_party};
use serde_json::{Value, json};

/// Three services: one that answers, one that gives data, and a slow one; and their application's key.
async fn services() -> (TestDevice, Folder, [String; 2]) {
    let (device, folder) = (TestDevice::built_in().await, Folder::new());
    folder.write("a.txt", "A file.\n");
    let looks = folder.script(
        "looks",
        json!([{ "tool": "Glob", "arguments": { "pattern": "*.txt" } }, { "delay_ms": 200 }, { "text": "Found for {{input}}: grüße." }]),
    );
    let counts = folder.script("counts", json!([{ "result": { "ids": ["2026-102"], "count": 1 } }]));
    let slow = folder.slow_answer(600_000, "late");
    let backend = device.publish_here("shop", &folder, &["--model", &looks, "--tools", "Glob"]).await;
    let schema = json!({
        "type": "object", "required": ["ids"],
        "properties": { "ids": { "type": "array", "items": { "$ref": "#/$defs/id" } }, "count": { "type": "integer" } },
        "$defs": { "id": { "type": "string" } },
    });
    folder.write("schema.json", &schema.to_string());
    let schema = folder.path().join("schema.json").display().to_string();
    device.add_service("shop", "typed", &folder, &["--model", &counts, "--output-schema", &schema]).await;
    device.add_service("shop", "slow", &folder, &["--model", &slow, "--concurrency", "8"]).await;
    let origin = backend.request(reqwest::Method::GET, "").build().expect("a request").url().origin();
    (device, folder, [origin.ascii_serialization(), backend.key().to_owned()])
}

const TOOLS: [&str; 5] = ["ask_shop", "ask_slow", "ask_typed", "deskgate_run", "deskgate_stop"];

async fn python_sees(mode: &str, version: &str, given_up: Value) {
    let (_device, folder, [origin, key]) = services().await;
    let arguments = [origin, key, mode.to_owned()];
    let seen = run_client(&third_party::python_tool("python"), "mcp_sdk.py", &folder, &arguments).await;
    let answer = "Found for orders: grüße.";
    let expected = json!({
        "version": version,
        "tools": TOOLS,
        "hints": ["shop", true, false],
        "answer": [false, answer, "final", answer],
        "progress": [true, true, true],
        "data": { "ids": ["2026-102"], "count": 1 },
        "repeated": true,
        "reused": [true, true],
        "conversation": ["succeeded", "succeeded"],
        "going": [false, true, true],
        "read": [false, true],
        "busy": [false, true, true],
        "stopped": [true, "cancelled", "run_cancelled"],
        "given up": given_up,
        "missing": [true, true],
    });
    for (what, expected) in expected.as_object().expect("an object") {
        assert_eq!(&seen[what], expected, "{what}");
    }
    assert_eq!(seen["unknown tool"], json!([-32602, "Unknown tool: ask_nobody"]));
    assert_eq!(seen["wrong"], json!([true, true, true]));
}

#[tokio::test]
async fn the_python_sdk_calls_tools_in_the_older_era() {
    python_sees("legacy", "2025-11-25", json!("cancelled")).await;
}

#[tokio::test]
async fn the_python_sdk_finds_the_newer_era_by_itself() {
    python_sees("auto", "2026-07-28", json!("running")).await;
}

#[tokio::test]
async fn the_python_sdk_calls_tools_in_the_newer_era_at_once() {
    python_sees("2026-07-28", "2026-07-28", json!("running")).await;
}

#[tokio::test]
async fn the_javascript_sdks_call_tools_in_both_eras() {
    let Some(clients) = third_party::install_dir().await else { return };
    let (_device, folder, [origin, key]) = services().await;
    let arguments = [clients.display().to_string(), origin, key];
    let seen = run_client(Path::new("node"), "mcp_client.mjs", &folder, &arguments).await;
    for (client, given_up) in [("default", "cancelled"), ("auto", "running"), ("sdk", "cancelled")] {
        let expected = json!({
            "tools": TOOLS,
            "answer": [false, "Found for orders: grüße."],
            "told": true,
            "data": { "ids": ["2026-102"], "count": 1 },
            "going": [false, true],
            "aborted": [true, given_up],
            "failed": -32602,
        });
        assert_eq!(seen[client], expected, "{client}");
    }
}

/// What the suite misses: tools for its own probing, prompts and resources, none of which there are.
const NOT_CLAIMED: [(&str, &[&str]); 2] = [
    (
        "2026-07-28 server-stateless",
        &[
            "sep-2575-http-server-no-independent-requests-on-stream",
            "sep-2575-missing-capability-http-400",
            "sep-2575-server-no-log-without-loglevel",
            "sep-2575-server-rejects-undeclared-capability",
        ],
    ),
    (
        "2026-07-28 caching",
        &[
            "sep-2549-prompts-list-caching-hints",
            "sep-2549-resources-list-caching-hints",
            "sep-2549-resources-templates-list-caching-hints",
        ],
    ),
];

#[tokio::test]
async fn the_conformance_suite_finds_nothing_wrong_with_what_is_claimed() {
    let Some(clients) = third_party::install_dir().await else { return };
    let (_device, folder, [origin, key]) = services().await;
    let arguments = [clients.display().to_string(), origin, key];
    let seen = run_client(Path::new("node"), "mcp_conformance.mjs", &folder, &arguments).await;
    let seen = seen.as_object().expect("an object");
    assert_eq!(seen.len(), 11);
    for (scenario, checks) in seen {
        let missed = NOT_CLAIMED.iter().find(|(name, _)| name == scenario).map_or(&[][..], |(_, missed)| missed);
        assert_eq!(checks["failed"], json!(missed), "{scenario}");
        assert!(checks["passed"].as_u64().is_some_and(|passed| passed > 0), "{scenario}: {checks}");
    }
}
