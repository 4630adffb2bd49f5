//! F9 and F10: database sessions are terminated, PostgreSQL is killed.

use anyhow::{Context, ensure};
use deskgate_tests::until;

use crate::plan::Planned;
use crate::scene::Scene;

/// Terminates some sessions of the gateways, or all of them.
pub(crate) async fn terminate_sessions(scene: &Scene, planned: &Planned) -> anyhow::Result<String> {
    // Of ten, from two to all.
    let share = 2 + planned.manner % 9;
    let sql = format!(
        "SELECT pid, pg_terminate_backend(pid) AS was_told FROM pg_stat_activity \
         WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid() \
             AND (pid + {}) % 10 < {share}",
        planned.target % 10
    );
    let told = scene.postgres.rows(&sql).await.iter().filter(|row| row["was_told"] == true).count();
    ensure!(told > 0, "no session was there to be terminated");
    Ok(format!("{told} sessions were told to end"))
}

/// Kills the server and everything it started, and waits until it answers again.
pub(crate) async fn kill(scene: &Scene) -> anyhow::Result<String> {
    let before = started(scene).await?;
    scene.postgres.kill_9().await;
    until("PostgreSQL to answer again", async || {
        scene.postgres.try_run("SELECT 1").await.map_err(|error| error.to_string())
    })
    .await;
    let after = started(scene).await?;
    ensure!(before != after, "it still is the server that was started at {before}");
    Ok(format!("the server of {before} is dead, one of {after} answers"))
}

/// When the server was started.
async fn started(scene: &Scene) -> anyhow::Result<String> {
    let rows = scene.postgres.rows("SELECT pg_postmaster_start_time()::text AS at").await;
    Ok(rows[0]["at"].as_str().context("a time")?.to_owned())
}
