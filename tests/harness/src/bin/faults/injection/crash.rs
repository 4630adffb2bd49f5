//! F2 and F6: a gateway or an agent dies at a named point, right before or right after a write.
//!
//! A point is armed in every program of its kind, because it is unknown which gateway a device will use next. The first
//! program that reaches it dies, and the others are disarmed.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use anyhow::{bail, ensure};
use tokio::time::{Instant, sleep};

use super::crash_points::{self, AGENT_POINTS, GATEWAY_POINTS};
use super::one_of;
use crate::plan::PlannedFault;
use crate::testbed::Testbed;

/// How long to wait for one point before trying another.
const POINT_TIMEOUT: Duration = Duration::from_secs(4);
/// How long new processes may take to reach any point.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// The most points to try.
const MAX_POINTS_TRIED: usize = 10;

/// Points that a gateway reaches when a device connects.
const SESSION_POINTS: [&str; 2] = ["leases::begin_session", "attempts::pass_over_lost_claims"];

/// If it is set, only points whose name contains it.
pub(crate) const POINT_FILTER_ENV: &str = "POINTS";

/// Makes a gateway die at a point, leaves it dead for a while, and starts it on the same state.
pub(crate) async fn gateway(testbed: &Testbed, planned: &PlannedFault) -> anyhow::Result<String> {
    let mut pids = Vec::new();
    for replica in &testbed.replicas {
        pids.push(replica.read().await.process().id());
    }
    let CrashedProcesses { point, dead } = until_struck(testbed, &pids, &GATEWAY_POINTS, planned.manner).await?;
    let mut ended = Vec::new();
    for number in dead {
        let mut gateway = testbed.replicas[number].write().await;
        let status = gateway.wait_for_exit().await;
        sleep(Duration::from_millis(planned.lasts_ms)).await;
        gateway.restart().await;
        ended.push((format!("gateway {number}, process {}", pids[number]), status));
    }
    told(&ended, &point)
}

/// The same for an agent.
pub(crate) async fn agent(testbed: &Testbed, planned: &PlannedFault) -> anyhow::Result<String> {
    let mut pids = Vec::new();
    for desktop in &testbed.desktops {
        pids.push(desktop.device.read().await.process().id());
    }
    let CrashedProcesses { point, dead } = until_struck(testbed, &pids, &AGENT_POINTS, planned.manner).await?;
    let mut ended = Vec::new();
    for number in dead {
        let mut device = testbed.desktops[number].device.write().await;
        let status = device.wait_for_exit().await;
        sleep(Duration::from_millis(planned.lasts_ms)).await;
        device.start().await;
        ended.push((format!("agent {number}, process {}", pids[number]), status));
    }
    told(&ended, &point)
}

/// The text about the processes that died, all of them as by `kill -9`.
fn told(ended: &[(String, ExitStatus)], point: &str) -> anyhow::Result<String> {
    for (who, status) in ended {
        ensure!(status.signal() == Some(9), "{who} ended with {status}");
    }
    let who: Vec<_> = ended.iter().map(|(who, _)| who.as_str()).collect();
    Ok(format!("{} died {point}", who.join(" and ")))
}

/// A point and the processes that died there: two, if both reached it at the same moment.
struct CrashedProcesses {
    point: String,
    dead: Vec<usize>,
}

/// Arms one point after the other, from those that these processes have passed before, until a process has died.
async fn until_struck(
    testbed: &Testbed,
    pids: &[u32],
    kinds: &[&str],
    manner: u64,
) -> anyhow::Result<CrashedProcesses> {
    let folder = crash_points::folder()?;
    let file = |pid: u32, ending: &str| folder.join(format!("{pid}.{ending}"));
    for pid in pids {
        crash_points::set_aside(&folder, *pid)?;
    }
    let passed: Vec<_> = pids.iter().map(|pid| file(*pid, "passed")).collect();
    let mut tried = Vec::new();
    for turn in 0..MAX_POINTS_TRIED as u64 {
        let point = chosen(&folder, &passed, kinds, &tried, manner.wrapping_add(turn)).await?;
        for pid in pids {
            crash_points::tried(&folder, *pid, &point)?;
            arm(&file(*pid, "armed"), &point)?;
        }
        let deadline = Instant::now() + POINT_TIMEOUT;
        let mut looks = 0_u32;
        while Instant::now() < deadline && !pids.iter().any(|pid| file(*pid, "struck").exists()) {
            // A session begins with a connection.
            if SESSION_POINTS.iter().any(|name| point.ends_with(name)) && looks.is_multiple_of(100) {
                for desktop in &testbed.desktops {
                    desktop.device.read().await.proxy().reset();
                }
            }
            looks += 1;
            sleep(Duration::from_millis(10)).await;
        }
        // Disarmed, unless the process reached it at this very moment.
        let is_dead = |number: &usize| std::fs::remove_file(file(pids[*number], "armed")).is_err();
        let dead: Vec<_> = (0..pids.len()).filter(is_dead).collect();
        if !dead.is_empty() {
            return Ok(CrashedProcesses { point, dead });
        }
        tried.push(point);
    }
    bail!("no process came by any of {MAX_POINTS_TRIED} points: {}", tried.join(", "))
}

/// One of the points of these kinds at which the fewest processes have died, except those just tried unless all were.
/// It waits for processes that have just started.
async fn chosen(
    folder: &Path,
    passed: &[PathBuf],
    kinds: &[&str],
    tried: &[String],
    manner: u64,
) -> anyhow::Result<String> {
    let deadline = Instant::now() + START_TIMEOUT;
    let wanted = std::env::var(POINT_FILTER_ENV).unwrap_or_default();
    loop {
        let mut text = String::new();
        for file in passed {
            text += &std::fs::read_to_string(file).unwrap_or_default();
        }
        let struck = crash_points::struck(folder);
        let deaths = |point: &str| struck.get(point).copied().unwrap_or_default();
        let mut known: Vec<_> =
            text.lines().filter(|point| crash_points::is_of(point, kinds) && point.contains(&wanted)).collect();
        let is_fresh = |point: &&str| !tried.iter().any(|tried| tried == point);
        if known.iter().any(is_fresh) {
            known.retain(is_fresh);
        }
        let fewest = known.iter().map(|point| deaths(point)).min();
        known.retain(|point| Some(deaths(point)) == fewest);
        known.sort_unstable();
        known.dedup();
        if !known.is_empty() {
            return Ok(known[one_of(manner, known.len())].to_owned());
        }
        ensure!(
            Instant::now() < deadline,
            "they came by no point at all; were they built with the feature crash-points?"
        );
        sleep(Duration::from_millis(50)).await;
    }
}

/// Writes atomically, so that no program reads half of it.
fn arm(file: &Path, point: &str) -> anyhow::Result<()> {
    let partial = file.with_extension("new");
    std::fs::write(&partial, point)?;
    Ok(std::fs::rename(partial, file)?)
}
