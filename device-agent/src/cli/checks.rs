//! Shows the checks of a draft to people.

use std::pin::pin;

use deskgate_definition::{Check, CheckReport, CheckResult};
use deskgate_program::exit::Failure;
use deskgate_program::output::Output;
use deskgate_program::terminal;
use deskgate_protocol::DraftId;

use super::socket::AgentClient;
use crate::local::{CheckService, FollowCheck};

/// Checks a draft. A person sees each finding at once; a program gets the report.
pub(super) async fn check(agent: &AgentClient, draft_id: DraftId, out: Output) -> Result<CheckReport, Failure> {
    let follower = rand::random();
    let mut checking = pin!(agent.request(CheckService { draft_id, follower: Some(follower) }));
    if out.json || out.quiet {
        let report = checking.await?;
        out.result("check/1", &report, || show_report(&report));
        return Ok(report);
    }
    let mut told: Vec<Check> = Vec::new();
    let report = loop {
        tokio::select! {
            report = &mut checking => break report?,
            more = agent.request(FollowCheck { draft_id, follower, known: told.len() }) => match more {
                Ok(more) => told.extend(more.into_iter().inspect(|check| terminal::print(&show_check(check)))),
                // Whatever it is, the check itself says it too.
                Err(_) => break (&mut checking).await?,
            },
        }
    };
    report.checks.iter().filter(|check| !told.contains(check)).for_each(|check| terminal::print(&show_check(check)));
    Ok(report)
}

/// A whole report.
pub(super) fn show_report(report: &CheckReport) -> String {
    report.checks.iter().map(show_check).collect()
}

/// The checks that failed.
pub(super) fn show_failures(report: &CheckReport) -> String {
    report.checks.iter().filter(|check| check.verdict == CheckResult::Fail).map(show_check).collect()
}

fn show_check(check: &Check) -> String {
    let verdict = match check.verdict {
        CheckResult::Pass => "PASS",
        CheckResult::Fail => "FAIL",
        CheckResult::Skip => "SKIP",
    };
    let next = check.next.as_ref().map(|next| format!("\n      next: {next}")).unwrap_or_default();
    format!("{verdict}  {}: {}{next}\n", check.name, check.cause)
}
