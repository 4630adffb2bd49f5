//! A desktop user's commands on callers' runs and conversations.

use deskgate_tests::{Backend, Folder, GatewayProcess, Postgres, TestDevice};
use rustix::process::Signal;
use serde_json::json;

use crate::text;

/// Longer than any test: such a run ends only by a stop.
const ENDLESS_DELAY_MS: u64 = 3_600_000;

const WAIT_FLAGS: [&str; 2] = ["--wait", "40s"];

async fn a_run_is_stopped(device: &TestDevice, backend: &Backend) {
    let run_id = backend.submit("Take your time.").await;
    backend.wait_for_state(&run_id, "running").await;
    // A wait of zero ends before any confirmation.
    let asked = device.cli(&["run", "stop", &run_id, "--wait", "0s"]).await;
    assert_eq!((asked.exit, text(&asked.value, "/state")), (8, "pending"), "{}", asked.stderr);
    let waited = device.cli(&["run", "stop", &run_id, WAIT_FLAGS[0], WAIT_FLAGS[1]]).await.ok();
    assert_eq!(waited["outcome"]["run_state"], "cancelled", "{waited}");
    let run = backend.wait_for_end(&run_id).await;
    assert_eq!((text(&run, "/state"), text(&run, "/stop/requested_by")), ("cancelled", "desktop_user"));
    assert_eq!(run["stop"]["operation_id"], asked.value["operation_id"], "there was one stop");
    let listed = device.cli(&["run", "list"]).await.ok();
    assert_eq!((&listed["runs"][0]["run_id"], &listed["runs"][0]["state"]), (&json!(run_id), &json!("cancelled")));
    let late = device.plain_cli(&["run", "stop", &run_id]).await;
    assert_eq!((late.exit, late.stdout.trim()), (0, format!("{run_id}: already_final, the run is cancelled").as_str()));
    let unknown = device.cli(&["run", "stop", "run_01a1fdacce837753badf368b3b8b6a04"]).await;
    assert_eq!(unknown.exit, 1, "{}", unknown.stderr);
    assert_eq!(device.cli(&["run", "stop", "yesterday's"]).await.exit, 2);
}

async fn a_conversation_is_reset(device: &TestDevice, backend: &Backend) {
    let talk = backend.conversation("case 4711").await;
    assert_eq!(backend.say_and_wait(&talk, 1, "one").await, "now: one");
    assert_eq!(backend.say_and_wait(&talk, 1, "two").await, "user: one\nassistant: now: one\nnow: two");
    let listed = device.cli(&["conversation", "list"]).await.ok();
    let seen = &listed["conversations"][0];
    assert_eq!((text(seen, "/conversation_id"), text(seen, "/subject")), (talk.as_str(), "customer-1"));
    let shown = device.cli(&["conversation", "show", &talk]).await.ok();
    assert_eq!(shown["messages"].as_array().map(Vec::len), Some(2), "{shown}");
    let table = device.plain_cli(&["conversation", "show", &talk]).await.stdout;
    assert!(table.contains("generation 1") && table.contains("case 4711"), "{table}");

    let reset = device.cli(&["conversation", "reset", &talk, WAIT_FLAGS[0], WAIT_FLAGS[1]]).await.ok();
    assert_eq!(reset["outcome"], json!({ "code": "reset", "new_generation": 2 }));
    assert_eq!(backend.say_and_wait(&talk, 2, "anew").await, "now: anew");
    let stale = device.cli(&["conversation", "reset", &talk, "--generation", "1"]).await;
    assert_eq!(stale.exit, 6, "{}", stale.stderr);
    assert!(stale.stderr.contains("generation 2"), "{}", stale.stderr);
    assert_eq!(device.cli(&["conversation", "show", "conv_01a1fdacce837753badf368b3b8b6a04"]).await.exit, 1);
}

async fn a_busy_conversation_is_not_reset(device: &TestDevice, backend: &Backend) {
    let talk = backend.conversation("busy").await;
    let message = backend.say(&talk, 1, "Take your time.").await.expect("answered");
    let run_id = text(&message.body, "/run_id");
    let refused = device.cli(&["conversation", "reset", &talk]).await;
    assert_eq!(refused.exit, 6, "{}", refused.stderr);
    assert!(refused.stderr.contains(run_id), "what it is busy with is named: {}", refused.stderr);
    device.cli(&["run", "stop", run_id, WAIT_FLAGS[0], WAIT_FLAGS[1]]).await.ok();
    device.cli(&["conversation", "reset", &talk, WAIT_FLAGS[0], WAIT_FLAGS[1]]).await.ok();
}

/// The one service takes very long, or answers at once with the earlier messages.
fn slow(folder: &Folder) -> String {
    folder.script("service", json!([{ "delay_ms": ENDLESS_DELAY_MS }, { "text": "never" }]))
}

fn quick(folder: &Folder) -> String {
    folder.script("service", json!([{ "text": "{{earlier}}now: {{input}}" }]))
}

async fn everything(device: &TestDevice, backend: &Backend, folder: &Folder) {
    a_run_is_stopped(device, backend).await;
    a_busy_conversation_is_not_reset(device, backend).await;
    quick(folder);
    a_conversation_is_reset(device, backend).await;
}

#[tokio::test]
async fn a_desktop_user_stops_runs_and_resets_conversations_of_the_built_in_gateway() {
    let device = TestDevice::built_in().await;
    let folder = Folder::new();
    let backend = device.publish_here("shop", &folder, &["--model", &slow(&folder)]).await;
    everything(&device, &backend, &folder).await;
}

#[tokio::test]
async fn a_desktop_user_stops_runs_and_resets_conversations_of_a_gateway_on_a_server() {
    let postgres = Postgres::shared().await;
    let mut gateway = GatewayProcess::start(&postgres, &[]).await;
    let device = TestDevice::paired_with(&gateway).await;
    let folder = Folder::new();
    let backend = device.publish(&gateway, "shop", &folder, &["--model", &slow(&folder)]).await;
    everything(&device, &backend, &folder).await;

    let talk = backend.conversation("case 4712").await;
    gateway.stop(Signal::TERM).await;
    device.wait_for_line_state("disconnected").await;
    for command in [&["conversation", "list"][..], &["conversation", "show", &talk], &["conversation", "reset", &talk]]
    {
        let said = device.cli(command).await;
        assert_eq!(said.exit, 5, "{command:?}: {}", said.stderr);
    }
}
