//! The whole connection in one process: the real dispatcher and its journal against a real gateway and its cluster,
//! over a pipe that is cut at every message in turn.

mod device;
mod pipe;
mod site;

use std::time::Duration;

use deskgate_protocol::run::{EventType, Phase, RunState};

use device::LineDevice;
use site::LineSite;

/// What happens while the connection is cut.
#[derive(Clone, Copy, Debug)]
enum Interruption {
    /// It is dialled again at once.
    Nothing,
    /// The device is killed and started again.
    Kill,
    /// The device stays away until its lease and its offers have run out.
    Lapse,
}

/// The time limit of a test; every test takes far less.
const TEST_TIMEOUT: Duration = Duration::from_secs(120);

/// One run's life with the connection cut at one message. False if the run ended before that message.
async fn play(site: &LineSite, cut_at: u64, meanwhile: Interruption, killed_while_executing: bool) -> bool {
    let what = format!("cut at {cut_at}, meanwhile {meanwhile:?}, killed while executing: {killed_while_executing}");
    let run_id = site.submit().await;
    let cutter = &site.cutter;
    cutter.arm(cut_at);
    site.stage.hold(killed_while_executing);
    let mut device = LineDevice::boot(site).await;
    let mut cuts = cutter.cuts();
    let (mut was_cut, mut to_kill) = (false, killed_while_executing);
    let story = async {
        loop {
            tokio::select! {
                Ok(_) = cuts.wait_for(|cuts| *cuts > 0), if !was_cut => {
                    was_cut = true;
                    match meanwhile {
                        Interruption::Nothing => {}
                        Interruption::Kill => device = device.kill_and_boot(site).await,
                        Interruption::Lapse => site.lapse(run_id).await,
                    }
                    cutter.mend();
                }
                () = site.stage.held(run_id), if to_kill => {
                    to_kill = false;
                    site.stage.hold(false);
                    device = device.kill_and_boot(site).await;
                }
                () = site.is_settled(run_id, device.handle.clone()) => return device,
            }
        }
    };
    let Ok(device) = tokio::time::timeout(TEST_TIMEOUT, story).await else {
        panic!("never settled, {what}: {:?}, {:?}", site.run(run_id).await, site.events(run_id).await);
    };
    device.end().await;

    let (run, events) = (site.run(run_id).await, site.events(run_id).await);
    let executed = site.stage.of(run_id);
    let count = |kind| events.iter().filter(|event| **event == kind).count();
    let story = format!("{what}: {} after {executed:?}, {events:?}", run.state);
    println!("{story}");
    assert_eq!(run.phase, Phase::Final, "{story}");
    let endings: usize = RunState::ALL.into_iter().filter_map(EventType::ending).map(count).sum();
    assert_eq!(endings, 1, "{story}");
    assert!((1..=2).contains(&executed.len()), "{story}");
    assert!(executed.len() == 1 || count(EventType::RunRestarted) > 0, "an unannounced second execution, {story}");
    // Only a device that is killed twice during an execution gives up.
    let killed_twice = killed_while_executing && matches!(meanwhile, Interruption::Kill);
    assert!(run.state == RunState::Succeeded || killed_twice && run.state == RunState::Failed, "{story}");
    cutter.cuts_now() > 0
}

async fn at_every_message(meanwhile: Interruption, killed_while_executing: bool) {
    // The start of a whole gateway is too large for a stack.
    let site = Box::pin(LineSite::start()).await;
    let mut cut_at = 1;
    while play(&site, cut_at, meanwhile, killed_while_executing).await {
        cut_at += 1;
    }
    Box::pin(site.stop()).await;
    assert!(cut_at > 10, "a whole conversation has more than {cut_at} messages");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_cut_at_any_message_ends_in_one_execution_and_one_end() {
    Box::pin(at_every_message(Interruption::Nothing, false)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_killed_at_any_message_ends_its_run_once_and_announces_a_second_execution() {
    Box::pin(at_every_message(Interruption::Kill, false)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_stays_away_beyond_its_lease_at_any_message_ends_its_run_once() {
    Box::pin(at_every_message(Interruption::Lapse, false)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_whose_line_is_cut_at_any_message_is_not_lost_and_not_repeated() {
    Box::pin(at_every_message(Interruption::Nothing, true)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_whose_device_is_killed_at_any_message_is_executed_twice_at_most() {
    Box::pin(at_every_message(Interruption::Kill, true)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_whose_device_stays_away_beyond_its_lease_at_any_message_is_not_lost() {
    Box::pin(at_every_message(Interruption::Lapse, true)).await;
}
