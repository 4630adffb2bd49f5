//! A queue before a service of one place: offers that are refused, and the time beside the work itself.

use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::{Value, json};

use crate::Bench;
use crate::desktop::Desktop;
use crate::environment::{self, BenchGateway};
use crate::http::HttpConnection;
use crate::report::BenchReport;
use crate::requests::{RequestTemplate, until_ended};

const REFUSED_METRIC: &str = "refused_offers_per_run";
const TIME_METRIC: &str = "one_place_time_ratio";

/// Runs in the queue.
const RUNS: usize = 60;
/// How long each of them works.
const WORK: Duration = Duration::from_millis(300);

/// Runs the selected measurements.
pub(crate) async fn measure(bench: &Bench, report: &mut BenchReport) -> anyhow::Result<()> {
    if !bench.wants(&[REFUSED_METRIC, TIME_METRIC]) {
        return Ok(());
    }
    println!("A service of one place");
    let folder = environment::folder()?;
    let server = BenchGateway::start(&bench.programs, folder.path()).await?;
    let mut desktop = Desktop::start(&bench.programs, folder.path()).await?;
    desktop.pair(&server).await?;
    let model = desktop.script("works", &json!([{ "delay_ms": WORK.as_millis() as u64 }, { "text": "Done." }]))?;
    let target = desktop.publish_as("one", &["--model", &model, "--concurrency", "1"]).await?;
    let (mut connection, mut submission) =
        (HttpConnection::open(target.address).await?, RequestTemplate::submissions(&target));
    let began = Instant::now();
    let mut runs = Vec::new();
    for number in 0..RUNS {
        let status = connection.exchange(submission.next(0, number as u64)).await?;
        anyhow::ensure!(status == 202, "a submission was answered {status}");
        let run: Value = serde_json::from_slice(connection.body())?;
        runs.push(run["run_id"].as_str().context("a run without an identifier")?.to_owned());
    }
    for run_id in &runs {
        let run = until_ended(&mut connection, &target, run_id).await?;
        anyhow::ensure!(run["state"] == "succeeded" && run["attempt"] == 1, "a run ended otherwise: {run}");
    }
    let took = began.elapsed();
    // Each offer of a run has the next number.
    let (database, _driver) = server.database().await?;
    let offers: i64 = database.query_one("SELECT sum(attempt) FROM runs", &[]).await?.try_get(0)?;
    report.part("one_place_parts", json!({ "runs": RUNS, "offers": offers, "seconds": took.as_secs_f64() }));
    report.value(REFUSED_METRIC, (offers as f64 - RUNS as f64) / RUNS as f64);
    report.value(TIME_METRIC, took.as_secs_f64() / (WORK.as_secs_f64() * RUNS as f64));
    Ok(())
}
