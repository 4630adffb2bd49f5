//! Whole runs that ask: a real journal, a tool that really writes, and people who decide.

use std::path::PathBuf;

use deskgate_assistant::{Message, ModelEvent, ModelRequest, StopReason, ToolCall};
use deskgate_definition::approvals::OnDenial;
use deskgate_definition::tool::{Plan, PlanPreview, Tool, ToolOutput, ToolResult, ToolSpec};
use deskgate_protocol::control::ApprovalResolution;
use deskgate_store::approvals::{Approval, ApprovalState, Decision, DecisionOutcome};
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt, StreamExt};

use super::*;

/// Writes a file, and plans it as Write does: also with a difference that varies, as that of a large file may. For the
/// text `lost` the effect is unknown, as with a tool of an MCP server.
struct FakeWriteTool(PathBuf);

impl Tool for FakeWriteTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec { name: "Write".into(), description: String::new(), parameters: json!({}) }
    }

    fn kind(&self) -> ToolKind {
        ToolKind::Write
    }

    fn plan(&self, arguments: &Value) -> BoxFuture<'static, Result<Plan, ToolOutput>> {
        let name = arguments["name"].as_str().unwrap_or("x").to_owned();
        let before = std::fs::read(self.0.join(&name)).ok().map(|bytes| Sha256Digest::of(&bytes));
        let after = Sha256Digest::of(arguments["text"].as_str().unwrap_or_default().as_bytes());
        let shown = match arguments["text"].as_str() {
            Some("lost") => PlanPreview::Arguments,
            _ => PlanPreview::Change { before, after, diff: format!("{:?}", std::time::Instant::now()) },
        };
        std::future::ready(Ok(Plan { place: Some(name), shown })).boxed()
    }

    fn run(&self, arguments: Value, _: CancellationToken) -> BoxFuture<'static, ToolResult> {
        if arguments["text"] == "lost" {
            return std::future::ready(Ok(ToolOutput::unknown("It may have happened."))).boxed();
        }
        let path = self.0.join(arguments["name"].as_str().unwrap_or("x"));
        std::fs::write(path, arguments["text"].as_str().unwrap_or_default()).expect("writable");
        std::future::ready(Ok(ToolOutput::ok("written"))).boxed()
    }
}

/// Calls Write with each of these files in turn, and then repeats its last result.
struct WritingAssistant(Vec<(&'static str, &'static str)>);

impl Assistant for WritingAssistant {
    fn respond(&self, request: ModelRequest) -> BoxStream<'static, ModelEvent> {
        let turn = request.messages.iter().filter(|message| matches!(message, Message::ToolResults(_))).count();
        let events = match (self.0.get(turn), request.messages.last()) {
            (Some((name, text)), _) => vec![
                ModelEvent::TextDelta("I save it.".into()),
                ModelEvent::ToolCall(ToolCall {
                    id: turn.to_string(),
                    name: "Write".into(),
                    arguments: json!({ "name": name, "text": text }),
                }),
            ],
            (None, Some(Message::ToolResults(answers))) => vec![ModelEvent::TextDelta(answers[0].text.clone())],
            _ => vec![ModelEvent::TextDelta("nothing".into())],
        };
        stream::iter(events).chain(stream::iter([ModelEvent::End(StopReason::Completed)])).boxed()
    }
}

/// A run under way, with its folder and its journal.
struct TestRun {
    folder: TempDir,
    disk: TempDir,
    store: Store,
    stop: CancellationToken,
    leaving: CancellationToken,
    task: tokio::task::JoinHandle<Outcome>,
    events: mpsc::Receiver<Progress>,
    run_id: RunId,
}

/// The scenario of a test.
struct Scenario {
    writes: Vec<(&'static str, &'static str)>,
    on_denial: OnDenial,
    expiry: Duration,
    /// The run's time limit, in awake time.
    time: Duration,
    /// The queue length for unread reports.
    room: usize,
}

impl Default for Scenario {
    fn default() -> Self {
        let (minute, writes) = (Duration::from_secs(60), vec![("a.txt", "new")]);
        Self { writes, on_denial: OnDenial::TellAssistant, expiry: minute, time: minute, room: 64 }
    }
}

impl Scenario {
    async fn begin(self) -> TestRun {
        let (folder, (disk, store)) = (folder(&[]), journal().await);
        let mut job = job(folder.path(), "folder", "x");
        Arc::make_mut(&mut job.definition).approvals.on_denial = self.on_denial;
        let (stop, (reports, events)) = (CancellationToken::new(), mpsc::channel(self.room));
        let (run_id, stopped, pen) = (job.offer.run_id, stop.clone(), FakeWriteTool(folder.path().to_owned()));
        let (ledger, leaving) = (store.ledger(run_id, 1), job.leaving.clone());
        let task = tokio::spawn(async move {
            let toolbox = Toolbox::with(vec![Box::new(pen)]);
            let rules = job.definition.approvals.rulebook().expect("rules");
            let record = RunRecorder::of(&job, ledger).waiting(self.expiry);
            let started = Instant::now();
            let clock = RunClock { started, deadline: started + self.time };
            let turn = turn_of(
                &job,
                &toolbox,
                ModelFacts::default(),
                RunTerms { rules, output: None, before: PriorEffects::default() },
                Default::default(),
                self.time,
            );
            drive::run(turn, &toolbox, &WritingAssistant(self.writes), &record, clock, &reports, &stopped).await
        });
        TestRun { folder, disk, store, stop, leaving, task, events, run_id }
    }
}

impl TestRun {
    /// The next request, once it is reported.
    async fn request(&mut self) -> Approval {
        loop {
            match self.events.recv().await.expect("the run asks") {
                Progress::Event(DeviceEvent::ApprovalRequested { approval_id, .. }) => {
                    return self.store.approvals().get(approval_id).await.expect("readable").expect("it is on disk");
                }
                _ => continue,
            }
        }
    }

    async fn decide(&self, request: &Approval, decision: Decision) -> DecisionOutcome {
        self.store.approvals().decide(request.approval_id, decision, "uid 1").await.expect("written")
    }

    async fn end(self) -> (Outcome, Vec<DeviceEvent>, TempDir) {
        let Self { mut events, task, folder, store, disk, .. } = self;
        let outcome = tokio::time::timeout(Duration::from_secs(20), task).await.expect("it ends").expect("no panic");
        let mut rest = Vec::new();
        while let Some(report) = events.recv().await {
            match report {
                Progress::Event(event) => rest.push(event),
                Progress::Ends => {}
                other => panic!("not an event: {other:?}"),
            }
        }
        drop((store, disk));
        (outcome, rest, folder)
    }
}

fn resolutions(events: &[DeviceEvent]) -> Vec<ApprovalResolution> {
    let resolved = |event: &DeviceEvent| match event {
        DeviceEvent::ApprovalResolved { resolution, .. } => Some(*resolution),
        _ => None,
    };
    events.iter().filter_map(resolved).collect()
}

fn written(folder: &TempDir, name: &str) -> Option<String> {
    std::fs::read_to_string(folder.path().join(name)).ok()
}

#[tokio::test]
async fn a_call_waits_for_a_person_and_runs_with_the_arguments_that_they_saw() {
    let mut running = Scenario::default().begin().await;
    let request = running.request().await;
    assert_eq!(
        (request.tool.as_str(), request.why.as_str(), request.state),
        ("Write", "I save it.", ApprovalState::Waiting)
    );
    assert_eq!(request.arguments, Some(json!({ "name": "a.txt", "text": "new" })));
    assert_eq!(request.subject.as_deref(), Some("customer-91"), "whose request it is");
    assert_eq!(written(&running.folder, "a.txt"), None);
    assert_eq!(running.decide(&request, Decision::Once).await, DecisionOutcome::Counts);
    let store = running.store.clone();
    let (run_id, (outcome, events, folder)) = (running.run_id, running.end().await);
    assert_eq!((text(&outcome), written(&folder, "a.txt").as_deref()), ("written", Some("new")));
    assert_eq!(resolutions(&events), [ApprovalResolution::Approved]);
    let intents = store.journal().evidence(run_id).await.expect("readable");
    assert_eq!(intents.iter().map(|intent| intent.ok).collect::<Vec<_>>(), [Some(true)]);
    let audit = store.audit().list(Some(run_id), 10).await.expect("readable");
    let told: Vec<_> = audit.iter().rev().map(|row| (row.what.as_str(), row.who.as_str(), &row.digest)).collect();
    let (id, digest) = (request.approval_id.to_string(), &request.digest);
    assert_eq!(told, [("requested", "agent", digest), ("decided", "uid 1", digest), ("executed", id.as_str(), digest)]);
}

#[tokio::test]
async fn a_file_that_changed_after_it_was_shown_is_shown_again() {
    let mut running = Scenario::default().begin().await;
    let first = running.request().await;
    std::fs::write(running.folder.path().join("a.txt"), "by somebody else").expect("writable");
    running.decide(&first, Decision::Once).await;
    let second = running.request().await;
    assert!(second.again && second.plan != first.plan);
    assert_eq!(second.follows, Some(first.approval_id));
    let former = running.store.approvals().get(first.approval_id).await.expect("readable").expect("kept");
    assert_eq!(former.followed_by, Some(second.approval_id), "its owner finds what came of it");
    assert_eq!(second.digest, first.digest, "the same call");
    assert_eq!(written(&running.folder, "a.txt").as_deref(), Some("by somebody else"));
    running.decide(&second, Decision::Once).await;
    assert_eq!(written(&running.end().await.2, "a.txt").as_deref(), Some("new"));
}

#[tokio::test]
async fn a_yes_for_the_run_is_asked_for_once() {
    let mut running = Scenario { writes: vec![("a.txt", "1"), ("b.txt", "2")], ..Scenario::default() }.begin().await;
    let request = running.request().await;
    running.decide(&request, Decision::ForRun).await;
    let (_, events, folder) = running.end().await;
    assert_eq!(resolutions(&events), [ApprovalResolution::Approved]);
    assert_eq!(written(&folder, "b.txt").as_deref(), Some("2"));
}

#[tokio::test]
async fn a_call_that_may_have_happened_has_no_outcome_in_the_journal_and_is_not_repeated_without_a_person() {
    let mut running = Scenario { writes: vec![("a.txt", "lost"); 2], ..Scenario::default() }.begin().await;
    let request = running.request().await;
    running.decide(&request, Decision::ForRun).await;
    let second = running.request().await;
    assert_eq!(second.digest, request.digest, "the same call");
    let journal = running.store.journal();
    let known = async || {
        let intents = journal.evidence(running.run_id).await.expect("readable");
        intents.iter().map(|intent| intent.ok).collect::<Vec<_>>()
    };
    assert_eq!(known().await, [None]);
    let before = running.store.ledger(running.run_id, 2).before().await.expect("readable");
    assert_eq!(before.uncertain.iter().map(ToString::to_string).collect::<Vec<_>>(), [request.digest]);
    running.decide(&second, Decision::Deny { reason: None }).await;
    assert_eq!(known().await, [None], "a no runs nothing");
    assert!(text(&running.end().await.0).contains("did not allow"));
}

#[tokio::test]
async fn a_no_runs_nothing_and_the_owners_words_reach_the_assistant() {
    let mut running = Scenario::default().begin().await;
    let request = running.request().await;
    running.decide(&request, Decision::Deny { reason: Some("Use another name.".into()) }).await;
    let (outcome, _, folder) = running.end().await;
    assert!(text(&outcome).contains("Use another name."));
    assert_eq!(written(&folder, "a.txt"), None);
}

#[tokio::test]
async fn nobody_is_no_and_never_a_yes() {
    let mut running = Scenario { expiry: Duration::from_millis(50), ..Scenario::default() }.begin().await;
    let (request, store) = (running.request().await, running.store.clone());
    let (outcome, events, folder) = running.end().await;
    assert!(text(&outcome).contains("Nobody decided"));
    assert_eq!((resolutions(&events), written(&folder, "a.txt")), (vec![ApprovalResolution::Expired], None));
    let late = store.approvals().decide(request.approval_id, Decision::Once, "uid 1").await.expect("readable");
    assert_eq!(late, DecisionOutcome::TooLate(ApprovalState::Expired));
    let ended = store.approvals().get(request.approval_id).await.expect("readable").expect("kept");
    assert_eq!(ended.decided_by.as_deref(), Some("expiry"), "recorded as expiry, not as a person's decision");
}

#[tokio::test]
async fn a_request_that_became_unreadable_has_expired_for_the_run_and_for_everybody() {
    let mut running = Scenario { expiry: Duration::from_millis(50), ..Scenario::default() }.begin().await;
    let (request, store) = (running.request().await, running.store.clone());
    store.damage_request(request.approval_id).await;
    let (outcome, events, folder) = running.end().await;
    assert!(text(&outcome).contains("Nobody decided"));
    assert_eq!((resolutions(&events), written(&folder, "a.txt")), (vec![ApprovalResolution::Expired], None));
    let late = store.approvals().decide(request.approval_id, Decision::Once, "uid 1").await.expect("readable");
    assert_eq!(late, DecisionOutcome::TooLate(ApprovalState::Expired));
}

#[tokio::test]
async fn a_service_may_say_that_a_no_and_silence_end_the_run() {
    for (decision, expiry, code) in [
        (Some(Decision::Deny { reason: None }), Duration::from_secs(60), RunErrorCode::ApprovalDenied),
        (None, Duration::from_millis(50), RunErrorCode::ApprovalExpired),
    ] {
        let mut running = Scenario { expiry, on_denial: OnDenial::EndRun, ..Scenario::default() }.begin().await;
        let request = running.request().await;
        if let Some(decision) = decision {
            running.decide(&request, decision).await;
        }
        assert_eq!(super::code(&running.end().await.0), code);
    }
}

#[tokio::test]
async fn a_stop_while_waiting_takes_the_request_back_and_the_run_changed_nothing() {
    let mut running = Scenario::default().begin().await;
    let (request, store) = (running.request().await, running.store.clone());
    running.stop.cancel();
    let (outcome, events, folder) = running.end().await;
    assert!(matches!(outcome, Outcome::Cancelled { effects: Effects::None, .. }), "{outcome:?}");
    assert_eq!((resolutions(&events), written(&folder, "a.txt")), (vec![ApprovalResolution::Withdrawn], None));
    let late = store.approvals().decide(request.approval_id, Decision::Once, "uid 1").await.expect("readable");
    assert_eq!(late, DecisionOutcome::TooLate(ApprovalState::Withdrawn));
}

#[tokio::test]
async fn an_agent_that_is_about_to_end_asks_nobody_and_lets_nothing_run_that_needs_a_yes() {
    let mut running = Scenario::default().begin().await;
    let (request, store) = (running.request().await, running.store.clone());
    running.leaving.cancel();
    let (outcome, events, folder) = running.end().await;
    assert!(matches!(outcome, Outcome::Cancelled { effects: Effects::None, .. }), "{outcome:?}");
    assert_eq!((resolutions(&events), written(&folder, "a.txt")), (vec![ApprovalResolution::Withdrawn], None));
    let late = store.approvals().decide(request.approval_id, Decision::Once, "uid 1").await.expect("readable");
    assert_eq!(late, DecisionOutcome::TooLate(ApprovalState::Withdrawn));
}

#[tokio::test]
async fn the_time_in_which_a_person_is_asked_is_not_the_runs() {
    // A slow disk counts as the run's time, and must fit in.
    let (expiry, time) = (Duration::from_secs(3), Duration::from_secs(2));
    let (outcome, ..) = Scenario { expiry, time, ..Scenario::default() }.begin().await.end().await;
    match outcome {
        // It waited longer than its time limit.
        Outcome::Succeeded { usage, .. } => assert!(usage.active_seconds < 2.0, "{usage:?}"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_request_that_there_is_no_room_to_report_is_reported_once_there_is_also_after_the_runs_time() {
    // As many reports as come before it.
    let mut room = 0;
    let mut first = Scenario::default().begin().await;
    while !matches!(first.events.recv().await, Some(Progress::Event(DeviceEvent::ApprovalRequested { .. }))) {
        room += 1;
    }
    first.stop.cancel();
    let (expiry, time) = (Duration::from_millis(1500), Duration::from_millis(1000));
    let mut running = Scenario { expiry, time, room, ..Scenario::default() }.begin().await;
    let approvals = running.store.approvals();
    while !approvals.list(true).await.expect("readable").iter().any(|asked| asked.state == ApprovalState::Expired) {
        tokio::task::yield_now().await;
    }
    assert_eq!(running.events.len(), room, "it had none");
    running.request().await;
    let (outcome, events, _) = running.end().await;
    assert!(text(&outcome).contains("Nobody decided"));
    assert_eq!(resolutions(&events), [ApprovalResolution::Expired]);
}
