//! L1 and L4: a rate of submissions to all devices, each run with a callback.

use std::collections::HashMap;
use std::time::Duration;

use deskgate_tests::stream::RunStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::Options;
use crate::environment::LoadEnvironment;
use crate::report::LoadReport;
use crate::submissions::{self, Submission, SubmissionResult};

/// Reads at the same time.
const MAX_CONCURRENT_READS: usize = 32;
/// The slowest allowed rate at which accepted runs end, in runs per second.
const MIN_RUNS_PER_SECOND: f64 = 20.0;
/// How long callbacks may take after that.
const CALLBACK_TIMEOUT: Duration = Duration::from_secs(60);
/// The number of submissions that show recovery, and how long they may take.
const RECOVERY_RUNS: usize = 50;
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(10);

/// L1, beside streams of runs that wait for the sleeper and end when it wakes.
pub(crate) async fn beside_streams(site: &mut LoadEnvironment, options: &Options, report: &mut LoadReport) {
    let began = Instant::now();
    let streams = streams(site, options.streams as usize).await;
    report.figure("streams open", streams.len() as f64);
    report.figure("seconds until they were", began.elapsed().as_secs_f64());
    let lasts = Duration::from_secs(options.seconds.into());
    let offered = at_rate(site, options.rate, lasts, report).await;

    // Each stream shows its run's end, and each event once.
    site.sleeper.device.start().await;
    let woken = Instant::now();
    let mut shown = 0;
    for (run_id, events) in streams.join_all().await {
        let dense = (1..).zip(&events).all(|(place, id)| place == *id);
        report.must(dense && !events.is_empty(), || format!("the stream of {run_id} showed {events:?}"));
        shown += 1;
    }
    report.figure("streams that showed their end", f64::from(shown));
    report.figure("seconds from waking to the last of them", woken.elapsed().as_secs_f64());
    site.settled(Duration::from_secs(60)).await;
    site.sleeper.device.stop(rustix::process::Signal::TERM).await;
    ended_once(site, &offered, report).await;
}

/// L4: ten times the rate of L1.
pub(crate) async fn ten_times(site: &mut LoadEnvironment, options: &Options, report: &mut LoadReport) {
    let lasts = Duration::from_secs_f64(f64::from(options.seconds) / 3.0);
    let offered = at_rate(site, options.rate * 10, lasts, report).await;
    ended_once(site, &offered, report).await;
}

/// Submits at a rate, and waits until all accepted runs have ended and the system has recovered.
async fn at_rate(site: &LoadEnvironment, rate: u32, lasts: Duration, report: &mut LoadReport) -> Vec<Submission> {
    let waiting = site.unfinished().await;
    let (offered, ()) = tokio::join!(submissions::offer(site, rate, lasts), async {
        // Long loads show whether memory grows.
        for when in ["at minute 1", "at minute 10"] {
            let at = if when == "at minute 1" { 60 } else { 540 };
            if lasts > Duration::from_secs(at) {
                sleep(Duration::from_secs(at)).await;
                report.memory(site, when);
            }
        }
    });
    submissions::judge(&offered, lasts, report);
    let limit = Duration::from_secs_f64(60.0 + offered.len() as f64 / MIN_RUNS_PER_SECOND);
    let began = Instant::now();
    while site.unfinished().await > waiting && began.elapsed() < limit {
        sleep(Duration::from_millis(100)).await;
    }
    report.must(site.unfinished().await <= waiting, || format!("not everything had ended {limit:?} after the load"));
    report.figure("seconds until all had ended", began.elapsed().as_secs_f64());
    report.figure("ended in a second", offered.len() as f64 / (lasts + began.elapsed()).as_secs_f64());
    is_well(site, report).await;
    offered
}

/// New submissions are accepted at once and end.
async fn is_well(site: &LoadEnvironment, report: &mut LoadReport) {
    let began = Instant::now();
    for number in 0..RECOVERY_RUNS {
        let caller = site.caller(&site.desktops[number % site.desktops.len()].backend, number);
        match submissions::submit(&caller).await {
            SubmissionResult::Accepted(run_id) => drop(caller.wait_for_end(&run_id).await),
            other => report.wrong(format!("after the load a submission was answered so: {other:?}")),
        }
    }
    report.must(began.elapsed() < RECOVERY_TIMEOUT, || {
        format!("{RECOVERY_RUNS} runs took {:?} after the load", began.elapsed())
    });
}

/// Every accepted run succeeded, was executed once, is readable from every replica, and was delivered.
async fn ended_once(site: &LoadEnvironment, offered: &[Submission], report: &mut LoadReport) {
    let executions = site.executions();
    for (_, run_id) in submissions::accepted(offered) {
        let times = executions.get(run_id).copied().unwrap_or_default();
        report.must(times == 1, || format!("{run_id} was executed {times} times"));
    }
    let mut reading = JoinSet::new();
    for (number, (one, run_id)) in submissions::accepted(offered).enumerate() {
        if reading.len() >= MAX_CONCURRENT_READS {
            judge_state(reading.join_next().await.expect("some are reading").expect("it does not panic"), report);
        }
        let caller = site.caller(&site.desktops[one.desktop].backend, number);
        let run_id = run_id.to_owned();
        reading.spawn(async move { (caller.run(&run_id).await["state"].to_string(), run_id) });
    }
    for read in reading.join_all().await {
        judge_state(read, report);
    }
    let due: HashMap<_, _> = submissions::accepted(offered).map(|(one, run_id)| (run_id, one.due)).collect();
    let deadline = Instant::now() + CALLBACK_TIMEOUT;
    let mut told = site.told();
    while due.keys().any(|run| !told.contains_key(*run)) && Instant::now() < deadline {
        sleep(Duration::from_millis(200)).await;
        told = site.told();
    }
    let missing = due.keys().filter(|run| !told.contains_key(**run)).count();
    report.must(missing == 0, || format!("of {missing} ends nobody was told"));
    let repeated = due.keys().filter(|run| told.get(**run).is_some_and(|times| times.len() > 1)).count();
    report.figure("callbacks", (due.len() - missing) as f64);
    report.figure("callbacks that came more than once", repeated as f64);
    let times = due.iter().filter_map(|(run, due)| {
        let first = told.get(*run)?.first()?;
        Some(first.saturating_duration_since(due.into_std()))
    });
    report.times("from due to told by callback", times.collect());
}

fn judge_state((state, run_id): (String, String), report: &mut LoadReport) {
    report.must(state == "\"succeeded\"", || format!("{run_id} is {state}"));
}

/// Opens the streams, each of a run that waits for the sleeper. They return the numbers of their events.
async fn streams(site: &LoadEnvironment, count: usize) -> JoinSet<(String, Vec<u64>)> {
    let mut following = JoinSet::new();
    for number in 0..count {
        let caller = site.caller(&site.sleeper.backend, number);
        let run_id = caller.submit("When you are awake.").await;
        let mut stream = RunStream::open(&caller, &run_id, 0).await.expect("the gateway answers");
        following.spawn(async move {
            let mut events = Vec::new();
            while let Some(sent) = stream.next().await {
                events.extend(sent.id);
            }
            (run_id, events)
        });
    }
    following
}
