//! The hostile gateway: it has all that a real one has, and lies.

mod attempts;
mod bytes;
mod conversations;
mod door;
mod frames;
mod greetings;
mod judge;
mod line;
mod management;
mod offers;
mod orders;
mod shell;
mod siege;
mod ssh;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::time::timeout;

use crate::behaviour::{Behaviour, Evidence, NOTHING, Row, effect};
use crate::witnesses::Levels;
use judge::{effects, look};
use siege::Siege;

/// The longest that one behaviour may take.
const BEHAVIOUR_TIMEOUT: Duration = Duration::from_secs(90);

/// Every behaviour, family by family.
fn behaviours() -> Vec<Behaviour<Siege>> {
    let mut all = frames::behaviours();
    all.extend(greetings::behaviours());
    all.extend(offers::behaviours());
    all.extend(attempts::behaviours());
    all.extend(conversations::behaviours());
    all.extend(orders::behaviours());
    all.extend(management::behaviours());
    all.extend(ssh::behaviours());
    all.extend(bytes::behaviours());
    all
}

/// Plays all behaviours whose names contain `only`, and at the end an honest run.
pub(crate) async fn play(only: &str, folder: &Path) -> anyhow::Result<Vec<Row>> {
    let mut siege = Box::pin(Siege::begin()).await?;
    let mut logged = 0;
    let mut before = look(&siege, &mut logged).await;
    let first = before.levels.context("the agent runs")?;
    siege.take_over();
    let mut rows = Vec::new();
    for behaviour in behaviours().iter().filter(|behaviour| behaviour.name.contains(only)) {
        let row = played(&mut siege, behaviour, &mut before, &mut logged, first).await;
        row.announce();
        rows.push(row);
    }
    let honest = Behaviour {
        name: "the real gateway again: a run, a message, its memory",
        promise: "what was hostile leaves nothing behind",
        allowed: crate::behaviour::Allowed { questions: 2, ledger_lines: 0 },
        act: |siege: &mut Siege| {
            Box::pin(async move {
                let got = siege.give_back().await?;
                match (got["run"].as_str(), got["message"].as_str(), got["memory"].as_str()) {
                    ("an honest answer", "remembered", "kept") => Ok(Evidence::Answered("as before".to_owned())),
                    _ => Err(effect(format!("the honest work came out as {got:?}"))),
                }
            })
        },
    };
    let mut row = played(&mut siege, &honest, &mut before, &mut logged, first).await;
    // Its own service may hear its own conversation.
    row.effects.retain(|effect| !effect.contains("another conversation"));
    row.announce();
    rows.push(row);
    std::fs::write(folder.join("agent.log"), siege.device.log().all())?;
    Ok(rows)
}

/// Plays one behaviour and judges it.
async fn played(
    siege: &mut Siege,
    behaviour: &Behaviour<Siege>,
    before: &mut judge::Look,
    logged: &mut usize,
    first: Levels,
) -> Row {
    let began = Instant::now();
    let evidence = timeout(BEHAVIOUR_TIMEOUT, (behaviour.act)(siege)).await;
    let evidence = evidence.context("it did not end in time").and_then(|evidence| evidence);
    let mut row = Row::new("gateway", behaviour, began, evidence);
    let mut after = look(siege, logged).await;
    if behaviour.allowed != NOTHING {
        // The owner's own work goes on for a moment.
        siege.model.forget_moves();
    }
    row.effects.extend(effects(before, &after, first, behaviour.allowed));
    after.shown.clear();
    *before = after;
    row
}
