//! Submissions at their scheduled times, independent of earlier ones, and their results.

use std::time::Duration;

use deskgate_harness::schedule::Schedule;
use deskgate_tests::Backend;
use deskgate_tests::backend::fresh_key;
use reqwest::StatusCode;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::environment::LoadEnvironment;
use crate::report::LoadReport;

/// The result of a submission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SubmissionResult {
    /// Accepted with this run.
    Accepted(String),
    /// Refused with a time to retry.
    RetryLater(u16),
    /// An answer that is never allowed.
    Unexpected(String),
}

/// One submission.
#[derive(Clone, Debug)]
pub(crate) struct Submission {
    /// The index of its desktop.
    pub(crate) desktop: usize,
    /// When it was due.
    pub(crate) due: Instant,
    pub(crate) took: Duration,
    pub(crate) answered: SubmissionResult,
}

/// Submits at this rate for this long, to all desktops and replicas in turn.
pub(crate) async fn offer(site: &LoadEnvironment, rate: u32, lasts: Duration) -> Vec<Submission> {
    let (begin, mut under_way) = (Instant::now(), JoinSet::new());
    let schedule = Schedule::per_second(f64::from(rate));
    for number in 0..schedule.count(lasts) as usize {
        let due = begin + schedule.due(number as u64);
        let desktop = number % site.desktops.len();
        let caller = site.caller(&site.desktops[desktop].backend, number);
        sleep_until(due).await;
        under_way.spawn(async move {
            let answered = submit(&caller).await;
            Submission { desktop, due, took: due.elapsed(), answered }
        });
    }
    under_way.join_all().await
}

/// Submits once, and judges the answer.
pub(crate) async fn submit(caller: &Backend) -> SubmissionResult {
    match caller.try_submit(&fresh_key(), "Which invoices are open?").await {
        Ok(answer) if answer.status == StatusCode::ACCEPTED => {
            SubmissionResult::Accepted(answer.body["run_id"].as_str().expect("every 202 names its run").to_owned())
        }
        Ok(answer)
            if [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE].contains(&answer.status)
                && answer.headers.contains_key("retry-after") =>
        {
            SubmissionResult::RetryLater(answer.status.as_u16())
        }
        Ok(answer) => SubmissionResult::Unexpected(format!("{} {}", answer.status, answer.body)),
        Err(error) => SubmissionResult::Unexpected(format!("no answer: {:#}", anyhow::Error::from(error))),
    }
}

/// The runs that were accepted.
pub(crate) fn accepted(offered: &[Submission]) -> impl Iterator<Item = (&Submission, &str)> {
    offered.iter().filter_map(|one| match &one.answered {
        SubmissionResult::Accepted(run_id) => Some((one, run_id.as_str())),
        _ => None,
    })
}

/// Records the numbers and rates, and every answer that is not allowed.
pub(crate) fn judge(offered: &[Submission], lasts: Duration, report: &mut LoadReport) {
    let count = accepted(offered).count();
    report.figure("offered", offered.len() as f64);
    report.figure("accepted", count as f64);
    report.figure("accepted in a second", count as f64 / lasts.as_secs_f64());
    let refused = offered.iter().filter(|one| matches!(one.answered, SubmissionResult::RetryLater(_))).count();
    report.figure("asked to come again", refused as f64);
    report.times("from due to accepted", accepted(offered).map(|(one, _)| one.took).collect());
    for one in offered {
        if let SubmissionResult::Unexpected(how) = &one.answered {
            report.wrong(how.clone());
        }
    }
}
