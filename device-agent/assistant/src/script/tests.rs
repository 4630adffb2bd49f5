//! What a script plays, and which scripts are refused.

use super::*;
use crate::ToolAnswer;

fn script(steps: Value) -> Script {
    Script::parse(&json!({ "steps": steps }).to_string()).expect("a good script")
}

fn refused(steps: Value) -> String {
    Script::parse(&json!({ "steps": steps }).to_string()).expect_err("a bad script").to_string()
}

fn asked(text: &str) -> Message {
    Message::User { text: text.to_owned(), details: None }
}

/// Plays the next turn and appends its messages to the conversation, as a run would.
fn play(script: &Script, conversation: &mut Vec<Message>, result: &str) -> Vec<ScriptAction> {
    let actions = script.turn(conversation, |_| 0);
    let calls: Vec<_> = actions
        .iter()
        .filter_map(|action| match action {
            ScriptAction::Say(ModelEvent::ToolCall(call)) => Some(call.clone()),
            _ => None,
        })
        .collect();
    let answers = calls.iter().map(|call| ToolAnswer::text(call.id.clone(), result.to_owned(), false)).collect();
    conversation.push(Message::assistant("", calls));
    conversation.push(Message::ToolResults(answers));
    actions
}

fn say(text: &str) -> ScriptAction {
    ScriptAction::Say(ModelEvent::TextDelta(text.to_owned()))
}

fn end(reason: StopReason) -> ScriptAction {
    ScriptAction::Say(ModelEvent::End(reason))
}

fn call(step: usize, name: &str, arguments: Value) -> ScriptAction {
    ScriptAction::Say(ModelEvent::ToolCall(ToolCall { id: format!("step_{step}"), name: name.to_owned(), arguments }))
}

#[test]
fn tools_that_stand_together_are_one_turn_and_the_rest_waits_for_their_results() {
    let script = script(json!([
        { "text": "I look." },
        { "tool": "Read", "arguments": { "file_path": "{{input}}" } },
        { "tool": "Glob", "arguments": { "pattern": ["{{input}}/*"] } },
        { "delay_ms": 5 },
        { "text": "Found: {{last_tool_result}}" },
        { "text": " {{input}}" }
    ]));
    let mut conversation = vec![asked("a.txt")];
    assert_eq!(
        play(&script, &mut conversation, "{{input}} is not looked at again"),
        [
            say("I look."),
            call(2, "Read", json!({ "file_path": "a.txt" })),
            call(3, "Glob", json!({ "pattern": ["a.txt/*"] })),
            end(StopReason::Completed)
        ]
    );
    assert_eq!(
        play(&script, &mut conversation, ""),
        [
            ScriptAction::Wait(5),
            say("Found: {{input}} is not looked at again"),
            say(" a.txt"),
            end(StopReason::Completed)
        ]
    );
}

#[test]
fn a_script_that_ends_with_a_tool_says_that_it_is_over() {
    let script = script(json!([{ "tool": "Anything" }]));
    let mut conversation = vec![asked("x")];
    assert_eq!(play(&script, &mut conversation, ""), [call(1, "Anything", json!({})), end(StopReason::Completed)]);
    assert!(
        matches!(&play(&script, &mut conversation, "")[0], ScriptAction::Say(ModelEvent::TextDelta(text)) if text.contains("to the end"))
    );
}

#[test]
fn an_error_with_times_is_played_so_often_and_then_passed() {
    let script = script(json!([{ "error": { "kind": "overloaded", "times": 2 } }, { "text": "done" }]));
    for played in 0..2 {
        let actions = script.turn(&[asked("x")], |_| played);
        assert!(
            matches!(&actions[..], [ScriptAction::Say(ModelEvent::Error(error))] if error.retryable && error.kind == ErrorKind::Overloaded)
        );
    }
    assert_eq!(script.turn(&[asked("x")], |_| 2), [say("done"), end(StopReason::Completed)]);
}

#[test]
fn a_cut_ends_without_an_end_event_and_a_length_says_so() {
    let cut = script(json!([{ "text": "half" }, { "end": "cut" }]));
    assert_eq!(cut.turn(&[asked("x")], |_| 0), [say("half")]);
    let length = script(json!([{ "text": "half" }, { "end": "length" }]));
    assert_eq!(length.turn(&[asked("x")], |_| 0), [say("half"), end(StopReason::Length)]);
}

#[test]
fn a_bad_script_is_refused_with_the_number_of_the_step() {
    let ok = json!({ "text": "x" });
    for (steps, number, why) in [
        (json!([ok, { "text": 1 }]), 2, "string"),
        (json!([{ "text": "x", "tool": "Read" }]), 1, "unknown field"),
        (json!([{ "say": "x" }]), 1, "\"delay_ms\""),
        (json!(["x"]), 1, "an object"),
        (json!([{ "delay_ms": 3_600_001 }]), 1, "at most"),
        (json!([{ "delay_ms": -1 }]), 1, "invalid value"),
        (json!([{ "error": { "kind": "tired" } }]), 1, "unknown variant"),
        (json!([{ "error": { "kind": "auth" } }, ok]), 1, "nothing after it"),
        (json!([ok, { "end": "completed" }, ok]), 2, "last step"),
        (json!([ok, ok, { "text": "{{name}}" }]), 3, "{{name}} is unknown"),
        (json!([{ "tool": "Read", "arguments": { "a": ["{{b}}"] } }]), 1, "{{b}} is unknown"),
    ] {
        let message = refused(steps);
        assert!(message.contains(&format!("step {number} ")) && message.contains(why), "{message}");
    }
    assert_eq!(refused(json!([])), "the script has no steps");
    for text in ["", "[]", "{\"steps\": [], \"more\": 1}"] {
        assert!(matches!(Script::parse(text), Err(ScriptError::Shape(_))), "{text}");
    }
}

#[test]
fn a_missing_an_endless_and_a_huge_script_file_are_refused() {
    assert!(matches!(Script::load(Path::new("/nonexistent/play.json")), Err(ScriptError::Unreadable(_))));
    assert!(matches!(Script::load(Path::new("/dev/zero")), Err(ScriptError::Unreadable(_))));
    let huge = tempfile::NamedTempFile::new().expect("a file");
    huge.as_file().set_len(MAX_SCRIPT_BYTES + 1).expect("grows");
    assert!(matches!(Script::load(huge.path()), Err(ScriptError::TooLarge)));
}

#[test]
fn in_a_conversation_a_script_begins_anew_with_each_message_and_can_quote_the_earlier_ones() {
    let script = script(json!([
        { "tool": "Read", "arguments": { "file_path": "a" } },
        { "text": "{{earlier}}now {{input}}: {{last_tool_result}}" }
    ]));
    let answered = |text: &str| Message::assistant(text, Vec::new());
    let mut conversation = vec![asked("one"), answered("first"), asked("two")];
    let first = play(&script, &mut conversation, "content");
    assert!(matches!(&first[0], ScriptAction::Say(ModelEvent::ToolCall(_))), "{first:?}");
    let second = script.turn(&conversation, |_| 0);
    assert_eq!(second[0], say("user: one\nassistant: first\nnow two: content"));
}
