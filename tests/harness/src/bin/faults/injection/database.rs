//! F9, F10, F11, F12 and F36: database sessions are terminated, PostgreSQL is killed or suspended, or other sessions hold
//! its locks or connections.

use std::time::Duration;

use anyhow::{Context, ensure};
use deskgate_gateway::ops::health_check::send_request;
use deskgate_tests::postgres::DatabaseHold;
use deskgate_tests::until;
use tokio::time::{Instant, sleep};

use super::{InjectionProof, one_of};
use crate::plan::PlannedFault;
use crate::testbed::Testbed;

/// Terminates some sessions of the gateways, or all of them.
pub(crate) async fn terminate_sessions(testbed: &Testbed, planned: &PlannedFault) -> anyhow::Result<String> {
    // Between two of ten and all.
    let share = 2 + planned.manner % 9;
    let sql = format!(
        "SELECT pid, pg_terminate_backend(pid) AS was_told FROM pg_stat_activity \
         WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid() \
             AND (pid + {}) % 10 < {share}",
        planned.target % 10
    );
    let told = testbed.postgres.rows(&sql).await.iter().filter(|row| row["was_told"] == true).count();
    ensure!(told > 0, "no session was there to be terminated");
    Ok(format!("{told} sessions were told to end"))
}

/// Kills the server and all its processes, and waits until it answers again.
pub(crate) async fn kill(testbed: &Testbed) -> anyhow::Result<String> {
    let before = started(testbed).await?;
    testbed.postgres.kill_9().await;
    until("PostgreSQL to answer again", async || {
        testbed.postgres.try_run("SELECT 1").await.map_err(|error| error.to_string())
    })
    .await;
    let after = started(testbed).await?;
    ensure!(before != after, "it still is the server that was started at {before}");
    Ok(format!("the server of {before} is dead, one of {after} answers"))
}

/// When the server was started.
async fn started(testbed: &Testbed) -> anyhow::Result<String> {
    let rows = testbed.postgres.rows("SELECT pg_postmaster_start_time()::text AS at").await;
    Ok(rows[0]["at"].as_str().context("a time")?.to_owned())
}

/// Suspends it: no answer and no refusal. Records when readiness reported it.
pub(crate) async fn freeze(testbed: &Testbed, planned: &PlannedFault) -> anyhow::Result<InjectionProof> {
    testbed.postgres.freeze().await;
    let unready = unready(testbed, planned).await;
    let answers = tokio::time::timeout(Duration::from_millis(200), testbed.postgres.try_run("SELECT 1")).await.is_ok();
    testbed.postgres.thaw().await;
    ensure!(!answers, "it answered");
    let proof = format!("it stood still for {} ms; {}", planned.lasts_ms, told(unready));
    Ok(InjectionProof { proof, noticed_ms: vec![unready] })
}

/// What status says of a gateway that keeps the line and answers no request.
const SILENT_MESSAGE: &str = "keeps the connection and does not answer";

/// Suspends it under a device whose line stays open: its pings are answered, its requests are not. Returns how long
/// `status` and `approvals list` took, in milliseconds, and then 0 if `status` said what is wrong.
pub(crate) async fn stall(testbed: &Testbed, planned: &PlannedFault) -> anyhow::Result<InjectionProof> {
    let device = testbed.desktops[one_of(planned.target, testbed.desktops.len())].device.read().await;
    device.wait_until_connected().await;
    testbed.postgres.freeze().await;
    let began = Instant::now();
    let timed = async |arguments: &[&str]| {
        let began = Instant::now();
        (device.plain_cli(arguments).await, u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX))
    };
    let ((status, status_ms), (approvals, approvals_ms)) =
        tokio::join!(timed(&["status"]), timed(&["approval", "list"]));
    let still = device.status().await["line"]["state"] == "connected";
    sleep(Duration::from_millis(planned.lasts_ms).saturating_sub(began.elapsed())).await;
    testbed.postgres.thaw().await;
    ensure!(approvals.exit == 0 && status.exit == 0, "{}{}", status.stderr, approvals.stderr);
    let says_so = status.stdout.split_whitespace().collect::<Vec<_>>().join(" ").contains(SILENT_MESSAGE);
    // A line that was lost meanwhile is said to be.
    let is_silent = still && !says_so;
    let proof = format!(
        "no request was answered for {} ms; status took {status_ms} ms, approvals list {approvals_ms} ms; said: {says_so}",
        planned.lasts_ms
    );
    Ok(InjectionProof { proof, noticed_ms: vec![status_ms, approvals_ms, u64::from(is_silent)] })
}

/// Terminates all other sessions.
const TERMINATE_OTHERS_SQL: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
    WHERE application_name <> 'holder' AND backend_type = 'client backend'";

/// Locks the table of runs, or takes every connection of the server.
pub(crate) async fn take(testbed: &Testbed, planned: &PlannedFault) -> anyhow::Result<InjectionProof> {
    if planned.manner.is_multiple_of(2) {
        let holder = testbed.postgres.open_connection().await.context("a connection is left")?;
        holder.run("BEGIN; SET LOCAL lock_timeout = '5s'; LOCK TABLE runs IN ACCESS EXCLUSIVE MODE").await?;
        sleep(Duration::from_millis(planned.lasts_ms)).await;
        holder.run("ROLLBACK").await?;
        return Ok(format!("the runs were locked for {} ms", planned.lasts_ms).into());
    }
    // The gateways have no session left, and cannot open one.
    let mut held = Vec::new();
    while fill(testbed, &mut held).await {}
    let filling = async {
        loop {
            fill(testbed, &mut held).await;
            sleep(Duration::from_millis(20)).await;
        }
    };
    let unready = tokio::select! {
        () = filling => unreachable!("it goes on for ever"),
        unready = unready(testbed, planned) => unready,
    };
    let count = held.len();
    drop(held);
    ensure!(count >= CONNECTION_BATCH, "only {count} connections could be taken");
    let proof = format!("{count} connections were taken for {} ms; {}", planned.lasts_ms, told(unready));
    Ok(InjectionProof { proof, noticed_ms: vec![unready] })
}

/// Connections that are opened at once.
const CONNECTION_BATCH: usize = 40;

/// Terminates all other sessions, and opens as many connections as possible. Returns whether that took all.
async fn fill(testbed: &Testbed, held: &mut Vec<DatabaseHold>) -> bool {
    if let Some(first) = held.first() {
        let _ = first.run(TERMINATE_OTHERS_SQL).await;
    }
    let name = async |one: DatabaseHold| one.run("SET application_name = 'holder'").await.is_ok().then_some(one);
    let occupy = async || name(testbed.postgres.open_connection().await?).await;
    let taken = futures_util::future::join_all((0..CONNECTION_BATCH).map(|_| occupy())).await;
    let before = held.len();
    held.extend(taken.into_iter().flatten());
    held.len() - before == CONNECTION_BATCH
}

/// Waits the planned time. Returns after how many milliseconds a gateway's readiness reported a problem.
async fn unready(testbed: &Testbed, planned: &PlannedFault) -> u64 {
    let ops = testbed.replicas[one_of(planned.target, testbed.replicas.len())].read().await.ops().get();
    let (began, lasts) = (Instant::now(), Duration::from_millis(planned.lasts_ms));
    let mut noticed = None;
    while began.elapsed() < lasts {
        if noticed.is_none() && send_request(ops, "/readyz").await.is_err() {
            noticed = u64::try_from(began.elapsed().as_millis()).ok();
        }
        sleep(Duration::from_millis(100)).await;
    }
    noticed.unwrap_or(u64::MAX)
}

fn told(unready: u64) -> String {
    match unready {
        u64::MAX => "readiness did not say so".to_owned(),
        after => format!("readiness said so after {after} ms"),
    }
}
