//! kill -9 at the worst moments.

use deskgate_tests::backend::fresh_key;
use deskgate_tests::{Folder, GatewayProcess, Postgres, TestDevice, process};
use tokio::task::JoinSet;

use crate::{everything_accepted_ended_once, text};

#[tokio::test]
async fn kill_9_of_the_gateway_between_202_and_offer_loses_nothing() {
    let postgres = Postgres::shared().await;
    let mut gateway = GatewayProcess::start(&postgres, &[]).await;
    let device = TestDevice::paired_with(&gateway).await;
    let device_id = device.device_id().await;
    let folder = Folder::new();
    let backend = device.publish(&gateway, "shop", &folder, &[]).await;
    device.proxy().cut();
    gateway.wait_for_device_state(&device_id, "offline").await;
    for _ in 0..20 {
        backend.submit("What does order 4711 say?").await;
    }
    gateway.kill_9();
    gateway.restart().await;
    for run_id in backend.accepted() {
        assert_eq!(backend.run(&run_id).await["state"], "waiting_for_device");
    }
    device.proxy().heal();
    assert_eq!(backend.accepted().len(), 20);
    everything_accepted_ended_once(&backend, &device).await;
}

#[tokio::test]
async fn kill_9_of_the_device_after_finish_is_journalled_and_before_it_is_acknowledged() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let mut device = TestDevice::paired_with(&gateway).await;
    let folder = Folder::new();
    let slow = folder.slow_answer(3000, "the one answer");
    let backend = device.publish(&gateway, "shop", &folder, &["--model", &slow]).await;
    let run_id = backend.submit("Take your time.").await;
    // The gateway records the start before the device hears of it.
    device.log().line(&["execution began", &run_id]).await;

    device.proxy().freeze();
    device.log().line(&["execution ended", &run_id]).await;
    // The journal is written right after that line and shows in the status.
    device.wait_for_standing(&run_id, "finished").await;
    device.kill_9();
    // The bytes that the network held back are lost with it: the gateway never got the finish.
    device.proxy().cut();
    assert_eq!(text(&backend.run(&run_id).await, "/state"), "running");
    // A second execution would give another answer.
    folder.slow_answer(3000, "another answer");
    device.proxy().heal();
    device.start().await;
    let run = backend.wait_for_end(&run_id).await;
    assert_eq!(text(&run, "/result/text"), "the one answer", "{run}");
    everything_accepted_ended_once(&backend, &device).await;
    assert_eq!(device.executions(&run_id), 1);
}

#[tokio::test]
async fn kill_9_of_gateway_device_and_postgres_at_once_loses_nothing() {
    let mut gateway = GatewayProcess::on_private_cluster(&[]).await;
    let mut device = TestDevice::paired_with(&gateway).await;
    let folder = Folder::new();
    let slow = folder.slow_answer(50, "done");
    let backend = device.publish(&gateway, "shop", &folder, &["--model", &slow, "--concurrency", "4"]).await;
    let mut callers = JoinSet::new();
    for _ in 0..3 {
        let backend = backend.clone();
        callers.spawn(async move {
            for _ in 0..25 {
                backend.submit_until_accepted(&fresh_key(), "Work.").await;
            }
        });
    }
    deskgate_tests::until("work to be under way", async || {
        let accepted = backend.accepted().len();
        if accepted >= 12 { Ok(()) } else { Err(format!("{accepted} accepted")) }
    })
    .await;
    let state_dir = gateway.state_dir();
    assert!(process::kill_cluster(&state_dir), "the private cluster ran");
    gateway.kill_9();
    device.kill_9();
    assert!(!callers.is_empty(), "callers were still at work");
    gateway.restart().await;
    device.start().await;
    while let Some(ended) = callers.join_next().await {
        ended.expect("every submission was accepted in the end");
    }
    assert_eq!(backend.accepted().len(), 75);
    everything_accepted_ended_once(&backend, &device).await;
}
