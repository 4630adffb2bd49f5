//! F29: a device has another protocol, or claims or has another version; a gateway has another version than the others,
//! or finds a database that a newer one has migrated.

use std::time::Duration;

use anyhow::ensure;
use deskgate_program::exit::Exit;
use deskgate_protocol::control::RefusedCode;
use deskgate_protocol::{PROTOCOL_RANGE, ProtocolRange, VERSION};
use deskgate_tests::GatewayProcess;
use deskgate_tests::raw::RawIdentity;
use rustix::process::Signal;
use tokio::time::{Instant, sleep};

use super::{VICTIM_TIMEOUT, one_of};
use crate::plan::PlannedFault;
use crate::testbed::Testbed;

/// Versions with as many characters as ours: one older, one newer.
const OTHER_VERSIONS: [&str; 2] = ["0.0.9", "0.2.0"];

/// Injects one of them.
pub(crate) async fn mismatch(testbed: &Testbed, planned: &PlannedFault) -> anyhow::Result<String> {
    match planned.manner % 4 {
        0 => by_hand(testbed).await,
        1 => device(testbed, planned).await,
        2 => gateway(testbed, planned).await,
        _ => database(testbed, planned).await,
    }
}

/// The raw device makes one claim after the other at every gateway. Each is refused with a frame.
async fn by_hand(testbed: &Testbed) -> anyhow::Result<String> {
    let own = &testbed.stray.persona;
    let version = |version: &str| RawIdentity { version: version.to_owned(), ..own.clone() };
    let protocol = |of: u32| RawIdentity { protocol: ProtocolRange { min: of, max: of }, ..own.clone() };
    let mut claims: Vec<_> = OTHER_VERSIONS.into_iter().chain(["", "nonsense", "9999999.0.0"]).map(version).collect();
    claims.extend([PROTOCOL_RANGE.min - 1, PROTOCOL_RANGE.max + 1, u32::MAX].map(protocol));
    let mut refused = 0;
    for replica in &testbed.replicas {
        let gateway = replica.read().await;
        for persona in &claims {
            let said = persona.is_refused(&gateway).await;
            let (claimed, at) = (&persona.version, persona.protocol);
            ensure!(said.code == RefusedCode::VersionMismatch, "{claimed}, {at:?}: {said:?}");
            ensure!(said.upgrade.is_some(), "{claimed}, {at:?}: nobody is told which half to upgrade: {said:?}");
            refused += 1;
        }
    }
    // With its own version it is admitted as before.
    let gateway = testbed.replicas[0].read().await;
    drop(own.connect(&gateway, Vec::new()).await);
    Ok(format!("{refused} times another version or protocol was claimed, and refused"))
}

fn other(planned: &PlannedFault) -> &'static str {
    OTHER_VERSIONS[one_of(planned.manner / 4, OTHER_VERSIONS.len())]
}

/// A desktop's agent has another version for a while. It is refused, reports it, and executes nothing.
async fn device(testbed: &Testbed, planned: &PlannedFault) -> anyhow::Result<String> {
    let number = one_of(planned.target, testbed.desktops.len());
    let version = other(planned);
    let mut device = testbed.desktops[number].device.write().await;
    // Both binaries are made before it stops; the first time takes a moment.
    device.install(VERSION);
    device.install(version);
    device.stop(Signal::TERM).await;
    device.start().await;
    let status = device.wait_for_line_state("refused").await;
    sleep(Duration::from_millis(planned.lasts_ms)).await;
    let executions = device.log().own().matches("execution began").count();
    device.stop(Signal::TERM).await;
    device.install(VERSION);
    device.start().await;
    let code = &status["line"]["refused"]["code"];
    ensure!(code == "version_mismatch", "agent {number} of version {version} was refused for {code}");
    ensure!(executions == 0, "agent {number} of version {version} began {executions} executions");
    Ok(format!("agent {number} of version {version} was refused for {} ms, and executed nothing", planned.lasts_ms))
}

/// A gateway has another version for a while, as in a rolling upgrade. It serves callers like the others; a device that
/// connects to it is refused, and goes to another gateway.
async fn gateway(testbed: &Testbed, planned: &PlannedFault) -> anyhow::Result<String> {
    let number = one_of(planned.target, testbed.replicas.len());
    let version = other(planned);
    let mut gateway = testbed.replicas[number].write().await;
    gateway.install(VERSION);
    gateway.install(version);
    gateway.stop(Signal::TERM).await;
    gateway.restart().await;
    let gateway = gateway.downgrade();
    // Reconnects devices until one connects to this gateway.
    let deadline = Instant::now() + VICTIM_TIMEOUT.max(Duration::from_millis(planned.lasts_ms));
    let refused = |gateway: &GatewayProcess| gateway.log().own().matches("a device has another version").count();
    while refused(&gateway) == 0 && Instant::now() < deadline {
        for desktop in &testbed.desktops {
            desktop.device.read().await.proxy().reset();
        }
        sleep(Duration::from_millis(500)).await;
    }
    sleep(Duration::from_millis(planned.lasts_ms)).await;
    let (refused, entered) = (refused(&gateway), gateway.log().own().matches("device connected").count());
    drop(gateway);
    let mut gateway = testbed.replicas[number].write().await;
    gateway.stop(Signal::TERM).await;
    gateway.install(VERSION);
    gateway.restart().await;
    ensure!(refused > 0, "no device came by gateway {number} of version {version}");
    ensure!(entered == 0, "gateway {number} of version {version} let {entered} devices in");
    Ok(format!("gateway {number} of version {version} stood beside the others, and refused {refused} devices"))
}

/// A newer program has migrated the database. Running gateways go on; a restarted one refuses to start.
async fn database(testbed: &Testbed, planned: &PlannedFault) -> anyhow::Result<String> {
    let number = one_of(planned.target, testbed.replicas.len());
    let mut gateway = testbed.replicas[number].write().await;
    let newer = "INSERT INTO deskgate_migrations (version, name, sha256) \
        SELECT max(version) + 1, 'of_a_newer_program', repeat('0', 64) FROM deskgate_migrations";
    testbed.postgres.change(newer).await;
    gateway.stop(Signal::TERM).await;
    let ended = gateway.expect_start_failure().await;
    sleep(Duration::from_millis(planned.lasts_ms)).await;
    testbed.postgres.change("DELETE FROM deskgate_migrations WHERE name = 'of_a_newer_program'").await;
    gateway.restart().await;
    let wanted = i32::from(Exit::VersionMismatch as u8);
    ensure!(ended.code() == Some(wanted), "gateway {number} ended with {ended} on a newer database");
    Ok(format!("gateway {number} refused to start on a newer database, while the others went on"))
}
