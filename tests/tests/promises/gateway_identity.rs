//! Which server a device signs in to, and which gateway it is: neither can be another one's place.

use deskgate_protocol::control::RefusedCode;
use deskgate_tests::gateway::RELATIVE_SOCKET_SETTING;
use deskgate_tests::raw::RawIdentity;
use deskgate_tests::sshd::Sshd;
use deskgate_tests::{GatewayProcess, Postgres, TestDevice, until};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::text;

/// Waits until `doctor` names this problem, and returns its text.
async fn problem(device: &TestDevice, code: &str) -> String {
    until(&format!("doctor to name {code}"), async || {
        let said = device.cli(&["doctor"]).await;
        let problems = said.value["problems"].as_array().cloned().unwrap_or_default();
        let found = problems.iter().find(|problem| problem["code"] == code).map(Value::to_string);
        found.ok_or(said.stdout + &said.stderr)
    })
    .await
}

#[tokio::test]
async fn a_hello_that_was_made_for_another_server_is_refused_and_both_keys_are_logged() {
    let folder = TempDir::with_prefix("deskgate-keys-").expect("a temporary folder");
    let file = folder.path().join("sshd.pub");
    let (own, other) = (RawIdentity::new(71).public_key(), RawIdentity::new(72));
    std::fs::write(&file, format!("{own} root@gateway\n")).expect("written");
    let postgres = Postgres::shared().await;
    let setting = format!("control.sshd_host_keys={}", file.display());
    let mut gateway = GatewayProcess::start(&postgres, &[&setting]).await;
    other.pair(&gateway, "raw").await.ok();
    let refused = other.is_refused(&gateway).await;
    assert_eq!((refused.code, refused.should_retry), (RefusedCode::OtherServer, false), "{refused:?}");

    // A device that trusts somebody's sshd, who passes everything on to this gateway.
    let device = TestDevice::for_remote().await;
    let paired = device.pair(&gateway, &[]).await;
    let exported = device.folder().join("identity.json");
    let printed = gateway.plain_admin(&["device", "add", exported.to_str().unwrap(), "--print-authorized-keys"]).await;
    let relay = Sshd::start(&printed.stdout).await;
    let (address, user, known_hosts) = (relay.address(), relay.user(), relay.known_hosts());
    let (socket, token) = (text(&paired, "/details/control_socket"), gateway.control_token_file());
    let save = [
        "--ssh-address",
        &address,
        "--ssh-user",
        &user,
        "--known-hosts",
        known_hosts.to_str().unwrap(),
        "--control-socket",
        socket,
        "--token-file",
        token.to_str().unwrap(),
    ];
    device.save(&save).await.ok();
    let said = problem(&device, "host_key_not_trusted").await;
    let line = std::fs::read_to_string(&known_hosts).expect("written");
    let shown = line.split_once(' ').expect("a name and a key").1.trim().to_owned();
    let shown: deskgate_protocol::identity::PublicKey = shown.parse().expect("a key");
    assert!(said.contains(&own.fingerprint()) && said.contains(&shown.fingerprint()), "{said}");
    let warned = gateway.log().line(&["made for another server", &shown.fingerprint()]).await;
    assert!(warned.contains(&own.fingerprint()), "{warned}");

    // The same way in is good once it is the gateway's own.
    std::fs::write(&file, format!("{shown}\n")).expect("written");
    assert!(gateway.stop(Signal::TERM).await.success());
    gateway.restart().await;
    device.save(&save).await.ok();
    device.wait_until_connected().await;
}

#[tokio::test]
async fn another_gateway_behind_the_same_host_key_is_a_problem_until_the_owner_accepts_it() {
    let (database, other_database) = (Postgres::shared().await, Postgres::shared().await);
    let mut first = GatewayProcess::start(&database, &[RELATIVE_SOCKET_SETTING]).await;
    let mut other = GatewayProcess::start(&other_database, &[RELATIVE_SOCKET_SETTING]).await;
    let mut device = TestDevice::for_remote().await;
    device.pair(&other, &[]).await;
    assert!(other.stop(Signal::TERM).await.success());
    for file in ["ssh_host_ed25519_key", "control_token"] {
        std::fs::copy(first.state_dir().join(file), other.state_dir().join(file)).expect("both have one");
    }
    let paired = device.pair(&first, &[]).await;
    let targets = vec![first.ssh(), other.ssh()];
    device.connect_to_one_of(targets, &paired, &first.control_token_file()).await.ok();
    device.wait_until_connected().await;

    // The same one after a restart, and from its backup, is no other: its identifier is in its database.
    assert!(first.stop(Signal::TERM).await.success());
    first.restart().await;
    device.wait_until_connected().await;

    assert!(first.stop(Signal::TERM).await.success());
    other.restart().await;
    let said = problem(&device, "gateway_replaced").await;
    let (_, rest) = said.split_once("accept-gateway ").expect("it says what to do");
    let gateway_id: String = rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
    assert_eq!(device.status().await["line"]["state"], "disconnected");
    let shown = other.admin(&["device", "list"]).await.ok().to_string();
    assert!(!shown.contains("\"connected\""), "no session began: {shown}");

    device.cli(&["connection", "accept-gateway", &gateway_id]).await.ok();
    device.wait_until_connected().await;
    assert_eq!(device.cli(&["doctor"]).await.exit, 0);
}
