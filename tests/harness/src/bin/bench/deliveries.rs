//! Callbacks: how fast events are delivered to a receiver, beside a client that only posts to it.
//!
//! A callback goes only to port 443 of a public address, so this is measured on an island, where every address belongs
//! to this machine. This program is started again there.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Context;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use deskgate_tests::netns::{self, DnsServer};
use deskgate_tests::receiver::Receiver;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::Bench;
use crate::desktop::Desktop;
use crate::environment::{self, BenchGateway, START_TIMEOUT};
use crate::load::{self, LoadPlan, LoadTransport};
use crate::process::ChildProcess;
use crate::report::BenchReport;
use crate::requests::{LoadTarget, RequestKind, SUBMISSION_BODY};
use deskgate_harness::statistics::median;
use deskgate_harness::usage::cpu_seconds;

const CALLBACK_HOST: &str = "hooks.example.com";
const CALLBACK_ADDRESS: &str = "93.184.216.34";
/// Rounds of each.
const DELIVERY_ROUNDS: usize = 3;
/// Callbacks of a round.
const CALLBACKS_PER_ROUND: usize = 20_000;
/// The most concurrent sends of a gateway to one receiver that answers well.
const MAX_CONCURRENT_SENDS: usize = 16;

/// The measured rates.
#[derive(Debug, Default, Serialize, Deserialize)]
struct CallbackRates {
    delivered: Vec<f64>,
    bare: Vec<f64>,
    bare_each: Vec<f64>,
    gateway_cpu_us: f64,
}

/// Runs the measurement if it is selected.
pub(crate) async fn measure(bench: &Bench, report: &mut BenchReport) -> anyhow::Result<()> {
    if !bench.wants(&["deliver_vs_bare_client"]) {
        return Ok(());
    }
    println!("Callbacks");
    let mut again = netns::command(&std::env::current_exe()?);
    again.args(bench.quick.then_some("--quick")).arg("deliveries");
    let folder = environment::folder()?;
    let log = folder.path().join("callbacks.log");
    let mut process = ChildProcess::start(&mut again, &log)?;
    while !process.has_ended() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let said = std::fs::read_to_string(&log)?;
    let found = said.lines().last().and_then(|line| serde_json::from_str::<CallbackRates>(line).ok());
    let found = found.with_context(|| format!("callbacks could not be measured:\n{said}"))?;
    let of = |rounds: &[f64]| json!({ "median": median(rounds), "rounds": rounds });
    report.part("delivered_per_second", of(&found.delivered));
    report.part("bare_client_per_second", of(&found.bare));
    report.part("bare_client_with_new_connections_per_second", of(&found.bare_each));
    report.part("deliver_gateway_cpu_us", found.gateway_cpu_us);
    report.value("deliver_vs_bare_client", median(&found.delivered) / median(&found.bare));
    Ok(())
}

/// The process that receives, until a signal ends it. Its first line is the path of its root certificate.
pub(crate) fn receiver() -> anyhow::Result<()> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(async {
        let receiver = Receiver::start(&[CALLBACK_HOST], async |_| StatusCode::NO_CONTENT.into_response()).await;
        println!("{}", receiver.ca_file().display());
        std::future::pending().await
    })
}

/// The measurement on the island. The result is printed for the parent process.
pub(crate) async fn inside(bench: &Bench) -> anyhow::Result<()> {
    netns::arrange();
    let names = DnsServer::start().await;
    names.set_addresses(CALLBACK_HOST, &[CALLBACK_ADDRESS]);
    let folder = environment::folder()?;
    let (_receiver, ca_file) = start(folder.path()).await?;
    let trusted = format!("callbacks.ca_file={}", ca_file.display());
    let server = BenchGateway::start_with(&bench.programs, folder.path(), &[&trusted]).await?;
    let mut desktop = Desktop::start(&bench.programs, folder.path()).await?;
    desktop.pair(&server).await?;
    let target = desktop.publish().await?;
    server.ask(&["admin", "allowlist", "add", CALLBACK_HOST]).await?;
    let url = format!("https://{CALLBACK_HOST}/deskgate");
    desktop.ask(&["callback", "set", "bench", "--url", &url, "--event", "run.accepted"]).await?;
    desktop.pause();

    let mut found = CallbackRates::default();
    let mut costs = Vec::new();
    for _ in 0..bench.count(DELIVERY_ROUNDS) {
        let before = cpu_seconds(server.pid());
        let (count, seconds) = delivered(&server, &target, bench.count(CALLBACKS_PER_ROUND)).await?;
        costs.push((cpu_seconds(server.pid()) - before) * 1e6 / count);
        found.delivered.push(count / seconds);
        let (name, ca_file) = (CALLBACK_HOST.to_owned(), ca_file.clone());
        found.bare.push(bare(bench, LoadTransport::Tls { name: name.clone(), ca_file: ca_file.clone() }).await?);
        found.bare_each.push(bare(bench, LoadTransport::TlsEach { name, ca_file }).await?);
    }
    found.gateway_cpu_us = median(&costs);
    println!("{}", serde_json::to_string(&found)?);
    Ok(())
}

async fn start(folder: &Path) -> anyhow::Result<(ChildProcess, PathBuf)> {
    let log = folder.join("receiver.log");
    let mut process = ChildProcess::start(Command::new(std::env::current_exe()?).arg("receiver"), &log)?;
    let ca_file =
        environment::first_line(&log, &mut process, |line| line.starts_with('/').then(|| line.into())).await?;
    Ok((process, ca_file))
}

/// Submits runs with callbacks, and waits until all are delivered. Returns how many callbacks were confirmed after the
/// last submission, and in how many seconds.
async fn delivered(server: &BenchGateway, target: &LoadTarget, callbacks: usize) -> anyhow::Result<(f64, f64)> {
    let (database, _driver) = server.database().await?;
    let pending = async || -> anyhow::Result<i64> {
        let sql = "SELECT count(*) FROM deliveries WHERE state = 'pending'";
        Ok(database.query_one(sql, &[]).await?.try_get(0)?)
    };
    load::send(&LoadPlan::fill(target.clone(), callbacks)).await?;
    let (began, count) = (Instant::now(), pending().await?);
    anyhow::ensure!(count > 0, "there is nothing to be delivered");
    while pending().await? > 0 {
        anyhow::ensure!(began.elapsed() < 4 * START_TIMEOUT, "callbacks are still pending");
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    let seconds = began.elapsed().as_secs_f64();
    let other = "SELECT count(*) FROM deliveries WHERE state <> 'delivered'";
    let failed: i64 = database.query_one(other, &[]).await?.try_get(0)?;
    anyhow::ensure!(failed == 0, "{failed} callbacks were not confirmed");
    Ok((count as f64, seconds))
}

/// The receiver's rate for as many concurrent requests of the same size, in requests per second.
async fn bare(bench: &Bench, over: LoadTransport) -> anyhow::Result<f64> {
    // A signed callback has some more headers, of the same sizes.
    let request = format!(
        "POST /deskgate HTTP/1.1\r\nhost: {CALLBACK_HOST}\r\nwebhook-id: {:031}\r\nwebhook-timestamp: 1763800000\r\n\
         webhook-signature: v1,{:044}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{SUBMISSION_BODY}",
        0,
        0,
        SUBMISSION_BODY.len()
    );
    // Only the address is used; no run is submitted.
    let address: SocketAddr = format!("{CALLBACK_ADDRESS}:443").parse()?;
    let target = LoadTarget { address, key: String::new(), endpoint_id: String::new() };
    let (warm_up, time) = (bench.time(0.5), bench.time(3.0));
    let asks = RequestKind::Same(request);
    let plan =
        LoadPlan { target, connections: MAX_CONCURRENT_SENDS, warm_up, time, rate: None, at_most: None, asks, over };
    Ok(load::send(&plan).await.context("the receiver")?.rate())
}
