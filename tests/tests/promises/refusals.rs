//! A refused device learns why, and what to do.

use deskgate_protocol::secret::ControlToken;
use deskgate_tests::{Folder, GatewayProcess, Postgres, TestDevice, until};
use rustix::process::Signal;

use crate::text;

#[tokio::test]
async fn a_wrong_host_key_is_refused_and_the_status_shows_both_fingerprints() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let mut device = TestDevice::for_remote().await;
    let mut paired = device.pair(&gateway, &[]).await;
    let right = text(&paired, "/details/host_key_fingerprint").to_owned();
    let wrong = "SHA256:5TYAUnj1p7hSySxwLSzuo2ncngeS76sPafw9EyRvV6g";
    paired["details"]["host_key_fingerprint"] = wrong.into();
    device.connect(gateway.ssh(), &paired, &gateway.control_token_file()).await.ok();

    let shown = until("the status to tell of it", async || {
        let shown = device.plain_cli(&["status"]).await.stdout;
        if shown.contains("pinned") { Ok(shown) } else { Err(shown) }
    })
    .await;
    assert!(shown.contains(wrong) && shown.contains(&right), "{shown}");
    let status = device.status().await;
    assert!(status["line"]["next_attempt_at"].is_null(), "it is blocked until a person decides: {status}");
    assert_eq!(gateway.log().count(&["device connected"]), 0);

    // Pinning the right key again is all it takes.
    device.save(&["--host-key", &right]).await.ok();
    device.wait_until_connected().await;
}

#[tokio::test]
async fn an_unknown_device_is_not_let_in_and_learns_how_to_be_paired() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let friend = TestDevice::for_remote().await;
    let invitation = friend.pair(&gateway, &[]).await;
    let mut stranger = TestDevice::for_remote().await;
    stranger.connect(gateway.ssh(), &invitation, &gateway.control_token_file()).await.ok();
    let why = because(&stranger, "`deskgate pair`").await;
    assert!(why.contains("deskgate identity renew --accept-risk=lose-pairing"), "{why}");
    assert_eq!(gateway.log().count(&["device connected"]), 0);
    assert_eq!(gateway.admin(&["device", "list"]).await.ok()["devices"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn a_wrong_control_token_is_named_and_the_right_one_lets_in() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let mut device = TestDevice::for_remote().await;
    let invitation = device.pair(&gateway, &[]).await;
    let wrong = device.folder().join("wrong_token");
    std::fs::write(&wrong, ControlToken::generate().reveal()).unwrap();
    device.connect(gateway.ssh(), &invitation, &wrong).await.ok();
    let why = because(&device, "control token").await;
    assert!(why.contains("--token-file"), "{why}");
    assert_eq!(gateway.log().count(&["device connected"]), 0);
    let token = std::fs::read_to_string(&wrong).unwrap();
    assert!(!device.log().all().contains(&token), "no secret stands in the log");

    device.save(&["--token-file", gateway.control_token_file().to_str().unwrap()]).await.ok();
    device.wait_until_connected().await;
}

#[tokio::test]
async fn a_device_that_is_revoked_while_it_is_connected_is_cut_off_within_seconds() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let device = TestDevice::paired_with(&gateway).await;
    let device_id = device.device_id().await;
    let folder = Folder::new();
    let model = folder.slow_answer(600_000, "never");
    let backend = device.publish(&gateway, "shop", &folder, &["--model", &model, "--concurrency", "1"]).await;
    let started = backend.submit("Take your time.").await;
    backend.wait_for_state(&started, "running").await;
    let queued = backend.submit("And then this.").await;

    let refused = gateway.admin(&["device", "revoke", &device_id]).await;
    assert_eq!(refused.exit, 6, "without accepting the risk nothing happens: {}", refused.stderr);
    let began = std::time::Instant::now();
    gateway.admin(&["device", "revoke", &device_id, "--accept-risk", "interrupt-runs"]).await.ok();
    gateway.log().line(&["device disconnected", &device_id]).await;
    println!("cut off {:.0} ms after the command began", began.elapsed().as_secs_f64() * 1000.0);
    assert!(began.elapsed().as_secs() < 10, "took {:?}", began.elapsed());
    let run = backend.wait_for_end(&started).await;
    assert_eq!((text(&run, "/state"), text(&run, "/error/code")), ("failed", "device_removed"), "{run}");
    let run = backend.wait_for_end(&queued).await;
    assert_eq!((text(&run, "/state"), text(&run, "/error/code")), ("cancelled", "device_removed"), "{run}");
    assert_eq!(gateway.device(&device_id).await["state"], "revoked");
    // It connects again, and is refused.
    because(&device, "does not accept this device's key").await;
    assert_eq!(gateway.log().count(&["device connected"]), 1);
    until("the device to stop what it did", async || {
        let runs = device.status().await["work"]["runs"].clone();
        if runs == serde_json::json!([]) { Ok(()) } else { Err(runs.to_string()) }
    })
    .await;
}

#[tokio::test]
async fn a_device_that_is_revoked_while_it_is_away_leaves_no_run_waiting() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let mut device = TestDevice::paired_with(&gateway).await;
    let device_id = device.device_id().await;
    let folder = Folder::new();
    let backend = device.publish(&gateway, "shop", &folder, &[]).await;
    device.stop(Signal::TERM).await;
    gateway.wait_for_device_state(&device_id, "offline").await;
    let run_id = backend.submit("What does order 4711 say?").await;
    gateway.admin(&["device", "revoke", &device_id, "--accept-risk", "interrupt-runs"]).await.ok();
    let run = backend.wait_for_end(&run_id).await;
    assert_eq!((text(&run, "/state"), text(&run, "/error/code")), ("cancelled", "device_removed"), "{run}");
    assert_eq!(text(&run, "/error/effects"), "none", "{run}");

    device.start().await;
    because(&device, "does not accept this device's key").await;
    let again = device.folder().join("again.json");
    let again = again.to_str().expect("a plain name");
    device.cli(&["identity", "export", again]).await.ok();
    let overwritten = device.cli(&["identity", "export", again]).await;
    assert!(
        overwritten.exit == 1 && overwritten.stderr.contains("there already, and is not overwritten"),
        "{overwritten:?}"
    );
    let refused = gateway.admin(&["device", "add", again]).await;
    assert_eq!(refused.exit, 6, "a revoked key stays refused: {}", refused.stderr);

    // One desktop command is all it takes to begin again.
    let asked = device.cli(&["identity", "renew"]).await;
    assert!(asked.exit == 6 && asked.stderr.contains("--accept-risk=lose-pairing"), "{}", asked.stderr);
    device.stop(Signal::TERM).await;
    device.cli(&["identity", "renew", "--accept-risk", "lose-pairing"]).await.ok();
    device.start().await;
    device.pair(&gateway, &[]).await;
    assert_ne!(device.device_id().await, device_id, "another device to the gateway");
}

/// Waits until the device's status has a reason for its missing connection that contains `words`.
async fn because(device: &TestDevice, words: &str) -> String {
    until(&format!("the status to say {words:?}"), async || {
        let line = device.status().await["line"].clone();
        let why = line["why"].as_str().or_else(|| line["refused"]["message"].as_str()).unwrap_or_default().to_owned();
        if why.contains(words) { Ok(why) } else { Err(line.to_string()) }
    })
    .await
}

#[tokio::test]
async fn a_rotated_control_token_ends_with_its_overlap_and_the_new_one_lets_in() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let mut device = TestDevice::paired_with(&gateway).await;
    gateway.admin(&["token", "roll", "--overlap-hours", "1"]).await.ok();
    device.stop(Signal::TERM).await;
    device.start().await;
    device.wait_until_connected().await;

    gateway.admin(&["token", "roll", "--overlap-hours", "0"]).await.ok();
    // Open sessions stay open; a connection with the old token is refused.
    assert_eq!(device.status().await["line"]["state"], "connected");
    device.stop(Signal::TERM).await;
    device.start().await;
    because(&device, "control token").await;
    device.save(&["--token-file", gateway.control_token_file().to_str().unwrap()]).await.ok();
    device.wait_until_connected().await;
}
