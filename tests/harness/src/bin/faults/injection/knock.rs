//! F35: idle connections from a device's own address keep knocking at the gateways' SSH ports while the device comes back.

use std::time::Duration;

use anyhow::ensure;
use deskgate_tests::until;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::{Instant, interval, timeout};

use super::{InjectionProof, one_of};
use crate::plan::PlannedFault;
use crate::testbed::Testbed;

/// Between two knocks at each gateway: below the rate at which a source is turned away.
const KNOCK_INTERVAL: Duration = Duration::from_millis(250);
/// How long a connection is given to show that the server gave it up.
const LOOK_TIMEOUT: Duration = Duration::from_millis(20);

/// Holds idle connections at every gateway for as long as planned, resets the device's line, and returns after how many
/// milliseconds the device was back.
pub(crate) async fn come_back(testbed: &Testbed, planned: &PlannedFault) -> anyhow::Result<InjectionProof> {
    let device = testbed.desktops[one_of(planned.target, testbed.desktops.len())].device.read().await;
    device.wait_until_connected().await;
    let (ends, mut held) = (Instant::now() + Duration::from_millis(planned.lasts_ms), Vec::new());
    // As many as one source may have, before the device has to come back.
    for _ in 0..4 {
        knock(testbed, &mut held).await;
    }
    let knocking = async {
        let mut beat = interval(KNOCK_INTERVAL);
        while Instant::now() < ends {
            beat.tick().await;
            knock(testbed, &mut held).await;
        }
    };
    let back = async {
        let before = device.log().own().matches("connected to the gateway").count();
        device.proxy().reset();
        let began = Instant::now();
        until("the device to be back", async || {
            let now = device.log().own().matches("connected to the gateway").count();
            if now > before { Ok(()) } else { Err(device.log().tail(3)) }
        })
        .await;
        u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX)
    };
    let ((), back_ms) = tokio::join!(knocking, back);
    device.proxy().heal();
    let mut given_up = 0;
    for socket in &mut held {
        given_up += usize::from(is_given_up(socket).await);
    }
    ensure!(given_up > 0, "none of {} idle connections was given up", held.len());
    let proof = format!(
        "{} idle connections, of which {given_up} were given up; the device was back after {back_ms} ms",
        held.len()
    );
    Ok(InjectionProof { proof, noticed_ms: vec![back_ms] })
}

/// One more idle connection at every gateway that takes it.
async fn knock(testbed: &Testbed, held: &mut Vec<TcpStream>) {
    for address in testbed.ways() {
        if let Ok(Ok(socket)) = timeout(KNOCK_INTERVAL, TcpStream::connect(address.get())).await {
            held.push(socket);
        }
    }
}

/// Whether the server has closed it. Its greeting is read and dropped.
async fn is_given_up(socket: &mut TcpStream) -> bool {
    let mut greeting = [0; 256];
    loop {
        match timeout(LOOK_TIMEOUT, socket.read(&mut greeting)).await {
            Ok(Ok(1..)) => {}
            Ok(_) => return true,
            Err(_) => return false,
        }
    }
}
