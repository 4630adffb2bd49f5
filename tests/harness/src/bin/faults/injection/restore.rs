//! F39: all gateways stop, and a backup of that moment is restored. What had begun is in doubt, and what had not is queued
//! again by the word of its desktop.

use anyhow::{Context, ensure};
use futures_util::future::join_all;
use rustix::process::Signal;

use super::one_of;
use crate::plan::PlannedFault;
use crate::testbed::Testbed;

/// Stops all of them, restores their database from a backup of it, and starts them together.
pub(crate) async fn restore(testbed: &Testbed, planned: &PlannedFault) -> anyhow::Result<String> {
    let mut gateways = Vec::new();
    for replica in &testbed.replicas {
        gateways.push(replica.write().await);
    }
    join_all(gateways.iter_mut().map(|gateway| gateway.stop(Signal::TERM))).await;
    let gateway = &gateways[one_of(planned.target, gateways.len())];
    let folder = gateway.folder().join(format!("backup-{}", planned.number));
    let folder = folder.to_str().context("a plain name")?;
    let taken = gateway.command_line(&["backup", "create", folder]).await;
    let replace = ["backup", "restore", folder, "--accept-risk", "replace-database"];
    let restored = gateway.command_line(&replace).await;
    join_all(gateways.iter_mut().map(|gateway| gateway.restart())).await;
    ensure!(taken.exit == 0, "no backup was made: {}", taken.stderr);
    ensure!(restored.exit == 0, "it was not restored: {}", restored.stderr);
    let (open, in_doubt) = (&taken.value["backup"]["open_runs"], &restored.value["runs_in_doubt"]);
    ensure!(open == in_doubt, "{open} runs had not ended, and {in_doubt} are in doubt");
    Ok(format!("{} gateways stopped, and a backup with {open} open runs was restored", gateways.len()))
}
