//! `doctor`: the problems that the Health page shows.

use std::time::Duration;

use clap::Args;
use deskgate_program::exit::{Exit, Failure};
use deskgate_program::output::Output;
use tokio::time::timeout;

use super::OfflineCheck;
use super::socket::{AgentClient, home};
use crate::local::{
    GetHealth, GetSettings, HealthProblem, HealthReport, IgnoreDuration, IgnoreProblem, ProblemCode, Severity,
};
use deskgate_program::visible;

/// `deskgate doctor`
#[derive(Debug, Args)]
pub(super) struct DoctorArgs {
    /// Try sandboxes and ask each model for a word too; takes seconds and costs a few tokens
    #[arg(long)]
    all: bool,
    /// Snooze this problem: it is not shown for a day
    #[arg(long, value_name = "CODE", group = "attention")]
    snooze: Option<ProblemCode>,
    /// Ignore this problem: it is not shown any more
    #[arg(long, value_name = "CODE", group = "attention")]
    ignore: Option<ProblemCode>,
    /// Show a snoozed or ignored problem again
    #[arg(long, value_name = "CODE", group = "attention")]
    mention: Option<ProblemCode>,
}

/// The timeout for an answer that the agent has at hand.
pub(super) const AGENT_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) async fn run(
    agent: AgentClient,
    doctor: DoctorArgs,
    look: OfflineCheck,
    out: Output,
) -> Result<(), Failure> {
    let attention = [
        (doctor.snooze, IgnoreDuration::Day),
        (doctor.ignore, IgnoreDuration::Yes),
        (doctor.mention, IgnoreDuration::No),
    ];
    for (code, ignore) in attention {
        if let Some(code) = code {
            agent.request(IgnoreProblem { code, ignore }).await?;
        }
    }
    // An agent that hangs still has its socket. This request needs no other service, so it is answered at once or
    // never.
    let answers = timeout(AGENT_TIMEOUT, agent.request(GetSettings {})).await;
    let report = match answers {
        Ok(Err(failure)) if failure.exit != Exit::CannotReach => return Err(failure),
        Ok(Ok(_)) => agent.request(GetHealth { all: doctor.all }).await?,
        // A missing agent is the first problem; the others that can be seen without it are checked here.
        _ => look(home()?).await,
    };
    out.result("doctor/1", &report, || show(&report));
    // The problems are printed already.
    if report.fails() { Err(Failure::new(Exit::CheckFailed, "")) } else { Ok(()) }
}

fn show(report: &HealthReport) -> String {
    let (ignored, open): (Vec<_>, Vec<_>) = report.problems.iter().partition(|problem| problem.ignored);
    let mut text: String = open.into_iter().map(problem).collect();
    text += &format!("OK    {} checks are fine", report.fine.len());
    if !report.not_asked.is_empty() {
        let down = report.problems.iter().any(|problem| problem.code == ProblemCode::AgentDown);
        let how = if down { "only a running agent can tell" } else { "deskgate doctor --all" };
        text += &format!("\nSKIP  not asked ({}): {how}", report.not_asked.join("; "));
    }
    for problem in ignored {
        text += &format!("\nsnoozed or ignored: {} ({})", problem.title, problem.code.as_str());
    }
    text
}

fn problem(problem: &HealthProblem) -> String {
    let severity = match problem.severity {
        Severity::Fail => "FAIL",
        Severity::Warn => "WARN",
    };
    let about = problem.about.as_ref().map(|about| format!(" ({})", visible::line(about))).unwrap_or_default();
    let (title, code, since) = (&problem.title, problem.code.as_str(), problem.since);
    let mut text = format!("{severity}  {title}{about}, since {since}\n{}", visible::block(&problem.text, "      "));
    text += &format!("      Next: {}\n", visible::line(&problem.next));
    if !problem.hides.is_empty() {
        text += &format!("      It may be why: {}\n", visible::line(&problem.hides.join("; ")));
    }
    text + &format!("      code {code}\n")
}
