//! F27, F30 and F38: a caller's requests arrive several times at once, are cut off at some byte of the request or of the
//! answer, or have bodies that are refused unread.

use std::collections::BTreeSet;

use anyhow::ensure;

use super::one_of;
use crate::callers::{ApiReply, Caller, cut_off, event_sender, refused_bodies, submission};
use crate::plan::PlannedFault;
use crate::testbed::REPLICA_COUNT;

/// Cuts one submission, which is then repeated under the same key.
pub(crate) async fn cut_off(caller: &mut Caller, planned: &PlannedFault) -> anyhow::Result<String> {
    let desktop = one_of(planned.target, caller.business.testbed.desktops.len());
    cut_off::submit(caller, desktop, planned.manner.is_multiple_of(2), planned.target / 2).await
}

/// Sends bodies that are refused unread, and good requests behind them.
pub(crate) async fn refuse_bodies(caller: &mut Caller, planned: &PlannedFault) -> anyhow::Result<String> {
    let desktop = one_of(planned.target, caller.business.testbed.desktops.len());
    refused_bodies::alternate(caller, desktop).await
}

/// Copies of the request for each gateway.
const COPIES_PER_GATEWAY: usize = 4;

/// Sends one event and one submission to every gateway, several times at once.
pub(crate) async fn repeat(caller: &mut Caller, planned: &PlannedFault) -> anyhow::Result<String> {
    let desktop = one_of(planned.target, caller.business.testbed.desktops.len());
    let (job, other) = (caller.business.fresh_job(), caller.business.fresh_job());
    let event = event_sender::event(caller, desktop, &job, &format!("job={job} plan=write delay=0"), None);
    let submitted = submission(caller, desktop, &other, &format!("job={other} plan=write delay=0"), false);
    let mut said = Vec::new();
    for request in [event, submitted] {
        let operation = caller.next_operation();
        let asking =
            (0..REPLICA_COUNT * COPIES_PER_GATEWAY).map(|turn| caller.ask(operation, &request, turn % REPLICA_COUNT));
        let replies: Vec<_> = futures_util::future::join_all(asking).await.into_iter().flatten().collect();
        let runs: BTreeSet<_> = replies.iter().filter_map(ApiReply::run_id).collect();
        ensure!(replies.len() > 1 && !runs.is_empty(), "{} answers came, with {} runs", replies.len(), runs.len());
        said.push(format!("{} answers to {} became {} runs", replies.len(), request.name, runs.len()));
        // The run's end is awaited like that of every other run.
        caller.retry(&request).await;
    }
    Ok(said.join(", "))
}
