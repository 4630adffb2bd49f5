//! The owner of a device, who decides of every run that waits for that.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::{Business, Stage};
use crate::history::{Decided, Record};
use crate::seed::Dice;

/// How often the owner looks.
const LOOKS: Duration = Duration::from_millis(1500);

/// Decides until the pass is closed.
pub(crate) async fn work(business: Arc<Business>, desk: usize) {
    let name = format!("owner-{desk}");
    let mut dice = Dice::of(business.seed, &name);
    let mut stage = business.stage.clone();
    loop {
        tokio::select! {
            _ = stage.wait_for(|stage| *stage == Stage::Closed) => return,
            () = sleep(LOOKS) => {}
        }
        let device = business.scene.desks[desk].device.read().await;
        let said = device.cli(&["status"]).await;
        let runs = said.value["work"]["runs"].as_array().cloned().unwrap_or_default();
        for run in runs.iter().filter(|run| run["standing"] == "awaiting_reconciliation") {
            let Some(run_id) = run["run_id"].as_str() else { continue };
            let runs_again = dice.percent(50);
            let how = if runs_again { "--run-again" } else { "--finished" };
            let said = device.cli(&["runs", "reconcile", run_id, how]).await;
            let at = business.scene.clock.now();
            let decided = Decided { run_id: run_id.to_owned(), at, runs_again, is_taken: said.exit == 0 };
            business.histories.note(&name, Record::Decided(decided));
        }
    }
}
