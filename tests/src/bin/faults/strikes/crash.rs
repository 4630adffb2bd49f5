//! F2 and F6: a gateway or an agent dies at a named point, right before or right after it has written something down.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use tokio::time::{Instant, sleep};

use super::one_of;
use super::points::{self, AGENTS, GATEWAYS};
use crate::plan::Planned;
use crate::scene::Scene;

/// How long a point is waited for before another one is.
const PATIENCE: Duration = Duration::from_secs(4);
/// How long a process that has just begun may take to come by any point at all.
const BEGINS: Duration = Duration::from_secs(20);
/// Points that are tried.
const TRIES: usize = 10;

/// If it is set, only points whose name contains it.
const POINTS: &str = "POINTS";

/// Has a gateway die at a point, leaves it dead for a while, and starts it on the same state.
pub(crate) async fn gateway(scene: &Scene, planned: &Planned) -> anyhow::Result<String> {
    let number = one_of(planned.target, scene.replicas.len());
    let pid = scene.replicas[number].read().await.process().id();
    let point = until_struck(scene, pid, &GATEWAYS, planned.manner).await?;
    let mut gateway = scene.replicas[number].write().await;
    let ended = gateway.has_stopped().await;
    sleep(Duration::from_millis(planned.lasts_ms)).await;
    gateway.restart().await;
    ensure!(ended.signal() == Some(9), "gateway {number} ended with {ended}");
    Ok(format!("gateway {number}, process {pid}, died {point}"))
}

/// The same with an agent.
pub(crate) async fn agent(scene: &Scene, planned: &Planned) -> anyhow::Result<String> {
    let number = one_of(planned.target, scene.desks.len());
    let pid = scene.desks[number].device.read().await.process().id();
    let point = until_struck(scene, pid, &AGENTS, planned.manner).await?;
    let mut device = scene.desks[number].device.write().await;
    let ended = device.has_stopped().await;
    sleep(Duration::from_millis(planned.lasts_ms)).await;
    device.start().await;
    ensure!(ended.signal() == Some(9), "agent {number} ended with {ended}");
    Ok(format!("agent {number}, process {pid}, died {point}"))
}

/// Arms one point after the other, of those that the process has passed before, until it has died at one. Returns which.
async fn until_struck(scene: &Scene, pid: u32, kinds: &[&str], manner: u64) -> anyhow::Result<String> {
    let folder = points::folder()?;
    let file = |ending: &str| folder.join(format!("{pid}.{ending}"));
    for turn in 0..TRIES as u64 {
        let point = chosen(&folder, &file("passed"), kinds, manner.wrapping_add(turn)).await?;
        arm(&file("armed"), &point)?;
        points::tried(&folder, pid, &point)?;
        let deadline = Instant::now() + PATIENCE;
        let mut turn = 0_u32;
        while Instant::now() < deadline {
            if file("struck").exists() {
                return Ok(point);
            }
            // A session begins when a line does. The next one may lead to another gateway.
            if point.ends_with("::begin_session") && turn.is_multiple_of(100) {
                for desk in &scene.desks {
                    desk.device.read().await.line().reset();
                }
            }
            turn += 1;
            sleep(Duration::from_millis(10)).await;
        }
        // Taken back, unless it was passed in this very moment.
        if std::fs::remove_file(file("armed")).is_err() {
            return Ok(point);
        }
    }
    bail!("process {pid} came by none of {TRIES} points")
}

/// One of the points of these kinds at which the fewest have died. A process that has just begun is waited for.
async fn chosen(folder: &Path, passed: &Path, kinds: &[&str], manner: u64) -> anyhow::Result<String> {
    let deadline = Instant::now() + BEGINS;
    let wanted = std::env::var(POINTS).unwrap_or_default();
    loop {
        let text =
            std::fs::read_to_string(passed).context("the programs were built without the feature crash-points")?;
        let struck = points::struck(folder);
        let deaths = |point: &str| struck.get(point).copied().unwrap_or_default();
        let mut known: Vec<_> =
            text.lines().filter(|point| points::is_of(point, kinds) && point.contains(&wanted)).collect();
        let fewest = known.iter().map(|point| deaths(point)).min();
        known.retain(|point| Some(deaths(point)) == fewest);
        known.sort_unstable();
        if !known.is_empty() {
            return Ok(known[one_of(manner, known.len())].to_owned());
        }
        ensure!(Instant::now() < deadline, "the process came by no point at all");
        sleep(Duration::from_millis(50)).await;
    }
}

/// In one step, so that nobody reads half of it.
fn arm(file: &Path, point: &str) -> anyhow::Result<()> {
    let partial = file.with_extension("new");
    std::fs::write(&partial, point)?;
    Ok(std::fs::rename(partial, file)?)
}
