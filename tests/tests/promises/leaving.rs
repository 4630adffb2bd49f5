//! Whoever is told to stop leaves nothing running.

use deskgate_tests::{Device, Folder, GatewayProcess, process};
use rustix::process::{Pid, Signal, kill_process_group};

#[tokio::test]
async fn a_gateway_that_is_told_to_stop_leaves_no_process_behind() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut gateway = GatewayProcess::on_private_cluster(&[]).await;
        let device = Device::paired_with(&gateway).await;
        let first = process::postmaster(&gateway.state_dir()).expect("a private cluster runs");
        let all: Vec<_> = process::children(first).into_iter().chain([first, gateway.process().id()]).collect();
        let ended = gateway.stop(signal).await;
        assert!(ended.success(), "{signal:?}: {ended}");
        let left: Vec<_> = all.into_iter().filter(|number| process::exists(*number)).collect();
        assert_eq!(left, Vec::<u32>::new(), "{signal:?} left processes");
        assert_eq!(process::naming(gateway.folder()), Vec::<u32>::new(), "{signal:?} left processes");
        // Whoever was connected knows at once, and will dial again.
        device.log().line(&["the gateway ended the session"]).await;
    }
}

#[tokio::test]
async fn an_agent_that_is_told_to_stop_leaves_no_process_behind() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut device = Device::built_in().await;
        let folder = Folder::new();
        let backend = device.publish_here("shop", &folder, &[]).await;
        backend.ended(&backend.submit("What does order 4711 say?").await).await;
        let state_dir = device.home().join("gateway");
        let first = process::postmaster(&state_dir).expect("a private cluster runs");
        let all: Vec<_> = process::children(first).into_iter().chain([first, device.process().id()]).collect();
        let ended = if signal == Signal::INT {
            // Ctrl-C goes to the whole group in the foreground, not to one process.
            let group = Pid::from_raw(i32::try_from(device.process().id()).unwrap()).unwrap();
            kill_process_group(group, signal).unwrap();
            device.has_stopped().await
        } else {
            device.stop(signal).await
        };
        assert!(ended.success(), "{signal:?}: {ended}");
        let left: Vec<_> = all.into_iter().filter(|number| process::exists(*number)).collect();
        assert_eq!(left, Vec::<u32>::new(), "{signal:?} left processes");
        assert_eq!(process::naming(device.folder()), Vec::<u32>::new(), "{signal:?} left processes");
        assert!(!device.home().join("agent.sock").exists(), "its socket is gone");
    }
}

#[tokio::test]
async fn ctrl_c_ends_an_agent_in_good_order_every_time() {
    let mut device = Device::for_remote().await;
    for _ in 0..5 {
        let ended = device.stop(Signal::INT).await;
        assert!(ended.success(), "{ended}");
        device.start().await;
    }
}

#[tokio::test]
async fn an_agent_in_the_background_stops_when_it_is_asked() {
    let mut device = Device::new();
    let started = device.cli(&["start"]).await.ok();
    assert!(device.log_of_background().contains("agent starting"));
    let number = u32::try_from(started["pid"].as_u64().unwrap()).unwrap();
    let cluster = process::postmaster(&device.home().join("gateway")).expect("a private cluster runs");
    device.cli(&["stop"]).await.ok();
    deskgate_tests::until("the agent to be gone", async || {
        let left: Vec<_> = [number, cluster].into_iter().filter(|number| process::exists(*number)).collect();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
    assert_eq!(device.cli(&["status"]).await.exit, 5, "nobody answers any more");
    device.start().await;
}
