//! F29: a device comes in that speaks another protocol, or says that it is of another version, or is.

use std::time::Duration;

use anyhow::ensure;
use deskgate_protocol::control::RefusedCode;
use deskgate_protocol::{PROTOCOL, ProtocolRange, VERSION};
use deskgate_tests::raw::Persona;
use rustix::process::Signal;
use tokio::time::sleep;

use super::one_of;
use crate::plan::Planned;
use crate::scene::Scene;

/// Versions with as many characters as ours, of which one is older and one is newer.
const OTHERS: [&str; 2] = ["0.0.9", "0.2.0"];

/// One of the two.
pub(crate) async fn mismatch(scene: &Scene, planned: &Planned) -> anyhow::Result<String> {
    if planned.manner.is_multiple_of(2) { by_hand(scene).await } else { installed(scene, planned).await }
}

/// The device made by hand claims one thing after the other, at every gateway. Each is refused as data.
async fn by_hand(scene: &Scene) -> anyhow::Result<String> {
    let own = &scene.stray.persona;
    let version = |version: &str| Persona { version: version.to_owned(), ..own.clone() };
    let protocol = |of: u32| Persona { protocol: ProtocolRange { min: of, max: of }, ..own.clone() };
    let mut claims: Vec<_> = OTHERS.into_iter().chain(["", "nonsense", "9999999.0.0"]).map(version).collect();
    claims.extend([PROTOCOL.min - 1, PROTOCOL.max + 1, u32::MAX].map(protocol));
    let mut refused = 0;
    for replica in &scene.replicas {
        let gateway = replica.read().await;
        for persona in &claims {
            let said = persona.is_refused(&gateway).await;
            let (claimed, at) = (&persona.version, persona.protocol);
            ensure!(said.code == RefusedCode::VersionMismatch, "{claimed}, {at:?}: {said:?}");
            ensure!(said.upgrade.is_some(), "{claimed}, {at:?}: nobody is told which half to upgrade: {said:?}");
            refused += 1;
        }
    }
    // As itself it is let in as before.
    let gateway = scene.replicas[0].read().await;
    drop(own.enter(&gateway, Vec::new()).await);
    Ok(format!("{refused} times another version or protocol was claimed, and refused"))
}

/// A desk's agent is one of another version for a while. It is refused, knows it, and executes nothing.
async fn installed(scene: &Scene, planned: &Planned) -> anyhow::Result<String> {
    let number = one_of(planned.target, scene.desks.len());
    let version = OTHERS[one_of(planned.manner / 2, OTHERS.len())];
    let mut device = scene.desks[number].device.write().await;
    // Both are made before it stops, which takes a moment the first time.
    device.install(VERSION);
    device.install(version);
    device.stop(Signal::TERM).await;
    device.start().await;
    let status = device.line_is("refused").await;
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
