//! Whole runs: real folders, real tools, real scripts, and failures in every part.

mod approvals;
mod trouble;

use std::path::Path;
use std::time::Duration;

use deskgate_assistant::mcp::connections::Connections;
use deskgate_definition::{ApprovalPolicy, Network, Provider, RunLimits, Skill, ToolName};
use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::control::{ToolKind, ToolStatus};
use deskgate_protocol::receipt::jws::ReceiptSigner;
use deskgate_protocol::run::{FinishReason, Input};
use deskgate_protocol::{EndpointId, RunId};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;

/// As on a device without a configured model provider.
async fn execute(job: Job, reports: mpsc::Sender<Progress>, stop: CancellationToken) -> Outcome {
    let (_disk, store) = journal().await;
    execute_with(store, job, reports, stop).await
}

async fn execute_with(store: Store, job: Job, reports: mpsc::Sender<Progress>, stop: CancellationToken) -> Outcome {
    let nowhere = || std::path::PathBuf::from("/nonexistent");
    let servers = McpServers::new(Connections::new(nowhere()));
    super::execute(job, Providers::new(nowhere()), servers, Transfers::nowhere(), store, reports, stop).await
}

async fn journal() -> (TempDir, Store) {
    let disk = tempfile::tempdir().expect("a folder");
    let store = Store::open(disk.path().join("deskgate.db"))
        .await
        .expect("opens")
        .signing_with(ReceiptSigner::from_seed([7; 32]));
    (disk, store)
}

fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).expect("writes");
    }
    folder
}

fn job(folder: &Path, model: &str, text: &str) -> Job {
    let definition = Definition {
        name: "test".into(),
        description: "A test.".into(),
        working_directory: folder.to_owned(),
        provider: Provider::Scripted,
        model: model.into(),
        reasoning: Default::default(),
        model_reads: None,
        cost_shown_to: Default::default(),
        data: Default::default(),
        instructions: "Answer.".into(),
        tools: ToolName::WORKSPACE_TOOLS.to_vec(),
        skills: Vec::new(),
        mcp: Vec::new(),
        approvals: ApprovalPolicy::default(),
        protected: Vec::new(),
        network: Network::None,
        limits: RunLimits::default(),
    };
    let offer = Offer {
        run_id: RunId::new(),
        attempt: 1,
        endpoint_id: EndpointId::new(),
        endpoint_version: 1,
        definition_sha256: Sha256Digest::of(b""),
        subject: Some("customer-91".to_owned()),
        input: Input { text: text.into(), more: serde_json::Map::new() },
        output: None,
        conversation: None,
        generation: None,
        max_duration_s: 60,
        traceparent: None,
        depth: 0,
    };
    Job { offer, definition: Arc::new(definition), earlier: Vec::new(), leaving: CancellationToken::new() }
}

fn script(steps: Value) -> (TempDir, String) {
    let place = folder(&[("script.json", &json!({ "steps": steps }).to_string())]);
    let model = format!("script:{}", place.path().join("script.json").display());
    (place, model)
}

async fn run(job: Job) -> (Outcome, Vec<DeviceEvent>) {
    let (sender, mut receiver) = mpsc::channel(64);
    let outcome = execute(job, sender, CancellationToken::new()).await;
    let mut events = Vec::new();
    while let Some(report) = receiver.recv().await {
        if let Progress::Event(event) = report {
            events.push(event);
        }
    }
    (outcome, events)
}

fn text(outcome: &Outcome) -> &str {
    match outcome {
        Outcome::Succeeded { result, .. } => &result.text,
        other => panic!("not a success: {other:?}"),
    }
}

fn code(outcome: &Outcome) -> RunErrorCode {
    match outcome {
        Outcome::Failed { error, .. } if error.effects == Effects::None => error.code,
        other => panic!("not a failure without effects: {other:?}"),
    }
}

#[tokio::test]
async fn the_folder_model_says_what_really_stands_in_the_folder() {
    let folder = folder(&[("README.md", "# Harbour plan\n\nTide tables.\n"), ("b.txt", "the lantern is green\n")]);
    let (outcome, events) = run(job(folder.path(), "folder", "What about \"lantern\"?")).await;
    let answer = text(&outcome);
    for part in [
        "scripted assistant",
        "2 files",
        "- README.md",
        "> # Harbour plan",
        "> Tide tables.",
        "> b.txt:1:the lantern is green",
    ] {
        assert!(answer.contains(part), "{part:?} is missing in:\n{answer}");
    }
    let Outcome::Succeeded { usage, .. } = &outcome else { panic!() };
    assert_eq!((usage.model_calls, usage.tool_calls, usage.input_tokens), (3, 5, 0));
    // The calls of a turn run beside each other.
    let mut kinds: Vec<_> =
        events.iter().map(|event| serde_json::to_value(event).expect("serialises")["type"].clone()).collect();
    let mut expected = vec!["usage_updated"];
    for calls in [3, 2] {
        expected.extend(std::iter::repeat_n("tool_completed", calls).chain(std::iter::repeat_n("tool_started", calls)));
        expected.extend(if calls == 3 { &["usage_updated"][..] } else { &["message_completed", "usage_updated"] });
    }
    for turn in kinds.split_mut(|kind| kind == "usage_updated" || kind == "message_completed") {
        turn.sort_by_key(ToString::to_string);
    }
    assert_eq!(kinds, expected);
}

#[tokio::test]
async fn a_script_reads_with_the_real_tool_and_puts_the_result_into_its_answer() {
    let folder = folder(&[("data.txt", "seven seals")]);
    let (_place, model) = script(json!([
        { "tool": "Read", "arguments": { "file_path": "{{input}}" } },
        { "text": "It says:\n{{last_tool_result}}" }
    ]));
    let (outcome, events) = run(job(folder.path(), &model, "data.txt")).await;
    assert_eq!(text(&outcome), "It says:\n     1\tseven seals");
    let completed = DeviceEvent::ToolCompleted {
        call_id: "call_1_1".into(),
        tool: "Read".into(),
        kind: ToolKind::Read,
        status: ToolStatus::Ok,
    };
    assert!(events.contains(&completed));
}

#[tokio::test]
async fn every_mistake_of_a_model_is_told_to_it_and_the_run_goes_on() {
    let outside = folder(&[("secret.txt", "SECRET")]);
    let folder = folder(&[]);
    let secret = outside.path().join("secret.txt");
    for (tool, arguments, answer) in [
        ("Bash", json!({ "command": "ls" }), "no such tool"),
        ("Read", json!("file.txt"), "one JSON object"),
        ("Read", json!({ "path": "x" }), "do not fit"),
        ("Read", json!({ "file_path": 7 }), "do not fit"),
        ("Read", json!({ "file_path": secret }), "outside"),
        ("Grep", json!({ "pattern": "(" }), "regular expression"),
        ("Glob", json!({ "pattern": "[" }), "not valid"),
    ] {
        let (_place, model) =
            script(json!([{ "tool": tool, "arguments": arguments }, { "text": "{{last_tool_result}}" }]));
        let (outcome, _) = run(job(folder.path(), &model, "x")).await;
        let told = text(&outcome);
        assert!(told.contains(answer) && !told.contains("SECRET"), "{tool} {arguments} was told {told:?}");
    }
}

#[tokio::test]
async fn a_tool_that_the_definition_leaves_out_does_not_run() {
    let folder = folder(&[("a.txt", "CONTENTS")]);
    let (_place, model) = script(json!([
        { "tool": "Read", "arguments": { "file_path": "a.txt" } },
        { "text": "{{last_tool_result}}" }
    ]));
    let mut job = job(folder.path(), &model, "x");
    Arc::make_mut(&mut job.definition).tools = vec![ToolName::Glob];
    let (outcome, events) = run(job).await;
    assert!(text(&outcome).contains("Its tools are: Glob"));
    assert!(!events.iter().any(|event| matches!(event, DeviceEvent::ToolStarted { .. })));
}

#[tokio::test]
async fn a_working_directory_that_is_missing_or_a_file_fails_the_run_without_naming_it() {
    let folder = folder(&[("file", "")]);
    for path in ["gone", "file"] {
        let (outcome, events) = run(job(&folder.path().join(path), "folder", "x")).await;
        assert_eq!(code(&outcome), RunErrorCode::ToolError);
        assert!(events.is_empty());
        let Outcome::Failed { error, .. } = outcome else { panic!() };
        assert!(!error.message.contains(folder.path().to_str().expect("text")));
    }
}

#[tokio::test]
async fn a_conversation_without_tools_needs_no_working_directory() {
    let (_place, model) = script(json!([{ "text": "hello" }]));
    let mut job = job(Path::new("/nonexistent"), &model, "x");
    Arc::make_mut(&mut job.definition).tools = Vec::new();
    assert_eq!(text(&run(job).await.0), "hello");
}

#[tokio::test]
async fn a_skill_gives_its_instructions_when_asked_for_also_without_other_tools() {
    let ask = |name: &str| json!({ "tool": "Skill", "arguments": { "skill": name } });
    let (_place, model) = script(json!([ask("magic"), ask("refunds"), { "text": "{{last_tool_result}}" }]));
    let mut job = job(Path::new("/nonexistent"), &model, "x");
    let definition = Arc::make_mut(&mut job.definition);
    definition.tools = Vec::new();
    definition.skills = vec![Skill {
        name: "refunds".to_owned(),
        description: "Use when money goes back.".to_owned(),
        instructions: "Be kind.".to_owned(),
        source: "/srv/skills/refunds".into(),
    }];
    let (outcome, events) = run(job).await;
    assert_eq!(text(&outcome), "Be kind.");
    let completed = |event: &DeviceEvent| match event {
        DeviceEvent::ToolCompleted { tool, status, .. } => Some((tool.clone(), *status)),
        _ => None,
    };
    let tools: Vec<_> = events.iter().filter_map(completed).collect();
    assert_eq!(tools, [("Skill".to_owned(), ToolStatus::Error), ("Skill".to_owned(), ToolStatus::Ok)]);
}

#[tokio::test]
async fn a_working_directory_that_vanishes_during_the_run_ends_it() {
    let folder = folder(&[("a.txt", "x")]);
    let read = json!({ "tool": "Read", "arguments": { "file_path": "a.txt" } });
    let (_place, model) = script(json!([read, { "text": "still here" }, read, { "text": "end" }]));
    let (sender, mut receiver) = mpsc::channel(1);
    let running = tokio::spawn(execute(job(folder.path(), &model, "x"), sender, CancellationToken::new()));
    // The channel of one delays the run: the second Read cannot begin before this message is received.
    while let Some(event) = receiver.recv().await {
        if matches!(event, Progress::Event(DeviceEvent::ToolCompleted { .. })) {
            break;
        }
    }
    folder.close().expect("removed");
    while receiver.recv().await.is_some() {}
    assert_eq!(code(&running.await.expect("no panic")), RunErrorCode::ToolError);
}

#[tokio::test]
async fn a_bad_script_fails_the_run_and_is_not_worth_a_second_try() {
    let folder = folder(&[]);
    let (_place, model) = script(json!([{ "nonsense": 1 }]));
    for model in [model.as_str(), "script:/nonexistent", "gpt"] {
        let (outcome, _) = run(job(folder.path(), model, "x")).await;
        assert_eq!(code(&outcome), RunErrorCode::ModelError);
        assert!(matches!(outcome, Outcome::Failed { error, .. } if !error.retryable));
    }
}

#[tokio::test]
async fn errors_of_a_model_become_the_runs_error() {
    let folder = folder(&[]);
    for (kind, expected) in [("auth", RunErrorCode::ModelAuth), ("model", RunErrorCode::ModelError)] {
        let (_place, model) = script(json!([{ "error": { "kind": kind, "message": "The key is old." } }]));
        let (outcome, _) = run(job(folder.path(), &model, "x")).await;
        assert_eq!(code(&outcome), expected);
        assert!(matches!(outcome, Outcome::Failed { error, .. } if error.message == "The key is old."));
    }
}

#[tokio::test]
async fn an_overloaded_model_is_asked_again() {
    let folder = folder(&[]);
    let (_place, model) = script(json!([{ "error": { "kind": "overloaded", "times": 1 } }, { "text": "now" }]));
    let (outcome, _) = run(job(folder.path(), &model, "x")).await;
    assert_eq!(text(&outcome), "now");
    assert!(matches!(outcome, Outcome::Succeeded { usage, .. } if usage.model_calls == 2));
}

#[tokio::test]
async fn an_answer_cut_at_a_token_limit_says_so() {
    let folder = folder(&[]);
    let (_place, model) = script(json!([{ "text": "half an ans" }, { "end": "length" }]));
    let (outcome, _) = run(job(folder.path(), &model, "x")).await;
    assert!(matches!(outcome, Outcome::Succeeded { result, .. } if result.finish_reason == FinishReason::Length));
}

#[tokio::test]
async fn the_shorter_of_both_durations_ends_the_run() {
    let folder = folder(&[]);
    let (_place, model) = script(json!([{ "delay_ms": 3_600_000 }, { "text": "late" }]));
    let mut offered = job(folder.path(), &model, "x");
    offered.offer.max_duration_s = 0;
    let mut defined = job(folder.path(), &model, "x");
    Arc::make_mut(&mut defined.definition).limits.max_duration_s = 0;
    for job in [offered, defined] {
        assert_eq!(code(&run(job).await.0), RunErrorCode::MaxDurationExceeded);
    }
}

#[tokio::test]
async fn turns_are_limited() {
    let folder = folder(&[]);
    let mut job = job(folder.path(), "folder", "x");
    Arc::make_mut(&mut job.definition).limits.max_turns = 1;
    assert_eq!(code(&run(job).await.0), RunErrorCode::MaxTurnsExceeded);
}

#[tokio::test]
async fn a_stop_ends_a_waiting_run_as_cancelled_without_effects() {
    let folder = folder(&[]);
    let (_place, model) =
        script(json!([{ "tool": "Glob", "arguments": { "pattern": "*" } }, { "delay_ms": 3_600_000 }]));
    let (sender, mut receiver) = mpsc::channel(64);
    let stop = CancellationToken::new();
    let running = tokio::spawn(execute(job(folder.path(), &model, "x"), sender, stop.clone()));
    while !matches!(receiver.recv().await.expect("runs"), Progress::Event(DeviceEvent::ToolCompleted { .. })) {}
    stop.cancel();
    let outcome = running.await.expect("no panic");
    assert!(matches!(outcome, Outcome::Cancelled { effects: Effects::None, usage } if usage.tool_calls == 1));
}

#[tokio::test]
async fn a_run_that_is_stopped_before_it_begins_does_nothing() {
    let stop = CancellationToken::new();
    stop.cancel();
    let (sender, mut receiver) = mpsc::channel(1);
    let outcome = execute(job(Path::new("/nonexistent"), "folder", "x"), sender, stop).await;
    assert!(matches!(outcome, Outcome::Cancelled { .. }));
    assert!(receiver.recv().await.is_none());
}

#[tokio::test]
async fn a_run_whose_events_nobody_wants_still_has_its_outcome() {
    let folder = folder(&[]);
    let (sender, receiver) = mpsc::channel(1);
    drop(receiver);
    let outcome = execute(job(folder.path(), "folder", "x"), sender, CancellationToken::new()).await;
    assert!(text(&outcome).contains("no files"));
}

#[tokio::test]
async fn a_script_that_answers_at_once_goes_through_in_no_time() {
    let folder = folder(&[]);
    let (_place, model) = script(json!([{ "text": "done" }]));
    let (_disk, store) = journal().await;
    let mut times = Vec::new();
    for _ in 0..200 {
        let (reports, _events) = mpsc::channel(64);
        let begin = std::time::Instant::now();
        let job = job(folder.path(), &model, "x");
        let outcome = execute_with(store.clone(), job, reports, CancellationToken::new()).await;
        times.push(begin.elapsed());
        assert_eq!(text(&outcome), "done");
    }
    times.sort();
    println!("execute(): p50 {:?}, p99 {:?}", times[100], times[198]);
    // A debug build on a busy machine: what most take says more about the machine.
    assert!(times[20] < Duration::from_millis(25), "{:?}", times[20]);
}

#[tokio::test]
async fn a_message_that_is_written_slowly_is_said_in_pieces_that_make_up_the_whole() {
    let folder = folder(&[]);
    let pause = json!({ "delay_ms": 80 });
    let (_place, model) =
        script(json!([{ "text": "One, " }, pause, { "text": "two, " }, { "text": "thr" }, pause, { "text": "ee." }]));
    let (sender, mut receiver) = mpsc::channel(64);
    let outcome = execute(job(folder.path(), &model, "count"), sender, CancellationToken::new()).await;
    let (mut said, mut completed, mut ends) = (String::new(), None, false);
    let mut pieces = 0;
    while let Some(progress) = receiver.recv().await {
        match progress {
            Progress::Delta(delta) => {
                assert_eq!((delta.message_id.as_str(), delta.offset), ("msg_1_1", said.len() as u64));
                assert_eq!(completed, None, "nothing is said after the whole");
                said.push_str(&delta.text);
                pieces += 1;
            }
            Progress::Ends => ends = true,
            Progress::Event(DeviceEvent::MessageCompleted { text, .. }) => {
                assert!(ends, "it is the last message");
                completed = Some(text);
            }
            Progress::Event(_) | Progress::Summary(_) | Progress::Outdated(_) => {}
        }
    }
    assert_eq!((said.as_str(), text(&outcome)), ("One, two, three.", "One, two, three."));
    assert_eq!(completed.as_deref(), Some("One, two, three."));
    assert!((2..=3).contains(&pieces), "{pieces}");
}
