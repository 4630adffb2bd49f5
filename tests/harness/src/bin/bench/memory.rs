//! The memory of the programs, without PostgreSQL's own processes.

use std::time::Duration;

use serde_json::json;

use crate::Bench;
use crate::desktop::Desktop;
use crate::environment::{self, BenchGateway};
use crate::load::{self, LoadPlan};
use crate::report::BenchReport;
use deskgate_harness::usage::memory_mib;

/// The idle time before memory is read.
pub(crate) const IDLE_PERIOD: Duration = Duration::from_secs(3);

/// Runs the selected measurements.
pub(crate) async fn measure(bench: &Bench, report: &mut BenchReport) -> anyhow::Result<()> {
    if !bench.wants(&["rss_gateway_idle_mib", "rss_device_idle_mib", "rss_gateway_100k_queued_mib"]) {
        return Ok(());
    }
    println!("Memory");
    let folder = environment::folder()?;
    let server = BenchGateway::start(&bench.programs, folder.path()).await?;
    let mut desktop = Desktop::start(&bench.programs, folder.path()).await?;
    desktop.pair(&server).await?;
    // The normal state of an agent. At its very first start, before pairing, it also runs its own gateway.
    desktop.pause();
    desktop.resume().await?;
    tokio::time::sleep(IDLE_PERIOD).await;
    note(report, "rss_gateway_idle_mib", server.pid())?;
    note(report, "rss_device_idle_mib", desktop.pid()?)?;

    let target = desktop.publish().await?;
    desktop.pause();
    let runs = bench.count(100_000);
    let accepted = load::send(&LoadPlan::fill(target, runs)).await?.accepted;
    anyhow::ensure!(accepted == runs as u64, "{accepted} of {runs} runs were accepted");
    tokio::time::sleep(IDLE_PERIOD).await;
    note(report, "rss_gateway_100k_queued_mib", server.pid())
}

/// Records a process's memory.
pub(crate) fn note(report: &mut BenchReport, name: &'static str, pid: u32) -> anyhow::Result<()> {
    let of = |line| memory_mib(pid, line);
    // Pages of the program's file count as resident, but are shared and can be dropped at any time.
    let parts = json!({ "anonymous": of("RssAnon")?, "file": of("RssFile")?, "most_so_far": of("VmHWM")? });
    report.part(&format!("{name}_parts"), parts);
    report.value(name, of("VmRSS")?);
    Ok(())
}
