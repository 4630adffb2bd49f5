//! Accepting runs: against pgbench, against the bare HTTP stack, its latency, and beside a working device.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use serde_json::json;

use crate::Bench;
use crate::desktop::Desktop;
use crate::environment::{self, BenchGateway};
use crate::load::{self, LoadPlan, LoadResult, LoadTransport};
use crate::noop;
use crate::pgbench::{Pgbench, PgbenchResult, Table};
use crate::report::BenchReport;
use crate::requests::{LoadTarget, RequestKind};
use deskgate_harness::statistics::median;
use deskgate_harness::usage::{children_cpu_seconds, cpu_seconds};

/// Connections that submit at the same time.
const CONNECTION_COUNT: usize = 64;
/// Clients that pgbench is tried with.
const PGBENCH_CLIENT_COUNTS: [usize; 4] = [8, 16, 32, 64];
/// Rounds of each comparison; the compared things take turns, and the medians count.
const ACCEPT_ROUNDS: usize = 5;

/// Records the rounds of pgbench; returns the rows per second.
fn compared(name: &str, rounds: &[PgbenchResult], report: &mut BenchReport) -> f64 {
    let of = |part: fn(&PgbenchResult) -> f64| rounds.iter().map(part).collect::<Vec<_>>();
    let cost = json!({
        "postgres_cpu_us": median(&of(|rows| rows.postgres_cpu_us)),
        "pgbench_cpu_us": median(&of(|rows| rows.pgbench_cpu_us)),
    });
    report.part(&format!("{name}_cost"), cost);
    let rates = of(|rows| rows.per_second);
    report.part(&format!("{name}_per_second"), json!({ "median": median(&rates), "rounds": rates }));
    median(&rates)
}

/// Runs the selected measurements.
pub(crate) async fn measure(bench: &Bench, report: &mut BenchReport) -> anyhow::Result<()> {
    let names = [
        "accept_vs_pgbench",
        "accept_vs_http_ceiling",
        "get_run_per_s_vs_http_ceiling",
        "accept_p99_ms",
        "accept_with_worker_vs_alone",
        "openai_accept_vs_native",
        "mcp_call_vs_native",
    ];
    if !bench.wants(&names) {
        return Ok(());
    }
    println!("Accepting");
    let folder = environment::folder()?;
    let server = BenchGateway::start(&bench.programs, folder.path()).await?;
    let mut desktop = Desktop::start(&bench.programs, folder.path()).await?;
    desktop.pair(&server).await?;
    let target = desktop.publish().await?;
    desktop.pause();

    let mut site = AcceptBench { bench, server, desktop, target };
    let most = site.against_the_ceilings(folder.path(), report).await?;
    if bench.wants(&["get_run_per_s_vs_http_ceiling"]) {
        site.reading(folder.path(), report).await?;
    }
    if bench.wants(&["openai_accept_vs_native", "mcp_call_vs_native"]) {
        site.by_other_doors(report).await?;
    }
    if bench.wants(&["accept_p99_ms"]) {
        site.at_half_load(most, report).await?;
    }
    if bench.wants(&["accept_with_worker_vs_alone"]) {
        site.beside_a_worker(report).await?;
    }
    Ok(())
}

struct AcceptBench<'a> {
    bench: &'a Bench,
    server: BenchGateway,
    desktop: Desktop,
    target: LoadTarget,
}

impl AcceptBench<'_> {
    fn plan(&self, seconds: f64) -> LoadPlan {
        LoadPlan {
            target: self.target.clone(),
            connections: CONNECTION_COUNT,
            warm_up: self.bench.time(1.0),
            time: self.bench.time(seconds),
            rate: None,
            at_most: None,
            asks: RequestKind::Submit,
            over: LoadTransport::Tcp,
        }
    }

    /// Takes turns with pgbench and the no-op route; returns the accepted runs per second.
    async fn against_the_ceilings(&mut self, folder: &Path, report: &mut BenchReport) -> anyhow::Result<f64> {
        let pgbench = match self.bench.wants(&["accept_vs_pgbench"]) {
            true => Some(self.best_pgbench(folder, report).await?),
            false => None,
        };
        let noop = match self.bench.wants(&["accept_vs_http_ceiling"]) {
            true => Some(noop::start(folder).await?),
            false => None,
        };
        let (mut ours, mut rows, mut bare_rows, mut bare) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (_, postmaster) = self.server.cluster()?;
        let cpu = || (cpu_seconds(self.server.pid()), children_cpu_seconds(postmaster));
        let mut costs = Vec::new();
        for _ in 0..self.bench.count(ACCEPT_ROUNDS) {
            self.server.forget_runs().await?;
            let before = cpu();
            let outcome = load::send(&self.plan(4.0)).await?;
            let after = cpu();
            costs.push((after.0 - before.0, after.1 - before.1, outcome.cpu_seconds, outcome.clone()));
            ours.push(outcome.rate());
            if let Some((pgbench, clients)) = &pgbench {
                rows.push(pgbench.run(&self.server, Table::Same, *clients, self.bench.time(4.0)).await?);
                bare_rows.push(pgbench.run(&self.server, Table::Bare, *clients, self.bench.time(4.0)).await?);
            }
            if let Some((_, address)) = &noop {
                bare.push(self.bare(*address).await?.rate());
            }
        }
        let most = median(&ours);
        report.part("accepted_per_second", json!({ "median": most, "rounds": ours }));
        report.part("accept_cost", self.cost(&costs));
        if pgbench.is_some() {
            let same = compared("pgbench", &rows, report);
            report.value("accept_vs_pgbench", most / same);
            let bare = compared("pgbench_bare_row", &bare_rows, report);
            report.value("accept_vs_pgbench_bare_row", most / bare);
        }
        if noop.is_some() {
            report.part("http_ceiling_per_second", json!({ "median": median(&bare), "rounds": bare }));
            report.value("accept_vs_http_ceiling", most / median(&bare));
        }
        Ok(most)
    }

    /// Reads one waiting run repeatedly, in turns with the no-op route.
    async fn reading(&self, folder: &Path, report: &mut BenchReport) -> anyhow::Result<()> {
        let (_noop, address) = noop::start(folder).await?;
        self.server.forget_runs().await?;
        load::send(&LoadPlan { at_most: Some(1), warm_up: Duration::ZERO, ..self.plan(1.0) }).await?;
        let (database, _driver) = self.server.database().await?;
        let run_id: uuid::Uuid = database.query_one("SELECT run_id FROM runs", &[]).await?.try_get(0)?;
        let plan =
            LoadPlan { asks: RequestKind::Read(deskgate_protocol::RunId::from(run_id).to_string()), ..self.plan(2.0) };
        let (mut read, mut bare) = (Vec::new(), Vec::new());
        for _ in 0..self.bench.count(3) {
            read.push(load::send(&plan).await?.rate());
            bare.push(self.bare(address).await?.rate());
        }
        report.part("get_run_per_second", json!({ "median": median(&read), "rounds": read }));
        report.value("get_run_per_s_vs_http_ceiling", median(&read) / median(&bare));
        Ok(())
    }

    /// The same work by the other forms of the API, in turns.
    async fn by_other_doors(&self, report: &mut BenchReport) -> anyhow::Result<()> {
        let (database, _driver) = self.server.database().await?;
        let named = "SELECT tool_name FROM endpoints WHERE endpoint_id = $1";
        let endpoint_id: deskgate_protocol::EndpointId = self.target.endpoint_id.parse()?;
        let tool: String = database.query_one(named, &[&endpoint_id.uuid()]).await?.try_get(0)?;
        let doors = [
            ("native", RequestKind::Submit),
            ("openai", RequestKind::Responses),
            ("mcp", RequestKind::ToolCalls(tool)),
        ];
        let mut rates = doors.each_ref().map(|_| Vec::new());
        for _ in 0..self.bench.count(ACCEPT_ROUNDS) {
            for ((_, asks), rates) in doors.iter().zip(&mut rates) {
                self.server.forget_runs().await?;
                rates.push(load::send(&LoadPlan { asks: asks.clone(), ..self.plan(3.0) }).await?.rate());
            }
        }
        for ((name, _), rates) in doors.iter().zip(&rates) {
            report.part(&format!("{name}_accepted_per_second"), json!({ "median": median(rates), "rounds": rates }));
        }
        report.value("openai_accept_vs_native", median(&rates[1]) / median(&rates[0]));
        report.value("mcp_call_vs_native", median(&rates[2]) / median(&rates[0]));
        Ok(())
    }

    /// CPU time per accepted run, in microseconds: steadier than rates when other programs use the machine.
    fn cost(&self, costs: &[(f64, f64, f64, LoadResult)]) -> serde_json::Value {
        // Requests of the warm-up cost as much as those that count.
        let per_run = |of: fn(&(f64, f64, f64, LoadResult)) -> f64| {
            let warm = 1.0 / 4.0 + 1.0;
            median(&costs.iter().map(|cost| of(cost) * 1e6 / (cost.3.accepted as f64 * warm)).collect::<Vec<_>>())
        };
        json!({
            "gateway_cpu_us": per_run(|cost| cost.0),
            "postgres_cpu_us": per_run(|cost| cost.1),
            "load_cpu_us": per_run(|cost| cost.2),
            "p50_ms": median(&costs.iter().map(|cost| cost.3.p50_ms).collect::<Vec<_>>()),
        })
    }

    async fn bare(&self, address: SocketAddr) -> anyhow::Result<LoadResult> {
        let mut plan = self.plan(2.0);
        plan.target.address = address;
        load::send(&plan).await
    }

    /// pgbench with its best number of clients on this machine.
    async fn best_pgbench(&self, folder: &Path, report: &mut BenchReport) -> anyhow::Result<(Pgbench, usize)> {
        let pgbench = Pgbench::prepare(&self.server, folder)?;
        let one = pgbench.run(&self.server, Table::Same, 1, self.bench.time(2.0)).await?;
        report.part("pgbench_one_client_per_second", one.per_second);
        let mut best = (PGBENCH_CLIENT_COUNTS[0], 0.0);
        for clients in PGBENCH_CLIENT_COUNTS {
            let tps = pgbench.run(&self.server, Table::Same, clients, self.bench.time(3.0)).await?.per_second;
            if tps > best.1 {
                best = (clients, tps);
            }
        }
        report.part("pgbench_best_clients", best.0);
        Ok((pgbench, best.0))
    }

    async fn at_half_load(&self, most: f64, report: &mut BenchReport) -> anyhow::Result<()> {
        let mut rounds = Vec::new();
        for _ in 0..self.bench.count(3) {
            self.server.forget_runs().await?;
            let outcome = load::send(&LoadPlan { rate: Some(most / 2.0), ..self.plan(5.0) }).await?;
            rounds.push((outcome.p50_ms, outcome.p99_ms, outcome.max_ms));
        }
        report.part("accept_half_load_per_second", most / 2.0);
        report.part("accept_half_load_p50_p99_max_ms", json!(rounds));
        report.value("accept_p99_ms", median(&rounds.iter().map(|round| round.1).collect::<Vec<_>>()));
        Ok(())
    }

    async fn beside_a_worker(&mut self, report: &mut BenchReport) -> anyhow::Result<()> {
        let (mut alone, mut beside, mut drained) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..self.bench.count(3) {
            self.server.forget_runs().await?;
            alone.push(load::send(&self.plan(4.0)).await?.rate());
            self.server.forget_runs().await?;
            self.desktop.resume().await?;
            let plan = self.plan(4.0);
            beside.push(load::send(&plan).await?.rate());
            let (database, _driver) = self.server.database().await?;
            let ended = "SELECT count(*) FROM runs WHERE state = 'succeeded'";
            let ended: i64 = database.query_one(ended, &[]).await?.try_get(0)?;
            drained.push(ended as f64 / (plan.warm_up + plan.time).as_secs_f64());
            self.desktop.pause();
        }
        report.part("accept_alone_per_second", json!(alone));
        report.part("accept_beside_worker_per_second", json!(beside));
        report.part("finished_beside_accepting_per_second", json!(drained));
        report.value("accept_with_worker_vs_alone", median(&beside) / median(&alone));
        Ok(())
    }
}
