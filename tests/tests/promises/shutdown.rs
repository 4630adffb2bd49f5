//! A stopped program leaves no process running.

use deskgate_tests::{Folder, GatewayProcess, Postgres, TestDevice, process, until};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::{everything_accepted_ended_once, text};

#[tokio::test]
async fn a_gateway_that_is_told_to_stop_leaves_no_process_behind() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut gateway = GatewayProcess::on_private_cluster(&[]).await;
        let device = TestDevice::paired_with(&gateway).await;
        let first = process::postmaster(&gateway.state_dir()).expect("a private cluster runs");
        let all: Vec<_> = process::children(first).into_iter().chain([first, gateway.process().id()]).collect();
        let ended = gateway.stop(signal).await;
        assert!(ended.success(), "{signal:?}: {ended}");
        let left: Vec<_> = all.into_iter().filter(|number| process::exists(*number)).collect();
        assert_eq!(left, Vec::<u32>::new(), "{signal:?} left processes");
        assert_eq!(process::find_mentioning(gateway.folder()), Vec::<u32>::new(), "{signal:?} left processes");
        // A connected device learns it at once, and will reconnect.
        device.log().line(&["the connection to the gateway was lost"]).await;
    }
}

#[tokio::test]
async fn an_agent_that_is_told_to_stop_leaves_no_process_behind() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut device = TestDevice::built_in().await;
        let folder = Folder::new();
        let backend = device.publish_here("shop", &folder, &[]).await;
        backend.wait_for_end(&backend.submit("What does order 4711 say?").await).await;
        let state_dir = device.home().join("gateway");
        let first = process::postmaster(&state_dir).expect("a private cluster runs");
        let all: Vec<_> = process::children(first).into_iter().chain([first, device.process().id()]).collect();
        let ended = if signal == Signal::INT {
            // Ctrl-C goes to the whole foreground group, not to one process.
            let group = Pid::from_raw(i32::try_from(device.process().id()).unwrap()).unwrap();
            kill_process_group(group, signal).unwrap();
            device.wait_for_exit().await
        } else {
            device.stop(signal).await
        };
        assert!(ended.success(), "{signal:?}: {ended}");
        let left: Vec<_> = all.into_iter().filter(|number| process::exists(*number)).collect();
        assert_eq!(left, Vec::<u32>::new(), "{signal:?} left processes");
        assert_eq!(process::find_mentioning(device.folder()), Vec::<u32>::new(), "{signal:?} left processes");
        assert!(!device.home().join("agent.sock").exists(), "its socket is gone");
    }
}

#[tokio::test]
async fn ctrl_c_ends_an_agent_in_good_order_every_time() {
    let mut device = TestDevice::for_remote().await;
    for _ in 0..5 {
        let ended = device.stop(Signal::INT).await;
        assert!(ended.success(), "{ended}");
        device.start().await;
    }
}

#[tokio::test]
async fn an_agent_in_the_background_stops_when_it_is_asked() {
    let mut device = TestDevice::new();
    let started = device.cli(&["start"]).await.ok();
    assert!(device.log_of_background().contains("agent starting"));
    let number = u32::try_from(started["pid"].as_u64().unwrap()).unwrap();
    let cluster = process::postmaster(&device.home().join("gateway")).expect("a private cluster runs");
    device.cli(&["stop"]).await.ok();
    until("the agent to be gone", async || {
        let left: Vec<_> = [number, cluster].into_iter().filter(|number| process::exists(*number)).collect();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
    assert_eq!(device.cli(&["status"]).await.exit, 5, "nobody answers any more");
    device.start().await;
}

#[tokio::test]
async fn an_agent_that_is_told_to_stop_finishes_what_it_does_and_takes_nothing_more() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let mut device = TestDevice::paired_with(&gateway).await;
    let folder = Folder::new();
    let slow = folder.slow_answer(3000, "done");
    let backend = device.publish(&gateway, "shop", &folder, &["--model", &slow]).await;
    let started = backend.submit("Take your time.").await;
    device.log().line(&["execution began", &started]).await;
    device.process().signal(Signal::TERM);
    until("the agent to stop taking runs", async || {
        let status = device.cli(&["status"]).await;
        if status.value["work"]["stopping"] == true { Ok(()) } else { Err(status.stdout + &status.stderr) }
    })
    .await;
    let queued = backend.submit("And then this.").await;
    assert!(device.wait_for_exit().await.success());
    assert_eq!(backend.run(&started).await["state"], "succeeded", "it was finished before the agent ended");
    assert_eq!(backend.run(&queued).await["state"], "waiting_for_device");
    device.start().await;
    everything_accepted_ended_once(&backend, &device).await;
}

#[tokio::test]
async fn a_gateway_that_is_told_to_stop_answers_whoever_waits_and_a_run_in_progress_goes_on() {
    let postgres = Postgres::shared().await;
    let mut gateway = GatewayProcess::start(&postgres, &[]).await;
    let device = TestDevice::paired_with(&gateway).await;
    let folder = Folder::new();
    let slow = folder.slow_answer(5000, "done");
    let backend = device.publish(&gateway, "shop", &folder, &["--model", &slow]).await;
    let run_id = backend.submit("Take your time.").await;
    backend.wait_for_state(&run_id, "running").await;
    let (waiting, ended) = tokio::join!(backend.read(&run_id, 60), async {
        // The wait has to be in progress, which the gateway does not report; the order of two requests on one
        // connection shows it.
        backend.run(&run_id).await;
        gateway.stop(Signal::TERM).await
    });
    assert!(ended.success(), "{ended}");
    let waiting = waiting.expect("a whole answer");
    assert_eq!((waiting.status.as_u16(), text(&waiting.body, "/state")), (200, "running"), "{}", waiting.body);
    gateway.restart().await;
    everything_accepted_ended_once(&backend, &device).await;
    assert_eq!(device.executions(&run_id), 1);
}

#[tokio::test]
async fn a_second_agent_on_the_same_home_does_not_start() {
    let device = TestDevice::for_remote().await;
    let second = device.plain_cli(&["start"]).await;
    assert_eq!(second.exit, 6, "{}", second.stderr);
    assert!(second.stderr.contains("running already"), "{}", second.stderr);
    device.status().await;
}
