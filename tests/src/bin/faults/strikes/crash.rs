//! F2 and F6: a gateway or an agent dies at a named point, right before or right after it has written something down.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use deskgate_tests::process::CRASH_DIR;
use tokio::time::{Instant, sleep};

use super::one_of;
use crate::plan::Planned;
use crate::scene::Scene;

/// How long a point is waited for before another one is.
const PATIENCE: Duration = Duration::from_secs(4);
/// Points that are tried.
const TRIES: usize = 4;

/// What a busy gateway does again and again.
const GATEWAYS: [&str; 7] = [
    "attempts::",
    "admissions::",
    "messages::",
    "operations::",
    "deliveries::claim",
    "deliveries::settle",
    "devices::begin_session",
];
/// The same of an agent: its journal, its intents, what they changed, and what it has sent.
const AGENTS: [&str; 5] = ["Journal::take", "Journal::start", "Journal::finish", "Ledger::", "session::"];

/// Has a gateway die at a point, leaves it dead for a while, and starts it on the same state.
pub(crate) async fn gateway(scene: &Scene, planned: &Planned) -> anyhow::Result<String> {
    let number = one_of(planned.target, scene.replicas.len());
    let pid = scene.replicas[number].read().await.process().id();
    let point = until_struck(pid, &GATEWAYS, planned.manner).await?;
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
    let point = until_struck(pid, &AGENTS, planned.manner).await?;
    let mut device = scene.desks[number].device.write().await;
    let ended = device.has_stopped().await;
    sleep(Duration::from_millis(planned.lasts_ms)).await;
    device.start().await;
    ensure!(ended.signal() == Some(9), "agent {number} ended with {ended}");
    Ok(format!("agent {number}, process {pid}, died {point}"))
}

/// Arms one point after the other, of those that the process has passed before, until it has died at one. Returns which.
async fn until_struck(pid: u32, kinds: &[&str], manner: u64) -> anyhow::Result<String> {
    let folder = PathBuf::from(std::env::var_os(CRASH_DIR).context("make faults says where crash points are armed")?);
    let file = |ending: &str| folder.join(format!("{pid}.{ending}"));
    for turn in 0..TRIES as u64 {
        let point = chosen(&file("passed"), kinds, manner.wrapping_add(turn)).await?;
        arm(&file("armed"), &point)?;
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if file("struck").exists() {
                return Ok(point);
            }
            sleep(Duration::from_millis(10)).await;
        }
        // Taken back, unless it was passed in this very moment.
        if std::fs::remove_file(file("armed")).is_err() {
            return Ok(point);
        }
    }
    bail!("process {pid} came by none of {TRIES} points")
}

/// One of the points of these kinds. A process that has just begun is waited for.
async fn chosen(passed: &Path, kinds: &[&str], manner: u64) -> anyhow::Result<String> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let text =
            std::fs::read_to_string(passed).context("the programs were built without the feature crash-points")?;
        let is_of =
            |point: &&str| kinds.iter().any(|kind| point.split(' ').nth(1).is_some_and(|at| at.starts_with(kind)));
        let mut points: Vec<_> = text.lines().filter(is_of).collect();
        points.sort_unstable();
        if !points.is_empty() {
            return Ok(points[one_of(manner, points.len())].to_owned());
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
