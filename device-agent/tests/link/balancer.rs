//! The gateway's own listener behind a balancer that passes TCP on.

use std::net::SocketAddr;

use deskgate_protocol::identity::PublicKey;
use ed25519_dalek::SigningKey;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::raw_ssh::{CHANNEL_OPEN_CONFIRMATION, Packet, RawSsh};
use crate::support::server::SshServer;
use crate::support::{CONTROL_SOCKET_PATH, connect, soon};

/// A PROXY header, version 2, for a device at this address.
fn header(device: [u8; 4]) -> Vec<u8> {
    let mut header = b"\r\n\r\n\0\r\nQUIT\n".to_vec();
    header.extend([0x21, 0x11, 0, 12]);
    header.extend(device);
    header.extend([192, 0, 2, 1, 0x9c, 0x40, 0x1e, 0x8e]);
    header
}

async fn balanced() -> SshServer {
    SshServer::start_with(|config| {
        config.balancers = "127.0.0.1".parse().expect("an address");
        config.accepts_per_second_per_source = 2;
    })
    .await
}

async fn dial(server: &SshServer, head: &[u8]) -> TcpStream {
    let mut socket = TcpStream::connect(("127.0.0.1", server.port)).await.expect("the port is open");
    socket.write_all(head).await.expect("sent");
    socket
}

/// Whether the server greets a connection that begins like this.
async fn is_greeted(server: &SshServer, head: &[u8]) -> bool {
    let mut greeting = [0; 8];
    let mut socket = dial(server, head).await;
    soon("greeted or closed", socket.read_exact(&mut greeting)).await.is_ok() && &greeting == b"SSH-2.0-"
}

#[tokio::test]
async fn a_device_behind_a_balancer_has_the_address_that_the_header_names() {
    let mut server = balanced().await;
    let device = SigningKey::from_bytes(&[4; 32]);
    server.paired.admit(PublicKey::of(&device));
    let socket = dial(&server, &header([203, 0, 113, 9])).await;
    let mut ssh = soon("a sign-in", RawSsh::client(socket, &device)).await.expect("paired");
    let own = Packet::default().string(CONTROL_SOCKET_PATH).string("").u32(0);
    ssh.writer.send([Packet::channel("direct-streamlocal@openssh.com", 1, own)]).await.expect("sent");
    let answer = soon("an answer", ssh.reader.receive()).await.expect("the line holds");
    assert_eq!(answer.kind(), CHANNEL_OPEN_CONFIRMATION);
    let arrival = server.arrival().await;
    assert_eq!(arrival.peer, SocketAddr::from(([203, 0, 113, 9], 40_000)));
    assert_eq!(arrival.host_key, server.host_key.public_key());
}

#[tokio::test]
async fn limits_count_the_sources_behind_a_balancer_and_not_the_balancer() {
    let server = balanced().await;
    for device in 1..=10 {
        assert!(is_greeted(&server, &header([203, 0, 113, device])).await, "each for itself");
    }
    assert!(is_greeted(&server, &header([203, 0, 113, 1])).await, "the second of that source");
    let mut refused = false;
    // At two a second, a third and fourth at once are too many.
    for _ in 0..4 {
        refused |= !is_greeted(&server, &header([203, 0, 113, 1])).await;
    }
    assert!(refused);
    assert!(is_greeted(&server, &header([203, 0, 113, 11])).await);
}

#[tokio::test]
async fn a_balancer_that_says_for_whom_in_no_way_that_counts_is_not_answered() {
    let server = balanced().await;
    for head in [&b"SSH-2.0-OpenSSH_9.2\r\n"[..], b"PROXY TCP4 203.0.113.9 192.0.2.1 40000 7822\r\n"] {
        assert!(!is_greeted(&server, head).await);
    }
    connect(server.ssh(), &server.credentials()).await.expect_err("a device is no balancer");
    // Who is none names nobody: the header is no greeting, and the connection ends.
    let plain = SshServer::start().await;
    let mut socket = dial(&plain, &header([203, 0, 113, 9])).await;
    let mut rest = Vec::new();
    let _ = soon("closed", socket.read_to_end(&mut rest)).await;
    assert!(rest.starts_with(b"SSH-2.0-"));
}
