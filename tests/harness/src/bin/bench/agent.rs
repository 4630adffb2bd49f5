//! The agent's own use of resources: time for each turn of a run, and memory while runs execute.

use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::{Value, json};

use crate::Bench;
use crate::desktop::Desktop;
use crate::environment::{self, BenchGateway, START_TIMEOUT};
use crate::http::HttpConnection;
use crate::memory;
use crate::provider::ModelProvider;
use crate::report::BenchReport;
use crate::requests::{LoadTarget, RequestTemplate, until_ended};
use deskgate_harness::statistics::median;
use deskgate_tests::preload::PreloadShim;
use deskgate_tests::vendors::{ModelVendor, Move, Vendor};

const SCRIPTED_METRIC: &str = "agent_overhead_ms_p50";
const HTTP_METRIC: &str = "agent_overhead_http_ms_p50";
const ACTIVE_MEMORY_METRIC: &str = "rss_device_8_active_mib";
const EIGHT_READS_METRIC: &str = "eight_reads_vs_one";
const CACHED_METRIC: &str = "model_input_cached";

/// Turns of a run that call Read; one more turn gives the answer.
const TURNS_PER_RUN: usize = 100;
/// Turns of the run whose prompts a cache finds again.
const CACHED_TURNS: usize = 50;
/// Runs that are timed.
const TIMED_RUNS: usize = 20;
/// Runs before them that are not timed.
const WARM_UP_RUNS: usize = 1;
/// The file that each turn reads.
const SMALL_FILE_NAME: &str = "order.txt";

/// How long a slow folder takes for each read of a file, in milliseconds.
const SLOW_READ_MS: u32 = 10;

/// Runs that execute at the same time.
const ACTIVE_RUNS: u32 = 8;
/// Files that each turn reads, and the reading turns of each of these runs.
const FILES_PER_TURN: usize = 20;
const READING_TURNS: usize = 4;
/// Lines of such a file.
const LINES_PER_FILE: usize = 200;

/// Runs the selected measurements.
pub(crate) async fn measure(bench: &Bench, report: &mut BenchReport) -> anyhow::Result<()> {
    if !bench.wants(&[SCRIPTED_METRIC, EIGHT_READS_METRIC, HTTP_METRIC, CACHED_METRIC, ACTIVE_MEMORY_METRIC]) {
        return Ok(());
    }
    println!("The agent");
    let folder = environment::folder()?;
    let server = BenchGateway::start(&bench.programs, folder.path()).await?;
    let mut desktop = Desktop::start(&bench.programs, folder.path()).await?;
    desktop.pair(&server).await?;
    plant(&desktop)?;
    // Measured first: used memory is not always given back.
    if bench.wants(&[ACTIVE_MEMORY_METRIC]) {
        eight_active(&mut desktop, report).await?;
    }
    if bench.wants(&[SCRIPTED_METRIC]) {
        let target = reading(&mut desktop, "scripted", &[SMALL_FILE_NAME.to_owned()]).await?;
        let times = turns(bench, &target, 1, || Duration::ZERO).await?;
        note(report, SCRIPTED_METRIC, &times);
    }
    if bench.wants(&[EIGHT_READS_METRIC]) {
        eight_reads(bench, &mut desktop, report).await?;
    }
    if bench.wants(&[HTTP_METRIC]) {
        let provider = ModelProvider::start(TURNS_PER_RUN, SMALL_FILE_NAME).await?;
        desktop
            .ask(&["provider", "set", "bench", "--profile", "compatible", "--base-url", &provider.base_url()])
            .await?;
        let service = ["--provider", "bench", "--model", "m-1", "--tools", "Read", "--max-turns", "1000"];
        let target = desktop.publish_as("remote", &service).await?;
        let times = turns(bench, &target, 1, || provider.take_spent()).await?;
        note(report, HTTP_METRIC, &times);
    }
    if bench.wants(&[CACHED_METRIC]) {
        cached(&desktop, report).await?;
    }
    Ok(())
}

/// A service whose scripted assistant reads these files in each turn.
async fn reading(desktop: &mut Desktop, name: &str, files: &[String]) -> anyhow::Result<LoadTarget> {
    let read = |file: &String| json!({ "tool": "Read", "arguments": { "file_path": file } });
    let turn = || std::iter::once(json!({ "text": "I look." })).chain(files.iter().map(read));
    let steps: Vec<_> = (0..TURNS_PER_RUN).flat_map(|_| turn()).chain([json!({ "text": "Done." })]).collect();
    let model = desktop.script(name, &steps.into())?;
    desktop.publish_as(name, &["--model", &model, "--tools", "Read", "--max-turns", "1000"]).await
}

/// Turns of eight calls beside turns of one, in a folder that answers slowly, as one on a network does.
async fn eight_reads(bench: &Bench, desktop: &mut Desktop, report: &mut BenchReport) -> anyhow::Result<()> {
    let shim = PreloadShim::new();
    shim.set_slow_read(SLOW_READ_MS);
    desktop.resume_with(shim.environment()).await?;
    let mut parts = Vec::new();
    let mut ratio = 0.0;
    for folder in ["local", "slow"] {
        let files: Vec<_> = (0..8).map(|file| format!("{folder}-{file}.txt")).collect();
        for file in &files {
            std::fs::write(desktop.work().join(file), "Order 4711: three green lamps, due on Friday.\n")?;
        }
        let one = reading(desktop, &format!("one-{folder}"), &files[..1]).await?;
        let eight = reading(desktop, &format!("eight-{folder}"), &files).await?;
        let one = median(&turns(bench, &one, 1, || Duration::ZERO).await?);
        let eight = median(&turns(bench, &eight, 8, || Duration::ZERO).await?);
        parts.push(json!({ "folder": folder, "one_ms": one, "eight_ms": eight }));
        ratio = eight / one;
    }
    desktop.resume_with(Vec::new()).await?;
    report.part("eight_reads_vs_one_parts", Value::Array(parts));
    report.value(EIGHT_READS_METRIC, ratio);
    Ok(())
}

/// The share of what a model read in one long run that came from its vendor's cache, by the vendor's own count.
async fn cached(desktop: &Desktop, report: &mut BenchReport) -> anyhow::Result<()> {
    let look = || Move::Call(vec![("Read", json!({ "file_path": SMALL_FILE_NAME }))]);
    let moves = (1..CACHED_TURNS).map(|_| look()).chain([Move::Say("Done.".to_owned())]).collect();
    let vendor = ModelVendor::start(Vendor::Anthropic, moves).await;
    let (base_url, key_file) = (vendor.base_url(), vendor.key_file());
    let key_file = key_file.to_str().context("a plain name")?;
    let set = ["provider", "set", "vendor", "--profile", "anthropic", "--base-url", &base_url, "--key-file", key_file];
    desktop.ask(&set).await?;
    let service = ["--provider", "vendor", "--model", Vendor::Anthropic.model(), "--max-turns", "1000"];
    let target = desktop.publish_as("cached", &service).await?;
    let before = vendor.read_tokens();
    let mut connection = HttpConnection::open(target.address).await?;
    let run = submit(&mut connection, &mut RequestTemplate::submissions(&target), 0).await?;
    let run_id = run_id(&run)?;
    let run = until_ended(&mut connection, &target, &run_id).await?;
    anyhow::ensure!(run["state"] == "succeeded", "a run ended otherwise: {run}");
    let (all, cached) = vendor.read_tokens();
    let (all, cached) = (all - before.0, cached - before.1);
    report.part("model_input_cached_parts", json!({ "turns": CACHED_TURNS, "tokens": all, "cached": cached }));
    report.value(CACHED_METRIC, cached as f64 / all as f64);
    Ok(())
}

fn plant(desktop: &Desktop) -> anyhow::Result<()> {
    std::fs::create_dir_all(desktop.work())?;
    let line = |n: usize| format!("Order {n}: three green lamps, due on Friday.\n");
    std::fs::write(desktop.work().join(SMALL_FILE_NAME), line(4711))?;
    for file in 0..FILES_PER_TURN {
        let text: String = (0..LINES_PER_FILE).map(|n| line(file * LINES_PER_FILE + n)).collect();
        std::fs::write(desktop.work().join(format!("orders{file}.txt")), text)?;
    }
    Ok(())
}

fn note(report: &mut BenchReport, name: &'static str, times: &[f64]) {
    let (least, most) = times.iter().fold((f64::MAX, 0.0_f64), |(least, most), ms| (least.min(*ms), most.max(*ms)));
    report.part(
        &format!("{name}_parts"),
        json!({ "runs": times.len(), "turns": TURNS_PER_RUN + 1, "least": least, "most": most }),
    );
    report.value(name, median(times));
}

/// Milliseconds of one turn of each run with so many calls, without the model's own time by `models_own`.
async fn turns(
    bench: &Bench,
    target: &LoadTarget,
    calls_per_turn: usize,
    models_own: impl Fn() -> Duration,
) -> anyhow::Result<Vec<f64>> {
    let mut connection = HttpConnection::open(target.address).await?;
    let mut submission = RequestTemplate::submissions(target);
    let mut times = Vec::new();
    for number in 0..WARM_UP_RUNS + bench.count(TIMED_RUNS) {
        models_own();
        let began = Instant::now();
        let run = submit(&mut connection, &mut submission, number).await?;
        let run_id = run_id(&run)?;
        let run = until_ended(&mut connection, target, &run_id).await?;
        let time = began.elapsed().saturating_sub(models_own());
        let calls = [&run["usage"]["model_calls"], &run["usage"]["tool_calls"]].map(Value::as_u64);
        let expected = [TURNS_PER_RUN as u64 + 1, (TURNS_PER_RUN * calls_per_turn) as u64].map(Some);
        anyhow::ensure!(run["state"] == "succeeded" && calls == expected, "a run ended otherwise: {run}");
        if number >= WARM_UP_RUNS {
            times.push(time.as_secs_f64() * 1e3 / (TURNS_PER_RUN + 1) as f64);
        }
    }
    Ok(times)
}

async fn submit(
    connection: &mut HttpConnection,
    submission: &mut RequestTemplate,
    number: usize,
) -> anyhow::Result<Value> {
    let status = connection.exchange(submission.next(0, number as u64)).await?;
    anyhow::ensure!(status == 202, "a submission was answered {status}");
    Ok(serde_json::from_slice(connection.body())?)
}

fn run_id(run: &Value) -> anyhow::Result<String> {
    Ok(run["run_id"].as_str().context("a run without an identifier")?.to_owned())
}

/// Each of the runs has read its files and waits for its model.
async fn eight_active(desktop: &mut Desktop, report: &mut BenchReport) -> anyhow::Result<()> {
    desktop.pause();
    desktop.set_slots(ACTIVE_RUNS).await?;
    desktop.resume().await?;
    let mut steps = Vec::new();
    for file in 0..FILES_PER_TURN {
        if file % (FILES_PER_TURN / READING_TURNS) == 0 {
            steps.push(json!({ "text": "I look at the orders." }));
        }
        steps.push(json!({ "tool": "Read", "arguments": { "file_path": format!("orders{file}.txt") } }));
    }
    steps.extend([json!({ "delay_ms": 600_000 }), json!({ "text": "Done." })]);
    let model = desktop.script("waits", &steps.into())?;
    let slots = ACTIVE_RUNS.to_string();
    let target = desktop.publish_as("eight", &["--model", &model, "--tools", "Read", "--concurrency", &slots]).await?;
    let mut connection = HttpConnection::open(target.address).await?;
    let mut submission = RequestTemplate::submissions(&target);
    let mut runs = Vec::new();
    for number in 0..ACTIVE_RUNS as usize {
        runs.push(run_id(&submit(&mut connection, &mut submission, number).await?)?);
    }
    until_all_wait(desktop).await?;
    tokio::time::sleep(memory::IDLE_PERIOD).await;
    memory::note(report, ACTIVE_MEMORY_METRIC, desktop.pid()?)?;
    for run_id in runs {
        desktop.ask(&["run", "stop", &run_id, "--wait", "30s"]).await?;
    }
    Ok(())
}

/// A turn counts once the model has requested its calls; the turn in which it waits does not.
async fn until_all_wait(desktop: &Desktop) -> anyhow::Result<()> {
    let deadline = Instant::now() + START_TIMEOUT;
    loop {
        let runs = desktop.ask(&["status"]).await?["work"]["runs"].take();
        let waits = |run: &&Value| run["turns"] == READING_TURNS;
        let waiting = runs.as_array().map_or(0, |runs| runs.iter().filter(waits).count());
        if waiting == ACTIVE_RUNS as usize {
            return Ok(());
        }
        anyhow::ensure!(Instant::now() < deadline, "{waiting} of {ACTIVE_RUNS} runs have read their files: {runs}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
