//! No stalls on the connection: Nagle's algorithm and delayed acknowledgements would cost 40 ms.

use std::time::{Duration, Instant};

use deskgate::link::{Credentials, Session, Ssh};
use deskgate_protocol::control::{DeviceFrame, GatewayFrame};

use crate::support::server::SshServer;
use crate::support::sshd::Sshd;
use crate::support::{connect, credentials};

const ROUND_TRIPS: usize = 1000;

/// Sorted times of single echoes, and of two frames that are sent apart and answered apart.
async fn round_trips(session: &mut Session) -> (Vec<Duration>, Vec<Duration>) {
    let sender = session.sender();
    let (mut single, mut double) = (Vec::new(), Vec::new());
    for round in 0..2 * ROUND_TRIPS {
        let frames = 1 + round % 2;
        let began = Instant::now();
        for _ in 0..frames {
            sender.send(DeviceFrame::Pong).await.expect("queued");
            tokio::task::yield_now().await;
        }
        for _ in 0..frames {
            assert_eq!(session.next().await, Some(GatewayFrame::Ping));
        }
        if frames == 1 { single.push(began.elapsed()) } else { double.push(began.elapsed()) }
    }
    single.sort();
    double.sort();
    (single, double)
}

async fn measure(name: &str, ssh: Ssh, credentials: &Credentials) {
    let mut connects = Vec::new();
    for _ in 0..20 {
        let began = Instant::now();
        drop(connect(ssh.clone(), credentials).await.expect("welcomed"));
        connects.push(began.elapsed());
    }
    connects.sort();
    let mut session = connect(ssh, credentials).await.expect("welcomed");
    let (single, double) = round_trips(&mut session).await;
    let at = |times: &[Duration], of: f64| times[((times.len() - 1) as f64 * of) as usize];
    println!("{name}: connect and handshake p50 {:?} max {:?}", at(&connects, 0.5), at(&connects, 1.0));
    for (kind, times) in [("one frame", &single), ("two frames", &double)] {
        println!(
            "{name}: {kind} p50 {:?} p99 {:?} p99.9 {:?} max {:?}",
            at(times, 0.5),
            at(times, 0.99),
            at(times, 0.999),
            at(times, 1.0)
        );
    }
    // Stalls would hit at least one in a hundred, while a busy machine delays fewer.
    let usual = at(&single, 0.99).max(at(&double, 0.99));
    assert!(usual < Duration::from_millis(30), "{name}: frames stall, {usual:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_stalls_over_our_own_tunnel() {
    let mut server = SshServer::start_with(|config| config.accepts_per_second_per_source = 10_000).await;
    server.echo();
    measure("own tunnel", server.ssh(), &server.credentials()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_stalls_over_a_servers_own_sshd() {
    let sshd = Sshd::start("AllowTcpForwarding local\nMaxStartups 100").await;
    measure("sshd", sshd.ssh(), &credentials(&sshd.device, &sshd.gateway.token)).await;
}
