//! Uses up the monthly budget of a service with runs of several turns, some at once, and has its owner raise the budget
//! when runs were refused for it.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::{ApiReply, CallerContext, READ_WAIT_SECONDS, submission_to};
use crate::history::{AnswerContent, BudgetRecord, HistoryRecord};
use crate::testbed::CALLER_INPUT;

/// The error of a run that a budget does not allow.
pub(crate) const BUDGET_ERROR: &str = "budget_reached";
/// Tokens of the first budget, and by how many it is raised: enough for some runs.
const BUDGET_STEP: u64 = 150_000;
/// Tokens that the model says it read for one answer, from and to.
const ANSWER_TOKENS: (u64, u64) = (2000, 5000);
/// Runs at the same time.
const RUNS_AT_ONCE: usize = 8;

/// The desktop of a job of this caller.
pub(crate) fn desktop_of(job: &str) -> Option<usize> {
    job.strip_prefix("spend-")?.split_once('-')?.0.parse().ok()
}

/// Submits some runs at a time while the pass is open, and waits for their ends.
pub(crate) async fn work(business: Arc<CallerContext>, name: String, desktop: usize) {
    let mut caller = business.caller(&name);
    let mut tokens = BUDGET_STEP;
    set(&business, &name, desktop, tokens).await;
    while business.is_open() {
        let mut runs = JoinSet::new();
        for _ in 0..RUNS_AT_ONCE {
            let job = format!("spend-{desktop}-{}", business.fresh_job());
            let each = caller.dice.within(ANSWER_TOKENS.0, ANSWER_TOKENS.1);
            let delay = caller.dice.within(300, 900);
            let text = format!("job={job} plan=spend delay={delay} tokens={each} note={CALLER_INPUT}");
            let request = submission_to(&caller.service(desktop).spending_id, desktop, &job, &text, false);
            let mut submitting = caller.fork("run");
            runs.spawn(async move {
                let run_id = submitting.retry(&request).await.as_ref().and_then(ApiReply::run_id)?;
                end(&mut submitting, desktop, &run_id).await
            });
        }
        let ends = runs.join_all().await;
        if ends.into_iter().flatten().any(|error| error == BUDGET_ERROR) {
            tokens += BUDGET_STEP;
            set(&business, &name, desktop, tokens).await;
        }
        sleep(Duration::from_millis(caller.dice.within(50, 400))).await;
    }
}

/// Waits for the end of a run, as an operation of its own, and returns the code of its error. A run that is refused for
/// the budget ended as it should.
async fn end(caller: &mut super::Caller, desktop: usize, run_id: &str) -> Option<String> {
    let operation = caller.next_operation();
    let (begun, mut tries) = (caller.business.testbed.clock.now(), 0);
    let ended = loop {
        tries += 1;
        let reply = caller.read(operation, desktop, run_id, READ_WAIT_SECONDS).await;
        match reply {
            Some(ApiReply { seen: AnswerContent::Run { phase, .. }, body, .. }) if phase == "final" => {
                break Some(body);
            }
            _ if caller.business.is_closed() => break None,
            Some(ApiReply { seen: AnswerContent::Run { .. }, .. }) => {}
            _ => sleep(Duration::from_millis(150)).await,
        }
    };
    let error = |body: &Value| body["error"]["code"].as_str().unwrap_or_default().to_owned();
    let succeeded = ended.as_ref().is_some_and(|body| body["state"] == "succeeded" || error(body) == BUDGET_ERROR);
    caller.done("spend", operation, begun, tries, succeeded, Some(run_id.to_owned()));
    ended.as_ref().map(error)
}

/// Sets the budget, as often as it takes: its owner's agent may be dead.
async fn set(business: &Arc<CallerContext>, name: &str, desktop: usize, tokens: u64) {
    let desk_of = &business.testbed.desktops[desktop];
    while business.is_open() {
        let begun = business.testbed.clock.now();
        let device = desk_of.device.read().await;
        let amount = tokens.to_string();
        let said = device.cli(&["budget", "set", "--service", &desk_of.spending_name(), "--tokens", &amount]).await;
        drop(device);
        let (ended, is_taken) = (business.testbed.clock.now(), said.exit == 0);
        let record = BudgetRecord { desktop, begun, ended, tokens, is_taken };
        business.histories.note(name, HistoryRecord::Budget(record));
        if is_taken {
            return;
        }
        sleep(Duration::from_millis(200)).await;
    }
}
