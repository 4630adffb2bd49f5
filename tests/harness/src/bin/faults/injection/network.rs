//! F17 to F21: the connection between a device and its gateways falls silent in one or both directions, is reset, loses
//! packets, or is narrow.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::ensure;
use deskgate_tests::Proxy;
use deskgate_tests::netns::PacketLoss;
use tokio::time::{Instant, sleep, timeout};

use super::{InjectionProof, one_of};
use crate::plan::PlannedFault;
use crate::testbed::Testbed;

/// Silently drops everything in both directions for as long as planned. Both ends must notice.
pub(crate) async fn freeze(testbed: &Testbed, planned: &PlannedFault) -> anyhow::Result<InjectionProof> {
    silence(testbed, planned, "both ways", Proxy::freeze).await
}

/// The same in one direction.
pub(crate) async fn freeze_one_way(testbed: &Testbed, planned: &PlannedFault) -> anyhow::Result<InjectionProof> {
    let (which, one): (_, fn(&Proxy)) =
        if planned.manner.is_multiple_of(2) { ("up", Proxy::mute) } else { ("down", Proxy::deafen) };
    silence(testbed, planned, which, one).await
}

async fn silence(
    testbed: &Testbed,
    planned: &PlannedFault,
    which: &str,
    cut: fn(&Proxy),
) -> anyhow::Result<InjectionProof> {
    let number = one_of(planned.target, testbed.desktops.len());
    let desktop = &testbed.desktops[number];
    let device = desktop.device.read().await;
    // The fault needs an open connection.
    device.wait_until_connected().await;
    let before = device.proxy().held_back();
    let agent =
        LogWatch::from_now_on(vec![device.folder().join("agent.log")], "the connection to the gateway was lost");
    let mut logs = Vec::new();
    for replica in &testbed.replicas {
        logs.push(replica.read().await.folder().join("gateway.log"));
    }
    let gateway =
        LogWatch::from_now_on(logs, &format!(r#""device disconnected","device_id":"{}""#, desktop.device_id()));
    let began = Instant::now();
    cut(device.proxy());
    let ends = Duration::from_millis(planned.lasts_ms);
    let heard = async |news: LogWatch| match timeout(ends, news.comes()).await {
        Ok(()) => began.elapsed(),
        Err(_) => Duration::MAX,
    };
    let ((), agent, gateway) = tokio::join!(sleep(ends), heard(agent), heard(gateway));
    let held = device.proxy().held_back() - before;
    device.proxy().heal();
    ensure!(held > 0, "nothing came that could have been held back");
    let noticed_ms: Vec<_> =
        [agent, gateway].map(|after| u64::try_from(after.as_millis()).unwrap_or(u64::MAX)).into_iter().collect();
    let proof = format!(
        "line {number}, {which}: {held} bytes were held back for {} ms; noticed after {noticed_ms:?} ms by agent and gateway",
        planned.lasts_ms
    );
    Ok(InjectionProof { proof, noticed_ms })
}

/// Waits for a text in one of some logs.
struct LogWatch {
    logs: Vec<(PathBuf, u64)>,
    text: String,
}

impl LogWatch {
    /// Existing occurrences do not count.
    fn from_now_on(logs: Vec<PathBuf>, text: &str) -> Self {
        let length = |log: &PathBuf| std::fs::metadata(log).map_or(0, |file| file.len());
        Self { logs: logs.into_iter().map(|log| (log.clone(), length(&log))).collect(), text: text.to_owned() }
    }

    async fn comes(&self) {
        while !self.logs.iter().any(|(log, from)| has(log, *from, &self.text).unwrap_or(false)) {
            sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Whether a file has a text after an offset.
fn has(log: &Path, from: u64, text: &str) -> std::io::Result<bool> {
    let mut file = File::open(log)?;
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).contains(text))
}

/// Resets every connection of a proxy once.
pub(crate) async fn reset(testbed: &Testbed, planned: &PlannedFault) -> anyhow::Result<String> {
    let number = one_of(planned.target, testbed.desktops.len());
    let desktop = &testbed.desktops[number];
    let device = desktop.device.read().await;
    device.wait_until_connected().await;
    let before = device.proxy().resets();
    device.proxy().reset();
    deskgate_tests::until("the connection to be reset", async || {
        if device.proxy().resets() > before { Ok(()) } else { Err("no connection was reset".to_owned()) }
    })
    .await;
    Ok(format!("line {number}: {} connections were reset", device.proxy().resets() - before))
}

/// Loses one of twenty packets, or one of five.
pub(crate) async fn lose(testbed: &Testbed, planned: &PlannedFault) -> anyhow::Result<String> {
    let number = one_of(planned.target, testbed.desktops.len());
    let device = testbed.desktops[number].device.read().await;
    device.wait_until_connected().await;
    let of_a_hundred = if planned.manner.is_multiple_of(2) { 5 } else { 20 };
    let loss = PacketLoss::of(device.proxy().address().port(), of_a_hundred);
    sleep(Duration::from_millis(planned.lasts_ms)).await;
    let lost = loss.lost();
    drop(loss);
    ensure!(lost > 0, "no packet was lost");
    Ok(format!("line {number}: {lost} packets were lost, {of_a_hundred} of a hundred, in {} ms", planned.lasts_ms))
}

/// Kilobits per second.
const NARROW_KBIT_PER_SECOND: u32 = 64;

/// Limits the connection to 64 kbit/s.
pub(crate) async fn narrow(testbed: &Testbed, planned: &PlannedFault) -> anyhow::Result<String> {
    let number = one_of(planned.target, testbed.desktops.len());
    let device = testbed.desktops[number].device.read().await;
    device.wait_until_connected().await;
    let before = device.proxy().slowed();
    device.proxy().narrow(NARROW_KBIT_PER_SECOND);
    sleep(Duration::from_millis(planned.lasts_ms)).await;
    let slowed = device.proxy().slowed() - before;
    device.proxy().narrow(0);
    ensure!(slowed > 0, "nothing passed");
    Ok(format!("line {number}: {slowed} bytes passed at {NARROW_KBIT_PER_SECOND} kbit/s in {} ms", planned.lasts_ms))
}
