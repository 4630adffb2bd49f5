//! `doctor` and `log`: what is wrong, as the Health page shows it, and the end of the agent's log.

use std::time::Duration;

use clap::Args;
use deskgate_program::exit::{Exit, Failure};
use deskgate_program::output::Output;
use serde_json::json;
use tokio::time::timeout;

use super::Look;
use super::socket::{Agent, home};
use crate::local::{Code, GetHealth, GetLog, GetSettings, HealthReport, Ignore, IgnoreProblem, Problem, Severity};
use deskgate_program::visible;

/// `deskgate doctor`
#[derive(Debug, Args)]
pub(super) struct Doctor {
    /// Try sandboxes and ask each model for a word too; takes seconds and costs a few tokens
    #[arg(long)]
    all: bool,
    /// Do not mention this problem for a day
    #[arg(long, value_name = "CODE", group = "attention")]
    snooze: Option<Code>,
    /// Do not mention this problem any more
    #[arg(long, value_name = "CODE", group = "attention")]
    ignore: Option<Code>,
    /// Mention this problem again
    #[arg(long, value_name = "CODE", group = "attention")]
    mention: Option<Code>,
}

/// `deskgate log`
#[derive(Debug, Args)]
pub(super) struct Log {
    /// So many lines
    #[arg(long, default_value_t = 200)]
    lines: u32,
    /// Only lines that hold this, such as WARN
    #[arg(long, default_value = "")]
    filter: String,
}

/// How long an agent may take for an answer that it has at hand.
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) async fn run(agent: Agent, doctor: Doctor, look: Look, out: Output) -> Result<(), Failure> {
    let attention = [(doctor.snooze, Ignore::Day), (doctor.ignore, Ignore::Yes), (doctor.mention, Ignore::No)];
    for (code, ignore) in attention {
        if let Some(code) = code {
            agent.ask(IgnoreProblem { code, ignore }).await?;
        }
    }
    // An agent that hangs has its socket still. This asks nobody else, so it is answered at once or never.
    let answers = timeout(PATIENCE, agent.ask(GetSettings {})).await;
    let report = match answers {
        Ok(Err(failure)) if failure.exit != Exit::CannotReach => return Err(failure),
        Ok(Ok(_)) => agent.ask(GetHealth { all: doctor.all }).await?,
        // That nobody answers is the first problem; what of the rest can be seen without an agent is looked at here.
        _ => look(home()?).await,
    };
    out.result("doctor/1", &report, || show(&report));
    // What is wrong was said already.
    if report.fails() { Err(Failure::new(Exit::CheckFailed, "")) } else { Ok(()) }
}

pub(super) async fn log(agent: Agent, log: Log, out: Output) -> Result<(), Failure> {
    let lines = agent.ask(GetLog { lines: log.lines, filter: log.filter }).await?;
    out.result("log/1", &json!({ "lines": lines }), || match lines.is_empty() {
        true => {
            "No such line. An agent in the foreground, or in a service, writes its log where it was started.".to_owned()
        }
        false => lines.join("\n"),
    });
    Ok(())
}

fn show(report: &HealthReport) -> String {
    let (ignored, open): (Vec<_>, Vec<_>) = report.problems.iter().partition(|problem| problem.ignored);
    let mut text: String = open.into_iter().map(problem).collect();
    text += &format!("OK    {} checks are fine", report.fine.len());
    if !report.not_asked.is_empty() {
        let down = report.problems.iter().any(|problem| problem.code == Code::AgentDown);
        let how = if down { "only a running agent can tell" } else { "deskgate doctor --all" };
        text += &format!("\nSKIP  not asked ({}): {how}", report.not_asked.join("; "));
    }
    for problem in ignored {
        text += &format!("\nleft out by your wish: {} ({})", problem.title, problem.code.as_str());
    }
    text
}

fn problem(problem: &Problem) -> String {
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
