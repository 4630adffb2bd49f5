//! Stops, full channels, and panics in every part: always exactly one outcome, and no work left running.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc as std_mpsc;

use deskgate_assistant::{Message, ModelEvent, ModelRequest, StopReason, ToolCall};
use deskgate_definition::approvals::{Rule, RuleAction};
use deskgate_definition::tool::{Tool, ToolOutput, ToolResult, ToolSpec};
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt, StreamExt};

use super::*;

#[tokio::test]
async fn a_stop_ends_a_huge_grep_at_once() {
    let folder = folder(&[]);
    // One file and a slow expression: a search of many seconds, which can stop only inside the file.
    std::fs::write(folder.path().join("huge.txt"), "abcdefghijklmnopqrstuvwxyz\n".repeat(2_000_000)).expect("writes");
    let pattern = r"\p{L}{9}(\p{L}{2}|\p{N}){5}\p{Lu}";
    let arguments = json!({ "pattern": pattern, "path": "huge.txt", "output_mode": "count" });
    let (_place, model) = script(json!([{ "tool": "Grep", "arguments": arguments }, { "text": "end" }]));
    let (sender, mut receiver) = mpsc::channel(64);
    let stop = CancellationToken::new();
    let running = tokio::spawn(execute(job(folder.path(), &model, "x"), sender, stop.clone()));
    while !matches!(receiver.recv().await.expect("runs"), Progress::Event(DeviceEvent::ToolStarted { .. })) {}
    stop.cancel();
    let stopped = std::time::Instant::now();
    assert!(matches!(running.await.expect("no panic"), Outcome::Cancelled { .. }));
    // The thread was awaited; and not after the whole search, which takes two seconds.
    assert!(stopped.elapsed() < Duration::from_millis(500), "took {:?}", stopped.elapsed());
}

/// An assistant with given answers, for failures that a script cannot play.
struct CannedAssistant(fn(&ModelRequest) -> BoxStream<'static, ModelEvent>);

impl Assistant for CannedAssistant {
    fn respond(&self, request: ModelRequest) -> BoxStream<'static, ModelEvent> {
        self.0(&request)
    }
}

/// A run of an owner who allows every call, and its journal.
async fn parts(toolbox: &Toolbox) -> (TempDir, turn::Turn, RunRecorder) {
    parts_of(job(Path::new("/nonexistent"), "folder", "x"), toolbox).await
}

async fn parts_of(mut job: Job, toolbox: &Toolbox) -> (TempDir, turn::Turn, RunRecorder) {
    let (disk, store) = journal().await;
    let all = Rule { action: RuleAction::Allow, tool: "*".into(), path: None };
    Arc::make_mut(&mut job.definition).approvals.rules.push(all);
    let rules = job.definition.approvals.rulebook().expect("rules");
    let record = RunRecorder::of(&job, store.ledger(job.offer.run_id, job.offer.attempt));
    (
        disk,
        turn_of(
            &job,
            toolbox,
            ModelFacts::default(),
            RunTerms { rules, output: None, before: PriorEffects::default() },
            Default::default(),
            Duration::from_secs(60),
        ),
        record,
    )
}

async fn drive(assistant: CannedAssistant, toolbox: Toolbox) -> Outcome {
    let (_disk, turn, record) = parts(&toolbox).await;
    let started = Instant::now();
    let clock = RunClock { started, deadline: started + Duration::from_secs(60) };
    let (sender, _receiver) = mpsc::channel(256);
    drive::run(turn, &toolbox, &assistant, &record, clock, &sender, &CancellationToken::new()).await
}

#[tokio::test]
async fn a_panic_of_the_assistant_is_one_internal_failure_with_its_usage() {
    for assistant in [
        CannedAssistant(|_| panic!("at once")),
        CannedAssistant(|_| stream::once(async { panic!("in the stream") }).boxed()),
        CannedAssistant(|_| stream::iter([()]).map(|()| panic!("between events")).boxed()),
    ] {
        let outcome = drive(assistant, Toolbox::with(Vec::new())).await;
        assert_eq!(code(&outcome), RunErrorCode::Internal);
        assert!(matches!(outcome, Outcome::Failed { usage, .. } if usage.model_calls == 1));
    }
}

struct CannedTool(fn(CancellationToken) -> futures_util::future::BoxFuture<'static, ToolResult>);

impl Tool for CannedTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec { name: "It".into(), description: String::new(), parameters: json!({}) }
    }

    fn kind(&self) -> ToolKind {
        ToolKind::Write
    }

    fn run(&self, _: Value, stop: CancellationToken) -> futures_util::future::BoxFuture<'static, ToolResult> {
        self.0(stop)
    }
}

fn calls_it(request: &ModelRequest) -> BoxStream<'static, ModelEvent> {
    assert!(matches!(request.messages[0], Message::User { .. }));
    let call = ToolCall { id: "1".into(), name: "It".into(), arguments: json!({}) };
    stream::iter([ModelEvent::ToolCall(call), ModelEvent::End(StopReason::Completed)]).boxed()
}

/// Text without end, as it comes from a network.
fn blah(_: &ModelRequest) -> BoxStream<'static, ModelEvent> {
    let piece = |()| async {
        tokio::task::yield_now().await;
        ModelEvent::TextDelta("blah ".repeat(1000))
    };
    stream::repeat(()).then(piece).boxed()
}

#[tokio::test]
async fn a_model_that_repeats_itself_ends_at_its_turns_and_one_that_says_nothing_at_its_time() {
    let tool = CannedTool(|_| async { Ok(ToolOutput::ok("as before")) }.boxed());
    let outcome = drive(CannedAssistant(calls_it), Toolbox::with(vec![Box::new(tool)])).await;
    let Outcome::Failed { error, usage } = outcome else { panic!("{outcome:?}") };
    assert_eq!((error.code, error.effects), (RunErrorCode::MaxTurnsExceeded, Effects::Known));
    let most = u64::from(RunLimits::default().max_turns);
    assert_eq!((usage.model_calls, usage.tool_calls), (most, most));

    let toolbox = Toolbox::with(Vec::new());
    // One is silent; the other never stops, and would fill the memory.
    for assistant in [CannedAssistant(|_| stream::pending().boxed()), CannedAssistant(blah)] {
        let started = Instant::now();
        let clock = RunClock { started, deadline: started + Duration::from_millis(200) };
        let (sender, _receiver) = mpsc::channel(64);
        let stop = CancellationToken::new();
        let (_disk, turn, record) = parts(&toolbox).await;
        let outcome = drive::run(turn, &toolbox, &assistant, &record, clock, &sender, &stop).await;
        assert_eq!(code(&outcome), RunErrorCode::MaxDurationExceeded);
    }
}

#[tokio::test]
async fn a_summary_of_what_was_said_is_reported_before_the_answer() {
    let mut job = job(Path::new("/nonexistent"), "folder", "now");
    Arc::make_mut(&mut job.definition).limits.context_tokens = Some(1024);
    let said = Input { text: "long ago".repeat(500), more: serde_json::Map::new() };
    job.earlier = vec![Exchange { request: said, answer: "Yes.".into() }];
    let toolbox = Toolbox::with(Vec::new());
    let started = Instant::now();
    let clock = RunClock { started, deadline: started + Duration::from_secs(60) };
    let (sender, mut receiver) = mpsc::channel(64);
    let assistant = CannedAssistant(|request| {
        let text = if request.messages.len() == 1 { "Long ago they agreed." } else { "Still so." };
        stream::iter([ModelEvent::TextDelta(text.into()), ModelEvent::End(StopReason::Completed)]).boxed()
    });
    let stop = CancellationToken::new();
    let (_disk, turn, record) = parts_of(job, &toolbox).await;
    let outcome = drive::run(turn, &toolbox, &assistant, &record, clock, &sender, &stop).await;
    assert_eq!(text(&outcome), "Still so.");
    drop(sender);
    let mut summary = None;
    while let Some(progress) = receiver.recv().await {
        match progress {
            Progress::Summary(exchange) => summary = Some(exchange),
            Progress::Event(DeviceEvent::MessageCompleted { text, .. }) => {
                assert!(summary.is_some() && text == "Still so.", "a summary is no message: {text}");
            }
            _ => {}
        }
    }
    assert!(summary.expect("reported").request.text.ends_with("Long ago they agreed."));
}

#[tokio::test]
async fn a_panic_of_a_tool_is_one_internal_failure_that_says_what_may_have_happened() {
    for tool in [
        CannedTool(|_| panic!("at once")),
        CannedTool(|_| async { panic!("later") }.boxed()),
        CannedTool(|_| {
            tokio::task::spawn_blocking(|| panic!("elsewhere")).map(|joined| joined.expect("joins")).boxed()
        }),
    ] {
        let outcome = drive(CannedAssistant(calls_it), Toolbox::with(vec![Box::new(tool)])).await;
        let Outcome::Failed { error, usage } = outcome else { panic!("{outcome:?}") };
        assert_eq!((error.code, error.effects, usage.tool_calls), (RunErrorCode::Internal, Effects::Possible, 1));
    }
}

#[tokio::test]
async fn a_tool_that_panics_while_it_is_stopped_does_not_make_a_second_outcome() {
    let tool = CannedTool(|stop| {
        async move {
            stop.cancelled().await;
            panic!("stopped")
        }
        .boxed()
    });
    let toolbox = Toolbox::with(vec![Box::new(tool)]);
    let (_disk, turn, record) = parts(&toolbox).await;
    let started = Instant::now();
    let clock = RunClock { started, deadline: started + Duration::from_secs(60) };
    let (sender, mut receiver) = mpsc::channel(64);
    let stop = CancellationToken::new();
    let assistant = CannedAssistant(calls_it);
    let running = drive::run(turn, &toolbox, &assistant, &record, clock, &sender, &stop);
    let stopping = async {
        while !matches!(receiver.recv().await.expect("runs"), Progress::Event(DeviceEvent::ToolStarted { .. })) {}
        tokio::task::yield_now().await;
        stop.cancel();
    };
    let (outcome, ()) = tokio::join!(running, stopping);
    assert!(matches!(outcome, Outcome::Cancelled { effects: Effects::Possible, .. }));
}

#[tokio::test]
async fn a_stop_gets_through_a_full_channel_and_what_was_only_planned_never_begins() {
    static BEGAN: AtomicBool = AtomicBool::new(false);
    let tool = CannedTool(|_| {
        BEGAN.store(true, Ordering::Relaxed);
        async { Ok(ToolOutput::ok("")) }.boxed()
    });
    let toolbox = Toolbox::with(vec![Box::new(tool)]);
    let started = Instant::now();
    for (stopped, patience) in [(true, 20), (false, 1)] {
        let clock = RunClock { started, deadline: started + Duration::from_secs(patience) };
        let (sender, _receiver) = mpsc::channel(1);
        let first = DeviceEvent::UsageUpdated { usage: Usage::default(), model_unavailable: false };
        sender.try_send(Progress::Event(first)).expect("room for one");
        let stop = CancellationToken::new();
        let assistant = CannedAssistant(calls_it);
        let (_disk, turn, record) = parts(&toolbox).await;
        let mut running = Box::pin(drive::run(turn, &toolbox, &assistant, &record, clock, &sender, &stop));
        // Everything up to the first event is done at once, so after one poll it waits for the queue.
        assert!((&mut running).now_or_never().is_none());
        if stopped {
            stop.cancel();
        }
        match running.await {
            Outcome::Cancelled { .. } => assert!(stopped),
            Outcome::Failed { error, .. } => assert!(!stopped && error.code == RunErrorCode::MaxDurationExceeded),
            other => panic!("{other:?}"),
        }
        assert!(!BEGAN.load(Ordering::Relaxed));
    }
}

#[tokio::test]
async fn dropping_a_run_ends_its_tool() {
    let (sender, receiver) = std_mpsc::channel();
    let stop = CancellationToken::new();
    let work = deskgate_tools::blocking::on_blocking_thread(ToolName::Read, json!({}), &stop, move |_: Value, stop| {
        sender.send(()).expect("the test listens");
        while !stop.is_cancelled() {
            std::thread::yield_now();
        }
        sender.send(()).expect("the test listens");
        Ok(ToolOutput::ok(""))
    });
    let mut work = Box::pin(work);
    assert!((&mut work).now_or_never().is_none());
    let seen = tokio::task::spawn_blocking(move || {
        receiver.recv().expect("it began");
        receiver
    });
    let receiver = seen.await.expect("joins");
    drop(work);
    tokio::task::spawn_blocking(move || receiver.recv().expect("it ended")).await.expect("joins");
}

/// A tool whose calls wait for each other.
struct MeetingTool {
    here: Arc<tokio::sync::Barrier>,
}

impl Tool for MeetingTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec { name: "It".into(), description: String::new(), parameters: json!({}) }
    }

    fn kind(&self) -> ToolKind {
        ToolKind::Read
    }

    fn run(&self, _: Value, stop: CancellationToken) -> futures_util::future::BoxFuture<'static, ToolResult> {
        let here = Arc::clone(&self.here);
        async move {
            tokio::select! {
                _ = here.wait() => Ok(ToolOutput::ok("met")),
                () = stop.cancelled() => Ok(ToolOutput::error("stopped")),
            }
        }
        .boxed()
    }
}

/// Eight calls at once, and then an answer.
fn calls_eight(request: &ModelRequest) -> BoxStream<'static, ModelEvent> {
    if let Some(Message::ToolResults(answers)) = request.messages.last() {
        let met = answers.iter().filter(|answer| answer.text == "met").count();
        let said = [ModelEvent::TextDelta(format!("{met} met")), ModelEvent::End(StopReason::Completed)];
        return stream::iter(said).boxed();
    }
    let call = |id: u32| ModelEvent::ToolCall(ToolCall { id: id.to_string(), name: "It".into(), arguments: json!({}) });
    stream::iter((0..8).map(call).chain([ModelEvent::End(StopReason::Completed)])).boxed()
}

#[tokio::test]
async fn eight_calls_that_read_are_under_way_at_the_same_time() {
    let tool = MeetingTool { here: Arc::new(tokio::sync::Barrier::new(8)) };
    let outcome = drive(CannedAssistant(calls_eight), Toolbox::with(vec![Box::new(tool)])).await;
    assert_eq!(text(&outcome), "8 met");
}

#[tokio::test]
async fn a_stop_ends_all_calls_that_are_under_way() {
    let tool = MeetingTool { here: Arc::new(tokio::sync::Barrier::new(9)) };
    let here = Arc::downgrade(&tool.here);
    let toolbox = Toolbox::with(vec![Box::new(tool)]);
    let (_disk, turn, record) = parts(&toolbox).await;
    let started = Instant::now();
    let clock = RunClock { started, deadline: started + Duration::from_secs(60) };
    let (sender, mut receiver) = mpsc::channel(256);
    let stop = CancellationToken::new();
    let assistant = CannedAssistant(calls_eight);
    let running = drive::run(turn, &toolbox, &assistant, &record, clock, &sender, &stop);
    let stops = async {
        for _ in 0..8 {
            while !matches!(receiver.recv().await, Some(Progress::Event(DeviceEvent::ToolStarted { .. }))) {}
        }
        stop.cancel();
    };
    let (outcome, ()) = tokio::join!(running, stops);
    assert!(matches!(outcome, Outcome::Cancelled { effects: Effects::None, usage } if usage.tool_calls == 8));
    drop(toolbox);
    assert_eq!(here.strong_count(), 0, "no call is left");
}
