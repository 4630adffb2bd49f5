//! The connection between device and gateway breaks, and work goes on.

use deskgate_tests::{Folder, GatewayProcess, Postgres, TestDevice, until};
use rustix::process::Signal;
use serde_json::json;

use crate::{everything_accepted_ended_once, text};

/// Long enough for a restart in between on a busy machine, short enough to wait for.
const ANSWER_DELAY_MS: u64 = 6000;

#[tokio::test]
async fn a_restarted_gateway_finds_the_device_again_and_running_runs_go_on() {
    let postgres = Postgres::shared().await;
    let mut gateway = GatewayProcess::start(&postgres, &[]).await;
    let device = TestDevice::paired_with(&gateway).await;
    let folder = Folder::new();
    let slow = folder.slow_answer(ANSWER_DELAY_MS, "done");
    let backend = device.publish(&gateway, "shop", &folder, &["--model", &slow]).await;
    let run_id = backend.submit("Take your time.").await;
    backend.wait_for_state(&run_id, "running").await;

    gateway.kill_9();
    gateway.restart().await;
    device.wait_until_connected().await;
    assert_eq!(text(&backend.run(&run_id).await, "/phase"), "started", "the kill struck in the middle of the run");
    everything_accepted_ended_once(&backend, &device).await;
    assert_eq!(device.executions(&run_id), 1);
}

#[tokio::test]
async fn a_line_that_was_reset_is_told_in_plain_words_and_is_back() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let device = TestDevice::paired_with(&gateway).await;
    device.proxy().reset();
    until("the device to say so", async || {
        let log = device.log().own();
        if log.contains("the connection was closed (it broke off)") { Ok(()) } else { Err(log) }
    })
    .await;
    assert!(!device.log().own().contains("WebSocket"), "{}", device.log().own());
    device.wait_until_connected().await;
}

#[tokio::test]
async fn a_run_in_progress_survives_a_cut_line_and_executes_once() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let device = TestDevice::paired_with(&gateway).await;
    let device_id = device.device_id().await;
    let folder = Folder::new();
    // The device reports events before the cut, during it and after it.
    let look = json!({ "tool": "Read", "arguments": { "file_path": "orders.txt" } });
    let steps = json!([look, { "delay_ms": 1500 }, look, { "delay_ms": ANSWER_DELAY_MS }, look, { "text": "done" }]);
    let model = folder.script("reports", steps);
    let backend = device.publish(&gateway, "shop", &folder, &["--model", &model]).await;
    let run_id = backend.submit("Take your time.").await;
    // The gateway records the start before the device hears of it.
    device.log().line(&["execution began", &run_id]).await;

    // The device's reports are sent now, and lost with the connection.
    device.proxy().freeze();
    until("the second report", async || {
        let runs = device.status().await["work"]["runs"].clone();
        if runs[0]["turns"].as_u64() >= Some(2) { Ok(()) } else { Err(runs.to_string()) }
    })
    .await;
    device.proxy().cut();
    gateway.wait_for_device_state(&device_id, "offline").await;
    assert_eq!(text(&backend.run(&run_id).await, "/state"), "running", "within its lease it goes on");
    device.proxy().heal();
    everything_accepted_ended_once(&backend, &device).await;
    let events = device.events(&run_id).await;
    let tools = events.iter().filter(|event| *event == "tool.completed").count();
    assert_eq!(tools, 3, "every event arrived once: {events:?}");
    assert_eq!(device.executions(&run_id), 1);
}

#[tokio::test]
async fn an_interrupted_run_is_started_again_once() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let mut device = TestDevice::paired_with(&gateway).await;
    let folder = Folder::new();
    let model = folder.script("first", json!([{ "delay_ms": 600_000 }, { "text": "never" }]));
    let backend = device.publish(&gateway, "shop", &folder, &["--model", &model]).await;
    let run_id = backend.submit("Take your time.").await;
    backend.wait_for_state(&run_id, "running").await;
    device.log().line(&["execution began", &run_id]).await;

    device.kill_9();
    folder.script("first", json!([{ "text": "this time" }]));
    device.start().await;
    let run = backend.wait_for_end(&run_id).await;
    assert_eq!(text(&run, "/result/text"), "this time", "{run}");
    let events = device.events(&run_id).await;
    assert_eq!(events.iter().filter(|event| *event == "run.restarted").count(), 1, "{events:?}");
    assert_eq!(device.executions(&run_id), 2);
    everything_accepted_ended_once(&backend, &device).await;
}

#[tokio::test]
async fn a_second_interruption_ends_the_run_as_failed_without_effects() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let mut device = TestDevice::paired_with(&gateway).await;
    let folder = Folder::new();
    let model = folder.script("endless", json!([{ "delay_ms": 600_000 }, { "text": "never" }]));
    let backend = device.publish(&gateway, "shop", &folder, &["--model", &model]).await;
    let run_id = backend.submit("Take your time.").await;
    for _ in 0..2 {
        device.log().line(&["execution began", &run_id]).await;
        device.kill_9();
        device.start().await;
    }
    let run = backend.wait_for_end(&run_id).await;
    assert_eq!((text(&run, "/state"), text(&run, "/error/effects")), ("failed", "none"), "{run}");
    assert!(text(&run, "/error/message").contains("stopped twice"), "{run}");
    assert_eq!(device.executions(&run_id), 2, "it is not tried a third time");
}

#[tokio::test]
async fn a_lost_device_leaves_its_run_in_doubt_until_it_is_back() {
    let postgres = Postgres::shared().await;
    let clocks = ["control.heartbeat_ms=1000", "control.lease_ms=2500"];
    let gateway = GatewayProcess::start(&postgres, &clocks).await;
    let device = TestDevice::paired_with(&gateway).await;
    let folder = Folder::new();
    let slow = folder.slow_answer(16_000, "done");
    let backend = device.publish(&gateway, "shop", &folder, &["--model", &slow]).await;
    let run_id = backend.submit("Take your time.").await;
    backend.wait_for_state(&run_id, "running").await;

    device.proxy().freeze();
    let run = backend.wait_for_state(&run_id, "awaiting_reconciliation").await;
    assert_eq!((text(&run, "/phase"), text(&run, "/state_reason/code")), ("started", "outcome_unknown"), "{run}");
    // The connection is lost, not just late: the device has to reconnect.
    device.proxy().cut();
    device.proxy().heal();
    backend.wait_for_state(&run_id, "running").await;
    everything_accepted_ended_once(&backend, &device).await;
    let events = device.events(&run_id).await;
    let place = |name: &str| events.iter().position(|event| event == name);
    assert!(place("run.awaiting_reconciliation") < place("run.reconciled"), "{events:?}");
    assert!(place("run.awaiting_reconciliation").is_some(), "{events:?}");
    assert_eq!(device.executions(&run_id), 1);
}

#[tokio::test]
async fn a_device_that_slept_beyond_its_lease_finishes_what_it_began() {
    let postgres = Postgres::shared().await;
    let clocks = ["control.heartbeat_ms=1000", "control.lease_ms=2500"];
    let gateway = GatewayProcess::start(&postgres, &clocks).await;
    let device = TestDevice::paired_with(&gateway).await;
    let folder = Folder::new();
    let slow = folder.slow_answer(4000, "done");
    let backend = device.publish(&gateway, "shop", &folder, &["--model", &slow]).await;
    let run_id = backend.submit("Take your time.").await;
    backend.wait_for_state(&run_id, "running").await;
    device.log().line(&["execution began", &run_id]).await;

    device.process().signal(Signal::STOP);
    backend.wait_for_state(&run_id, "awaiting_reconciliation").await;
    device.process().signal(Signal::CONT);
    everything_accepted_ended_once(&backend, &device).await;
    assert_eq!(device.executions(&run_id), 1);
}

#[tokio::test]
async fn interrupted_runs_keep_their_places_before_those_that_wait() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let mut device = TestDevice::paired_with(&gateway).await;
    let folder = Folder::new();
    let model = folder.script("first", json!([{ "delay_ms": 600_000 }, { "text": "never" }]));
    let backend = device.publish(&gateway, "shop", &folder, &["--model", &model, "--concurrency", "4"]).await;
    for _ in 0..12 {
        backend.submit("Take your time.").await;
    }
    until("every slot to be in use", async || {
        let began = device.log().count(&["execution began"]);
        if began == 4 { Ok(()) } else { Err(format!("{began} began")) }
    })
    .await;
    device.kill_9();
    folder.script("first", json!([{ "delay_ms": 500 }, { "text": "this time" }]));
    device.start().await;
    everything_accepted_ended_once(&backend, &device).await;
}
