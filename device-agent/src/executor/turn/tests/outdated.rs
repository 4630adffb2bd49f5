//! Approved calls that would do something else by now: asked anew, or told as not carried out.

use deskgate_definition::approvals::OnDenial;

use super::approvals::{asked, asking, told};
use super::*;

const CHANGED_TEXT: &str = "The file changed.";

fn changed(from: &str) -> Plan {
    let of = |text: &str| deskgate_protocol::canonical::Sha256Digest::of(text.as_bytes());
    let shown = PlanPreview::Change { before: Some(of(from)), after: of("new"), diff: from.to_owned() };
    Plan { place: Some("a.txt".into()), shown }
}

fn one(turn: &mut Turn, event: TurnEvent) -> Vec<String> {
    on(turn, event).iter().map(words).collect()
}

fn finds_it_changed() -> TurnEvent {
    tool_ends(Ok(ToolOutput::outdated(CHANGED_TEXT)))
}

/// Answers yes to what is asked, and plans it from this content.
fn approve(turn: &mut Turn, from: &str) -> Vec<String> {
    assert_eq!(one(turn, TurnEvent::Answered(ApprovalAnswer::Once)), ["Approved", "plan Write"]);
    one(turn, TurnEvent::Planned(Ok(changed(from))))
}

#[test]
fn a_person_is_asked_anew_twice_and_then_the_call_fails_and_they_are_told() {
    let mut turn = asking(OnDenial::TellAssistant);
    for from in ["one", "two"] {
        assert_eq!(approve(&mut turn, from), ["ask again for Write"]);
        one(&mut turn, asked());
    }
    let ends = approve(&mut turn, "three");
    let reason = "not done: what it would change was changed by something else each time after you allowed it";
    assert_eq!(ends[..3], ["call_2_1 Write started", "call_2_1 Write completed Error", reason]);
    assert!(told(&turn).contains("each time after the owner had allowed it"), "{}", told(&turn));
    assert_eq!(turn.effects, Effects::None);
}

#[test]
fn a_call_that_finds_its_file_changed_as_it_begins_is_noted_and_asked_about_anew_as_another_call() {
    let mut turn = asking(OnDenial::TellAssistant);
    one(&mut turn, TurnEvent::Answered(ApprovalAnswer::Once));
    assert_eq!(one(&mut turn, TurnEvent::Planned(Ok(plan("a.txt")))), ["begin Write by approval"]);
    one(&mut turn, TurnEvent::Begun);
    assert_eq!(one(&mut turn, finds_it_changed()), ["note false"]);
    assert_eq!(one(&mut turn, TurnEvent::Noted), ["call_2_1 Write completed Error", "plan Write"]);
    assert_eq!(one(&mut turn, TurnEvent::Planned(Ok(changed("old")))), ["ask again for Write"]);
    assert_eq!(one(&mut turn, asked()), ["call_2_2 Write held", "wait for an answer"]);
    assert_eq!(approve(&mut turn, "old"), ["begin Write by approval"]);
    assert_eq!(one(&mut turn, TurnEvent::Begun), ["call_2_2 Write started", "run Write"]);
}

#[test]
fn a_file_that_changes_back_and_forth_does_not_keep_a_call_beginning_for_ever() {
    let mut turn = asking(OnDenial::TellAssistant);
    one(&mut turn, TurnEvent::Answered(ApprovalAnswer::Once));
    let mut last = Vec::new();
    for _ in 0..3 {
        assert_eq!(one(&mut turn, TurnEvent::Planned(Ok(plan("a.txt")))), ["begin Write by approval"]);
        one(&mut turn, TurnEvent::Begun);
        one(&mut turn, finds_it_changed());
        last = one(&mut turn, TurnEvent::Noted);
    }
    assert!(last[0].ends_with("completed Error") && last[1].starts_with("not done"), "{last:?}");
}

#[test]
fn a_call_that_cannot_be_planned_any_more_is_told_to_the_model_and_to_the_person() {
    let mut turn = asking(OnDenial::TellAssistant);
    one(&mut turn, TurnEvent::Answered(ApprovalAnswer::Once));
    let ends = one(&mut turn, TurnEvent::Planned(Err(ToolOutput::error("The text is gone."))));
    assert_eq!(ends[..3], ["not done: The text is gone.", "call_2_1 Write started", "call_2_1 Write completed Error"]);
    assert_eq!(told(&turn), "The text is gone.");
}

#[test]
fn a_yes_for_the_run_does_not_cover_another_difference_of_the_call_that_was_shown() {
    let mut turn = asking(OnDenial::TellAssistant);
    one(&mut turn, TurnEvent::Answered(ApprovalAnswer::ForRun));
    assert_eq!(one(&mut turn, TurnEvent::Planned(Ok(changed("old")))), ["ask again for Write"]);
}

#[test]
fn a_call_by_the_rules_that_finds_its_file_changed_is_told_to_the_model_alone() {
    let allow = Rule { action: RuleAction::Allow, tool: "Write".into(), path: None };
    let mut turn = turn_under(9, ApprovalPolicy { rules: vec![allow], ..ApprovalPolicy::default() });
    after(&mut turn, [TurnEvent::Started, calls("Write"), ends()]);
    assert_eq!(one(&mut turn, finds_it_changed()), ["note false"]);
    assert_eq!(one(&mut turn, TurnEvent::Noted)[0], "call_2_1 Write completed Error");
    assert_eq!(told(&turn), CHANGED_TEXT);
}

#[test]
fn an_approved_call_whose_run_ends_before_it_begins_is_told_as_not_carried_out() {
    let mut turn = asking(OnDenial::TellAssistant);
    one(&mut turn, TurnEvent::Answered(ApprovalAnswer::Once));
    assert_eq!(one(&mut turn, TurnEvent::Stop), ["not done: the run ended before it began", "cancelled None"]);
}
