//! A stop is carried out once, whatever breaks on its way, and no work goes on after it.

use deskgate_tests::{Backend, Folder, GatewayProcess, Postgres, TestDevice};
use serde_json::{Value, json};

use crate::text;

/// Longer than any test: such a run ends only by a stop.
const ENDLESS_DELAY_MS: u64 = 3_600_000;

struct StopFixture {
    gateway: GatewayProcess,
    device: TestDevice,
    backend: Backend,
    folder: Folder,
    postgres: Postgres,
}

/// Sets the one service's answer and its delay from now on.
fn answers(folder: &Folder, delay_ms: u64, answer: &str) -> String {
    folder.script("service", json!([{ "delay_ms": delay_ms }, { "text": answer }]))
}

async fn site() -> StopFixture {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let device = TestDevice::paired_with(&gateway).await;
    let folder = Folder::new();
    let model = answers(&folder, ENDLESS_DELAY_MS, "never");
    let backend = device.publish(&gateway, "shop", &folder, &["--model", &model]).await;
    StopFixture { gateway, device, backend, folder, postgres }
}

impl StopFixture {
    async fn running(&self) -> String {
        let run_id = self.backend.submit("Take your time.").await;
        self.backend.wait_for_state(&run_id, "running").await;
        self.device.log().line(&["execution began", &run_id]).await;
        run_id
    }

    /// The run is cancelled, the operation reports it, and both stay so.
    async fn is_stopped(&self, run_id: &str, operation: &Value) {
        let expected = json!({ "code": "stopped", "run_state": "cancelled" });
        assert_eq!(self.backend.outcome(operation).await, expected);
        let run = self.backend.wait_for_end(run_id).await;
        assert_eq!((text(&run, "/state"), &run["stop"]["operation_id"]), ("cancelled", &operation["operation_id"]));
        // Its `hello` can settle the operation before the device gets the welcome.
        self.device.wait_until_connected().await;
        let events = self.device.events(run_id).await;
        let count = |name: &str| events.iter().filter(|event| *event == name).count();
        assert_eq!((count("run.cancelled"), count("run.started")), (1, 1), "{events:?}");
        assert_eq!(events.last().map(String::as_str), Some("run.cancelled"), "{events:?}");
        assert_eq!(self.device.executions(run_id), 1);
        let late = self.backend.stop(run_id).await;
        assert_eq!(late["outcome"], json!({ "code": "already_final", "run_state": "cancelled" }));
    }
}

#[tokio::test]
async fn a_running_run_is_stopped_by_the_first_of_two_stops_and_the_next_run_has_its_place() {
    let site = site().await;
    let run_id = site.running().await;
    let (one, other) = tokio::join!(site.backend.stop(&run_id), site.backend.stop(&run_id));
    // The later one finds the open operation, or the run already ended by it.
    let is_late = |operation: &Value| operation["outcome"]["code"] == "already_final";
    let first = if is_late(&one) { &other } else { &one };
    assert!(!is_late(first) && (one["operation_id"] == other["operation_id"] || is_late(&one) || is_late(&other)));
    site.is_stopped(&run_id, first).await;
    answers(&site.folder, 0, "done");
    let next = site.backend.submit("And now?").await;
    assert_eq!(site.backend.wait_for_end(&next).await["state"], "succeeded");
}

#[tokio::test]
async fn a_run_that_waits_is_cancelled_at_once_and_is_never_executed() {
    let site = site().await;
    let device_id = site.device.device_id().await;
    site.device.proxy().cut();
    site.gateway.wait_for_device_state(&device_id, "offline").await;
    let run_id = site.backend.submit("Never mind.").await;
    let operation = site.backend.stop(&run_id).await;
    assert_eq!((text(&operation, "/state"), text(&operation, "/outcome/code")), ("completed", "stopped"));
    assert_eq!(site.backend.run(&run_id).await["state"], "cancelled");
    site.device.proxy().heal();
    site.device.wait_until_connected().await;
    // A later run is executed, so this one was skipped.
    let later = site.running().await;
    assert_eq!((site.device.executions(&run_id), site.device.executions(&later)), (0, 1));
}

#[tokio::test]
async fn a_stop_while_the_device_is_away_is_carried_out_when_it_is_back() {
    let site = site().await;
    let run_id = site.running().await;
    let device_id = site.device.device_id().await;
    site.device.proxy().cut();
    site.gateway.wait_for_device_state(&device_id, "offline").await;
    let operation = site.backend.stop(&run_id).await;
    assert_eq!(
        (text(&operation, "/state"), text(&site.backend.run(&run_id).await, "/state")),
        ("pending", "cancelling")
    );
    site.device.proxy().heal();
    site.is_stopped(&run_id, &operation).await;
}

#[tokio::test]
async fn kill_9_of_the_gateway_between_the_stop_and_its_delivery_loses_nothing() {
    let mut site = site().await;
    let run_id = site.running().await;
    site.device.proxy().freeze();
    let operation = site.backend.stop(&run_id).await;
    site.gateway.kill_9();
    // Frames on their way to the device are lost with the gateway.
    site.device.proxy().cut();
    site.gateway.restart().await;
    assert_eq!(site.backend.run(&run_id).await["state"], "cancelling");
    site.device.proxy().heal();
    site.is_stopped(&run_id, &operation).await;
}

#[tokio::test]
async fn a_device_that_is_killed_before_a_stop_reaches_it_does_not_execute_again() {
    let mut site = site().await;
    let run_id = site.running().await;
    // The device's frames are lost from now on.
    let device_id = site.device.device_id().await;
    site.device.kill_9();
    site.gateway.wait_for_device_state(&device_id, "offline").await;
    let operation = site.backend.stop(&run_id).await;
    answers(&site.folder, 0, "a second execution");
    site.device.start().await;
    site.is_stopped(&run_id, &operation).await;
}

#[tokio::test]
async fn a_stop_whose_delivery_is_written_down_and_answered_to_nobody_still_reaches_the_device() {
    let site = site().await;
    let run_id = site.running().await;
    let device_id = site.device.device_id().await;
    site.device.proxy().cut();
    site.gateway.wait_for_device_state(&device_id, "offline").await;
    let operation = site.backend.stop(&run_id).await;
    // The statement waits so long that the gateway gives it up. It still executes when the wait is over.
    let held = site.postgres.lock_table("control_operations").await;
    site.device.proxy().heal();
    site.gateway.log().line(&["operations could not be read"]).await;
    drop(held);
    site.is_stopped(&run_id, &operation).await;
}

#[tokio::test]
async fn a_device_that_is_killed_between_a_stop_and_its_confirmation_confirms_it_once_when_it_is_back() {
    let mut site = site().await;
    // Before it could stop anything, and after it did.
    for moment in ["an operation came", "execution ended"] {
        let run_id = site.running().await;
        site.device.proxy().mute();
        let operation = site.backend.stop(&run_id).await;
        site.device.log().line(&["an operation came", text(&operation, "/operation_id")]).await;
        if moment == "execution ended" {
            site.device.log().line(&[moment, &run_id]).await;
        }
        let path = format!("/control-operations/{}", text(&operation, "/operation_id"));
        assert_eq!(text(&site.backend.get(&path).await, "/state"), "delivered");
        site.device.kill_9();
        // Its unreceived frames are lost.
        site.device.proxy().cut();
        site.device.proxy().heal();
        site.device.start().await;
        site.is_stopped(&run_id, &operation).await;
        let completed = site.backend.get(&path).await;
        let device_id = site.device.device_id().await;
        site.device.proxy().cut();
        site.gateway.wait_for_device_state(&device_id, "offline").await;
        site.device.proxy().heal();
        site.device.wait_until_connected().await;
        assert_eq!(site.backend.get(&path).await, completed, "another session changes nothing");
    }
}

#[tokio::test]
async fn a_stop_that_races_the_end_leaves_one_end_and_says_which() {
    let site = site().await;
    answers(&site.folder, 300, "done");
    for _ in 0..6 {
        let run_id = site.backend.submit("Be quick.").await;
        site.backend.wait_for_state(&run_id, "running").await;
        let operation = site.backend.stop(&run_id).await;
        let run = site.backend.wait_for_end(&run_id).await;
        let outcome = site.backend.outcome(&operation).await;
        assert_eq!(outcome["run_state"], run["state"], "{run}");
        let expected = if run["state"] == "cancelled" { "stopped" } else { "already_final" };
        assert_eq!(text(&outcome, "/code"), expected, "{run}");
        let events = site.device.events(&run_id).await;
        let ends = ["run.succeeded", "run.cancelled", "run.failed"];
        assert_eq!(events.iter().filter(|event| ends.contains(&event.as_str())).count(), 1, "{events:?}");
        assert_eq!(site.backend.run(&run_id).await, run);
    }
}
