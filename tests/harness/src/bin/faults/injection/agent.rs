//! F5, F8 and F28: a device's agent is killed at any moment, is suspended, or meets a second agent with its key.

use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use anyhow::ensure;
use deskgate_tests::until;
use rustix::process::Signal;
use tokio::time::sleep;

use super::one_of;
use super::replica::is_stopped;
use crate::plan::PlannedFault;
use crate::testbed::Testbed;

/// Kills it, leaves it dead for a while, and starts it in the same home.
pub(crate) async fn kill(testbed: &Testbed, planned: &PlannedFault) -> anyhow::Result<String> {
    let number = one_of(planned.target, testbed.desktops.len());
    let mut device = testbed.desktops[number].device.write().await;
    let pid = device.process().id();
    let ended = device.kill_9();
    sleep(Duration::from_millis(planned.lasts_ms)).await;
    device.start().await;
    ensure!(ended.signal() == Some(9), "agent {number} ended with {ended}");
    Ok(format!("agent {number}, process {pid}, ended by signal 9; process {} since", device.process().id()))
}

/// Suspends it, and resumes it. Its command line is unused meanwhile.
pub(crate) async fn suspend(testbed: &Testbed, planned: &PlannedFault) -> anyhow::Result<String> {
    let number = one_of(planned.target, testbed.desktops.len());
    let device = testbed.desktops[number].device.write().await;
    let pid = device.process().id();
    device.process().signal(Signal::STOP);
    sleep(Duration::from_millis(planned.lasts_ms)).await;
    let stood = is_stopped(pid);
    device.process().signal(Signal::CONT);
    ensure!(stood, "process {pid} did not stand still");
    Ok(format!("agent {number}, process {pid}, stood still for {} ms", planned.lasts_ms))
}

/// Starts a second agent with only the same key, and kills it after a while.
pub(crate) async fn twin(testbed: &Testbed, planned: &PlannedFault) -> anyhow::Result<String> {
    let number = one_of(planned.target, testbed.desktops.len());
    let desktop = &testbed.desktops[number];
    let first = testbed.replicas[0].read().await;
    let device = desktop.device.read().await;
    device.wait_until_connected().await;
    let mut twin = device.with_the_same_key().await;
    let invitation = twin.pair(&first, &[]).await;
    twin.connect_to_one_of(testbed.ways(), &invitation, &first.control_token_file()).await.ok();
    twin.wait_until_connected().await;
    sleep(Duration::from_millis(planned.lasts_ms)).await;
    twin.kill_9();
    // The first agent reconnects by itself. A home that meets a gateway for the first time pauses access for both.
    device.wait_until_connected().await;
    until("access to be enabled again", async || {
        let said = device.cli(&["access", "enable"]).await;
        if said.exit == 0 { Ok(()) } else { Err(said.stderr) }
    })
    .await;
    Ok(format!("agent {number} had its like for {} ms, which was connected", planned.lasts_ms))
}
