//! The device against OpenSSH's sshd with a Unix socket behind it.

use deskgate::link::{HostKeyError, LinkError, Ssh};
use deskgate_protocol::control::{DeviceFrame, GatewayFrame};

use crate::support::sshd::Sshd;
use crate::support::{connect, credentials, device_key, followed, pinned, soon, trusted_keys};

#[tokio::test]
async fn the_same_client_comes_in_through_a_servers_own_sshd() {
    let sshd = Sshd::start("AllowTcpForwarding local").await;
    let result = connect(sshd.ssh(), &credentials(&sshd.device, &sshd.gateway.token)).await;
    let mut session = result.unwrap_or_else(|error| panic!("{error}\n{}", sshd.log()));
    session.sender().send(DeviceFrame::Pong).await.expect("queued");
    assert_eq!(soon("an answer", session.next()).await, Some(GatewayFrame::Ping));
}

#[tokio::test]
async fn its_refusals_say_what_is_wrong() {
    let sshd = Sshd::start("AllowTcpForwarding local").await;
    let good = credentials(&sshd.device, &sshd.gateway.token);

    let stranger = device_key(sshd.folder.path(), "stranger");
    let error = connect(sshd.ssh(), &credentials(&stranger, &sshd.gateway.token)).await.expect_err("not authorized");
    assert!(
        matches!(&error, LinkError::KeyNotAccepted { fingerprint, .. }
        if *fingerprint == stranger.public_key().fingerprint()),
        "{error}"
    );

    let pin = pinned("SHA256:5TYAUnj1p7hSySxwLSzuo2ncngeS76sPafw9EyRvV6g");
    let error = connect(Ssh { pin, ..sshd.ssh() }, &good).await.expect_err("another host key");
    assert!(
        matches!(&error, LinkError::HostKey(HostKeyError::Changed { presented, .. })
        if *presented == sshd.fingerprint),
        "{error}"
    );

    let socket_path = sshd.folder.path().join("nothing.sock").display().to_string();
    let error = connect(Ssh { socket_path: socket_path.clone(), ..sshd.ssh() }, &good).await.expect_err("no socket");
    assert!(matches!(&error, LinkError::ChannelRefused { path, .. } if *path == socket_path), "{error}");

    let error = connect(sshd.ssh(), &credentials(&sshd.device, &deskgate_protocol::secret::ControlToken::generate()))
        .await
        .expect_err("wrong token");
    assert!(matches!(error, LinkError::WrongToken), "{error}");
}

/// sshd announces its keys as OpenSSH's own client expects it.
#[tokio::test]
async fn a_host_key_that_sshd_announced_is_trusted_later_and_the_old_one_no_more() {
    let mut sshd = Sshd::start("AllowTcpForwarding local").await;
    let ssh = Ssh { followed: Some(followed(sshd.folder.path().join("followed"))), ..sshd.ssh() };
    let credentials = credentials(&sshd.device, &sshd.gateway.token);
    connect(ssh.clone(), &credentials).await.expect("the pinned key");
    assert_eq!(trusted_keys(&ssh), None, "there is nothing to follow");

    let keys = sshd.show(&["host", "next"]).await;
    connect(ssh.clone(), &credentials).await.expect("the pinned key");
    assert_eq!(trusted_keys(&ssh), Some(keys.clone()), "{}", sshd.log());
    sshd.show(&["next"]).await;
    connect(ssh.clone(), &credentials).await.expect("the announced key");
    assert_eq!(trusted_keys(&ssh), Some(vec![keys[1]]));

    sshd.show(&["host"]).await;
    let error = connect(ssh, &credentials).await.expect_err("the old key");
    let LinkError::HostKey(HostKeyError::Changed { pinned, presented, .. }) = &error else { panic!("{error}") };
    assert_eq!((pinned, presented), (&vec![keys[1].fingerprint()], &keys[0].fingerprint()));
}

#[tokio::test]
async fn the_setting_that_closes_the_socket_too_is_named() {
    let sshd = Sshd::start("AllowTcpForwarding no\nAllowStreamLocalForwarding local").await;
    let error = connect(sshd.ssh(), &credentials(&sshd.device, &sshd.gateway.token)).await.expect_err("denied");
    assert!(matches!(error, LinkError::ChannelRefused { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("AllowTcpForwarding") && text.contains("permitopen"), "{text}");
}

/// As in `deploy/sshd/deskgate-tunnel.conf`, but for the user who runs the test and with the test's keys.
#[tokio::test]
async fn the_settings_that_deploy_has_for_sshd_let_a_device_in_and_nothing_else() {
    let snippet = include_str!("../../../deploy/sshd/deskgate-tunnel.conf");
    let of_the_test: Vec<_> = snippet
        .lines()
        .filter(|line| !line.trim_start().starts_with("AuthorizedKeysFile"))
        .map(|line| line.replace("Match User deskgate-tunnel", "Match User *"))
        .collect();
    let sshd = Sshd::start(&of_the_test.join("\n")).await;
    let result = connect(sshd.ssh(), &credentials(&sshd.device, &sshd.gateway.token)).await;
    let mut session = result.unwrap_or_else(|error| panic!("{error}\n{}", sshd.log()));
    session.sender().send(DeviceFrame::Pong).await.expect("queued");
    assert_eq!(soon("an answer", session.next()).await, Some(GatewayFrame::Ping));

    let key = sshd.folder.path().join("device");
    let mut command = std::process::Command::new("ssh");
    command.arg("-i").arg(&key).args(["-p", &sshd.port.to_string(), "-F", "none", "-o", "BatchMode=yes"]);
    command.args(["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR"]);
    command.args(["-o", "ConnectTimeout=10"]).stdin(std::process::Stdio::null());
    command.arg(format!("{}@127.0.0.1", sshd.ssh().user)).args(["echo", "a shell"]);
    let running = tokio::task::spawn_blocking(move || command.output());
    let output = soon("ssh ends", running).await.expect("no panic").expect("ssh runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success() && !said.contains("a shell"), "{said}");
    // It was authenticated: its request was refused, not its key.
    assert!(!String::from_utf8_lossy(&output.stderr).contains("Permission denied"), "{output:?}");
}
