//! F5: kill -9 of a device's agent, whatever it does at that moment.

use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use anyhow::ensure;
use tokio::time::sleep;

use super::one_of;
use crate::plan::Planned;
use crate::scene::Scene;

/// Kills it, leaves it dead for a while, and starts it in the same home.
pub(crate) async fn kill(scene: &Scene, planned: &Planned) -> anyhow::Result<String> {
    let number = one_of(planned.target, scene.desks.len());
    let mut device = scene.desks[number].device.write().await;
    let pid = device.process().id();
    let ended = device.kill_9();
    sleep(Duration::from_millis(planned.lasts_ms)).await;
    device.start().await;
    ensure!(ended.signal() == Some(9), "agent {number} ended with {ended}");
    Ok(format!("agent {number}, process {pid}, ended by signal 9; process {} since", device.process().id()))
}
