//! Peers that hold connections open without ever proving a key.

use std::time::{Duration, Instant};

use deskgate::link::{LinkError, Ssh};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::support::server::SshServer;
use crate::support::{connect, soon};

const SETTLE_TIME: Duration = Duration::from_millis(2500);

/// An idle connection that was accepted: the server has greeted it.
async fn idle(server: &SshServer) -> Result<TcpStream, ()> {
    let mut socket = TcpStream::connect(("127.0.0.1", server.port)).await.expect("the port is open");
    let mut greeting = [0; 8];
    soon("greeted or closed", socket.read_exact(&mut greeting)).await.map_err(drop)?;
    assert_eq!(&greeting, b"SSH-2.0-");
    Ok(socket)
}

async fn closed(mut socket: TcpStream) {
    let mut rest = Vec::new();
    // Closed with or without a reset: the connection has ended.
    let _ = soon("the server closes it", socket.read_to_end(&mut rest)).await;
}

#[tokio::test]
async fn silent_peers_are_cut_and_keep_no_device_at_their_address_out() {
    let mut server = SshServer::start_with(|config| config.login_grace = SETTLE_TIME).await;
    server.echo();
    let began = Instant::now();
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(idle(&server).await.expect("let in"));
    }
    // An office behind one address: somebody in it holds every place open.
    connect(server.ssh(), &server.credentials()).await.expect("the device comes in at once");
    closed(held.remove(0)).await;
    assert!(began.elapsed() < SETTLE_TIME, "the oldest gave way");
    for socket in held {
        closed(socket).await;
    }
    assert!(began.elapsed() >= SETTLE_TIME, "the others had their time");
}

#[tokio::test]
async fn a_server_that_hangs_up_before_it_greets_is_named_as_such() {
    let server = SshServer::start_with(|_| {}).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let hangs_up = async { drop(listener.accept().await.expect("somebody dials").0) };
    let (target, credentials) = (Ssh { port, ..server.ssh() }, server.credentials());
    let (tried, ()) = tokio::join!(connect(target, &credentials), hangs_up);
    let Err(error) = tried else { panic!("there is no gateway") };
    assert!(matches!(error, LinkError::HungUp { .. }), "{error}");
}

#[tokio::test]
async fn a_peer_that_talks_ssh_but_proves_nothing_is_cut_as_well() {
    let server = SshServer::start_with(|config| config.login_grace = SETTLE_TIME).await;
    let mut socket = idle(&server).await.expect("let in");
    socket.write_all(b"SSH-2.0-Slow\r\n").await.expect("written");
    closed(socket).await;
}

#[tokio::test]
async fn a_paired_peer_that_opens_no_channel_is_cut() {
    let server = SshServer::start_with(|config| config.login_grace = SETTLE_TIME).await;
    let known = server.folder.path().join("known_hosts");
    let entry = format!("[127.0.0.1]:{} {}\n", server.port, server.host_key.public_key());
    std::fs::write(&known, entry).expect("written");
    let mut ssh = std::process::Command::new("ssh");
    ssh.args(["-F", "none", "-N", "-v", "-o", "BatchMode=yes", "-o", "IdentityAgent=none", "-p"])
        .arg(server.port.to_string())
        .arg("-o")
        .arg(format!("UserKnownHostsFile={}", known.display()))
        .arg("-i")
        .arg(server.folder.path().join("device"))
        .arg("device@127.0.0.1")
        .stdin(std::process::Stdio::null());
    let output = soon("ssh is cut", tokio::task::spawn_blocking(move || ssh.output())).await;
    let text = String::from_utf8_lossy(&output.expect("no panic").expect("ssh runs").stderr).into_owned();
    assert!(text.contains("Authenticated to"), "{text}");
    assert!(!text.contains("Deskgate_") && !text.contains("russh"), "no version is told: {text}");
}

#[tokio::test]
async fn attackers_that_fill_every_place_push_out_one_another_and_not_the_device() {
    let mut server = SshServer::start_with(|config| {
        // Slow peers are not cut off in this test.
        config.login_grace = Duration::from_secs(3600);
        config.max_unauthenticated = 3;
        config.max_unauthenticated_per_source = 100;
    })
    .await;
    server.echo();
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(idle(&server).await.expect("let in"));
    }
    connect(server.ssh(), &server.credentials()).await.expect("the device comes in at once");
    closed(held.remove(0)).await;
}

#[tokio::test]
async fn a_source_that_connects_too_fast_is_turned_away_without_a_greeting() {
    let server = SshServer::start_with(|config| {
        config.accepts_per_second_per_source = 2;
        config.max_unauthenticated_per_source = 100;
    })
    .await;
    let (one, two, three) = tokio::join!(idle(&server), idle(&server), idle(&server));
    assert_eq!([one, two, three].iter().filter(|result| result.is_ok()).count(), 2);
}
