//! Conversations between a model, its tools and a run, and states that no sequence of events can reach.

mod tokens;

use deskgate_assistant::{ErrorKind, ModelError, ModelEvent, StopReason, TokenUsage, ToolAnswer, ToolCall};
use deskgate_definition::approvals::{ApprovalPolicy, Rule, RuleAction};
use deskgate_definition::tool::{Plan, PlanPreview, PlannedCall, ToolFailure, ToolOutput, ToolResult};
use deskgate_protocol::Timestamp;
use deskgate_protocol::control::DeviceEvent;
use deskgate_protocol::run::{FinishReason, RunError};
use proptest::prelude::*;
use serde_json::json;

use super::calls::{MAX_READING_CALLS, MAX_TOOL_CALLS};
use super::reply::{MAX_MALFORMED_ATTEMPTS, MAX_MESSAGE_BYTES};
use super::*;

mod approvals;
mod outdated;
mod result;

const SECOND: Duration = Duration::from_secs(1);

/// A run with the tools Read (which reads) and Write (which writes), of an owner who allows everything.
fn turn(max_turns: u32) -> Turn {
    Turn::new(setup(max_turns))
}

/// A setup in which every call runs without a question.
fn setup(max_turns: u32) -> Setup {
    let all = Rule { action: RuleAction::Allow, tool: "*".into(), path: None };
    setup_under(max_turns, ApprovalPolicy { rules: vec![all], ..ApprovalPolicy::default() })
}

fn turn_under(max_turns: u32, approvals: ApprovalPolicy) -> Turn {
    Turn::new(setup_under(max_turns, approvals))
}

fn setup_under(max_turns: u32, approvals: ApprovalPolicy) -> Setup {
    let spec = |name: &str| ToolSpec { name: name.into(), description: String::new(), parameters: json!({}) };
    Setup {
        system: "system".into(),
        messages: vec![Message::User { text: "hello".into(), details: None }],
        tools: vec![(ToolKind::Read, spec("Read")), (ToolKind::Write, spec("Write"))],
        output: None,
        max_turns,
        max_output_tokens: None,
        context_tokens: None,
        facts: ModelFacts::default(),
        shares_cost: false,
        budget: Budget::default(),
        spent: Spending::default(),
        is_counted: false,
        effort: None,
        summaries: ReasoningSummaries::Owner,
        max_duration: Duration::from_secs(3600),
        run_attempt: 2,
        rules: approvals.rulebook().expect("rules"),
        effects: Effects::None,
        uncertain: Vec::new(),
    }
}

/// Feeds a test's events in order, and returns the last effects in short words, but for what was spent. Plans and journal
/// writes are answered by themselves.
fn after(turn: &mut Turn, events: impl IntoIterator<Item = TurnEvent>) -> Vec<String> {
    let effects = events.into_iter().map(|event| with_its_steps(turn, event)).last().expect("events");
    effects.iter().filter(|effect| !matches!(effect, TurnEffect::Spent(_))).map(words).collect()
}

/// Gives an event to the turn. A tool without an identifier is the one that runs longest.
fn on(turn: &mut Turn, event: TurnEvent) -> Vec<TurnEffect> {
    let event = match (event, &turn.state) {
        (TurnEvent::ToolFinished { call_id, result }, TurnState::Working(work)) if call_id.is_empty() => {
            TurnEvent::ToolFinished { call_id: work.oldest_running().unwrap_or_default().to_owned(), result }
        }
        (event, _) => event,
    };
    acts(turn.on(event, SECOND))
}

/// The effects but for what is kept of ended calls, which has a test of its own.
fn acts(effects: Vec<TurnEffect>) -> Vec<TurnEffect> {
    effects.into_iter().filter(|effect| !matches!(effect, TurnEffect::KeepCall(_))).collect()
}

fn with_its_steps(turn: &mut Turn, event: TurnEvent) -> Vec<TurnEffect> {
    let mut effects = on(turn, event);
    loop {
        let next = match effects.last() {
            Some(TurnEffect::Plan { .. }) => TurnEvent::Planned(Ok(plan("a.txt"))),
            Some(TurnEffect::Begin { .. }) => TurnEvent::Begun,
            Some(TurnEffect::Note { .. }) => TurnEvent::Noted,
            _ => return effects,
        };
        effects.pop();
        effects.extend(acts(turn.on(next, SECOND)));
    }
}

fn plan(place: &str) -> Plan {
    Plan { place: Some(place.into()), shown: PlanPreview::Arguments }
}

fn words(effect: &TurnEffect) -> String {
    match effect {
        TurnEffect::CallModel(request) => format!("call the model with {} messages", request.messages.len()),
        TurnEffect::RetryIn(pause) => format!("retry in {} ms", pause.as_millis()),
        TurnEffect::RunTool { name, .. } => format!("run {name}"),
        TurnEffect::Plan { tool, .. } => format!("plan {tool}"),
        TurnEffect::Ask(request) if request.follows.is_some() => format!("ask again for {}", request.call.tool),
        TurnEffect::Ask(request) => format!("ask for {} because {:?}", request.call.tool, request.why),
        TurnEffect::AwaitAnswer(_) => "wait for an answer".to_owned(),
        TurnEffect::Withdraw(_) => "withdraw".to_owned(),
        TurnEffect::NotDone { why, .. } => format!("not done: {why}"),
        TurnEffect::Begin { call, basis: CallBasis::Rules } => format!("begin {} by the rules", call.tool),
        TurnEffect::Begin { call, basis: CallBasis::Approval(_) } => format!("begin {} by approval", call.tool),
        TurnEffect::Begin { call, basis: CallBasis::Grant(_) } => format!("begin {} by a grant", call.tool),
        TurnEffect::CheckData { data, .. } => format!("check {data}"),
        TurnEffect::Note { ok, .. } => format!("note {ok}"),
        TurnEffect::KeepCall(call) => format!("keep {} {:?}", call.tool, call.output),
        TurnEffect::Emit(DeviceEvent::ToolStarted { call_id, tool, .. }) => format!("{call_id} {tool} started"),
        TurnEffect::Emit(DeviceEvent::ToolCompleted { call_id, tool, status, .. }) => {
            format!("{call_id} {tool} completed {status:?}")
        }
        TurnEffect::Emit(DeviceEvent::MessageCompleted { message_id, text, reasoning_summary: None }) => {
            format!("{message_id} {text:?}")
        }
        TurnEffect::Emit(DeviceEvent::MessageCompleted { message_id, text, reasoning_summary: Some(why) }) => {
            format!("{message_id} {text:?} because {why:?}")
        }
        TurnEffect::Say(delta) => format!("{} at {}: {:?}", delta.message_id, delta.offset, delta.text),
        TurnEffect::Emit(DeviceEvent::UsageUpdated { usage, model_unavailable: false }) => {
            format!("usage after {} calls", usage.model_calls)
        }
        TurnEffect::Emit(DeviceEvent::UsageUpdated { model_unavailable: true, .. }) => "the model is away".to_owned(),
        TurnEffect::Remember { said, .. } => format!("remember {said:?}"),
        TurnEffect::Reserve(expected) => format!("reserve {} tokens", expected.input_tokens),
        TurnEffect::Spent(spent) => format!("spent {} + {} tokens", spent.input_tokens, spent.output_tokens),
        TurnEffect::KeepFailure(error) => format!("keep {:?}", error.kind),
        TurnEffect::Emit(DeviceEvent::ApprovalRequested { call_id, tool, .. }) => format!("{call_id} {tool} held"),
        TurnEffect::Emit(DeviceEvent::ApprovalResolved { resolution, .. }) => format!("{resolution:?}"),
        TurnEffect::Finish(Outcome::Succeeded { result, .. }) => format!("succeeded {:?}", result.text),
        TurnEffect::Finish(Outcome::Failed { error, .. }) => format!("failed {:?}", error.code),
        TurnEffect::Finish(Outcome::Cancelled { effects, .. }) => format!("cancelled {effects:?}"),
    }
}

fn says(text: &str) -> TurnEvent {
    TurnEvent::Model(ModelEvent::TextDelta(text.into()))
}

fn calls(tool: &str) -> TurnEvent {
    TurnEvent::Model(ModelEvent::ToolCall(ToolCall {
        id: format!("id of {tool}"),
        name: tool.into(),
        arguments: json!({}),
    }))
}

fn ends() -> TurnEvent {
    TurnEvent::Model(ModelEvent::End(StopReason::Completed))
}

fn fails(kind: ErrorKind, retryable: bool) -> TurnEvent {
    TurnEvent::Model(ModelEvent::Error(ModelError { retryable, ..ModelError::new(kind, "out of order") }))
}

fn answers(text: &str) -> TurnEvent {
    tool_ends(Ok(ToolOutput::ok(text)))
}

/// The end of the call that runs longest.
fn tool_ends(result: ToolResult) -> TurnEvent {
    TurnEvent::ToolFinished { call_id: String::new(), result }
}

/// The end of the turn's call with this number.
fn call_ends(number: u32, text: &str) -> TurnEvent {
    TurnEvent::ToolFinished { call_id: format!("call_2_{number}"), result: Ok(ToolOutput::ok(text)) }
}

fn conversation(turn: &Turn) -> &[Message] {
    &turn.messages
}

#[test]
fn a_question_is_answered() {
    let mut turn = turn(9);
    assert_eq!(after(&mut turn, [TurnEvent::Started]), ["call the model with 1 messages"]);
    assert_eq!(
        after(&mut turn, [says("Good "), says("day."), ends()]),
        ["msg_2_1 \"Good day.\"", "usage after 1 calls", "succeeded \"Good day.\""]
    );
}

#[test]
fn what_the_model_writes_is_said_at_once_with_its_place_counted_in_characters() {
    let mut turn = turn(9);
    assert_eq!(after(&mut turn, [TurnEvent::Started, says("Größe: ")]), ["msg_2_1 at 0: \"Größe: \""]);
    assert_eq!(after(&mut turn, [says("3")]), ["msg_2_1 at 7: \"3\""]);
    // A retried model begins the same message anew.
    assert_eq!(after(&mut turn, [fails(ErrorKind::Overloaded, true)]), ["the model is away", "retry in 250 ms"]);
    let back = ["usage after 2 calls", "msg_2_1 at 0: \"Four\""];
    assert_eq!(after(&mut turn, [TurnEvent::RetryDue, says("Four")]), back);
    assert_eq!(after(&mut turn, [calls("Read"), ends(), answers("text"), says("x")]), ["msg_2_2 at 0: \"x\""]);
}

#[test]
fn nothing_is_said_that_the_finished_message_will_not_report() {
    let mut turn = turn(9);
    after(&mut turn, [TurnEvent::Started, says(&"x".repeat(MAX_MESSAGE_BYTES - 1))]);
    assert_eq!(after(&mut turn, [says("yz")]), [format!("msg_2_1 at {}: \"y\"", MAX_MESSAGE_BYTES - 1)]);
    assert!(after(&mut turn, [says("more")]).is_empty());
}

#[test]
fn calls_that_read_run_beside_each_other_and_are_answered_in_their_order() {
    let mut turn = turn(9);
    assert_eq!(
        after(&mut turn, [TurnEvent::Started, says("I look."), calls("Read"), calls("Read"), ends()]),
        [
            "msg_2_1 \"I look.\"",
            "usage after 1 calls",
            "call_2_1 Read started",
            "run Read",
            "call_2_2 Read started",
            "run Read"
        ]
    );
    assert_eq!(after(&mut turn, [call_ends(2, "text")]), ["call_2_2 Read completed Ok"]);
    assert!(after(&mut turn, [call_ends(2, "again"), call_ends(3, "never called")]).is_empty());
    assert_eq!(
        after(&mut turn, [tool_ends(Ok(ToolOutput::error("no such file")))]),
        ["call_2_1 Read completed Error", "call the model with 3 messages"]
    );
    let results = [("no such file", true), ("text", false)]
        .map(|(text, is_error)| ToolAnswer::text("id of Read", text, is_error));
    assert_eq!(conversation(&turn)[2], Message::ToolResults(results.into()));
}

#[test]
fn a_call_that_may_write_runs_alone_and_in_its_place() {
    let mut turn = turn(9);
    let told = after(&mut turn, [TurnEvent::Started, calls("Read"), calls("Write"), calls("Read"), ends()]);
    assert_eq!(told[1..], ["call_2_1 Read started", "run Read"]);
    let told = after(&mut turn, [answers("before")]);
    assert_eq!(told, ["call_2_1 Read completed Ok", "call_2_2 Write started", "run Write"]);
    let told = after(&mut turn, [answers("written")]);
    assert_eq!(told, ["call_2_2 Write completed Ok", "call_2_3 Read started", "run Read"]);
    assert_eq!(after(&mut turn, [answers("after")])[1], "call the model with 3 messages");
}

#[test]
fn a_question_waits_until_no_call_runs() {
    let ask = Rule { action: RuleAction::Ask, tool: "Read".into(), path: Some("b.txt".into()) };
    let all = Rule { action: RuleAction::Allow, tool: "*".into(), path: None };
    let mut turn = turn_under(9, ApprovalPolicy { rules: vec![ask, all], ..ApprovalPolicy::default() });
    after(&mut turn, [TurnEvent::Started, calls("Read"), calls("Read"), calls("Read")]);
    let one = |turn: &mut Turn, event| on(turn, event).iter().map(words).collect::<Vec<_>>();
    one(&mut turn, ends());
    one(&mut turn, TurnEvent::Planned(Ok(plan("a.txt"))));
    assert_eq!(one(&mut turn, TurnEvent::Begun), ["call_2_1 Read started", "run Read", "plan Read"]);
    assert!(one(&mut turn, TurnEvent::Planned(Ok(plan("b.txt")))).is_empty(), "the first still runs");
    assert_eq!(one(&mut turn, answers("a")), ["call_2_1 Read completed Ok", "ask for Read because \"\""]);
    one(&mut turn, approvals::asked());
    assert_eq!(one(&mut turn, TurnEvent::Answered(ApprovalAnswer::Once)), ["Approved", "plan Read"]);
    one(&mut turn, TurnEvent::Planned(Ok(plan("b.txt"))));
    assert_eq!(one(&mut turn, TurnEvent::Begun), ["call_2_2 Read started", "run Read", "plan Read"]);
}

#[test]
fn so_many_calls_read_at_once_and_the_next_when_one_has_ended() {
    let mut turn = turn(9);
    turn.on(TurnEvent::Started, SECOND);
    (0..MAX_READING_CALLS + 1).for_each(|_| drop(turn.on(calls("Read"), SECOND)));
    let running = |told: &[String]| told.iter().filter(|word| *word == "run Read").count();
    assert_eq!(running(&after(&mut turn, [ends()])), MAX_READING_CALLS);
    assert_eq!(running(&after(&mut turn, [call_ends(5, "text")])), 1);
    assert_eq!(running(&after(&mut turn, [call_ends(6, "text")])), 0);
}

#[test]
fn a_tool_that_the_service_does_not_have_is_told_to_the_model_and_nothing_runs() {
    let mut turn = turn(9);
    assert_eq!(
        after(&mut turn, [TurnEvent::Started, calls("Bash"), ends()]),
        ["usage after 1 calls", "call the model with 3 messages"]
    );
    let Message::ToolResults(results) = &conversation(&turn)[2] else { panic!("results") };
    assert!(results[0].is_error && results[0].text.contains("Read, Write"), "{results:?}");
    assert_eq!(turn.usage.tool_calls, 0);
}

#[test]
fn a_model_that_never_stops_calling_meets_the_limit_of_turns() {
    let mut turn = turn(2);
    after(&mut turn, [TurnEvent::Started, calls("Read"), ends(), answers("1"), calls("Read"), ends()]);
    assert_eq!(after(&mut turn, [answers("2")]), ["call_2_2 Read completed Ok", "failed MaxTurnsExceeded"]);
    assert_eq!(turn.usage.model_calls, 2);
}

#[test]
fn a_stream_that_breaks_off_is_a_failure_and_its_calls_never_run() {
    let mut turn = turn(9);
    assert_eq!(after(&mut turn, [TurnEvent::Started, calls("Write"), TurnEvent::ModelClosed])[1], "retry in 250 ms");
    assert_eq!(after(&mut turn, [TurnEvent::RetryDue]), ["call the model with 1 messages"]);
    assert_eq!(after(&mut turn, [says("Whole."), ends()])[2], "succeeded \"Whole.\"");
    assert_eq!(turn.usage.model_calls, 2);
}

#[test]
fn answers_that_are_none_are_tried_six_times_with_growing_pauses() {
    let mut turn = turn(9);
    let mut seen = after(&mut turn, [TurnEvent::Started, fails(ErrorKind::Protocol, true)]);
    for _ in 1..MAX_MALFORMED_ATTEMPTS {
        seen.extend(after(&mut turn, [TurnEvent::RetryDue, fails(ErrorKind::Protocol, true)]));
    }
    let pauses = [250, 500, 1000, 2000, 4000].map(|ms| format!("retry in {ms} ms"));
    assert_eq!(seen[..5], pauses);
    assert_eq!(seen[5], "failed ModelError");
}

#[test]
fn a_provider_that_is_away_is_asked_again_until_the_time_is_over() {
    for kind in [ErrorKind::Overloaded, ErrorKind::Unreachable] {
        let mut turn = turn(9);
        let mut awake = Duration::ZERO;
        turn.on(TurnEvent::Started, awake);
        let mut asked = 0;
        let failed = loop {
            match &turn.on(fails(kind, true), awake)[..] {
                [TurnEffect::RetryIn(pause)] | [TurnEffect::Emit(_), TurnEffect::RetryIn(pause)] => {
                    assert!(*pause <= Duration::from_secs(60), "{pause:?}");
                    awake += *pause;
                }
                [TurnEffect::Finish(outcome)] => break outcome.clone(),
                other => panic!("{other:?}"),
            }
            asked += 1;
            turn.on(TurnEvent::RetryDue, awake);
        };
        assert!(awake > Duration::from_secs(3598) && (60..100).contains(&asked), "{asked} times in {awake:?}");
        let Outcome::Failed { error, .. } = failed else { panic!("{failed:?}") };
        assert!(error.retryable && error.message.contains("out of order") && error.message.contains("time was over"));
    }
    // What a provider asks for is kept; if it is more than there is, nobody waits for it.
    let asks = |seconds| {
        let error =
            ModelError { retry_after: Some(SECOND * seconds), ..ModelError::new(ErrorKind::Overloaded, "busy") };
        TurnEvent::Model(ModelEvent::Error(error.as_retryable()))
    };
    assert_eq!(after(&mut turn(9), [TurnEvent::Started, asks(100)])[1], "retry in 100000 ms");
    assert_eq!(after(&mut turn(9), [TurnEvent::Started, asks(4000)]), ["failed ModelError"]);
}

#[test]
fn time_that_ends_in_an_outage_is_said_to_be_one() {
    let mut turn = turn(9);
    after(&mut turn, [TurnEvent::Started, fails(ErrorKind::Unreachable, true), TurnEvent::RetryDue]);
    assert_eq!(after(&mut turn, [TurnEvent::Deadline]), ["failed ModelError"]);
    // Once it is back, the time is over as any other.
    let mut turn = self::turn(9);
    after(&mut turn, [TurnEvent::Started, fails(ErrorKind::Unreachable, true), TurnEvent::RetryDue, says("x")]);
    assert_eq!(after(&mut turn, [TurnEvent::Deadline]), ["failed MaxDurationExceeded"]);
}

#[test]
fn a_failure_after_an_outage_is_its_own_and_an_outage_uses_up_no_attempts() {
    let mut turn = turn(9);
    after(&mut turn, [TurnEvent::Started, fails(ErrorKind::Overloaded, true), TurnEvent::RetryDue]);
    assert_eq!(after(&mut turn, [fails(ErrorKind::Auth, false)]), ["usage after 2 calls", "failed ModelAuth"]);
    let mut turn = self::turn(9);
    turn.on(TurnEvent::Started, SECOND);
    for _ in 0..10 {
        after(&mut turn, [fails(ErrorKind::Unreachable, true), TurnEvent::RetryDue]);
    }
    let told = after(&mut turn, [fails(ErrorKind::Protocol, true)]);
    assert!(told[0].starts_with("usage") && told[1].starts_with("retry in"), "{told:?}");
}

#[test]
fn why_a_call_is_made_is_the_text_or_else_the_reasoning_that_the_owner_reads() {
    let thinks = || TurnEvent::Model(ModelEvent::ReasoningDelta("r".repeat(3000)));
    let (off, owner) = (ReasoningSummaries::Off, ReasoningSummaries::Owner);
    for (text, summaries, why) in [("", owner, "[cut here]"), ("I save.", owner, "I save."), ("", off, "")] {
        let setup = Setup { summaries, ..setup_under(9, ApprovalPolicy::default()) };
        let mut turn = Turn::new(setup);
        turn.on(TurnEvent::Started, SECOND);
        (0..2).for_each(|_| drop(turn.on(thinks(), SECOND)));
        if !text.is_empty() {
            turn.on(says(text), SECOND);
        }
        turn.on(calls("Write"), SECOND);
        turn.on(ends(), SECOND);
        let planned = TurnEvent::Planned(Ok(Plan { place: None, shown: PlanPreview::Arguments }));
        match &turn.on(planned, SECOND)[..] {
            [TurnEffect::Ask(request)] => {
                assert!(request.why.ends_with(why) && (why.is_empty() == request.why.is_empty()))
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn callers_read_the_reasoning_only_if_the_service_says_so() {
    let thinks = || TurnEvent::Model(ModelEvent::ReasoningDelta("It is in\n orders.txt. ".into()));
    let told = |summaries| {
        let mut turn = Turn::new(Setup { summaries, ..setup(9) });
        let first = after(&mut turn, [TurnEvent::Started, thinks(), calls("Read"), ends()]);
        let last = after(&mut turn, [answers("x"), thinks(), says("Three."), ends()]);
        let messages = |effects: Vec<String>| effects.into_iter().find(|effect| effect.starts_with("msg_2_"));
        (messages(first), messages(last))
    };
    for summaries in [ReasoningSummaries::Off, ReasoningSummaries::Owner] {
        assert_eq!(told(summaries), (None, Some("msg_2_1 \"Three.\"".to_owned())));
    }
    let because = |text: &str| Some(format!("{text} because \"It is in\\n orders.txt.\""));
    assert_eq!(told(ReasoningSummaries::Callers), (because("msg_2_1 \"\""), because("msg_2_2 \"Three.\"")));
}

#[test]
fn a_model_that_comes_back_with_a_refusal_is_said_to_be_back() {
    let mut turn = turn(9);
    after(&mut turn, [TurnEvent::Started, calls("Read"), ends(), answers("x")]);
    let away = after(&mut turn, [fails(ErrorKind::Unreachable, true)]);
    assert_eq!(away[0], "the model is away");
    let back = after(&mut turn, [TurnEvent::RetryDue, fails(ErrorKind::Reasoning, false)]);
    assert!(back[0].starts_with("usage") && back[1].starts_with("call the model"), "{back:?}");
}

#[test]
fn reasoning_that_is_not_taken_back_is_left_out_once() {
    let mut turn = turn(9);
    after(&mut turn, [TurnEvent::Started, calls("Read"), ends(), answers("x")]);
    let refuses = || fails(ErrorKind::Reasoning, false);
    assert_eq!(after(&mut turn, [refuses()]), ["call the model with 3 messages"]);
    let natives =
        conversation(&turn).iter().filter(|message| matches!(message, Message::Assistant { native: Some(_), .. }));
    assert_eq!(natives.count(), 0);
    assert_eq!(after(&mut turn, [refuses()]), ["failed ModelError"]);
}

#[test]
fn a_call_that_was_cut_is_asked_for_once_more_and_then_the_run_says_where_it_was_cut() {
    let length = || TurnEvent::Model(ModelEvent::End(StopReason::Length));
    let cut = || TurnEvent::Model(ModelEvent::CutCall("Write".to_owned()));
    let wrote =
        |output_tokens| TurnEvent::Model(ModelEvent::Usage(TokenUsage { output_tokens, ..TokenUsage::default() }));
    let mut turn = turn(9);
    let told = after(&mut turn, [TurnEvent::Started, says("I save."), calls("Read"), cut(), wrote(8192), length()]);
    assert_eq!(told, ["usage after 1 calls", "call the model with 1 messages"], "nothing of it runs");
    match &turn.on(cut(), SECOND)[..] {
        [] => {}
        other => panic!("{other:?}"),
    }
    match &after_effects(&mut turn, [wrote(16_384), length()])[..] {
        [_, TurnEffect::Finish(Outcome::Failed { error, .. })] => {
            assert!(error.message.contains("call of Write") && error.message.contains("16384"), "{}", error.message);
            assert_eq!((error.effects, error.retryable), (Effects::None, false));
        }
        other => panic!("{other:?}"),
    }
    // A higher limit that is refused is not a conversation that is too long.
    let mut turn = self::turn(9);
    after(&mut turn, [TurnEvent::Started, cut(), wrote(8192), length()]);
    assert_eq!(after(&mut turn, [fails(ErrorKind::TooLong, false)]), ["failed ModelError"]);
    // Where the model's own limit was reached, there is no higher one.
    let facts = ModelFacts { max_output_tokens: Some(8192), ..ModelFacts::default() };
    let mut turn = Turn::new(Setup { facts, ..setup(9) });
    assert_eq!(after(&mut turn, [TurnEvent::Started, cut(), wrote(8192), length()])[1], "failed ModelError");
    // Nothing but reasoning is no answer either.
    let mut turn = self::turn(9);
    let told = after(&mut turn, [TurnEvent::Started, wrote(8192), length()]);
    assert_eq!(told, ["usage after 1 calls", "call the model with 1 messages"]);
}

fn after_effects(turn: &mut Turn, events: impl IntoIterator<Item = TurnEvent>) -> Vec<TurnEffect> {
    let mut effects = events.into_iter().map(|event| turn.on(event, SECOND)).last().expect("events");
    effects.retain(|effect| !matches!(effect, TurnEffect::Spent(_)));
    effects
}

#[test]
fn each_turn_has_its_own_attempts() {
    let mut turn = turn(9);
    after(
        &mut turn,
        [TurnEvent::Started, fails(ErrorKind::Overloaded, true), TurnEvent::RetryDue, calls("Read"), ends()],
    );
    assert_eq!(after(&mut turn, [answers(""), fails(ErrorKind::Overloaded, true)])[1], "retry in 250 ms");
}

#[test]
fn a_refused_credential_ends_the_run_at_once() {
    assert_eq!(after(&mut turn(9), [TurnEvent::Started, fails(ErrorKind::Auth, false)]), ["failed ModelAuth"]);
}

#[test]
fn an_empty_answer_and_a_refusal_are_failures() {
    assert_eq!(after(&mut turn(9), [TurnEvent::Started, says(" \n"), ends()])[2], "failed ModelError");
    let refusal = TurnEvent::Model(ModelEvent::End(StopReason::Refused));
    assert_eq!(after(&mut turn(9), [TurnEvent::Started, says("No."), refusal])[2], "failed ModelError");
}

#[test]
fn a_removed_working_directory_ends_the_run_as_a_tool_error() {
    let mut turn = turn(9);
    after(&mut turn, [TurnEvent::Started, calls("Read"), ends()]);
    assert_eq!(
        after(&mut turn, [tool_ends(Err(ToolFailure::WorkspaceGone))]),
        ["call_2_1 Read completed Error", "failed ToolError"]
    );
}

#[test]
fn a_stop_says_whether_anything_may_have_been_written() {
    let mut reading = turn(9);
    after(&mut reading, [TurnEvent::Started, calls("Read"), ends()]);
    assert_eq!(after(&mut reading, [TurnEvent::Stop]), ["cancelled None"]);
    let mut writing = turn(9);
    after(&mut writing, [TurnEvent::Started, calls("Write"), ends()]);
    assert_eq!(after(&mut writing, [TurnEvent::Stop]), ["cancelled Possible"]);
}

#[test]
fn the_end_of_time_is_a_failure_of_its_own_and_usage_says_how_long_it_took() {
    let mut turn = turn(9);
    turn.on(TurnEvent::Started, Duration::ZERO);
    let usage =
        TurnEvent::Model(ModelEvent::Usage(TokenUsage { input_tokens: 7, output_tokens: 2, ..TokenUsage::default() }));
    turn.on(usage, SECOND);
    match &turn.on(TurnEvent::Deadline, 5 * SECOND)[..] {
        [
            TurnEffect::Spent(_),
            TurnEffect::Finish(Outcome::Failed { error: RunError { code, effects, .. }, usage }),
        ] => {
            assert_eq!((*code, *effects), (RunErrorCode::MaxDurationExceeded, Effects::None));
            assert_eq!((usage.model_calls, usage.active_seconds), (1, 5.0));
            assert_eq!((usage.input_tokens, usage.output_tokens), (7, 2), "what was cut off counts too");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn tokens_of_failed_and_whole_calls_are_added_up() {
    let mut turn = turn(9);
    let tokens = |input_tokens| TokenUsage { input_tokens, output_tokens: 1, ..TokenUsage::default() };
    let usage = |input_tokens| TurnEvent::Model(ModelEvent::Usage(tokens(input_tokens)));
    // Within a call the last count is valid: 3, then 5 in all.
    after(&mut turn, [TurnEvent::Started, usage(3), usage(5), fails(ErrorKind::Overloaded, true), TurnEvent::RetryDue]);
    after(&mut turn, [usage(10), says("x"), ends()]);
    assert_eq!((turn.usage.input_tokens, turn.usage.output_tokens), (15, 2));
}

#[test]
fn a_long_message_is_reported_in_part_and_kept_whole() {
    let mut turn = turn(9);
    turn.on(TurnEvent::Started, SECOND);
    turn.on(says(&"é".repeat(50_000)), SECOND);
    let effects = turn.on(ends(), SECOND);
    let TurnEffect::Emit(DeviceEvent::MessageCompleted { text, .. }) = &effects[0] else { panic!("{effects:?}") };
    assert_eq!(text.len(), 60_000);
    let TurnEffect::Finish(Outcome::Succeeded { result, .. }) = &effects[2] else { panic!("{effects:?}") };
    assert_eq!((result.text.len(), result.finish_reason), (100_000, FinishReason::Completed));
}

#[test]
fn endless_text_is_kept_up_to_the_limit_and_called_cut() {
    let mut turn = turn(9);
    turn.on(TurnEvent::Started, SECOND);
    for _ in 0..3 {
        turn.on(says(&"é".repeat(300_000)), SECOND);
    }
    turn.on(says("x"), SECOND);
    let Some(TurnEffect::Finish(Outcome::Succeeded { result, .. })) = turn.on(ends(), SECOND).pop() else { panic!() };
    assert_eq!(result.finish_reason, FinishReason::Length);
    assert!(result.text.chars().all(|c| c == 'é') && result.text.len() > 1_000_000);
}

#[test]
fn a_call_beyond_the_most_of_one_turn_is_refused_and_the_others_run() {
    let mut turn = turn(9);
    turn.on(TurnEvent::Started, SECOND);
    (0..MAX_TOOL_CALLS + 2).for_each(|_| assert!(turn.on(calls("Read"), SECOND).is_empty()));
    after(&mut turn, [ends()]);
    let told = (0..MAX_TOOL_CALLS).map(|_| after(&mut turn, [answers("text")])).last().expect("many");
    assert_eq!(told[1], "call the model with 3 messages");
    let Message::ToolResults(results) = &conversation(&turn)[2] else { panic!("results") };
    assert_eq!(results.len(), MAX_TOOL_CALLS + 2);
    let refused = results.iter().filter(|result| result.is_error && result.text.contains("limit"));
    assert_eq!((refused.count(), turn.usage.tool_calls), (2, MAX_TOOL_CALLS as u64));
}

fn any_event() -> impl Strategy<Value = TurnEvent> {
    prop_oneof![
        4 => Just(0).prop_map(|_| TurnEvent::Started),
        4 => Just(0).prop_map(|_| says("text")),
        4 => prop_oneof![Just("Read"), Just("Write"), Just("Result"), Just("Nothing")].prop_map(calls),
        6 => Just(0).prop_map(|_| ends()),
        1 => Just(0).prop_map(|_| fails(ErrorKind::Auth, false)),
        2 => Just(0).prop_map(|_| fails(ErrorKind::Overloaded, true)),
        2 => Just(0).prop_map(|_| fails(ErrorKind::TooLong, false)),
        1 => Just(0).prop_map(|_| fails(ErrorKind::Reasoning, false)),
        1 => Just(0).prop_map(|_| TurnEvent::Model(ModelEvent::CutCall("Write".to_owned()))),
        2 => Just(0).prop_map(|_| TurnEvent::ModelClosed),
        4 => Just(0).prop_map(|_| TurnEvent::RetryDue),
        6 => Just(0).prop_map(|_| answers("result")),
        3 => Just(0).prop_map(|_| tool_ends(Ok(ToolOutput::outdated("changed")))),
        9 => prop_oneof![Just("a.txt"), Just("b.txt"), Just("keys/a")].prop_map(|place| TurnEvent::Planned(Ok(plan(place)))),
        1 => Just(0).prop_map(|_| TurnEvent::Planned(Err(ToolOutput::error("no")))),
        6 => Just(0).prop_map(|_| approvals::asked()),
        6 => approvals::any_answer().prop_map(TurnEvent::Answered),
        9 => Just(0).prop_map(|_| TurnEvent::Begun),
        2 => Just(0).prop_map(|_| TurnEvent::AsksFirst),
        6 => Just(0).prop_map(|_| TurnEvent::Noted),
        1 => Just(0).prop_map(|_| TurnEvent::NotWritten),
        1 => Just(0).prop_map(|_| tool_ends(Err(ToolFailure::WorkspaceGone))),
        1 => Just(0).prop_map(|_| TurnEvent::Checked(Ok(()))),
        6 => Just(0).prop_map(|_| result::misfit()),
        1 => Just(0).prop_map(|_| TurnEvent::Stop),
        1 => Just(0).prop_map(|_| TurnEvent::Deadline),
    ]
}

proptest! {
    #[test]
    fn no_sequence_of_events_ends_a_run_twice_or_does_two_things_at_once(
        events in prop::collection::vec(any_event(), 0..120),
        max_turns in 0u32..5,
        gives_data: bool,
    ) {
        let output = gives_data.then(result::output);
        let mut turn = Turn::new(Setup { output, ..setup(max_turns) });
        let mut finished = false;
        let mut tools = Vec::new();
        let mut pauses = 0;
        for event in events {
            pauses += u64::from(matches!(event, TurnEvent::RetryDue));
            let ending = matches!(event, TurnEvent::Stop | TurnEvent::Deadline) && !finished;
            let finishes_tool =
                matches!(event, TurnEvent::ToolFinished { .. } | TurnEvent::Noted | TurnEvent::Checked(_));
            let says_no = matches!(event, TurnEvent::Planned(Err(_)));
            let effects = on(&mut turn, event);
            prop_assert!(!finished || effects.is_empty(), "something came after the end: {:?}", effects);
            let ends_at_once = matches!(
                effects[..],
                [TurnEffect::Finish(_)] | [TurnEffect::Withdraw(_) | TurnEffect::NotDone { .. }, TurnEffect::Finish(_)]
            );
            prop_assert!(!ending || ends_at_once);
            let completed = effects.iter().any(|e| matches!(e, TurnEffect::Emit(DeviceEvent::ToolCompleted { .. })));
            let not_done = effects.iter().any(|effect| matches!(effect, TurnEffect::NotDone { .. }));
            prop_assert!(!completed || finishes_tool || says_no || not_done);
            for effect in &effects {
                if let TurnEffect::Emit(DeviceEvent::ToolCompleted { call_id, .. }) = effect {
                    tools.retain(|(running, _)| running != call_id);
                }
            }
            let asked = effects.iter().filter(|effect| {
                let asks = matches!(effect, TurnEffect::Plan { .. } | TurnEffect::Ask(_) | TurnEffect::AwaitAnswer(_));
                let writes =
                    matches!(effect, TurnEffect::Begin { .. } | TurnEffect::Note { .. } | TurnEffect::CheckData { .. });
                let works = matches!(effect, TurnEffect::CallModel(_) | TurnEffect::RetryIn(_));
                asks || writes || works || matches!(effect, TurnEffect::Finish(_))
            });
            prop_assert!(asked.count() <= 1);
            for effect in &effects {
                prop_assert!(!finished, "something came after the end");
                finished |= matches!(effect, TurnEffect::Finish(_));
                if let TurnEffect::RunTool { call_id, name, .. } = effect {
                    tools.push((call_id.clone(), name.clone()));
                }
                let thinks = matches!(effect, TurnEffect::CallModel(_) | TurnEffect::AwaitAnswer(_));
                prop_assert!(!thinks || tools.is_empty(), "it waits for the tools");
            }
            prop_assert!(tools.len() <= MAX_READING_CALLS);
            prop_assert!(tools.len() <= 1 || tools.iter().all(|(_, tool)| tool == "Read"), "one writes alone");
            // Each turn may be asked, summed up, asked with a higher limit and without reasoning; more only when a pause ends.
            prop_assert!(turn.usage.model_calls <= u64::from(max_turns * 6) + pauses);
        }
        // After any events: a stop ends a run that has not ended.
        let end = turn.on(TurnEvent::Stop, SECOND);
        let ends = end.iter().filter(|effect| matches!(effect, TurnEffect::Finish(_))).count();
        prop_assert_eq!(ends, usize::from(!finished));
        // Every answered call directly follows its message, so that providers accept it.
        for pair in turn.messages.windows(2) {
            if let Message::Assistant { tool_calls, .. } = &pair[0]
                && !(gives_data && tool_calls.is_empty())
            {
                let Message::ToolResults(results) = &pair[1] else { panic!("a call without its result") };
                prop_assert_eq!(tool_calls.len(), results.len());
            }
        }
    }
}
