//! `run`: the runs of this device's services.

use std::time::{Duration, Instant};

use clap::Subcommand;
use deskgate_program::duration;
use deskgate_program::exit::{Exit, Failure};
use deskgate_program::look::Cell;
use deskgate_program::output::Output;
use deskgate_program::records;
use deskgate_program::records::Noun;
use deskgate_program::records::given::{self, GivenId};
use deskgate_program::records::tones::Toned;
use deskgate_program::visible;
use deskgate_protocol::RunId;
use deskgate_protocol::management::{FindByEnd, ListRuns, ListedRun, RecordKind, RunDetail, ShowRun, StopRun};
use deskgate_protocol::run::{Phase, Run, RunEvent, RunState};

use super::files::{self, ArtifactsCommand};
use super::identity::fingerprint;
use super::socket::AgentClient;
use super::{app, call, no_secret, operation, service};
use crate::local::{
    CallRecord, EndUnknownRuns, Evidence, ListCalls, ListQueueReasons, ListUnsettled, ModelFailure, OwnerFinding,
    QueueReason, ReceiptVerdict, ReconcileRun, ShowCall, ShowEvidence, ShowModelFailure, ShowRunSpending, ShownFile,
    Spending, UnsettledRuns,
};

const RUNS: Noun = Noun { singular: "run", plural: "runs", list: "deskgate run list" };

/// What a list of runs can be about.
const SUBJECTS: Noun =
    Noun { singular: "run, conversation or stop", plural: "runs, conversations or stops", list: "deskgate run list" };

/// Characters of what a run was asked that a list shows.
const MAX_ASKED_CHARS: usize = 48;

/// `deskgate run …`
#[derive(Debug, Subcommand)]
pub(super) enum RunCommand {
    /// Runs, newest first
    List {
        /// At most so many
        #[arg(long, default_value_t = 20)]
        limit: u32,
        /// Only runs older than this one
        #[arg(long, value_name = "RUN")]
        before: Option<GivenId<RunId>>,
        /// Only in this state, as in running; may be repeated
        #[arg(long, value_name = "STATE")]
        state: Vec<RunState>,
        /// Only of this application: its name or identifier, removed or not
        #[arg(long, value_name = "APP")]
        app: Option<String>,
        /// Only of this published service: its name or identifier
        #[arg(long, value_name = "SERVICE")]
        service: Option<String>,
        /// Only what this run, conversation or stop is about: its identifier, or the end of it
        #[arg(long, value_name = "ID")]
        find: Option<String>,
    },
    /// One run with its events
    Show {
        /// Its identifier, or the end of it as `run list` shows it
        run: GivenId<RunId>,
        /// Wait until it ended, at most so long, as in 60s
        #[arg(long, value_name = "TIME", value_parser = duration::parse)]
        wait: Option<Duration>,
    },
    /// One tool call of a run: what it was to do, and what it gave back
    Call {
        /// Of which run
        run: GivenId<RunId>,
        /// Which of its calls, as `deskgate run show` names them
        call: String,
    },
    /// The files that a run handed out
    #[command(subcommand)]
    Artifacts(ArtifactsCommand),
    /// Follow a run's events until it ends
    Tail {
        /// Its identifier, or the end of it as `run list` shows it
        run: GivenId<RunId>,
        /// Give up after so long, as in 10m
        #[arg(long, value_name = "TIME", value_parser = duration::parse)]
        timeout: Option<Duration>,
    },
    /// Confirm the outcome of a run that was interrupted while it may have been writing
    #[command(group(clap::ArgGroup::new("finding").required(true)))]
    Reconcile {
        /// Its identifier, or the end of it as `run list` shows it
        run: GivenId<RunId>,
        /// The interrupted tool call did what it was to do: the run ends, and its caller learns that something changed
        #[arg(long, group = "finding")]
        finished: bool,
        /// It did not: the run ends
        #[arg(long, group = "finding")]
        not_done: bool,
        /// Execute the run again, whatever it did
        #[arg(long, group = "finding")]
        run_again: bool,
    },
    /// The runs that wait for your decision: how each is settled, and those that this device knows nothing of
    Settle {
        /// End all runs that this device knows nothing of, such as after its gateway was restored from a backup; their
        /// effects stay possible
        #[arg(long)]
        end_unknown: bool,
    },
    /// Stop a run; what it changed already stays changed
    #[command(alias = "cancel")]
    Stop {
        /// Its identifier, or the end of it as `run list` shows it
        run: GivenId<RunId>,
        /// Wait until the stop is confirmed, at most so long, as in 60s
        #[arg(long, value_name = "TIME", value_parser = duration::parse)]
        wait: Option<Duration>,
    },
}

pub(super) async fn run(agent: AgentClient, command: RunCommand, out: Output) -> Result<(), Failure> {
    match command {
        RunCommand::List { limit, before, state, app, service, find } => {
            let app_id = app::find_given(&agent, app).await?;
            let before = find_given(&agent, before).await?;
            let endpoint_id = match service {
                Some(service) => Some(service::endpoint_of(&agent, &service).await?),
                None => None,
            };
            let find = match find {
                Some(about) => Some(find_subject(&agent, &about).await?),
                None => None,
            };
            let request = ListRuns { limit, before, states: state, app_id, endpoint_id, find };
            let page = agent.manage(request).await?;
            out.result("runs/1", &page, || list(&page.runs) + &records::older(page.next));
            Ok(())
        }
        RunCommand::Show { run, wait } => show(agent.clone(), find(&agent, run).await?, wait, out).await,
        RunCommand::Call { run, call } => {
            let record = agent.request(ShowCall { run_id: find(&agent, run).await?, call_id: call }).await?;
            out.result("call/1", &record, || call::whole(&record));
            Ok(())
        }
        RunCommand::Artifacts(command) => files::run(&agent, command, out).await,
        RunCommand::Tail { run, timeout } => tail(agent.clone(), find(&agent, run).await?, timeout, out).await,
        RunCommand::Reconcile { run, finished, not_done, run_again: _ } => {
            let finding = match (finished, not_done) {
                (true, _) => OwnerFinding::Finished,
                (_, true) => OwnerFinding::NotDone,
                _ => OwnerFinding::RunAgain,
            };
            let run = find(&agent, run).await?;
            agent.request(ReconcileRun { run_id: run, finding }).await?;
            out.result("reconciled/1", &serde_json::json!({ "run_id": run, "finding": finding }), || match finding {
                OwnerFinding::RunAgain => format!("{run} is executed again once the gateway has offered it."),
                _ => format!("{run} ends; its caller is told once the gateway is reached."),
            });
            Ok(())
        }
        RunCommand::Settle { end_unknown: true } => {
            let ended = agent.request(EndUnknownRuns {}).await?;
            out.result("ended_unknown/1", &ended, || {
                let more = if ended.has_more { " There may be more: run this again." } else { "" };
                format!("{} runs end as cancelled; their effects stay possible.{more}", ended.ended.len())
            });
            Ok(())
        }
        RunCommand::Settle { end_unknown: false } => {
            let runs = agent.request(ListUnsettled {}).await?;
            out.result("unsettled/1", &runs, || unsettled(&runs));
            Ok(())
        }
        RunCommand::Stop { run, wait } => {
            let operation = agent.manage(StopRun { run_id: find(&agent, run).await? }).await?;
            operation::follow(agent, operation, wait, out).await
        }
    }
}

/// A run by its identifier, or by the end of it.
pub(super) async fn find(agent: &AgentClient, given: GivenId<RunId>) -> Result<RunId, Failure> {
    given.resolve(&RUNS, async |end: &str| agent.by_end(RecordKind::Run, end).await).await
}

/// The same for an optional run.
pub(super) async fn find_given(agent: &AgentClient, given: Option<GivenId<RunId>>) -> Result<Option<RunId>, Failure> {
    match given {
        Some(given) => find(agent, given).await.map(Some),
        None => Ok(None),
    }
}

/// What a list of runs is narrowed to: a run, a conversation or a stop, by its identifier or by the end of it.
async fn find_subject(agent: &AgentClient, wanted: &str) -> Result<String, Failure> {
    no_secret("--find", wanted)?;
    let Some(end) = given::end_of_id(wanted) else { return Ok(wanted.to_owned()) };
    let mut found = Vec::new();
    for kind in [RecordKind::Run, RecordKind::Conversation, RecordKind::Operation] {
        found.extend(agent.manage(FindByEnd { kind, end: end.to_owned() }).await?.ids);
    }
    given::only_one(&SUBJECTS, end, found)
}

pub(super) async fn show(
    agent: AgentClient,
    run_id: RunId,
    wait: Option<Duration>,
    out: Output,
) -> Result<(), Failure> {
    let deadline = wait.map(|wait| Instant::now() + wait);
    let mut after = 0;
    let mut events = Vec::new();
    let (run, subject) = loop {
        let left = deadline.map_or(Duration::ZERO, |deadline| deadline.saturating_duration_since(Instant::now()));
        let wait_s = u32::try_from(left.as_secs().min(60)).unwrap_or(60);
        let detail = agent.manage(ShowRun { run_id, after, wait_s }).await?;
        let silent = detail.events.is_empty();
        after = detail.events.last().map_or(after, |event| event.sequence);
        events.extend(detail.events);
        let complete = silent || after >= detail.run.last_sequence;
        if complete && (detail.run.phase == Phase::Final || left < Duration::from_secs(1)) {
            break (detail.run, detail.subject);
        }
    };
    let detail = RunDetail { run, events, subject };
    // Only runs that are not settled have any.
    let evidence = agent.request(ShowEvidence { run_id }).await?;
    let waits_for = match detail.run.state {
        RunState::Queued => agent.request(ListQueueReasons {}).await?.remove(&detail.run.endpoint_id),
        _ => None,
    };
    let waiting = detail.run.state == RunState::AwaitingReconciliation;
    let failed = detail.run.state == RunState::Failed;
    let failure = if failed { agent.request(ShowModelFailure { run_id }).await? } else { None };
    let spending = agent.request(ShowRunSpending { run_id }).await?;
    let calls = agent.request(ListCalls { run_id }).await?;
    let receipt = ReceiptVerdict::of(&detail.run, &fingerprint(&agent).await?);
    let shown = RunView {
        detail: &detail,
        calls: &calls,
        evidence: &evidence,
        model_failure: failure.as_ref(),
        spending,
        receipt_verdict: receipt.as_ref(),
        waits_for: waits_for.as_ref(),
    };
    out.result("run/1", &shown, || {
        let events: String = detail.events.iter().map(|event| line(event) + "\n").collect();
        let failure = failure.as_ref().map(model_failure).unwrap_or_default();
        let spent = spending.map(|spent| format!("Used up: {spent}\n")).unwrap_or_default();
        let receipt = receipt.as_ref().map(|verdict| format!("Receipt: {verdict}\n")).unwrap_or_default();
        events
            + &summary(&detail)
            + &waits_for.as_ref().map(queued_behind).unwrap_or_default()
            + &call::listed(run_id, &calls)
            + &failure
            + &spent
            + &receipt
            + &call::evidence(&evidence, waiting.then_some(run_id))
    });
    match wait {
        Some(_) => verdict(&detail.run),
        None => Ok(()),
    }
}

/// A run, with its tool calls and the device's evidence about those that write.
#[derive(serde::Serialize)]
struct RunView<'a> {
    #[serde(flatten)]
    detail: &'a RunDetail,
    /// As the device kept them, with the beginnings of their arguments and outputs.
    #[serde(skip_serializing_if = "<[CallRecord]>::is_empty")]
    calls: &'a [CallRecord],
    #[serde(skip_serializing_if = "<[Evidence]>::is_empty")]
    evidence: &'a [Evidence],
    #[serde(skip_serializing_if = "Option::is_none")]
    model_failure: Option<&'a ModelFailure>,
    #[serde(skip_serializing_if = "Option::is_none")]
    spending: Option<Spending>,
    #[serde(skip_serializing_if = "Option::is_none")]
    receipt_verdict: Option<&'a ReceiptVerdict>,
    /// What it waits for on this device.
    #[serde(skip_serializing_if = "Option::is_none")]
    waits_for: Option<&'a QueueReason>,
}

/// What a queued run waits for, with the runs that are ahead.
fn queued_behind(reason: &QueueReason) -> String {
    let ahead: String = match reason {
        QueueReason::Service { ahead, .. } => {
            ahead.iter().map(|run_id| format!("  ahead of it: deskgate run show {run_id}\n")).collect()
        }
        QueueReason::Slots { .. } => String::new(),
    };
    format!("{reason}\n{ahead}")
}

/// What the provider said. Callers do not learn it.
fn model_failure(failure: &ModelFailure) -> String {
    let ModelFailure { provider, model, detail, .. } = failure;
    let why = failure.why();
    let request = detail.request_id.as_ref().map(|id| format!(" (its request {id})")).unwrap_or_default();
    format!(
        "Why {model} of the provider {provider} could not be used: {why}{request}\nOnly you see this. See whether it works: \
         deskgate doctor --all\n"
    )
}

async fn tail(agent: AgentClient, run_id: RunId, timeout: Option<Duration>, out: Output) -> Result<(), Failure> {
    let deadline = timeout.map(|timeout| Instant::now() + timeout);
    let mut after = 0;
    loop {
        let left =
            deadline.map_or(Duration::from_secs(30), |deadline| deadline.saturating_duration_since(Instant::now()));
        let wait_s = u32::try_from(left.as_secs().min(30)).unwrap_or(30);
        let detail = agent.manage(ShowRun { run_id, after, wait_s }).await?;
        for event in &detail.events {
            out.result("event/1", event, || line(event));
            after = event.sequence;
        }
        if detail.run.phase == Phase::Final && after >= detail.run.last_sequence {
            if !out.json {
                out.result("run/1", &detail.run, || summary(&detail));
            }
            return verdict(&detail.run);
        }
        if left.is_zero() {
            return verdict(&detail.run);
        }
    }
}

fn verdict(run: &Run) -> Result<(), Failure> {
    match (run.phase, run.state) {
        (_, RunState::Succeeded) => Ok(()),
        (Phase::Final, state) => Err(Failure::new(Exit::NotSucceeded, format!("the run ended: {state}"))),
        (_, state) => Err(Failure::new(Exit::Pending, format!("the run has not ended: {state}"))),
    }
}

fn list(runs: &[ListedRun]) -> String {
    records::list(runs, "No run here.", &["STATE", "ACCEPTED", "ASKED", "ID"], |run| {
        vec![run.state.cell(), run.created_at.into(), asked(run).into(), Cell::id(run.run_id)]
    })
}

/// What a run was asked, in a column.
pub(super) fn asked(run: &ListedRun) -> String {
    visible::first_words(run.asked.as_deref().unwrap_or_default(), MAX_ASKED_CHARS)
}

fn unsettled(runs: &UnsettledRuns) -> String {
    let mut text = String::new();
    if runs.held.is_empty() && runs.unknown.is_empty() {
        text += "No run waits for your decision.\n";
    }
    if !runs.held.is_empty() {
        let next = "Interrupted on this device. See what each may have changed: deskgate run show RUN";
        text += &format!("{next}\n{}\n", list(&runs.held));
    }
    if !runs.unknown.is_empty() {
        let next =
            "Not known to this device, which does not execute them. End all of them: deskgate run settle --end-unknown";
        text += &format!("{next}\n{}\n", list(&runs.unknown));
    }
    if runs.has_more {
        text += "There are more; settle these first.\n";
    }
    text
}

/// The beginning of a caller's text, in one line.
pub(super) fn first_line(text: &str) -> String {
    let line = visible::line(text.lines().next().unwrap_or_default());
    if line.chars().count() > 48 { line.chars().take(47).collect::<String>() + "…" } else { line }
}

fn line(event: &RunEvent) -> String {
    let about = |name: &str| event.data.get(name).and_then(|value| value.as_str()).map(first_line);
    let detail = about("tool")
        .or_else(|| about("text"))
        .or_else(|| about("reason"))
        .or_else(|| about("name"))
        .unwrap_or_default();
    format!("{:>4}  {}  {:24} {detail}", event.sequence, event.created_at, event.kind.as_str()).trim_end().to_owned()
}

fn summary(RunDetail { run, subject, .. }: &RunDetail) -> String {
    let mut text = format!("{}: {}\n", run.run_id, run.state);
    if let Some(subject) = subject {
        text += &format!("For {}\n", visible::line(subject));
    }
    if let Some(reason) = &run.state_reason {
        text += &format!("{}\n", reason.message);
    }
    if let Some(error) = &run.error {
        text += &format!("{}\n", error.message);
    }
    if let Some(time) = run.content_deleted_at {
        text += &format!("Its caller deleted input and result at {time}.\n");
    }
    if let Some(result) = &run.result {
        let data = result.data.as_ref().filter(|data| data.to_string() == result.text);
        text += &match data {
            Some(data) => format!("\n{data:#}\n"),
            None => format!("\n{}\n", result.text),
        };
        if let (Some(shown), None) = (&result.data, data) {
            text += &format!("\n{shown:#}\n");
        }
    }
    for (title, files) in [("Files given", ShownFile::given(run)), ("Handed out", ShownFile::handed_out(run))] {
        if !files.is_empty() {
            text += &format!("\n{title}\n");
        }
        for ShownFile { name, facts } in files {
            text += &format!("  {name}  {facts}\n");
        }
    }
    text
}
