//! The device against OpenSSH's sshd with a Unix socket behind it.

use deskgate::link::{HostKeyError, LinkError, Ssh};
use deskgate_protocol::control::{DeviceFrame, GatewayFrame};

use crate::support::sshd::Sshd;
use crate::support::{connect, credentials, device_key, pinned, soon};

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

#[tokio::test]
async fn the_setting_that_closes_the_socket_too_is_named() {
    let sshd = Sshd::start("AllowTcpForwarding no\nAllowStreamLocalForwarding local").await;
    let error = connect(sshd.ssh(), &credentials(&sshd.device, &sshd.gateway.token)).await.expect_err("denied");
    assert!(matches!(error, LinkError::ChannelRefused { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("AllowTcpForwarding") && text.contains("permitopen"), "{text}");
}
