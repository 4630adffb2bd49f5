//! Commands and requests to an agent that is busy with a run.

use deskgate_tests::{Backend, Folder, GatewayProcess, Postgres, TestDevice, process, until};
use rustix::process::Signal;

/// Longer than any test: a command that waits for the run fails the test.
const ENDLESS_DELAY_MS: u64 = 3_600_000;

/// A device in built-in mode whose one run takes this long.
async fn busy(milliseconds: u64) -> (TestDevice, Folder, Backend, String) {
    let device = TestDevice::built_in().await;
    let folder = Folder::new();
    let slow = folder.slow_answer(milliseconds, "done");
    let backend = device.publish_here("shop", &folder, &["--model", &slow]).await;
    let run_id = backend.submit("Take your time.").await;
    device.log().line(&["execution began", &run_id]).await;
    (device, folder, backend, run_id)
}

async fn is_stopping(device: &TestDevice) {
    until("the agent to stop taking runs", async || {
        let status = device.cli(&["status"]).await;
        if status.value["work"]["stopping"] == true { Ok(()) } else { Err(status.stdout + &status.stderr) }
    })
    .await;
}

#[tokio::test]
async fn a_stop_in_haste_overtakes_a_gentle_one_and_both_are_answered_when_the_agent_is_gone() {
    let (mut device, _folder, _backend, _run) = busy(ENDLESS_DELAY_MS).await;
    let number = device.process().id();
    let gone = async |arguments: &[&str]| {
        let said = device.cli(arguments).await;
        let answers = device.cli(&["status"]).await.exit;
        (said.exit, answers)
    };
    let hasty = async {
        is_stopping(&device).await;
        gone(&["stop", "--now"]).await
    };
    let (gentle, hasty) = tokio::join!(gone(&["stop"]), hasty);
    assert_eq!((gentle, hasty), ((0, 5), (0, 5)), "stopped means that nobody answers any more");
    assert!(device.wait_for_exit().await.success());
    assert!(!process::exists(number));
}

#[tokio::test]
async fn a_second_signal_does_not_wait_for_runs() {
    let (mut device, _folder, _backend, run_id) = busy(ENDLESS_DELAY_MS).await;
    device.process().signal(Signal::TERM);
    is_stopping(&device).await;
    device.process().signal(Signal::TERM);
    assert!(device.wait_for_exit().await.success());
    device.start().await;
    device.log().line(&["took a run", &run_id, "attempt=2"]).await;
    device.process().signal(Signal::TERM);
    is_stopping(&device).await;
    device.process().signal(Signal::INT);
    assert!(device.wait_for_exit().await.success());
}

#[tokio::test]
async fn a_connection_to_the_same_gateway_is_saved_at_once_while_runs_go_on() {
    let (device, _folder, backend, run_id) = busy(4_000).await;
    device.cli(&["connection", "set", "--mode", "builtin", "--listen", "127.0.0.1:0"]).await.ok();
    assert_eq!(device.executions(&run_id), 1);
    assert_eq!(device.status().await["work"]["runs"][0]["standing"], "running", "the save waited for the run");
    device.wait_until_connected().await;
    backend.wait_for_end(&run_id).await;
    assert_eq!(backend.run(&run_id).await["state"], "succeeded");
    assert_eq!(device.executions(&run_id), 1, "it was not begun anew");
}

#[tokio::test]
async fn a_test_of_the_connection_in_force_asks_its_own_line_and_ends_no_session() {
    let postgres = Postgres::shared().await;
    let mut gateway = GatewayProcess::start(&postgres, &[]).await;
    let device = TestDevice::paired_with(&gateway).await;
    let connections = || device.log().count(&["connected to the gateway", "epoch"]);
    let before = connections();
    let tested = device.cli(&["connection", "test", "--mode", "remote"]).await.ok();
    assert!(tested["device_id"].is_string(), "{tested}");
    assert_eq!(connections(), before, "a second session");
    gateway.stop(Signal::TERM).await;
    device.wait_for_line_state("disconnected").await;
    let failed = device.plain_cli(&["connection", "test", "--mode", "remote"]).await;
    assert_eq!(failed.exit, 5, "{}", failed.stderr);
    gateway.restart().await;
    device.cli(&["connection", "test", "--mode", "remote"]).await.ok();
}
