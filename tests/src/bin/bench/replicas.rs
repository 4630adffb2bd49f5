//! Two gateways on one database, beside one.

use serde_json::json;

use crate::Bench;
use crate::desktop::Desktop;
use crate::load::{self, Over, Plan};
use crate::report::{Report, median};
use crate::requests::{Asks, Target};
use crate::site::{self, Server};

/// Rounds of each.
const ROUNDS: usize = 5;
/// Connections that submit at the same time, in all.
const CONNECTIONS: usize = 64;

/// Measures it if it is asked for.
pub(crate) async fn measure(bench: &Bench, report: &mut Report) -> anyhow::Result<()> {
    if !bench.wants(&["accept_two_replicas_vs_one"]) {
        return Ok(());
    }
    println!("Replicas");
    let (folder, other_folder) = (site::folder()?, site::folder()?);
    let server = Server::start(&bench.programs, folder.path()).await?;
    let mut desktop = Desktop::start(&bench.programs, folder.path()).await?;
    desktop.pair(&server).await?;
    let target = desktop.publish().await?;
    desktop.pause();
    let database = format!("database.url={}", server.database_url()?);
    let other = Server::start_with(&bench.programs, other_folder.path(), &[&database]).await?;
    let there = Target { address: other.http()?, ..target.clone() };

    let plan = |target: &Target, connections| Plan {
        target: target.clone(),
        connections,
        warm_up: bench.time(1.0),
        time: bench.time(4.0),
        rate: None,
        at_most: None,
        asks: Asks::Submit,
        over: Over::Tcp,
    };
    let (mut one, mut two) = (Vec::new(), Vec::new());
    for _ in 0..bench.count(ROUNDS) {
        server.forget_runs().await?;
        one.push(load::send(&plan(&target, CONNECTIONS)).await?.rate());
        server.forget_runs().await?;
        let (here, there) = (plan(&target, CONNECTIONS / 2), plan(&there, CONNECTIONS / 2));
        let (here, there) = tokio::try_join!(load::send(&here), load::send(&there))?;
        two.push(here.rate() + there.rate());
    }
    report.part("one_replica_per_second", json!(one));
    report.part("two_replicas_per_second", json!(two));
    report.value("accept_two_replicas_vs_one", median(&two) / median(&one));
    Ok(())
}
