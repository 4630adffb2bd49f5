//! `make bench`: measures the speed and size of the real programs, against references on the same machine.
//!
//! BENCHMARKS.md explains each number. Everything runs in temporary folders on loopback, and all processes are stopped
//! at the end, on an error and on Ctrl-C.

mod accept;
mod agent;
mod claim;
mod deliveries;
mod desktop;
mod drain;
mod environment;
mod events;
mod files;
mod http;
mod idle;
mod latency;
mod lists;
mod load;
mod memory;
mod noop;
mod pages;
mod pgbench;
mod places;
mod process;
mod provider;
mod raw_device;
mod replicas;
mod report;
mod requests;
mod search;
mod starts;
mod streams;
mod tunnel;
mod webhooks;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use deskgate_harness::island::until_interrupted;

use environment::Programs;
use report::{BenchReport, METRICS};

/// Measures Deskgate on this machine; the results also go to target/bench/results.json.
#[derive(Debug, Parser)]
struct Options {
    /// A tenth of the time: shows that everything works, not how fast it is
    #[arg(long)]
    quick: bool,
    /// Measure only this; may be repeated
    #[arg(long, value_name = "NAME", value_parser = METRICS.map(|(name, _)| name))]
    only: Vec<String>,
    /// As on a disk whose syncs take so much longer, for PostgreSQL and for desktops
    #[arg(long, value_name = "MS", default_value_t = 0)]
    slow_sync_ms: u32,
    #[command(subcommand)]
    part: Option<Subprocess>,
}

/// What this program starts as processes of its own, so that each has its own threads.
#[derive(Debug, Subcommand)]
enum Subprocess {
    /// Send requests as a plan on standard input says
    #[command(hide = true)]
    Load,
    /// Serve the route that does nothing
    #[command(hide = true)]
    Noop,
    /// Receive callbacks
    #[command(hide = true)]
    Receiver,
    /// Be the other end of tunnels
    #[command(hide = true)]
    Far,
    /// Measure callbacks, where every address is this machine's
    #[command(hide = true)]
    Deliveries,
}

/// The context of every measurement.
struct Bench {
    programs: Programs,
    quick: bool,
    only: Vec<String>,
}

impl Bench {
    /// Whether one of these names is selected.
    fn wants(&self, names: &[&str]) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| names.contains(&only.as_str()))
    }

    /// A duration, or a tenth of it in a quick run.
    fn time(&self, seconds: f64) -> Duration {
        Duration::from_secs_f64(if self.quick { seconds / 10.0 } else { seconds })
    }

    /// A number of repetitions, or a tenth of it in a quick run.
    fn count(&self, count: usize) -> usize {
        if self.quick { count.div_ceil(10) } else { count }
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    let done = match options.part {
        Some(Subprocess::Noop) => noop::child(),
        Some(Subprocess::Receiver) => deliveries::receiver(),
        Some(Subprocess::Far) => tunnel::run_echo_server(),
        _ => on_one_thread(options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn on_one_thread(options: Options) -> anyhow::Result<()> {
    // Leaves the cores to the measured programs.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match options.part {
            Some(Subprocess::Load) => load::child().await,
            _ => until_interrupted(measuring(options)).await,
        }
    })
}

/// Runs the measurements. Dropping them stops their processes.
async fn measuring(options: Options) -> anyhow::Result<()> {
    let bench = Bench { programs: Programs::find(options.slow_sync_ms)?, quick: options.quick, only: options.only };
    match options.part {
        Some(Subprocess::Deliveries) => deliveries::inside(&bench).await,
        _ => measure(&bench).await,
    }
}

async fn measure(bench: &Bench) -> anyhow::Result<()> {
    let mut report = BenchReport::new(bench.quick);
    accept::measure(bench, &mut report).await?;
    webhooks::measure(bench, &mut report).await?;
    deliveries::measure(bench, &mut report).await?;
    replicas::measure(bench, &mut report).await?;
    tunnel::measure(bench, &mut report).await?;
    files::measure(bench, &mut report).await?;
    starts::measure(bench, &mut report).await?;
    latency::measure(bench, &mut report).await?;
    claim::measure(bench, &mut report).await?;
    drain::measure(bench, &mut report).await?;
    idle::measure(bench, &mut report).await?;
    lists::measure(bench, &mut report).await?;
    events::measure(bench, &mut report).await?;
    streams::measure(bench, &mut report).await?;
    memory::measure(bench, &mut report).await?;
    agent::measure(bench, &mut report).await?;
    places::measure(bench, &mut report).await?;
    pages::measure(bench, &mut report).await?;
    search::measure(bench, &mut report).await?;
    report.finish()
}
