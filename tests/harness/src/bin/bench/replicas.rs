//! Two gateways on one database, beside one.

use serde_json::json;

use crate::Bench;
use crate::desktop::Desktop;
use crate::environment::{self, BenchGateway};
use crate::load::{self, LoadPlan, LoadTransport};
use crate::report::BenchReport;
use crate::requests::{LoadTarget, RequestKind};
use deskgate_harness::statistics::median;

/// Rounds of each.
const REPLICA_ROUNDS: usize = 5;
/// Connections that submit at the same time, in all.
const CONNECTION_COUNT: usize = 64;

/// Runs the measurement if it is selected.
pub(crate) async fn measure(bench: &Bench, report: &mut BenchReport) -> anyhow::Result<()> {
    if !bench.wants(&["accept_two_replicas_vs_one"]) {
        return Ok(());
    }
    println!("Replicas");
    let (folder, other_folder) = (environment::folder()?, environment::folder()?);
    let server = BenchGateway::start(&bench.programs, folder.path()).await?;
    let mut desktop = Desktop::start(&bench.programs, folder.path()).await?;
    desktop.pair(&server).await?;
    let target = desktop.publish().await?;
    desktop.pause();
    let database = format!("database.url={}", server.database_url()?);
    let other = BenchGateway::start_with(&bench.programs, other_folder.path(), &[&database]).await?;
    let there = LoadTarget { address: other.http()?, ..target.clone() };

    let plan = |target: &LoadTarget, connections| LoadPlan {
        target: target.clone(),
        connections,
        warm_up: bench.time(1.0),
        time: bench.time(4.0),
        rate: None,
        at_most: None,
        asks: RequestKind::Submit,
        over: LoadTransport::Tcp,
    };
    let (mut one, mut two) = (Vec::new(), Vec::new());
    for _ in 0..bench.count(REPLICA_ROUNDS) {
        server.forget_runs().await?;
        one.push(load::send(&plan(&target, CONNECTION_COUNT)).await?.rate());
        server.forget_runs().await?;
        let (here, there) = (plan(&target, CONNECTION_COUNT / 2), plan(&there, CONNECTION_COUNT / 2));
        let (here, there) = tokio::try_join!(load::send(&here), load::send(&there))?;
        two.push(here.rate() + there.rate());
    }
    report.part("one_replica_per_second", json!(one));
    report.part("two_replicas_per_second", json!(two));
    report.value("accept_two_replicas_vs_one", median(&two) / median(&one));
    Ok(())
}
