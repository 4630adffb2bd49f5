//! The commands from clone to a finished run, in built-in mode and over SSH.

use deskgate_tests::sshd::Sshd;
use deskgate_tests::{Folder, GatewayProcess, Postgres, TestDevice};

use crate::text;

#[tokio::test]
async fn the_demo_path() {
    let device = TestDevice::built_in().await;
    let folder = Folder::new();
    let backend = device.publish_here("shop", &folder, &[]).await;
    let run_id = backend.submit("What does order 4711 say?").await;
    let run = backend.wait_for_end(&run_id).await;
    assert_eq!(run["state"], "succeeded", "{run}");
    let answer = text(&run, "/result/text");
    assert!(answer.contains("three green lamps"), "the result holds what stands in the folder: {answer}");
    let status = device.status().await;
    assert_eq!((&status["mode"], &status["access"]["enabled"]), (&"builtin".into(), &true.into()), "{status}");
    assert_eq!(status["work"]["runs"], serde_json::json!([]), "nothing is left in hand: {status}");
    assert_eq!(device.executions(&run_id), 1);
}

#[tokio::test]
async fn the_same_over_ssh_to_a_gateway_on_a_server() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let device = TestDevice::paired_with(&gateway).await;
    let folder = Folder::new();
    let backend = device.publish(&gateway, "shop", &folder, &[]).await;
    let run_id = backend.submit("What does order 4711 say?").await;
    let run = backend.wait_for_end(&run_id).await;
    assert!(text(&run, "/result/text").contains("three green lamps"), "{run}");
    assert_eq!(device.executions(&run_id), 1);
}

#[tokio::test]
async fn the_same_through_debians_own_ssh_server() {
    let postgres = Postgres::shared().await;
    let gateway = GatewayProcess::start(&postgres, &[]).await;
    let device = TestDevice::for_remote().await;
    let paired = device.pair(&gateway, &[]).await;
    let file = device.folder().join("identity.json");
    let printed = gateway.plain_admin(&["device", "add", file.to_str().unwrap(), "--print-authorized-keys"]).await;
    assert!(printed.stdout.starts_with("restrict,port-forwarding ssh-ed25519 "), "{}", printed.stdout);

    let sshd = Sshd::start(&printed.stdout).await;
    let (address, user, known_hosts) = (sshd.address(), sshd.user(), sshd.known_hosts());
    let (socket, token) = (text(&paired, "/details/control_socket"), gateway.control_token_file());
    let connection = [
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
    device.save(&connection).await.ok();
    device.wait_until_connected().await;

    let folder = Folder::new();
    let backend = device.publish(&gateway, "shop", &folder, &[]).await;
    let run = backend.wait_for_end(&backend.submit("What does order 4711 say?").await).await;
    assert!(text(&run, "/result/text").contains("three green lamps"), "{run}");
}
