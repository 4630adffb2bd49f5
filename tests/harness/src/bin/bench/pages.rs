//! The management pages, with many runs in the store.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::{Value, json};

use crate::Bench;
use crate::desktop::Desktop;
use crate::environment::{self, BenchGateway, START_TIMEOUT};
use crate::http::HttpConnection;
use crate::load::{self, LoadPlan};
use crate::report::BenchReport;
use deskgate_harness::statistics::percentile;

/// How often each page is read.
const READS_PER_PAGE: usize = 100;
/// Reads before that.
const WARM_UP_READS: usize = 10;

/// Runs the measurement if it is selected.
pub(crate) async fn measure(bench: &Bench, report: &mut BenchReport) -> anyhow::Result<()> {
    if !bench.wants(&["page_ms_p50", "page_ms_p99"]) {
        return Ok(());
    }
    println!("Management pages");
    let folder = environment::folder()?;
    let server = BenchGateway::start(&bench.programs, folder.path()).await?;
    let mut desktop = Desktop::start(&bench.programs, folder.path()).await?;
    desktop.pair(&server).await?;
    let target = desktop.publish().await?;
    desktop.pause();
    load::send(&LoadPlan::fill(target, bench.count(100_000))).await?;
    desktop.resume().await?;
    // Some of them are executed before access is paused; the others stay in the queue.
    desktop.ask(&["access", "pause"]).await?;
    settled(&desktop).await?;

    let (address, mount, cookie) = sign_in(&desktop).await?;
    let mut connection = HttpConnection::open(address).await?;
    let mut all = Vec::new();
    for page in addresses(&desktop).await? {
        let request = format!("GET {mount}{page} HTTP/1.1\r\nHost: {address}\r\nCookie: {cookie}\r\n\r\n");
        let mut times = Vec::new();
        for reading in 0..WARM_UP_READS + READS_PER_PAGE {
            let began = Instant::now();
            let status = connection.exchange(request.as_bytes()).await?;
            anyhow::ensure!(status == 200, "{page} was answered with {status}");
            if reading >= WARM_UP_READS {
                times.push(began.elapsed().as_secs_f64() * 1e3);
            }
        }
        times.sort_by(f64::total_cmp);
        let kind = page.split(['?', '/']).nth(1).unwrap_or_default();
        report.part(
            &format!("page_ms_/{kind}"),
            json!({ "p50": percentile(&times, 0.5), "p99": percentile(&times, 0.99) }),
        );
        all.extend(times);
    }
    all.sort_by(f64::total_cmp);
    report.value("page_ms_p50", percentile(&all, 0.5));
    report.value("page_ms_p99", percentile(&all, 0.99));
    Ok(())
}

/// Waits until the device has no run.
async fn settled(desktop: &Desktop) -> anyhow::Result<()> {
    let deadline = Instant::now() + START_TIMEOUT;
    loop {
        let status = desktop.ask(&["status"]).await?;
        if status["work"]["runs"].as_array().is_some_and(Vec::is_empty) {
            return Ok(());
        }
        anyhow::ensure!(Instant::now() < deadline, "runs are still in hand");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The address of the pages, the path below which they lie, and the cookie of a signed-in browser.
async fn sign_in(desktop: &Desktop) -> anyhow::Result<(SocketAddr, String, String)> {
    let opened = desktop.ask(&["open"]).await?;
    let link = opened["link"].as_str().context("no link")?;
    let (address, code) = link
        .strip_prefix("http://")
        .and_then(|rest| rest.split_once("/sign-in?code="))
        .context("a link of another form")?;
    let body = format!("code={code}");
    let request = format!(
        "POST /sign-in HTTP/1.1\r\nHost: {address}\r\nOrigin: http://{address}\r\nContent-Length: {}\r\n\
         Content-Type: application/x-www-form-urlencoded\r\n\r\n{body}",
        body.len()
    );
    let address = address.parse()?;
    let mut connection = HttpConnection::open(address).await?;
    let status = connection.exchange(request.as_bytes()).await?;
    anyhow::ensure!(status == 303, "the sign-in was answered with {status}");
    let header = |name: &str| connection.head().lines().find_map(|line| line.strip_prefix(name));
    let mount = header("location: ").context("no path")?.trim_end_matches('/').to_owned();
    let cookie = header("set-cookie: ").context("no cookie")?.split(';').next().unwrap_or_default().to_owned();
    Ok((address, mount, cookie))
}

/// The pages that show runs or numbers of them.
async fn addresses(desktop: &Desktop) -> anyhow::Result<Vec<String>> {
    let id = |list: &Value, name: &str, member: &str| list[name][0][member].as_str().map(str::to_owned);
    let applications = desktop.ask(&["app", "list"]).await?;
    let runs = desktop.ask(&["run", "list", "--limit", "1"]).await?;
    let app = id(&applications, "applications", "app_id").context("no application")?;
    let run = id(&runs, "runs", "run_id").context("no run")?;
    let fixed = ["/", "/approvals", "/runs", "/conversations", "/applications", "/removed"].map(str::to_owned);
    Ok(fixed.into_iter().chain([format!("/runs/{run}"), format!("/applications/{app}")]).collect())
}
