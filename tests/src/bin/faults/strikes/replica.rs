//! F1: kill -9 of one gateway.

use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use anyhow::ensure;
use tokio::time::sleep;

use super::one_of;
use crate::plan::Planned;
use crate::scene::Scene;

/// Kills it, leaves it dead for a while, and starts it on the same state.
pub(crate) async fn kill(scene: &Scene, planned: &Planned) -> anyhow::Result<String> {
    let number = one_of(planned.target, scene.replicas.len());
    let mut gateway = scene.replicas[number].write().await;
    let pid = gateway.process().id();
    let ended = gateway.kill_9();
    sleep(Duration::from_millis(planned.lasts_ms)).await;
    gateway.restart().await;
    ensure!(ended.signal() == Some(9), "gateway {number} ended with {ended}");
    Ok(format!("gateway {number}, process {pid}, ended by signal 9; process {} since", gateway.process().id()))
}
