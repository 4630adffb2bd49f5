//! L3: very many runs wait for one sleeping device, which then wakes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::process::Signal;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::environment::LoadEnvironment;
use crate::report::LoadReport;
use crate::submissions::{self, SubmissionResult};

/// Callers that submit at the same time.
const MAX_CONCURRENT_CALLERS: usize = 64;
/// Pages of the list that are read while all runs wait.
const PAGES_READ: usize = 50;
/// The slowest allowed rate, in runs per second.
const MIN_RUNS_PER_SECOND: f64 = 50.0;

/// Queues this many runs, reads, wakes the device and waits until all have ended.
pub(crate) async fn from_sleep(site: &mut LoadEnvironment, runs: u32, report: &mut LoadReport) {
    let (began, left) = (Instant::now(), Arc::new(AtomicU32::new(runs)));
    let mut submitting = JoinSet::new();
    for number in 0..MAX_CONCURRENT_CALLERS {
        let (caller, left) = (site.caller(&site.sleeper.backend, number), left.clone());
        submitting.spawn(async move {
            let (mut accepted, mut others) = (Vec::new(), Vec::new());
            while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
                match submissions::submit(&caller).await {
                    SubmissionResult::Accepted(run_id) => accepted.push(run_id),
                    other => others.push(other),
                }
            }
            (accepted, others)
        });
    }
    let mut accepted = Vec::new();
    for (more, others) in submitting.join_all().await {
        accepted.extend(more);
        for other in others {
            report.must(matches!(other, SubmissionResult::RetryLater(_)), || format!("{other:?}"));
        }
    }
    report.figure("queued", accepted.len() as f64);
    report.figure("queued in a second", accepted.len() as f64 / began.elapsed().as_secs_f64());
    report.memory(site, "with all of them queued");
    let mut pages = Vec::new();
    for number in 0..PAGES_READ {
        let (caller, began) = (site.caller(&site.sleeper.backend, number), Instant::now());
        caller.get("/runs?state=waiting_for_device&limit=100").await;
        pages.push(began.elapsed());
    }
    report.times("a page of a hundred runs", pages);

    let woken = Instant::now();
    site.sleeper.device.start().await;
    site.sleeper.device.wait_until_connected().await;
    report.figure("seconds until it was connected", woken.elapsed().as_secs_f64());
    let limit = Duration::from_secs_f64(60.0 + f64::from(runs) / MIN_RUNS_PER_SECOND);
    let mut half = None;
    loop {
        let open = site.unfinished().await;
        if open == 0 || woken.elapsed() > limit {
            report.must(open == 0, || format!("{open} runs had not ended after {limit:?}"));
            break;
        }
        if half.is_none() && open < u64::from(runs) / 2 {
            half = Some(());
            report.memory(site, "with half of them done");
        }
        sleep(Duration::from_millis(500)).await;
    }
    report.figure("seconds until all had ended", woken.elapsed().as_secs_f64());
    report.figure("ended in a second", accepted.len() as f64 / woken.elapsed().as_secs_f64());
    site.sleeper.device.stop(Signal::TERM).await;

    let executions = site.executions();
    for run_id in &accepted {
        let times = executions.get(run_id).copied().unwrap_or_default();
        report.must(times == 1, || format!("{run_id} was executed {times} times"));
    }
    let ended = "SELECT count(*) AS ended FROM runs WHERE state = 'succeeded'";
    let ended = site.postgres.rows(ended).await[0]["ended"].as_u64().expect("a number");
    report.must(ended >= accepted.len() as u64, || format!("only {ended} of {} succeeded", accepted.len()));
}
