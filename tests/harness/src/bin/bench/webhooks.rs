//! Webhooks: signed events that become runs, beside runs that are submitted.

use std::time::Duration;

use anyhow::Context;
use serde_json::json;

use crate::Bench;
use crate::desktop::Desktop;
use crate::environment::{self, BenchGateway};
use crate::load::{self, LoadPlan, LoadTransport};
use crate::report::BenchReport;
use crate::requests::{LoadWebhook, RequestKind};
use deskgate_harness::statistics::median;

/// Webhooks that receive at the same time. One accepts at most a thousand events a second.
const WEBHOOK_COUNT: usize = 16;
/// Rounds of each.
const WEBHOOK_ROUNDS: usize = 5;

/// Runs the measurement if it is selected.
pub(crate) async fn measure(bench: &Bench, report: &mut BenchReport) -> anyhow::Result<()> {
    if !bench.wants(&["hook_vs_submit"]) {
        return Ok(());
    }
    println!("Webhooks");
    let folder = environment::folder()?;
    let server = BenchGateway::start(&bench.programs, folder.path()).await?;
    let mut desktop = Desktop::start(&bench.programs, folder.path()).await?;
    desktop.pair(&server).await?;
    let target = desktop.publish().await?;
    let mut hooks = Vec::new();
    for number in 0..WEBHOOK_COUNT {
        hooks.push(create(&desktop, &target.endpoint_id, &format!("shop {number}")).await?);
    }
    desktop.pause();

    let plan = |asks| {
        let (warm_up, time) = (bench.time(1.0), bench.time(4.0));
        LoadPlan {
            target: target.clone(),
            connections: 64,
            warm_up,
            time,
            rate: None,
            at_most: None,
            asks,
            over: LoadTransport::Tcp,
        }
    };
    let (mut events, mut submitted) = (Vec::new(), Vec::new());
    for _ in 0..bench.count(WEBHOOK_ROUNDS) {
        server.forget_runs().await?;
        submitted.push(load::send(&plan(RequestKind::Submit)).await?.rate());
        server.forget_runs().await?;
        events.push(load::send(&plan(RequestKind::Events(hooks.clone()))).await?.rate());
        // The burst allowance is full again.
        tokio::time::sleep(bench.time(4.0).max(Duration::from_secs(1))).await;
    }
    report.part("events_per_second", json!({ "median": median(&events), "rounds": events }));
    report.part("submitted_per_second", json!({ "median": median(&submitted), "rounds": submitted }));
    report.value("hook_vs_submit", median(&events) / median(&submitted));
    Ok(())
}

/// A webhook whose events become the same runs as the submissions.
async fn create(desktop: &Desktop, endpoint_id: &str, name: &str) -> anyhow::Result<LoadWebhook> {
    let hook = ["hook", "create", name, "--app", "bench", "--service", endpoint_id, "--scheme", "standard"];
    let mapping = ["--text", "{{ $.input.text }}", "--subject", "customer-10042", "--rate", "1000"];
    let created = desktop.ask(&[&hook[..], &mapping].concat()).await?;
    let text = |value: &serde_json::Value| value.as_str().map(str::to_owned);
    Ok(LoadWebhook {
        hook_id: text(&created["webhook"]["hook_id"]).context("no webhook")?,
        secret: text(&created["secret"]).context("no secret")?,
    })
}
