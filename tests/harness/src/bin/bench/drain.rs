//! Working a queue off: the runs that real agents finish a second, beside what the gateway accepts a second with none
//! connected, and the processor time that a run costs all programs together.

use std::time::{Duration, Instant};

use anyhow::Context;
use futures_util::future::try_join_all;
use serde_json::json;
use tempfile::TempDir;
use tokio_postgres::Client;

use crate::Bench;
use crate::desktop::Desktop;
use crate::environment::{self, BenchGateway};
use crate::load::{self, LoadPlan, LoadTransport};
use crate::report::BenchReport;
use crate::requests::{LoadTarget, RequestKind};
use deskgate_harness::statistics::median;
use deskgate_harness::usage::{children_cpu_seconds, cpu_seconds};

const ONE_METRIC: &str = "drain_one_device";
const EIGHT_METRIC: &str = "drain_eight_devices";
const CPU_METRIC: &str = "cpu_us_per_run";

/// Devices, in all.
const DEVICES: usize = 8;
/// Runs that a device executes at the same time.
const SLOTS: u32 = 64;
/// Runs in the queue of one device alone, and in those of all together.
const RUNS: usize = 8_000;
/// Rounds of each; they take turns, and the medians count.
const DRAIN_ROUNDS: usize = 3;
/// The longest that a queue may take.
const LONGEST_DRAIN: Duration = Duration::from_secs(120);

/// Runs the selected measurements.
pub(crate) async fn measure(bench: &Bench, report: &mut BenchReport) -> anyhow::Result<()> {
    if !bench.wants(&[ONE_METRIC, EIGHT_METRIC, CPU_METRIC]) {
        return Ok(());
    }
    println!("Working queues off");
    let folder = environment::folder()?;
    let server = BenchGateway::start(&bench.programs, folder.path()).await?;
    let mut devices = Vec::new();
    for _ in 0..DEVICES {
        devices.push(BenchDevice::start(bench, &server).await?);
    }
    let accepting = LoadPlan {
        target: devices[0].target.clone(),
        connections: 64,
        warm_up: bench.time(1.0),
        time: bench.time(4.0),
        rate: None,
        at_most: None,
        asks: RequestKind::Submit,
        over: LoadTransport::Tcp,
    };
    let (mut accepted, mut one, mut eight) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..bench.count(DRAIN_ROUNDS) {
        server.forget_runs().await?;
        accepted.push(load::send(&accepting).await?.rate());
        one.push(drain(bench, &server, &mut devices[..1]).await?);
        eight.push(drain(bench, &server, &mut devices).await?);
    }
    let accepted_per_s = median(&accepted);
    report.part("drain_accepts_alone_per_s", json!(accepted));
    for (name, rounds) in [(ONE_METRIC, &one), (EIGHT_METRIC, &eight)] {
        let of = |part: fn(&Drained) -> f64| rounds.iter().map(part).collect::<Vec<_>>();
        let rates = of(|drained| drained.per_s);
        let parts = json!({
            "runs_per_s": rates,
            "gateway_cpu_us": median(&of(|drained| drained.gateway_us)),
            "postgres_cpu_us": median(&of(|drained| drained.postgres_us)),
            "agents_cpu_us": median(&of(|drained| drained.agents_us)),
            "transactions_per_run": median(&of(|drained| drained.transactions)),
        });
        report.part(&format!("{name}_parts"), parts);
        report.value(name, median(&rates) / accepted_per_s);
    }
    report.value(CPU_METRIC, median(&one.iter().map(Drained::cpu_us).collect::<Vec<_>>()));
    Ok(())
}

/// A device with a service that answers at once. Its process is stopped between the measurements.
struct BenchDevice {
    desktop: Desktop,
    target: LoadTarget,
    _folder: TempDir,
}

impl BenchDevice {
    async fn start(bench: &Bench, server: &BenchGateway) -> anyhow::Result<Self> {
        let folder = environment::folder()?;
        let mut desktop = Desktop::start(&bench.programs, folder.path()).await?;
        desktop.pair(server).await?;
        let model = desktop.script("answers", &json!([{ "text": "Replacement confirmed." }]))?;
        let places = SLOTS.to_string();
        let target =
            desktop.publish_as("bench", &["--model", &model, "--tools", "none", "--concurrency", &places]).await?;
        desktop.pause();
        desktop.set_slots(SLOTS).await?;
        Ok(Self { desktop, target, _folder: folder })
    }
}

/// How a queue was worked off: runs a second, and what each cost.
struct Drained {
    per_s: f64,
    gateway_us: f64,
    postgres_us: f64,
    agents_us: f64,
    transactions: f64,
}

impl Drained {
    fn cpu_us(&self) -> f64 {
        self.gateway_us + self.postgres_us + self.agents_us
    }
}

/// Fills the devices' queues while they are stopped, and lets them work once all are connected.
async fn drain(bench: &Bench, server: &BenchGateway, devices: &mut [BenchDevice]) -> anyhow::Result<Drained> {
    let runs = bench.count(RUNS) / devices.len();
    server.forget_runs().await?;
    for device in devices.iter() {
        load::send(&LoadPlan::fill(device.target.clone(), runs)).await?;
    }
    let (database, _driver) = server.database().await?;
    let (_, postmaster) = server.cluster()?;
    database.batch_execute("CHECKPOINT; UPDATE devices SET access_enabled = false").await?;
    try_join_all(devices.iter_mut().map(|device| device.desktop.resume())).await?;
    let agents = devices.iter().map(|device| device.desktop.pid()).collect::<anyhow::Result<Vec<_>>>()?;
    let cpu = || {
        let of_agents = agents.iter().copied().map(cpu_seconds).sum::<f64>();
        [cpu_seconds(server.pid()), children_cpu_seconds(postmaster), of_agents]
    };
    let (before, transactions) = (cpu(), transactions(&database).await?);
    database.batch_execute("UPDATE devices SET access_enabled = true").await?;
    let deadline = Instant::now() + LONGEST_DRAIN;
    let open = "SELECT EXISTS (SELECT FROM run_queue) OR EXISTS (SELECT FROM runs WHERE finished_at IS NULL)";
    while database.query_one(open, &[]).await?.try_get::<_, bool>(0)? {
        anyhow::ensure!(Instant::now() < deadline, "a queue is not worked off");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let after = cpu();
    // Of the middle: devices do not begin at the same moment.
    let sql = "SELECT count(*), count(*) FILTER (WHERE state = 'succeeded' AND attempt = 1),
            extract(epoch FROM percentile_disc(0.9) WITHIN GROUP (ORDER BY finished_at)
                - percentile_disc(0.1) WITHIN GROUP (ORDER BY finished_at))::float8
        FROM runs";
    let row = database.query_one(sql, &[]).await?;
    let (all, succeeded, seconds): (i64, i64, f64) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    anyhow::ensure!(all == succeeded, "{succeeded} of {all} runs succeeded the first time they were offered");
    let committed = self::transactions(&database).await? - transactions;
    devices.iter_mut().for_each(|device| device.desktop.pause());
    let [gateway_us, postgres_us, agents_us] =
        std::array::from_fn(|program| (after[program] - before[program]) * 1e6 / all as f64);
    let per_s = 0.8 * all as f64 / seconds;
    Ok(Drained { per_s, gateway_us, postgres_us, agents_us, transactions: committed / all as f64 })
}

/// Transactions of the database so far.
pub(crate) async fn transactions(database: &Client) -> anyhow::Result<f64> {
    database.batch_execute("SELECT pg_stat_clear_snapshot()").await?;
    let sql = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()";
    let row = database.query_opt(sql, &[]).await?.context("no statistics of the database")?;
    Ok(row.try_get::<_, i64>(0)? as f64)
}
