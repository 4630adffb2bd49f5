//! Programs of two versions: which one is refused, where that is shown, and where it is predicted. The other version is
//! the real program with another number.

use deskgate_gateway::ops::health_check::send_request;
use deskgate_tests::visitor::Visitor;
use deskgate_tests::{Folder, GatewayProcess, Postgres, TestDevice, until};
use rustix::process::Signal;
use serde_json::json;

use crate::text;

#[tokio::test]
async fn a_desktop_that_is_newer_than_its_gateway_is_warned_refused_and_seen_refused_on_both_sides() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let mut device = TestDevice::paired_with(&gateway).await;
    let (device_id, folder) = (device.device_id().await, Folder::new());
    let backend = device.publish(&gateway, "shop", &folder, &[]).await;
    assert_eq!(device.cli(&["upgrade-check"]).await.ok()["fits"], json!(true));

    // The new program beside the running old agent.
    device.install("0.2.0");
    let warned = device.cli(&["upgrade-check"]).await;
    assert_eq!((warned.exit, &warned.value["fits"]), (7, &json!(false)), "{}", warned.stderr);
    assert!(warned.stderr.contains("0.1.0") && warned.stderr.contains("0.2.0"), "{}", warned.stderr);
    device.stop(Signal::TERM).await;
    assert_eq!(device.cli(&["upgrade-check"]).await.exit, 7, "what the old agent noted says so too");
    device.start().await;
    assert!(device.log().all().contains("will refuse version 0.2.0"), "it says so before it starts");

    let status = device.wait_for_line_state("refused").await;
    let refused = &status["line"]["refused"];
    assert_eq!((text(refused, "/code"), text(refused, "/upgrade")), ("version_mismatch", "gateway"));
    assert_eq!((text(refused, "/gateway_version"), text(refused, "/device_version")), ("0.1.0", "0.2.0"));
    let shown = device.plain_cli(&["status"]).await.stdout;
    assert!(shown.contains("0.1.0") && shown.contains("0.2.0"), "{shown}");
    let tested = device.cli(&["connection", "test", "--mode", "remote"]).await;
    assert_eq!((tested.exit, text(&tested.value, "/failed_at")), (7, "version"), "{}", tested.stderr);
    let doctor = device.plain_cli(&["doctor"]).await;
    assert_eq!(doctor.exit, 10, "{}", doctor.stdout);
    let says = ["version_mismatch", "0.1.0", "0.2.0", "Ask the server's administrator to upgrade deskgate-gateway"];
    assert!(says.iter().all(|it| doctor.stdout.contains(it)), "{}", doctor.stdout);
    let visitor = Visitor::of(&device).await;
    for page in ["/", "/health", "/connection"] {
        let page = visitor.page(page).await.text;
        assert!(page.contains("The gateway has another version") && page.contains("0.2.0"), "{page}");
    }

    // The administrator sees the same.
    let seen = gateway.wait_for_device_state(&device_id, "incompatible").await;
    assert_eq!(text(&seen, "/note"), "seen, refused: 0.2.0 against 0.1.0");
    let listed = gateway.plain_admin(&["device", "list"]).await.stdout;
    assert!(listed.contains("seen, refused: 0.2.0 against 0.1.0"), "{listed}");
    gateway.log().line(&["a device has another version", "0.2.0", "0.1.0"]).await;
    let status = gateway.command_line(&["status"]).await.ok();
    assert_eq!(text(&status, "/problems/0/code"), "device_incompatible", "{status}");
    let metrics = send_request(gateway.ops().get(), "/metrics").await.expect("answered");
    assert!(metrics.contains("deskgate_health_problem{code=\"device_incompatible\",severity=\"fail\"} 1"), "{metrics}");

    // Work is accepted, and none of it executes across the pair (A24).
    let run_id = backend.submit("What does order 4711 say?").await;
    let run = backend.wait_for_state(&run_id, "waiting_for_device").await;
    assert_eq!(text(&run, "/state_reason/code"), "device_incompatible", "{run}");
    assert_eq!(device.executions(&run_id), 0);
}

#[tokio::test]
async fn a_new_gateway_says_before_it_is_started_whom_it_would_refuse_and_works_with_an_upgraded_pair() {
    let postgres = Postgres::shared().await;
    let mut gateway = GatewayProcess::start(&postgres, &[]).await;
    let mut device = TestDevice::paired_with(&gateway).await;
    let folder = Folder::new();
    let backend = device.publish(&gateway, "shop", &folder, &[]).await;
    let fits = gateway.command_line(&["upgrade-check"]).await.ok();
    assert_eq!((&fits["devices"][0]["fits"], &fits["running"]), (&json!(true), &json!("0.1.0")), "{fits}");

    gateway.install("0.2.0");
    let warned = gateway.command_line(&["upgrade-check"]).await;
    assert_eq!(warned.exit, 7, "{}", warned.stderr);
    assert_eq!(text(&warned.value, "/devices/0/upgrade"), "device", "{}", warned.stdout);
    assert!(warned.stderr.contains("1 of 1 devices would be refused"), "{}", warned.stderr);

    // A missing migration counts too: this program would not start.
    let newest = postgres.rows("SELECT max(version) AS version FROM deskgate_migrations").await[0]["version"].clone();
    postgres.change(&format!("DELETE FROM deskgate_migrations WHERE version = {newest}")).await;
    let behind = gateway.command_line(&["upgrade-check"]).await;
    assert!(behind.exit == 7 && behind.stderr.contains("1 migrations are missing"), "{}", behind.stderr);
    gateway.stop(Signal::TERM).await;
    let stopped = gateway.command_line(&["upgrade-check"]).await;
    assert_eq!((stopped.exit, &stopped.value["running"]), (7, &json!(null)), "{}", stopped.stderr);
    let digest = deskgate_gateway::store::migrate::MIGRATIONS.last().expect("there are some").sql;
    let digest = deskgate_protocol::canonical::Sha256Digest::of(digest.as_bytes());
    let put_back =
        format!("INSERT INTO deskgate_migrations (version, name, sha256) VALUES ({newest}, 'it', '{digest}')");
    postgres.change(&put_back).await;

    gateway.restart().await;
    let run_id = backend.submit("Wait.").await;
    let line = device.wait_for_line_state("refused").await;
    assert_eq!(text(&line, "/line/refused/upgrade"), "device", "{line}");
    device.stop(Signal::TERM).await;
    device.install("0.2.0");
    device.start().await;
    device.wait_until_connected().await;
    assert_eq!(text(&backend.wait_for_end(&run_id).await, "/state"), "succeeded");
    until("the device to be let in", async || {
        let seen = gateway.admin(&["device", "list"]).await.ok();
        if text(&seen, "/devices/0/state") == "connected" { Ok(()) } else { Err(seen.to_string()) }
    })
    .await;
}
