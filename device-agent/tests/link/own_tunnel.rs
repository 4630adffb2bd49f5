//! The device against the gateway's own SSH listener.

use deskgate::link::{LinkError, Ssh};
use deskgate_gateway::tunnel::KeyStatus;
use deskgate_protocol::control::{DeviceFrame, GatewayFrame};
use deskgate_protocol::secret::ControlToken;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::server::SshServer;
use crate::support::{connect, credentials, device_key, soon};

#[tokio::test]
async fn a_paired_device_comes_in_and_frames_go_both_ways() {
    let mut server = SshServer::start().await;
    server.echo();
    let mut session = connect(server.ssh(), &server.credentials()).await.expect("welcomed");
    assert_eq!(session.gateway_version(), deskgate_protocol::VERSION);
    session.sender().send(DeviceFrame::Pong).await.expect("queued");
    assert_eq!(soon("an answer", session.next()).await, Some(GatewayFrame::Ping));
}

#[tokio::test]
async fn the_gateway_learns_which_key_came_in() {
    let mut server = SshServer::start().await;
    let (ssh, credentials) = (server.ssh(), server.credentials());
    let device = tokio::spawn(async move { connect(ssh, &credentials).await.map(drop) });
    let arrival = server.arrival().await;
    assert_eq!(arrival.public_key, server.device.public_key());
    assert!(arrival.peer.ip().is_loopback());
    drop(arrival);
    device.await.expect("no panic").expect_err("the gateway hung up");
}

#[tokio::test]
async fn an_unknown_or_revoked_key_is_told_its_fingerprint_and_how_to_pair() {
    let server = SshServer::start().await;
    let stranger = device_key(server.folder.path(), "stranger");
    for verdict in [KeyStatus::Unknown, KeyStatus::Revoked] {
        server.paired.set(&stranger, verdict);
        let error = connect(server.ssh(), &credentials(&stranger, &server.gateway.token)).await.expect_err("refused");
        assert!(matches!(error, LinkError::KeyNotAccepted { .. }), "{error}");
        assert!(!error.is_blocked(), "it may be paired any time");
        let text = error.to_string();
        assert!(text.contains(&stranger.public_key().fingerprint()) && text.contains("`deskgate pair`"), "{text}");
    }
}

#[tokio::test]
async fn a_key_nobody_can_judge_now_is_not_called_unpaired() {
    let server = SshServer::start().await;
    server.paired.set(&server.device, KeyStatus::Unavailable);
    let error = connect(server.ssh(), &server.credentials()).await.expect_err("not now");
    assert!(matches!(error, LinkError::Lost(_)), "{error}");
}

#[tokio::test]
async fn another_socket_name_is_refused_and_named() {
    let mut server = SshServer::start().await;
    for path in ["/var/run/postgresql/.s.PGSQL.5432", "", "/run/deskgate/control.sock/", "/run/deskgate/control.soc"] {
        let ssh = Ssh { socket_path: path.to_owned(), ..server.ssh() };
        let error = connect(ssh, &server.credentials()).await.expect_err("refused");
        assert!(matches!(&error, LinkError::ChannelRefused { path: named, .. } if named == path), "{error}");
    }
    assert!(server.arrivals.try_recv().is_err(), "nobody came in");
}

#[tokio::test]
async fn dropping_the_arrival_ends_the_connection_after_its_last_words() {
    let mut server = SshServer::start().await;
    let (stranger_token, ssh) = (ControlToken::generate(), server.ssh());
    let credentials = credentials(&server.device, &stranger_token);
    let device = tokio::spawn(async move { connect(ssh, &credentials).await.map(drop) });
    let mut arrival = server.arrival().await;
    let mut request = [0; 14];
    arrival.stream.read_exact(&mut request).await.expect("the upgrade begins");
    assert_eq!(&request, b"GET /control H");
    arrival.stream.write_all(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n").await.expect("written");
    drop(arrival);
    let error = device.await.expect("no panic").expect_err("refused");
    assert!(matches!(error, LinkError::WrongToken), "{error}");
}

#[tokio::test]
async fn stopping_the_tunnel_ends_a_connection_whose_receiver_holds_on_without_reading() {
    let mut server = SshServer::start().await;
    let (ssh, credentials, gateway) = (server.ssh(), server.credentials(), server.gateway.clone());
    let device = tokio::spawn(async move {
        let session = connect(ssh, &credentials).await.expect("welcomed");
        // More than all the queues in between hold, so that SSH itself stalls.
        let sender = session.sender();
        let flood = tokio::spawn(async move {
            let message = "x".repeat(1024 * 1024);
            loop {
                let event = deskgate_protocol::control::DeviceEvent::MessageCompleted {
                    message_id: "m".to_owned(),
                    text: message.clone(),
                    reasoning_summary: None,
                };
                let frame = DeviceFrame::Event { run_id: deskgate_protocol::RunId::new(), attempt: 1, seq: 1, event };
                if tokio::time::timeout(std::time::Duration::from_millis(500), sender.send(frame)).await.is_err() {
                    return;
                }
            }
        });
        flood.await.expect("stuck, as planned");
        session
    });
    let arrival = server.arrival().await;
    let side = soon("the greeting", gateway.greet(arrival.stream)).await.expect("let in");
    let mut session = soon("everything is full", device).await.expect("no panic");
    server.stop().await;
    assert_eq!(soon("the line is lost", session.next()).await, None);
    drop(side);
}
