//! One pass: opens the testbed, starts the callers, injects the planned faults, heals, waits, and gathers the evidence.

use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use crate::callers::{
    CallerContext, PassStage, converser, courier, event_sender, owner, prober, publisher, reset_racer, spender,
    stale_finisher, submitter, tool_caller,
};
use crate::check::Observations;
use crate::evidence;
use crate::history::{Clock, Histories};
use crate::injection::{self, InjectedFault};
use crate::plan::PlannedFault;
use crate::testbed::Testbed;
use crate::testbed::resource_usage::{self, UsageSample};

/// Submitters at each desktop.
const SUBMITTERS_PER_DESK: usize = 2;
/// Conversations at each desktop, and callers in each.
const CONVERSATIONS_PER_DESK: usize = 2;
const CALLERS_PER_CONVERSATION: usize = 2;
/// How long all callers work before the first fault; the end is compared with this span.
const WARM_UP_DURATION: Duration = Duration::from_secs(6);
/// Runs that have ended by then: every device has worked on as many as it executes at once.
const WARM_UP_RUNS: usize = 32;
/// The pause between the last fault and the time from which on no operation may fail.
const RECOVERY_DELAY: Duration = Duration::from_secs(10);
/// Faults before each calm span.
const FAULTS_PER_SERIES: usize = 21;
/// The length of a calm span, and of the last one.
const CALM_DURATION: Duration = Duration::from_secs(6);
const FINAL_CALM_DURATION: Duration = Duration::from_secs(12);
/// How long to wait for missing runs.
const MISSING_RUNS_TIMEOUT: Duration = Duration::from_secs(120);
/// How long open operations may take to end.
const FINISH_TIMEOUT: Duration = Duration::from_secs(90);
/// How long callbacks may take after that.
const CALLBACK_TIMEOUT: Duration = Duration::from_secs(60);

/// Runs a pass, with histories and logs in a folder. It goes on until at least this many runs have ended.
pub(crate) async fn run(seed: u64, plan: &[PlannedFault], runs: usize, folder: &Path) -> Observations {
    let clock = Clock::start();
    let testbed = Arc::new(Testbed::open(clock).await);
    println!("faults: the scene stands after {:.1} s", seconds(clock));
    let histories = Histories::within(folder.to_owned());
    let (stage, told) = watch::channel(PassStage::Open);
    let business = Arc::new(CallerContext::new(testbed.clone(), seed, histories.clone(), told));
    let (mut callers, mut owners) = employ(&business);
    let levels = Arc::<Mutex<Vec<UsageSample>>>::default();
    let watching = AbortOnDropHandle::new(tokio::spawn({
        let (testbed, levels) = (testbed.clone(), levels.clone());
        async move { resource_usage::watch(&testbed, &levels).await }
    }));
    let warm = Instant::now() + MISSING_RUNS_TIMEOUT;
    sleep(WARM_UP_DURATION).await;
    while histories.succeeded("run") < WARM_UP_RUNS && Instant::now() < warm {
        sleep(Duration::from_millis(200)).await;
    }

    stale_finisher::work(&business).await;
    let (strikes, mut calm) = strike_all(&business, plan).await;
    sleep(RECOVERY_DELAY).await;
    let from = clock.now();
    let deadline = Instant::now() + MISSING_RUNS_TIMEOUT;
    tokio::join!(sleep(FINAL_CALM_DURATION), stale_finisher::work(&business));
    while histories.succeeded("run") < runs && Instant::now() < deadline {
        sleep(Duration::from_millis(200)).await;
    }
    calm.push((from, clock.now()));
    drop(watching);

    println!("faults: {:.0} s: waiting for what is under way", seconds(clock));
    stage.send_replace(PassStage::Closing);
    let _ = timeout(FINISH_TIMEOUT, join(&mut callers)).await;
    stage.send_replace(PassStage::Closed);
    join(&mut callers).await;
    join(&mut owners).await;
    tell(&testbed).await;

    println!("faults: {:.0} s: asking the witnesses", seconds(clock));
    let logs = testbed.keep_logs(folder).await;
    testbed.shelves.keep(folder);
    let evidence = evidence::gather(&business, &logs).await;
    Observations {
        turns: testbed.model.journal(),
        effects: testbed.effects(),
        spans: testbed.shelves.spans(),
        notes: testbed.book.journal(),
        written: testbed.written(),
        receipts: testbed.receiver.journal(),
        strikes,
        evidence,
        levels: std::mem::take(&mut *levels.lock().unwrap_or_else(PoisonError::into_inner)),
        calm,
        ..Observations::of_histories(histories.all())
    }
}

fn seconds(clock: Clock) -> f64 {
    clock.now() as f64 / 1e6
}

/// Starts all tasks: the callers, and the owners of the devices.
fn employ(business: &Arc<CallerContext>) -> (JoinSet<()>, JoinSet<()>) {
    let (mut callers, mut owners) = (JoinSet::new(), JoinSet::new());
    for desktop in 0..business.testbed.desktops.len() {
        for number in 0..SUBMITTERS_PER_DESK {
            callers.spawn(submitter::work(business.clone(), format!("shop-{desktop}-{number}"), desktop));
        }
        for talk in 0..CONVERSATIONS_PER_DESK {
            for number in 0..CALLERS_PER_CONVERSATION {
                let (name, key) = (format!("talk-{desktop}-{talk}-{number}"), format!("case {talk}"));
                callers.spawn(converser::work(business.clone(), name, desktop, key));
            }
        }
        callers.spawn(reset_racer::work(business.clone(), format!("racer-{desktop}"), desktop));
        callers.spawn(prober::work(business.clone(), format!("prober-{desktop}"), desktop));
        callers.spawn(tool_caller::work(business.clone(), format!("clerk-{desktop}"), desktop));
        callers.spawn(spender::work(business.clone(), format!("spender-{desktop}"), desktop));
        callers.spawn(courier::work(business.clone(), format!("courier-{desktop}"), desktop));
        callers.spawn(event_sender::work(business.clone(), format!("sender-{desktop}"), desktop));
        owners.spawn(owner::work(business.clone(), desktop));
        owners.spawn(publisher::work(business.clone(), desktop));
    }
    (callers, owners)
}

async fn join(workers: &mut JoinSet<()>) {
    while let Some(ended) = workers.join_next().await {
        ended.expect("whoever works here does not panic");
    }
}

/// Injects one fault after the other, and returns the calm spans in between. A fault that cannot be healed ends the
/// series, and the pass then does not count.
async fn strike_all(business: &Arc<CallerContext>, plan: &[PlannedFault]) -> (Vec<InjectedFault>, Vec<(u64, u64)>) {
    let (mut caller, mut struck, mut calm) = (business.caller("cut"), Vec::new(), Vec::new());
    let clock = business.testbed.clock;
    let striking = async {
        for planned in plan {
            let strike = injection::inject(&mut caller, planned).await;
            let (number, kind, begun) = (planned.number, planned.kind, strike.begun as f64 / 1e6);
            match &strike.proof {
                Ok(proof) => println!("faults: {begun:6.1} s: {number:>3} {kind:<3} {}: {proof}", kind.description()),
                Err(why) => println!("faults: {begun:6.1} s: {number:>3} {kind:<3} did NOT strike: {why}"),
            }
            struck.push(strike);
            if (number + 1) % FAULTS_PER_SERIES == 0 && number + 1 < plan.len() {
                sleep(RECOVERY_DELAY).await;
                let from = clock.now();
                sleep(CALM_DURATION).await;
                calm.push((from, clock.now()));
            }
        }
    };
    // A panic's message has been printed, and must not end the pass before it is judged.
    if AssertUnwindSafe(striking).catch_unwind().await.is_err() {
        println!("faults: a fault could not be healed");
    }
    (struck, calm)
}

/// Waits until no delivery is pending. The schedule's later steps take minutes and hours; they are brought forward in
/// the table, as if that time had passed. Claimed deliveries are left alone: their lease is shorter than any of those
/// steps.
async fn tell(testbed: &Testbed) {
    let deadline = Instant::now() + CALLBACK_TIMEOUT;
    let later =
        "UPDATE deliveries SET due_at = now() WHERE state = 'pending' AND due_at > now() + interval '31 seconds'";
    let pending = "SELECT delivery_id FROM deliveries WHERE state = 'pending'";
    while Instant::now() < deadline && !testbed.postgres.rows(pending).await.is_empty() {
        testbed.postgres.change(later).await;
        sleep(Duration::from_millis(300)).await;
    }
}
