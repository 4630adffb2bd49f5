//! Problems of the runs: those that wait for the owner, and obstacles for the others.

use deskgate_protocol::Timestamp;
use deskgate_protocol::management::{Callback, CallbackOff};
use deskgate_store::approvals::Approval;

use super::{Finding, ProblemCode};
use crate::dispatcher::{ActiveRunState, DispatcherStatus};
use crate::power::AwakeStatus;

/// A request with less time left than this, in seconds, is reported; or a fifth of its time, if that is less.
const EXPIRY_WARNING_SECS: i64 = 180;

/// The problems in the dispatcher's status, and whether the computer stays awake for it.
pub fn look(status: &DispatcherStatus, kept_awake: &AwakeStatus) -> Vec<Finding> {
    let mut findings = Vec::new();
    let unsettled = status.runs.iter().filter(|run| run.standing == ActiveRunState::AwaitingReconciliation);
    let unsettled: Vec<_> = unsettled.map(|run| run.run_id).collect();
    match unsettled.as_slice() {
        [] => {}
        [run_id] => findings.push(Finding::about(
            ProblemCode::RunsUnsettled,
            run_id.to_string(),
            "1 run was interrupted after it began to change something. Nobody knows how it ended.",
            format!("Confirm the outcome: deskgate run show {run_id}"),
        )),
        more => findings.push(Finding::new(
            ProblemCode::RunsUnsettled,
            format!(
                "{} runs were interrupted after they began to change something. Nobody knows how they ended.",
                more.len()
            ),
            "Confirm their outcomes: deskgate status names them.",
        )),
    }
    if let Some(why) = &status.problem {
        let (code, next) = match status.journal_fails {
            true => (
                ProblemCode::JournalUnwritable,
                "Free some space, or mend the folder's modes. It is tried again by itself.",
            ),
            false => (ProblemCode::ServiceUnreadable, "Publish the service again: deskgate service list"),
        };
        findings.push(Finding::new(code, why, next));
    }
    if let AwakeStatus::No { why } = kept_awake {
        let next = "Keep the computer awake yourself while runs are in progress, or choose: deskgate settings set keep-awake always";
        findings.push(Finding::new(ProblemCode::SleepNotPrevented, why, next));
    }
    findings
}

/// Requests that expire soon.
pub fn expiring(waiting: &[Approval], now: Timestamp) -> Vec<Finding> {
    let soon = |approval: &&Approval| {
        let second = |at: &Timestamp| at.0.as_second();
        let (asked, expires) = (second(&approval.asked_at), second(&approval.expires_at));
        expires - second(&now) <= EXPIRY_WARNING_SECS.min((expires - asked) / 5)
    };
    let finding = |approval: &Approval| {
        let text = format!(
            "{} wants to run {}. It counts as denied from {} on.",
            approval.service, approval.tool, approval.expires_at
        );
        let next = format!("Decide: deskgate approval show {}", approval.approval_id);
        Finding::about(ProblemCode::ApprovalExpires, approval.approval_id.to_string(), text, next)
    };
    waiting.iter().filter(soon).map(finding).collect()
}

/// Runs that wait because access is paused.
pub fn held_back() -> Finding {
    let text = "External access is paused, and runs wait in the queue.";
    Finding::new(ProblemCode::AccessPaused, text, "Enable it when you are ready: deskgate access enable")
}

/// Callbacks that were disabled after failures.
pub fn disabled_callbacks(callbacks: &[Callback]) -> Vec<Finding> {
    let finding = |callback: &Callback| {
        let why = match callback.off? {
            CallbackOff::Gone => "the receiver answered that it is gone (410)",
            CallbackOff::Failing => "every attempt failed for five days",
            CallbackOff::Owner | CallbackOff::Application => return None,
        };
        let text = format!("Nothing is sent to {} any more: {why}.", callback.url);
        let next =
            format!("See what came of it: deskgate delivery list. Then: deskgate callback enable {}", callback.app_id);
        Some(Finding::about(ProblemCode::CallbackOff, callback.app_id.to_string(), text, next))
    };
    callbacks.iter().filter_map(finding).collect()
}

/// The management pages are missing.
pub fn missing_pages() -> Finding {
    let text = "No port of 127.0.0.1 was free for them when the agent started. The command line works.";
    Finding::new(ProblemCode::PagesDown, text, "See the agent's log, and start it again: deskgate restart")
}
