//! Start times: a gateway's start, and a device's reconnection after its connection was cut.

use std::time::{Duration, Instant};

use deskgate_tests::Proxy;
use deskgate_tests::gateway::Address;
use serde_json::{Value, json};

use crate::Bench;
use crate::desktop::Desktop;
use crate::environment::{self, BenchGateway, START_TIMEOUT};
use crate::http::HttpConnection;
use crate::report::BenchReport;
use crate::requests::{LoadTarget, RequestTemplate, read};
use deskgate_harness::statistics::percentile;

/// How often each is done.
const REPETITIONS: usize = 10;
/// How long the connection stays cut.
const OUTAGE_DURATION: Duration = Duration::from_secs(3);

/// Runs the selected measurements.
pub(crate) async fn measure(bench: &Bench, report: &mut BenchReport) -> anyhow::Result<()> {
    if !bench.wants(&["start_ms", "reconnect_ms_p50"]) {
        return Ok(());
    }
    println!("Beginnings");
    let folder = environment::folder()?;
    let mut times = Vec::new();
    let mut start = async || {
        let began = Instant::now();
        let server = BenchGateway::start(&bench.programs, folder.path()).await?;
        times.push(began.elapsed().as_secs_f64() * 1e3);
        anyhow::Ok(server)
    };
    let mut server = start().await?;
    for _ in 0..bench.count(REPETITIONS) {
        drop(server);
        server = start().await?;
    }
    report.part("first_start_ms", times.remove(0));
    times.sort_by(f64::total_cmp);
    report.value("start_ms", percentile(&times, 0.5));
    if bench.wants(&["reconnect_ms_p50"]) {
        reconnecting(bench, &server, folder.path(), report).await?;
    }
    Ok(())
}

/// The time from the end of the cut until a waiting run has ended.
async fn reconnecting(
    bench: &Bench,
    server: &BenchGateway,
    folder: &std::path::Path,
    report: &mut BenchReport,
) -> anyhow::Result<()> {
    let network = Proxy::to(Address::new(server.ssh.parse()?)).await;
    let mut desktop = Desktop::start(&bench.programs, folder).await?;
    desktop.pair_at(server, &network.address().to_string()).await?;
    let target = desktop.publish().await?;
    let mut connection = HttpConnection::open(target.address).await?;
    let mut requests = RequestTemplate::submissions(&target);
    let mut times = Vec::new();
    for number in 0..bench.count(REPETITIONS) {
        network.cut();
        let run_id = submit(&mut connection, requests.next(1, number as u64)).await?;
        tokio::time::sleep(OUTAGE_DURATION).await;
        let began = Instant::now();
        network.heal();
        ended(&mut connection, &target, &run_id).await?;
        times.push(began.elapsed().as_secs_f64() * 1e3);
    }
    report.part("reconnect_ms", json!(times));
    times.sort_by(f64::total_cmp);
    report.value("reconnect_ms_p50", percentile(&times, 0.5));
    Ok(())
}

async fn submit(connection: &mut HttpConnection, request: &[u8]) -> anyhow::Result<String> {
    let status = connection.exchange(request).await?;
    anyhow::ensure!(status == 202, "a submission was answered {status}");
    let accepted: Value = serde_json::from_slice(connection.body())?;
    Ok(accepted["run_id"].as_str().unwrap_or_default().to_owned())
}

async fn ended(connection: &mut HttpConnection, target: &LoadTarget, run_id: &str) -> anyhow::Result<()> {
    let deadline = Instant::now() + START_TIMEOUT;
    let request = read(target, run_id, 30);
    loop {
        anyhow::ensure!(Instant::now() < deadline, "a run did not end after the line was there again");
        connection.exchange(request.as_bytes()).await?;
        let record: Value = serde_json::from_slice(connection.body())?;
        if record["phase"] == "final" {
            anyhow::ensure!(record["state"] == "succeeded", "{record}");
            return Ok(());
        }
    }
}
