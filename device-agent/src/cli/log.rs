//! `log`: the agent's log, which is a file: it can be read whether the agent runs or not, and while it stops and starts.

use std::time::Duration;

use clap::Args;
use deskgate_program::exit::{Exit, Failure};
use deskgate_program::output::Output;
use deskgate_program::records::given::GivenId;
use deskgate_program::terminal;
use deskgate_protocol::RunId;
use serde_json::json;
use tokio::time::timeout;

use super::doctor::AGENT_TIMEOUT;
use super::run;
use super::socket::{AgentClient, home};
use crate::local::{GetSettings, LogFollower};

/// `deskgate log`
#[derive(Debug, Args)]
pub(super) struct LogArgs {
    /// So many lines
    #[arg(long, default_value_t = 200)]
    lines: u32,
    /// Only lines that hold this, such as WARN
    #[arg(long, default_value = "")]
    filter: String,
    /// Only lines about this run: its identifier, or the end of it as `run list` shows it
    #[arg(long)]
    run: Option<GivenId<RunId>>,
    /// Show lines as they come too, until Ctrl-C; also while the agent stops and starts again
    #[arg(long, short)]
    follow: bool,
}

/// At most this many lines are shown of what is there already.
const MAX_LOG_LINES: usize = 2000;
/// How often the file is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

pub(super) async fn run(agent: AgentClient, log: LogArgs, out: Output) -> Result<(), Failure> {
    let run_id = run::find_given(&agent, log.run).await?;
    let wanted = std::iter::once(log.filter).chain(run_id.map(|run_id| run_id.to_string())).collect();
    let path = home()?.log();
    let unreadable = |error: std::io::Error| Failure::file(&path, &error);
    let mut follower = LogFollower::new(path.clone(), wanted);
    let lines = follower.last_lines((log.lines as usize).min(MAX_LOG_LINES)).map_err(unreadable)?;
    if lines.is_some() && is_down(&agent).await {
        terminal::report("The agent is not running. This is the log that it left.");
    }
    if !log.follow {
        let missing = lines.is_none();
        let lines = lines.unwrap_or_default();
        out.result("log/1", &json!({ "lines": lines }), || match (missing, lines.is_empty()) {
            (true, _) => format!("There is no log here. {ELSEWHERE}"),
            (_, true) => format!("No such line. {ELSEWHERE}"),
            _ => lines.join("\n"),
        });
        return Ok(());
    }
    if lines.is_none() {
        terminal::report(&format!("There is no log here yet; it is waited for. {ELSEWHERE}"));
    }
    let show = |lines: Vec<String>| {
        for line in lines {
            out.result("log-line/1", &json!({ "line": line }), || line.clone());
        }
    };
    show(lines.unwrap_or_default());
    loop {
        let lines = follower.new_lines().map_err(unreadable)?;
        if lines.is_empty() {
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
        show(lines);
        // Between two full readings Ctrl-C is heard.
        tokio::task::yield_now().await;
    }
}

/// Where a log may be that is not here.
const ELSEWHERE: &str = "An agent in the foreground, or in a service, writes its log where it was started.";

/// Whether nobody answers for this folder.
async fn is_down(agent: &AgentClient) -> bool {
    let answered = timeout(AGENT_TIMEOUT, agent.request(GetSettings {})).await;
    matches!(answered, Ok(Err(failure)) if failure.exit == Exit::CannotReach)
}
