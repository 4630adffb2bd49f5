//! Five thousand open streams: their memory, their idle cost, and that all of them are alive.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::Context;
use deskgate_gateway::descriptors::DescriptorLimit;
use deskgate_protocol::RunId;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::Bench;
use crate::environment::{self, BenchGateway};
use crate::http::HttpConnection;
use crate::raw_device::{RawDevice, follow, open};
use crate::report::BenchReport;
use deskgate_harness::usage::{children_cpu_seconds, cpu_seconds, memory_mib};

const MEMORY_METRIC: &str = "streams_5000_mib";
const IDLE_CPU_METRIC: &str = "streams_5000_idle_cpu_percent";
/// Streams, each of its own run, so that nothing is shared.
const STREAM_COUNT: usize = 5000;
/// Streams from one address.
const STREAMS_PER_ADDRESS: usize = 1000;
/// The event with which a run starts.
const STARTED_SEQUENCE: u64 = 2;
/// The most unacknowledged reports.
const MAX_CONCURRENT_REPORTS: usize = 64;
/// The idle time in seconds.
const QUIET_SECONDS: f64 = 20.0;

/// Runs the measurement if it is selected.
pub(crate) async fn measure(bench: &Bench, report: &mut BenchReport) -> anyhow::Result<()> {
    if !bench.wants(&[MEMORY_METRIC, IDLE_CPU_METRIC]) {
        return Ok(());
    }
    println!("Many streams");
    // This program has the other end of each stream.
    let descriptors = DescriptorLimit::for_connections(STREAM_COUNT);
    descriptors.take().and_then(|()| descriptors.are_enough().map_err(std::io::Error::other))?;
    let folder = environment::folder()?;
    let server = BenchGateway::start(&bench.programs, folder.path()).await?;
    let mut device = RawDevice::pair(&server).await?;
    let target = device.publish(&server).await?;
    let mut connection = HttpConnection::open(target.address).await?;
    let mut runs = Vec::new();
    for _ in 0..bench.count(STREAM_COUNT) {
        runs.push(device.start_run(&target, &mut connection).await?);
    }

    let before = memory_mib(server.pid(), "VmRSS")?;
    let (hears, mut heard) = mpsc::unbounded_channel();
    let mut followers = JoinSet::new();
    for (place, run_id) in runs.iter().enumerate() {
        if place % STREAMS_PER_ADDRESS == 0 {
            device.answer_pings(Duration::from_millis(1)).await?;
        }
        let from = Ipv4Addr::new(127, 0, 0, u8::try_from(2 + place / STREAMS_PER_ADDRESS)?);
        followers.spawn(follow(open(&target, *run_id, STARTED_SEQUENCE, from).await?, hears.clone()));
    }
    device.answer_pings(Duration::from_secs(2)).await?;
    let open = memory_mib(server.pid(), "VmRSS")?;
    let cluster = server.cluster()?.1;
    let used = || (cpu_seconds(server.pid()), children_cpu_seconds(cluster));
    let (began, quiet) = (used(), bench.time(QUIET_SECONDS));
    device.answer_pings(quiet).await?;
    let ended = used();
    let percent = |began: f64, ended: f64| 100.0 * (ended - began) / quiet.as_secs_f64();

    let first = Instant::now();
    for some in runs.chunks(MAX_CONCURRENT_REPORTS) {
        tell(&mut device, some).await?;
    }
    for _ in &runs {
        heard.recv().await.context("the streams ended")?;
    }
    let told_ms = first.elapsed().as_secs_f64() * 1e3;
    let told_cpu_ms = 1e3 * (cpu_seconds(server.pid()) - ended.0);
    let after = memory_mib(server.pid(), "VmRSS")?;
    report.part(
        "streams_5000",
        json!({
            "streams": runs.len(), "mib_before": before, "mib_open": open, "mib_after_an_event_each": after,
            "idle_postgres_cpu_percent": percent(began.1, ended.1), "an_event_each_ms": told_ms,
            "an_event_each_cpu_ms": told_cpu_ms,
        }),
    );
    report.value(MEMORY_METRIC, open.max(after) - before);
    report.value(IDLE_CPU_METRIC, percent(began.0, ended.0));
    Ok(())
}

/// Reports an event in each of these runs.
async fn tell(device: &mut RawDevice, runs: &[RunId]) -> anyhow::Result<()> {
    for run_id in runs {
        device.report(*run_id, 1).await;
    }
    for _ in runs {
        device.acknowledged().await?;
    }
    Ok(())
}
