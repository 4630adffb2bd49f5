//! `start`, `stop`, `status`: the agent as a whole.

use std::fs::OpenOptions;
use std::io::{IsTerminal, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use deskgate_program::exit::{Exit, Failure};
use deskgate_program::output::Output;
use deskgate_program::terminal;
use deskgate_protocol::control::RefusedCode;
use deskgate_protocol::ids::RunId;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::task::AbortOnDropHandle;

use super::ctrl_c::CtrlC;
use super::socket::AgentClient;
use super::{RunAgent, Signals};
use crate::config::Home;
use crate::gateway_version;
use crate::local::{self, AgentStatus, AwakeStatus, GetStatus, LineView};

/// `deskgate start`
#[derive(Debug, Args)]
pub(super) struct StartArgs {
    /// Stay in the foreground and log to stderr
    #[arg(long)]
    foreground: bool,
    /// What is logged, as in info,deskgate=debug
    #[arg(long, env = "DESKGATE_LOG", default_value = "info")]
    log_filter: String,
}

/// `deskgate stop`
#[derive(Debug, Args)]
pub(super) struct StopArgs {
    /// Interrupt runs in progress; they start again when the agent does. Runs that wait for a decision always are
    #[arg(long)]
    now: bool,
}

/// `deskgate restart`
#[derive(Debug, Args)]
pub(super) struct RestartArgs {
    #[command(flatten)]
    stop: StopArgs,
    /// What is logged, as in info,deskgate=debug
    #[arg(long, env = "DESKGATE_LOG", default_value = "info")]
    log_filter: String,
}

/// A log larger than this is emptied when the agent starts.
const MAX_LOG_BYTES: u64 = 10 * 1024 * 1024;
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// How long an agent that has ended its work may take to exit.
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a started agent may take for its first connection attempt.
const FIRST_ATTEMPT_TIMEOUT: Duration = Duration::from_secs(8);

pub(super) async fn start(start: StartArgs, out: Output, run_agent: RunAgent) -> Result<(), Failure> {
    let home = Home::find().map_err(not_set_up)?;
    let agent = AgentClient::find()?;
    if let Ok(status) = agent.request(GetStatus {}).await {
        let message = format!("the agent is running already (process {})", status.pid);
        return Err(Failure::new(Exit::Refused, message));
    }
    if let Some(why) =
        gateway_version::last_seen(&home.gateway_version()).as_deref().and_then(gateway_version::mismatch)
    {
        terminal::report(&format!("Before it starts: {why}. See: deskgate upgrade-check"));
    }
    if start.foreground {
        return in_foreground(home, &start.log_filter, run_agent).await;
    }
    home.prepare().map_err(not_set_up)?;
    let (mut child, begin) = spawn(&home, &start.log_filter)?;
    let deadline = Instant::now() + START_TIMEOUT;
    let mut answered = None;
    loop {
        if let Ok(status) = agent.request(GetStatus {}).await {
            let settling = *answered.get_or_insert_with(Instant::now) + FIRST_ATTEMPT_TIMEOUT;
            if settled(&status) || Instant::now() > settling {
                out.result("status/1", &status, || format!("Started.\n{}", show(&status)));
                return Ok(());
            }
        }
        if let Ok(Some(ended)) = child.try_wait() {
            return Err(Failure::new(
                exit_of(ended.code()),
                format!("the agent did not start:\n{}", tail(&home.log(), begin)),
            ));
        }
        if Instant::now() > deadline {
            let message = format!("the agent has not answered yet; see {} and `deskgate status`", home.log().display());
            return Err(Failure::new(Exit::Pending, message));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The agent's exit code, if it is one of this program's and more specific than "failed".
fn exit_of(code: Option<i32>) -> Exit {
    use Exit::*;
    let known = [Usage, NotSetUp, NotAuthorised, CannotReach, Refused, VersionMismatch, Pending];
    known.into_iter().find(|exit| code == Some(*exit as i32)).unwrap_or(Failed)
}

/// Whether the first connection attempt has a final result.
fn settled(status: &AgentStatus) -> bool {
    match status.line {
        LineView::Connecting => false,
        LineView::Connected { .. } => status.access.is_some() || status.gateway_is_silent,
        LineView::Disconnected { .. } | LineView::Refused { .. } => true,
    }
}

/// Starts this program as the agent, detached from this terminal. Returns where its log begins.
fn spawn(home: &Home, log_filter: &str) -> Result<(Child, u64), Failure> {
    let failed = |error: std::io::Error| Failure::new(Exit::Failed, format!("the agent cannot be started: {error}"));
    let path = home.log();
    let large = std::fs::metadata(&path).is_ok_and(|log| log.len() > MAX_LOG_BYTES);
    // Opened for appending even when emptied: another writer must not leave a hole before the next line.
    let log = OpenOptions::new().create(true).append(true).mode(0o600).open(&path).map_err(failed)?;
    if large {
        log.set_len(0).map_err(failed)?;
    }
    let begin = log.metadata().map_or(0, |log| log.len());
    let program = std::env::current_exe().map_err(failed)?;
    let child = std::process::Command::new(program)
        .args(["start", "--foreground", "--log-filter", log_filter])
        .stdin(Stdio::null())
        .stdout(log.try_clone().map_err(failed)?)
        .stderr(log)
        .process_group(0)
        .spawn()
        .map_err(failed)?;
    Ok((child, begin))
}

fn tail(log: &Path, begin: u64) -> String {
    let mut text = String::new();
    let read = std::fs::File::open(log).and_then(|mut file| {
        file.seek(SeekFrom::Start(begin))?;
        file.take(64 * 1024).read_to_string(&mut text)
    });
    match read {
        Ok(_) => text.lines().rev().take(5).collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join("\n"),
        Err(error) => format!("{}: {error}", log.display()),
    }
}

async fn in_foreground(home: Home, log_filter: &str, run_agent: RunAgent) -> Result<(), Failure> {
    use deskgate_program::visible::LogWriter;
    use tracing_subscriber::EnvFilter;
    let filter = EnvFilter::try_new(log_filter)
        .map_err(|error| Failure::new(Exit::Usage, format!("--log-filter {log_filter:?}: {error}")))?;
    // The MCP SDK would log other parties' data.
    let filter = filter.add_directive("rmcp=off".parse().expect("a directive"));
    let ansi = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(move || LogWriter::new(std::io::stderr(), ansi))
        .with_ansi(ansi)
        .with_target(false)
        .init();
    let signals = Signals::default();
    let ctrl_c = CtrlC::answered()?;
    let watching = AbortOnDropHandle::new(tokio::spawn(watch_signals(signals.clone(), ctrl_c)?));
    tracing::info!(version = deskgate_protocol::VERSION, home = %home.path().display(), "agent starting");
    let ended = run_agent(home, signals).await;
    drop(watching);
    tracing::info!("agent stopped");
    ended
}

/// The first SIGTERM or SIGINT stops gracefully, the second at once. Closing the terminal does not stop the agent.
fn watch_signals(asked: Signals, mut interrupt: CtrlC) -> Result<impl Future<Output = ()>, Failure> {
    let listen = |kind| signal(kind).map_err(|error| Failure::new(Exit::Failed, error.to_string()));
    let (mut terminate, mut hangup) = (listen(SignalKind::terminate())?, listen(SignalKind::hangup())?);
    Ok(async move {
        loop {
            tokio::select! {
                _ = terminate.recv() => {}
                () = interrupt.pressed() => {}
                _ = hangup.recv() => continue,
            }
            if asked.stop.is_cancelled() {
                asked.now.cancel();
            }
            asked.stop.cancel();
        }
    })
}

impl StartArgs {
    /// Runs in the background, as when started by hand.
    pub(super) fn again() -> Self {
        Self { foreground: false, log_filter: "info".to_owned() }
    }
}

/// Stops the agent if it runs. False if it did not run.
pub(super) async fn end(agent: &AgentClient, now: bool) -> Result<bool, Failure> {
    match agent.request(local::Stop { now }).await {
        Ok(_) => is_gone(agent).await.map(|()| true),
        Err(failure) if failure.exit == Exit::CannotReach => Ok(false),
        Err(failure) => Err(failure),
    }
}

/// Also starts an agent that did not run.
pub(super) async fn restart(
    agent: AgentClient,
    restart: RestartArgs,
    out: Output,
    run_agent: RunAgent,
) -> Result<(), Failure> {
    let RestartArgs { stop: StopArgs { now }, log_filter } = restart;
    end(&agent, now).await?;
    start(StartArgs { foreground: false, log_filter }, out, run_agent).await
}

/// The agent answers when its work has ended, and has exited when the socket no longer answers.
pub(super) async fn is_gone(agent: &AgentClient) -> Result<(), Failure> {
    let deadline = Instant::now() + EXIT_TIMEOUT;
    while agent.request(GetStatus {}).await.is_ok() {
        if Instant::now() > deadline {
            return Err(Failure::new(Exit::Pending, "the agent has ended its work and is still there; see its log"));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

pub(super) async fn stop(agent: AgentClient, stop: StopArgs, out: Output) -> Result<(), Failure> {
    let asked = agent.request(local::Stop { now: stop.now }).await?;
    is_gone(&agent).await?;
    out.result("stopped/1", &serde_json::json!({ "stopped": true, "awaited_approval": asked }), || stopped(&asked));
    Ok(())
}

pub(super) async fn status(agent: AgentClient, out: Output) -> Result<(), Failure> {
    let status = agent.request(GetStatus {}).await?;
    out.result("status/1", &status, || show(&status));
    Ok(())
}

fn show(status: &AgentStatus) -> String {
    let line = match &status.line {
        LineView::Connected { since, gateway_version, .. } => {
            format!("connected to gateway {gateway_version} since {since}")
        }
        LineView::Connecting => "connecting".to_owned(),
        LineView::Disconnected { why, next_attempt_at: Some(at), .. } => {
            format!("disconnected: {why}\n           next attempt at {at}")
        }
        LineView::Disconnected { why, next_attempt_at: None, .. } => format!("disconnected: {why}"),
        LineView::Refused { refused, .. } => {
            let mut text = format!("refused: {}", refused.message);
            if refused.code == RefusedCode::RevokedDevice {
                text += "\n           for a new identity: deskgate identity renew --accept-risk=lose-pairing";
            }
            text
        }
    };
    let access = match &status.access {
        Some(access) if access.enabled => format!("enabled, at {}", access.address),
        Some(access) => format!("paused, at {}. Enable it with: deskgate access enable", access.address),
        None if status.gateway_is_silent => "unknown: the gateway keeps the connection and does not answer. Its \
             administrator sees why with: deskgate-gateway doctor"
            .to_owned(),
        None => "unknown while the gateway is not connected".to_owned(),
    };
    let active = status.work.runs.as_array().map_or(0, Vec::len);
    let mut text = format!(
        "Deskgate {} on {} ({} mode, process {})\nconnection {line}\naccess     {access}\n\
         runs       {active} of {} slots in use\nidentity   {}",
        status.version, status.device_name, status.mode, status.pid, status.work.slots, status.fingerprint
    );
    for key in &status.followed_host_keys {
        text += &format!("\nhost key   {key}");
    }
    if let Some(pages) = &status.pages {
        text += &format!("\npages      {pages} (open them with: deskgate open)");
    }
    for run_id in runs_that(status, "awaiting_approval") {
        text += &format!("\nasks       {run_id} waits for your decision: deskgate approval list");
    }
    for run_id in runs_that(status, "awaiting_reconciliation") {
        text += &format!("\ndecide     {run_id} was interrupted and needs your decision: deskgate run show {run_id}");
    }
    if let Some(worst) = status.problems.first() {
        let more = match status.problems.len() {
            1 => "see deskgate doctor".to_owned(),
            all => format!("and {} more: see deskgate doctor", all - 1),
        };
        text += &format!("\nproblem    {}: {} ({more})", worst.title, worst.text);
    } else if let Some(problem) = &status.work.problem {
        text += &format!("\nproblem    {problem}");
    }
    if let AwakeStatus::No { why } = &status.kept_awake {
        text += &format!("\nsleep      can interrupt runs: {why}");
    }
    if status.kept_awake == AwakeStatus::NotWanted {
        text += "\nsleep      can interrupt runs, as you chose: deskgate settings set keep-awake always";
    }
    text
}

fn stopped(asked: &[RunId]) -> String {
    let mut text = "Stopped.".to_owned();
    for run_id in asked {
        text += &format!(
            "\n{run_id} waited for your decision. It begins again with the agent and asks anew, or needs your"
        );
        text += "\ndecision if it had begun to change something: deskgate status";
    }
    text
}

/// The runs with this status.
fn runs_that<'a>(status: &'a AgentStatus, standing: &'a str) -> impl Iterator<Item = &'a str> {
    let runs = status.work.runs.as_array().into_iter().flatten();
    runs.filter(move |run| run["standing"] == standing).filter_map(|run| run["run_id"].as_str())
}

fn not_set_up(error: impl std::fmt::Display) -> Failure {
    Failure::new(Exit::NotSetUp, error.to_string())
}

#[cfg(test)]
mod tests {
    use deskgate_protocol::management::Access;
    use deskgate_protocol::{DeviceId, Timestamp};

    use super::*;
    use crate::local::WorkView;
    use crate::settings::Mode;

    fn status(line: LineView, access: Option<Access>) -> AgentStatus {
        AgentStatus {
            version: "0.1.0".to_owned(),
            pid: 1,
            device_name: "desk".to_owned(),
            fingerprint: "SHA256:x".to_owned(),
            mode: Mode::BuiltIn,
            line,
            access,
            gateway_is_silent: false,
            work: WorkView { slots: 4, stopping: false, problem: None, runs: serde_json::json!([]) },
            kept_awake: AwakeStatus::NotNeeded,
            pages: Some("http://127.0.0.1:7420/".to_owned()),
            followed_host_keys: Vec::new(),
            problems: Vec::new(),
        }
    }

    #[test]
    fn the_status_names_the_runs_that_wait_for_the_owner() {
        let mut status = status(LineView::Connecting, None);
        status.work.runs = serde_json::json!([
            { "run_id": "run_1", "standing": "awaiting_approval" },
            { "run_id": "run_2", "standing": "awaiting_reconciliation" },
            { "run_id": "run_3", "standing": "running" },
        ]);
        let text = show(&status);
        assert!(text.contains("run_1 waits for your decision") && text.contains("run show run_2"), "{text}");
        assert!(!text.contains("run_3"));
    }

    #[test]
    fn a_start_passes_on_the_code_that_the_agent_ended_with() {
        assert_eq!(exit_of(Some(7)), Exit::VersionMismatch);
        assert_eq!(exit_of(Some(2)), Exit::Usage);
        assert_eq!((exit_of(Some(101)), exit_of(Some(0)), exit_of(None)), (Exit::Failed, Exit::Failed, Exit::Failed));
    }

    #[test]
    fn a_start_is_reported_only_after_the_first_attempt_has_an_outcome() {
        let connected = || LineView::Connected {
            since: Timestamp::now(),
            device_id: DeviceId::new(),
            gateway_version: "0.1.0".to_owned(),
        };
        let access = Access { enabled: false, address: "http://127.0.0.1:1/api/v1".to_owned(), changed_at: None };
        assert!(!settled(&status(LineView::Connecting, None)));
        assert!(!settled(&status(connected(), None)), "where the API is would be missing");
        assert!(settled(&status(connected(), Some(access))));
        let lost = LineView::Disconnected { why: "refused".to_owned(), host_keys: None, next_attempt_at: None };
        assert!(settled(&status(lost, None)), "a failure is an outcome too");
    }
}
