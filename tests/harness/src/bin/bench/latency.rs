//! From the POST to the final record, one run at a time, as the caller sees it.

use std::time::Instant;

use anyhow::Context;
use serde_json::{Value, json};

use crate::Bench;
use crate::desktop::Desktop;
use crate::environment::{self, BenchGateway};
use crate::http::HttpConnection;
use crate::report::BenchReport;
use crate::requests::{RequestTemplate, until_ended};
use deskgate_harness::statistics::percentile;

/// Runs that are timed.
const TIMED_RUNS: usize = 2000;
/// Runs before that, until connections are open and statements prepared.
const WARM_UP_RUNS: usize = 50;
/// Callers that take turns: the desktop's built-in gateway limits the request rate of one key.
const CALLER_COUNT: usize = 32;

/// Runs the selected measurements.
pub(crate) async fn measure(bench: &Bench, report: &mut BenchReport) -> anyhow::Result<()> {
    let builtin =
        ["submit_to_final_ms_p50_builtin", "submit_to_final_ms_p99_builtin", "submit_to_final_ms_p999_builtin"];
    if bench.wants(&builtin) {
        println!("One run at a time, gateway inside the desktop");
        let folder = environment::folder()?;
        let desktop = Desktop::start(&bench.programs, folder.path()).await?;
        one_at_a_time(bench, &desktop, builtin, report).await?;
    }
    let ssh = ["submit_to_final_ms_p50_ssh", "submit_to_final_ms_p99_ssh", "submit_to_final_ms_p999_ssh"];
    if bench.wants(&ssh) {
        println!("One run at a time, over SSH");
        let folder = environment::folder()?;
        let server = BenchGateway::start(&bench.programs, folder.path()).await?;
        let mut desktop = Desktop::start(&bench.programs, folder.path()).await?;
        desktop.pair(&server).await?;
        one_at_a_time(bench, &desktop, ssh, report).await?;
    }
    Ok(())
}

async fn one_at_a_time(
    bench: &Bench,
    desktop: &Desktop,
    [p50, p99, p999]: [&'static str; 3],
    report: &mut BenchReport,
) -> anyhow::Result<()> {
    let published = desktop.publish().await?;
    let keys = desktop.more_keys(&published, CALLER_COUNT).await?;
    let mut callers: Vec<_> = keys.iter().map(|target| (target, RequestTemplate::submissions(target))).collect();
    let mut connection = HttpConnection::open(published.address).await?;
    let (mut accepted, mut ended) = (Vec::new(), Vec::new());
    let runs = bench.count(TIMED_RUNS);
    for number in 0..WARM_UP_RUNS + runs {
        let (target, submission) = &mut callers[number % CALLER_COUNT];
        let began = Instant::now();
        let status = connection.exchange(submission.next(0, number as u64)).await?;
        anyhow::ensure!(status == 202, "a submission was answered {status}");
        let accept = began.elapsed();
        let run: Value = serde_json::from_slice(connection.body())?;
        let run_id = run["run_id"].as_str().context("a run without an identifier")?.to_owned();
        let run = until_ended(&mut connection, target, &run_id).await?;
        anyhow::ensure!(run["state"] == "succeeded", "a run ended {}: {}", run["state"], run["error"]);
        if number >= WARM_UP_RUNS {
            accepted.push(accept.as_secs_f64() * 1e3);
            ended.push(began.elapsed().as_secs_f64() * 1e3);
        }
    }
    accepted.sort_by(f64::total_cmp);
    ended.sort_by(f64::total_cmp);
    let name = p50.rsplit('_').next().unwrap_or_default();
    let largest: Vec<_> = ended.iter().rev().take(5).collect();
    report.part(
        &format!("submit_to_final_{name}"),
        json!({ "runs": runs, "accept_p50_ms": percentile(&accepted, 0.5), "largest_ms": largest }),
    );
    report.value(p50, percentile(&ended, 0.5));
    report.value(p99, percentile(&ended, 0.99));
    report.value(p999, percentile(&ended, 0.999));
    Ok(())
}
