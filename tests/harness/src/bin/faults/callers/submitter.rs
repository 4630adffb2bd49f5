//! Submits jobs under keys, some at every gateway at once, some again with another body; follows, awaits or stops their
//! runs.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::sleep;

use super::doors::submission_by_some_door;
use super::{ApiReply, Caller, CallerContext, READ_WAIT_SECONDS, RunsInFlight, doors, follower};
use crate::history::AnswerContent;
use crate::testbed::{CALLER_INPUT, REPLICA_COUNT};

/// The most unfinished runs of one submitter.
const MAX_RUNS_IN_FLIGHT: usize = 6;

/// Submits while the pass is open, and returns when all its operations are over.
pub(crate) async fn work(business: Arc<CallerContext>, name: String, desktop: usize) {
    let mut caller = business.caller(&name);
    let mut runs = RunsInFlight::new(MAX_RUNS_IN_FLIGHT);
    let tool = doors::tool_name(&mut caller, desktop).await;
    while business.is_open() {
        runs.room().await;
        let job = business.fresh_job();
        let text = text(&mut caller, desktop, &job);
        let Some(run_id) = submit(&mut caller, desktop, tool.as_deref(), &job, &text).await else { continue };
        let is_stopped = caller.dice.percent(8);
        let is_followed = caller.dice.percent(35);
        let (mut stream, mut stopping, mut wait) = (caller.fork("stream"), caller.fork("stop"), caller.fork("wait"));
        runs.spawn(async move {
            tokio::join!(
                async {
                    if is_followed {
                        follower::follow(&mut stream, desktop, &run_id).await;
                    }
                },
                async {
                    if is_stopped {
                        stop(&mut stopping, desktop, &run_id).await;
                    }
                },
                ends(&mut wait, desktop, &run_id, is_stopped),
            );
        });
    }
    runs.all().await;
}

/// The text that says what a job does.
pub(crate) fn text(caller: &mut Caller, desktop: usize, job: &str) -> String {
    let plan = match caller.dice.below(10) {
        0..=3 => "say",
        4 => "spread",
        5..=7 => "write",
        8 => "ask",
        _ => "write-twice",
    };
    let delay = if caller.dice.percent(20) { caller.dice.within(400, 1500) } else { caller.dice.within(0, 60) };
    let folder = caller.business.testbed.desktops[desktop].folder();
    format!("job={job} plan={plan} delay={delay} folder={} note={CALLER_INPUT}", folder.display())
}

/// Submits one job until it is accepted, by one of the API's forms. Returns its run.
async fn submit(caller: &mut Caller, desktop: usize, tool: Option<&str>, job: &str, text: &str) -> Option<String> {
    let request = submission_by_some_door(caller, desktop, tool, job, text, false);
    if caller.dice.percent(15) {
        // All at once under one key, like a backend with impatient callers of its own.
        let operation = caller.next_operation();
        join_all((0..REPLICA_COUNT).map(|replica| caller.ask(operation, &request, replica))).await;
    }
    let run_id = caller.retry(&request).await.as_ref().and_then(ApiReply::run_id);
    if run_id.is_some() && caller.dice.percent(8) {
        let other = submission_by_some_door(caller, desktop, tool, job, &format!("{text} and more"), true);
        caller.retry(&other).await;
    }
    run_id
}

/// Waits for the end of a run, as an operation of its own. A stopped run may end in any state.
pub(crate) async fn ends(caller: &mut Caller, desktop: usize, run_id: &str, is_stopped: bool) {
    let operation = caller.next_operation();
    let (begun, mut tries) = (caller.business.testbed.clock.now(), 0);
    let state = loop {
        tries += 1;
        let reply = caller.read(operation, desktop, run_id, READ_WAIT_SECONDS).await;
        match reply.map(|reply| reply.seen) {
            Some(AnswerContent::Run { phase, state, .. }) if phase == "final" => break Some(state),
            _ if caller.business.is_closed() => break None,
            Some(AnswerContent::Run { .. }) => {}
            _ => sleep(Duration::from_millis(150)).await,
        }
    };
    let succeeded = state.is_some_and(|state| state == "succeeded" || is_stopped);
    caller.done("run", operation, begun, tries, succeeded, Some(run_id.to_owned()));
}

/// Stops a run after a moment, and waits until the stop is completed.
pub(crate) async fn stop(caller: &mut Caller, desktop: usize, run_id: &str) {
    // Some before the run begins, some while it works.
    let most = if caller.dice.percent(40) { 600 } else { 7000 };
    sleep(Duration::from_millis(caller.dice.within(0, most))).await;
    let asked = caller.stop(desktop, run_id).await;
    if let Some(AnswerContent::Operation { operation_id, .. }) = asked.map(|reply| reply.seen) {
        caller.completed(desktop, &operation_id).await;
    }
}
