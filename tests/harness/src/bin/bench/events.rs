//! From a device's frame to the sockets of a run's followers, and the memory of an open stream.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::Context;
use deskgate_protocol::RunId;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::Bench;
use crate::environment::{self, BenchGateway};
use crate::http::HttpConnection;
use crate::raw_device::{RawDevice, follow, open};
use crate::report::BenchReport;
use crate::requests::LoadTarget;
use deskgate_harness::statistics::percentile;
use deskgate_harness::usage::memory_mib;

const ONE_STREAM_METRICS: [&str; 2] = ["event_latency_ms_p50", "event_latency_ms_p99"];
const MANY_STREAMS_METRICS: [&str; 2] = ["event_latency_ms_p50_1000", "event_latency_ms_p99_1000"];
const STREAM_MEMORY_METRIC: &str = "kib_per_stream";
/// Streams of the second measurement.
const STREAM_COUNT: usize = 1000;
/// Events that are timed with one stream, and with many.
const TIMED_EVENTS: usize = 1000;
const TIMED_EVENTS_MANY_STREAMS: usize = 100;
/// Events before that, until statements are prepared.
const WARM_UP_EVENTS: usize = 20;
/// The sequence of the event with which a run starts.
const STARTED_SEQUENCE: u64 = 2;
/// The pause between two events, so that single events are measured and no queue forms.
const EVENT_INTERVAL: Duration = Duration::from_millis(5);

/// Runs the selected measurements.
pub(crate) async fn measure(bench: &Bench, report: &mut BenchReport) -> anyhow::Result<()> {
    if !bench.wants(&[&ONE_STREAM_METRICS[..], &MANY_STREAMS_METRICS[..], &[STREAM_MEMORY_METRIC]].concat()) {
        return Ok(());
    }
    println!("Events");
    let folder = environment::folder()?;
    let server = BenchGateway::start(&bench.programs, folder.path()).await?;
    let mut device = RawDevice::pair(&server).await?;
    let target = device.publish(&server).await?;
    let run_id = device.start_run(&target, &mut HttpConnection::open(target.address).await?).await?;
    let (mut audience, mut seq) = (StreamReaders::default(), 0);

    audience.grow_to(1, &target, run_id, STARTED_SEQUENCE).await?;
    audience.time(&mut device, run_id, &mut seq, WARM_UP_EVENTS).await?;
    let one = audience.time(&mut device, run_id, &mut seq, bench.count(TIMED_EVENTS)).await?;
    note(report, ONE_STREAM_METRICS, one, 1);
    let before = memory_mib(server.pid(), "VmRSS")?;
    audience.grow_to(STREAM_COUNT, &target, run_id, STARTED_SEQUENCE + seq).await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let with = memory_mib(server.pid(), "VmRSS")?;
    let many = audience.time(&mut device, run_id, &mut seq, bench.count(TIMED_EVENTS_MANY_STREAMS)).await?;
    note(report, MANY_STREAMS_METRICS, many, STREAM_COUNT);
    let after = memory_mib(server.pid(), "VmRSS")?;
    report.part("streams_mib", json!({ "before": before, "open": with, "after_events": after }));
    report.value(STREAM_MEMORY_METRIC, (after - before) * 1024.0 / (STREAM_COUNT - 1) as f64);
    Ok(())
}

fn note(report: &mut BenchReport, [p50, p99]: [&'static str; 2], mut times: Vec<f64>, streams: usize) {
    times.sort_by(f64::total_cmp);
    report.part(&format!("events_to_{streams}"), json!({ "received": times.len(), "largest_ms": times.last() }));
    report.value(p50, percentile(&times, 0.5));
    report.value(p99, percentile(&times, 0.99));
}

/// The followers of the run.
struct StreamReaders {
    size: usize,
    hears: mpsc::UnboundedSender<Instant>,
    heard: mpsc::UnboundedReceiver<Instant>,
    followers: JoinSet<()>,
}

impl Default for StreamReaders {
    fn default() -> Self {
        let (hears, heard) = mpsc::unbounded_channel();
        Self { size: 0, hears, heard, followers: JoinSet::new() }
    }
}

impl StreamReaders {
    /// Opens streams after the newest event, until there are `size`.
    async fn grow_to(&mut self, size: usize, target: &LoadTarget, run_id: RunId, after: u64) -> anyhow::Result<()> {
        while self.size < size {
            let stream = open(target, run_id, after, Ipv4Addr::LOCALHOST).await?;
            self.followers.spawn(follow(stream, self.hears.clone()));
            self.size += 1;
        }
        Ok(())
    }
    /// Makes the device report events one by one, and returns the milliseconds until each follower had each of them.
    async fn time(
        &mut self,
        device: &mut RawDevice,
        run_id: RunId,
        seq: &mut u64,
        count: usize,
    ) -> anyhow::Result<Vec<f64>> {
        let mut times = Vec::with_capacity(count * self.size);
        for _ in 0..count {
            tokio::time::sleep(EVENT_INTERVAL).await;
            *seq += 1;
            let began = Instant::now();
            device.report(run_id, *seq).await;
            for _ in 0..self.size {
                let at = self.heard.recv().await.context("the streams ended")?;
                times.push(at.saturating_duration_since(began).as_secs_f64() * 1e3);
            }
            device.acknowledged().await?;
        }
        Ok(times)
    }
}
