//! The hostile device: it is paired, has an application of its own, and wants those of another.

mod camp;
mod floods;
mod hellos;
mod judge;
mod line;
mod requests;
mod results;
mod ssh;
mod strangers;
mod websocket;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::time::timeout;

use crate::behaviour::{Behaviour, Row};
use camp::Camp;
use judge::{effects, look};

/// The longest that one behaviour may take.
const BEHAVIOUR_TIMEOUT: Duration = Duration::from_secs(90);

/// Every behaviour, family by family.
fn behaviours() -> Vec<Behaviour<Camp>> {
    let mut all = hellos::behaviours();
    all.extend(strangers::behaviours());
    all.extend(results::behaviours());
    all.extend(requests::behaviours());
    all.extend(floods::behaviours());
    all.extend(websocket::behaviours());
    all.extend(ssh::behaviours());
    all
}

/// Plays all behaviours whose names contain `only`; honest runs go on beside them.
pub(crate) async fn play(only: &str, folder: &Path) -> anyhow::Result<Vec<Row>> {
    let mut camp = Box::pin(Camp::begin()).await?;
    let mut before = look(&camp).await;
    let first = before.levels.context("the gateway runs")?;
    let mut rows = Vec::new();
    for behaviour in behaviours().iter().filter(|behaviour| behaviour.name.contains(only)) {
        let began = Instant::now();
        let evidence = timeout(BEHAVIOUR_TIMEOUT, (behaviour.act)(&mut camp)).await;
        let evidence = evidence.context("it did not end in time").and_then(|evidence| evidence);
        let mut row = Row::new("device", behaviour, began, evidence);
        let after = look(&camp).await;
        row.effects.extend(effects(&before, &after, first));
        before = after;
        row.announce();
        rows.push(row);
    }
    std::fs::write(folder.join("gateway.log"), camp.gateway.log().all())?;
    Ok(rows)
}
