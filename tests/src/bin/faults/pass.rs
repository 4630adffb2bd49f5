//! One pass: opens the scene, lets the callers work, strikes what was planned, heals, waits, and gathers what the witnesses
//! have to say.

use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use crate::callers::{Business, Stage, clerk, owner, prober, publisher, racer, sender, stale, submitter, talker};
use crate::check::Witnesses;
use crate::evidence;
use crate::history::{Clock, Histories};
use crate::plan::Planned;
use crate::scene::Scene;
use crate::scene::levels::{self, Level};
use crate::strikes::{self, Strike};

/// Submitters at each desk.
const SUBMITTERS: usize = 2;
/// Conversations at each desk, and callers in each.
const TALKS: usize = 2;
const TALKERS: usize = 2;
/// How long everybody works before the first fault, which is what is compared with the end.
const WARM: Duration = Duration::from_secs(6);
/// Runs that have ended by then: every device has worked on as many as it takes at once.
const WARM_RUNS: usize = 32;
/// Between the last fault and the time from which on everything must go well.
const RECOVERS: Duration = Duration::from_secs(10);
/// Faults after which it is calm for a while.
const ROW: usize = 21;
/// How long it then must go well, and how long in the end.
const CALM: Duration = Duration::from_secs(6);
const LAST_CALM: Duration = Duration::from_secs(12);
/// How long missing runs are waited for.
const MISSING: Duration = Duration::from_secs(120);
/// How long what was begun may take to its end.
const ENDS: Duration = Duration::from_secs(90);
/// How long callbacks may take after that.
const TOLD: Duration = Duration::from_secs(60);

/// Makes a pass, with histories and logs in a folder. Goes on until at least so many runs have ended.
pub(crate) async fn run(seed: u64, plan: &[Planned], runs: usize, folder: &Path) -> Witnesses {
    let clock = Clock::start();
    let scene = Arc::new(Scene::open(clock).await);
    println!("faults: the scene stands after {:.1} s", seconds(clock));
    let histories = Histories::within(folder.to_owned());
    let (stage, told) = watch::channel(Stage::Open);
    let business = Arc::new(Business::new(scene.clone(), seed, histories.clone(), told));
    let (mut callers, mut owners) = employ(&business);
    let levels = Arc::<Mutex<Vec<Level>>>::default();
    let watching = AbortOnDropHandle::new(tokio::spawn({
        let (scene, levels) = (scene.clone(), levels.clone());
        async move { levels::watch(&scene, &levels).await }
    }));
    let warm = Instant::now() + MISSING;
    sleep(WARM).await;
    while histories.succeeded("run") < WARM_RUNS && Instant::now() < warm {
        sleep(Duration::from_millis(200)).await;
    }

    stale::work(&business).await;
    let (strikes, mut calm) = strike_all(&business, plan).await;
    sleep(RECOVERS).await;
    let from = clock.now();
    let deadline = Instant::now() + MISSING;
    tokio::join!(sleep(LAST_CALM), stale::work(&business));
    while histories.succeeded("run") < runs && Instant::now() < deadline {
        sleep(Duration::from_millis(200)).await;
    }
    calm.push((from, clock.now()));
    drop(watching);

    println!("faults: {:.0} s: waiting for what is under way", seconds(clock));
    stage.send_replace(Stage::Closing);
    let _ = timeout(ENDS, join(&mut callers)).await;
    stage.send_replace(Stage::Closed);
    join(&mut callers).await;
    join(&mut owners).await;
    tell(&scene).await;

    println!("faults: {:.0} s: asking the witnesses", seconds(clock));
    let logs = scene.keep_logs(folder).await;
    let evidence = evidence::gather(&business, &logs).await;
    Witnesses {
        turns: scene.model.journal(),
        effects: scene.effects(),
        notes: scene.book.journal(),
        written: scene.written(),
        receipts: scene.office.journal(),
        strikes,
        evidence,
        levels: std::mem::take(&mut *levels.lock().unwrap_or_else(PoisonError::into_inner)),
        calm,
        ..Witnesses::of_histories(histories.all())
    }
}

fn seconds(clock: Clock) -> f64 {
    clock.now() as f64 / 1e6
}

/// Everybody who works: those who call, and the owners of the devices.
fn employ(business: &Arc<Business>) -> (JoinSet<()>, JoinSet<()>) {
    let (mut callers, mut owners) = (JoinSet::new(), JoinSet::new());
    for desk in 0..business.scene.desks.len() {
        for number in 0..SUBMITTERS {
            callers.spawn(submitter::work(business.clone(), format!("shop-{desk}-{number}"), desk));
        }
        for talk in 0..TALKS {
            for number in 0..TALKERS {
                let (name, key) = (format!("talk-{desk}-{talk}-{number}"), format!("case {talk}"));
                callers.spawn(talker::work(business.clone(), name, desk, key));
            }
        }
        callers.spawn(racer::work(business.clone(), format!("racer-{desk}"), desk));
        callers.spawn(prober::work(business.clone(), format!("prober-{desk}"), desk));
        callers.spawn(clerk::work(business.clone(), format!("clerk-{desk}"), desk));
        callers.spawn(sender::work(business.clone(), format!("sender-{desk}"), desk));
        owners.spawn(owner::work(business.clone(), desk));
        owners.spawn(publisher::work(business.clone(), desk));
    }
    (callers, owners)
}

async fn join(workers: &mut JoinSet<()>) {
    while let Some(ended) = workers.join_next().await {
        ended.expect("whoever works here does not panic");
    }
}

/// Strikes one fault after the other, and says when it was calm in between. One that cannot be healed ends the row, and
/// the pass then does not count.
async fn strike_all(business: &Arc<Business>, plan: &[Planned]) -> (Vec<Strike>, Vec<(u64, u64)>) {
    let (mut caller, mut struck, mut calm) = (business.caller("cut"), Vec::new(), Vec::new());
    let clock = business.scene.clock;
    let striking = async {
        for planned in plan {
            let strike = strikes::strike(&mut caller, planned).await;
            let (number, kind, begun) = (planned.number, planned.kind, strike.begun as f64 / 1e6);
            match &strike.proof {
                Ok(proof) => println!("faults: {begun:6.1} s: {number:>3} {kind:<3} {}: {proof}", kind.about()),
                Err(why) => println!("faults: {begun:6.1} s: {number:>3} {kind:<3} did NOT strike: {why}"),
            }
            struck.push(strike);
            if (number + 1) % ROW == 0 && number + 1 < plan.len() {
                sleep(RECOVERS).await;
                let from = clock.now();
                sleep(CALM).await;
                calm.push((from, clock.now()));
            }
        }
    };
    // What it panics with has been printed, and must not end the pass before it is judged.
    if AssertUnwindSafe(striking).catch_unwind().await.is_err() {
        println!("faults: a fault could not be healed");
    }
    (struck, calm)
}

/// Waits until nothing is to be delivered any more. The schedule's later steps take minutes and hours; they are brought
/// forward in the table, which is what passing time would come to. What is under way is left alone: its lease is
/// shorter than any of those steps.
async fn tell(scene: &Scene) {
    let deadline = Instant::now() + TOLD;
    let later =
        "UPDATE deliveries SET due_at = now() WHERE state = 'pending' AND due_at > now() + interval '31 seconds'";
    let pending = "SELECT delivery_id FROM deliveries WHERE state = 'pending'";
    while Instant::now() < deadline && !scene.postgres.rows(pending).await.is_empty() {
        scene.postgres.change(later).await;
        sleep(Duration::from_millis(300)).await;
    }
}
