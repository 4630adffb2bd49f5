//! The owner of a device, who decides every run and request that waits for a decision.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::sleep;

use super::{CallerContext, PassStage};
use crate::history::{DecisionRecord, DecisionTopic, HistoryRecord};
use crate::seed::SeededRandom;

/// How often the owner looks for open decisions.
const DECISION_INTERVAL: Duration = Duration::from_millis(1500);

/// Decides until the pass is closed.
pub(crate) async fn work(business: Arc<CallerContext>, desktop: usize) {
    let name = format!("owner-{desktop}");
    let mut dice = SeededRandom::of(business.seed, &name);
    let mut stage = business.stage.clone();
    loop {
        tokio::select! {
            _ = stage.wait_for(|stage| *stage == PassStage::Closed) => return,
            () = sleep(DECISION_INTERVAL) => {}
        }
        let device = business.testbed.desktops[desktop].device.read().await;
        let mut decide = async |run_id: &str, matter: DecisionTopic, share: u64, yes: &[&str], no: &[&str]| {
            let is_yes = dice.percent(share);
            let said = device.cli(if is_yes { yes } else { no }).await;
            let at = business.testbed.clock.now();
            let decided = DecisionRecord { run_id: run_id.to_owned(), at, matter, is_yes, is_taken: said.exit == 0 };
            business.histories.note(&name, HistoryRecord::Decided(decided));
        };
        let said = device.cli(&["status"]).await.value;
        for run in rows(&said["work"]["runs"]).iter().filter(|run| run["standing"] == "awaiting_reconciliation") {
            let id = text(run, "run_id");
            let reconcile = ["run", "reconcile", id];
            let (again, finished) = ([&reconcile[..], &["--run-again"]], [&reconcile[..], &["--finished"]]);
            decide(id, DecisionTopic::RunAgain, 50, &again.concat(), &finished.concat()).await;
        }
        // After a restore their desktop knows nothing of them, or its word does not count.
        if !rows(&device.cli(&["run", "settle"]).await.value["unknown"]).is_empty() {
            device.cli(&["run", "settle", "--end-unknown"]).await;
        }
        for request in rows(&device.cli(&["approval", "list"]).await.value["approvals"]) {
            let id = text(request, "approval_id");
            decide(
                text(request, "run_id"),
                DecisionTopic::Call,
                80,
                &["approval", "approve", id],
                &["approval", "deny", id],
            )
            .await;
        }
    }
}

fn rows(list: &Value) -> &[Value] {
    list.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn text<'a>(row: &'a Value, name: &str) -> &'a str {
    row[name].as_str().unwrap_or_default()
}
