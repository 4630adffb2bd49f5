//! Runs whose result is data.

use deskgate_definition::tool::RESULT_TOOL;
use deskgate_schema::{DataSchema, Finding, Mismatch};

use super::*;

pub(super) fn output() -> ResultSchema {
    let schema = DataSchema::read(json!({ "type": "object" })).expect("a schema");
    ResultSchema { name: "answer".to_owned(), schema: Arc::new(schema) }
}

/// A run with an output, of an owner whose rules deny everything.
fn typed_turn(max_output_tokens: Option<u64>) -> Turn {
    let deny = Rule { action: RuleAction::Deny, tool: "*".into(), path: None };
    let approvals = ApprovalPolicy { rules: vec![deny], ..ApprovalPolicy::default() };
    Turn::new(Setup { output: Some(output()), max_output_tokens, ..setup_under(9, approvals) })
}

fn gives(count: u32) -> TurnEvent {
    TurnEvent::Model(ModelEvent::ToolCall(ToolCall {
        id: format!("id of {count}"),
        name: RESULT_TOOL.to_owned(),
        arguments: json!({ "count": count }),
    }))
}

pub(super) fn misfit() -> TurnEvent {
    let found = Finding { pointer: "/count".to_owned(), detail: "it is too small".to_owned() };
    TurnEvent::Checked(Err(Mismatch(vec![found])))
}

const FITS: TurnEvent = TurnEvent::Checked(Ok(()));

#[test]
fn data_that_fits_ends_the_run_and_what_was_called_behind_it_never_runs() {
    let mut turn = typed_turn(None);
    let told = after(&mut turn, [TurnEvent::Started, says("I counted."), gives(2), calls("Write"), gives(3), ends()]);
    assert_eq!(told[1..], ["usage after 1 calls", "call_2_1 Result started", "check {\"count\":2}"]);
    assert_eq!(after(&mut turn, [FITS]), ["call_2_1 Result completed Ok", "succeeded \"I counted.\""]);
    assert!(after(&mut turn, [FITS, TurnEvent::Stop]).is_empty(), "nothing follows an end");
    assert_eq!(turn.usage.tool_calls, 1);
}

#[test]
fn data_is_given_after_the_calls_before_it_have_ended() {
    let mut turn = Turn::new(Setup { output: Some(output()), ..setup(9) });
    let told = after(&mut turn, [TurnEvent::Started, calls("Read"), gives(2), ends()]);
    assert_eq!(told[1..], ["call_2_1 Read started", "run Read"], "{told:?}");
    let told = after(&mut turn, [answers("text")]);
    assert_eq!(told, ["call_2_1 Read completed Ok", "call_2_2 Result started", "check {\"count\":2}"]);
}

#[test]
fn the_third_misfit_ends_the_run_with_its_place() {
    let mut turn = typed_turn(None);
    after(&mut turn, [TurnEvent::Started, gives(1), ends()]);
    assert_eq!(after(&mut turn, [misfit()]), ["call_2_1 Result completed Error", "call the model with 3 messages"]);
    let Some(Message::ToolResults(told)) = conversation(&turn).last() else { panic!("{:?}", conversation(&turn)) };
    assert!(told[0].is_error && told[0].text.contains("/count: it is too small"), "{told:?}");
    after(&mut turn, [gives(1), ends(), misfit(), gives(1), ends()]);
    assert_eq!(after(&mut turn, [misfit()]), ["call_2_3 Result completed Error", "failed OutputMismatch"]);
}

#[test]
fn an_end_in_words_is_reminded_once_and_data_in_words_is_data() {
    let mut turn = typed_turn(None);
    let told = after(&mut turn, [TurnEvent::Started, says("Two."), ends()]);
    assert_eq!(told.last().expect("told"), "call the model with 3 messages");
    let Some(Message::User { text, .. }) = conversation(&turn).last() else { panic!("{:?}", conversation(&turn)) };
    assert!(text.contains(RESULT_TOOL), "{text}");
    assert_eq!(after(&mut turn, [says("Two, as I said."), ends()]).last().expect("told"), "failed OutputMismatch");

    let mut turn = typed_turn(None);
    let told = after(&mut turn, [TurnEvent::Started, says("{\"count\":2}"), ends()]);
    assert_eq!(told.last().expect("told"), "check {\"count\":2}");
    assert_eq!(after(&mut turn, [misfit()]), ["call the model with 3 messages"]);
    assert_eq!(after(&mut turn, [says("{\"count\":3}"), ends()]).last().expect("told"), "check {\"count\":3}");
    assert_eq!(after(&mut turn, [FITS]), ["succeeded \"{\\\"count\\\":3}\""]);

    let mut turn = typed_turn(None);
    let told = after(&mut turn, [TurnEvent::Started, ends()]);
    assert_eq!(told.last().expect("told"), "call the model with 3 messages", "silence is an end in words");
}

#[test]
fn a_stop_and_the_end_of_time_count_while_data_is_checked() {
    for (event, end) in [(TurnEvent::Stop, "cancelled"), (TurnEvent::Deadline, "failed MaxDurationExceeded")] {
        let mut turn = typed_turn(None);
        after(&mut turn, [TurnEvent::Started, gives(2), ends()]);
        let told = after(&mut turn, [event]);
        assert!(told.last().is_some_and(|last| last.starts_with(end)), "{told:?}");
        assert!(after(&mut turn, [FITS]).is_empty());
    }
}

#[test]
fn data_that_uses_up_the_last_tokens_is_given_all_the_same() {
    let mut turn = typed_turn(Some(10));
    let tokens = TokenUsage { output_tokens: 10, ..TokenUsage::default() };
    let told = after(&mut turn, [TurnEvent::Started, gives(2), TurnEvent::Model(ModelEvent::Usage(tokens)), ends()]);
    assert_eq!(told.last().expect("told"), "check {\"count\":2}");
    assert_eq!(after(&mut turn, [FITS]).last().expect("told"), "succeeded \"{\\\"count\\\":2}\"");
}
