//! Calls that people decide about: which run, which do not, and which no sequence of events lets through.

use deskgate_definition::approvals::OnDenial;
use deskgate_protocol::control::ApprovalResolution;

use super::*;

/// Every writing call asks; files in `keys` are denied.
fn held(on_denial: OnDenial) -> Turn {
    let deny = Rule { action: RuleAction::Deny, tool: "*".into(), path: Some("keys".into()) };
    turn_under(9, ApprovalPolicy { rules: vec![deny], on_denial, ..ApprovalPolicy::default() })
}

pub(super) fn asked() -> TurnEvent {
    TurnEvent::Asked { approval_id: ApprovalId::new(), expires_at: Timestamp::now() }
}

pub(super) fn any_answer() -> impl Strategy<Value = ApprovalAnswer> {
    let reasons = prop_oneof![Just(None), Just(Some("Not now.".to_owned()))];
    prop_oneof![
        3 => Just(ApprovalAnswer::Once),
        2 => Just(ApprovalAnswer::ForRun),
        1 => reasons.prop_map(|reason| ApprovalAnswer::Denied { reason }),
        1 => Just(ApprovalAnswer::Expired),
    ]
}

/// Up to the moment in which a person is asked about a write to `a.txt`.
pub(super) fn asking(on_denial: OnDenial) -> Turn {
    let mut turn = held(on_denial);
    let asks = after(&mut turn, [TurnEvent::Started, says("I save it."), calls("Write"), ends()]);
    assert_eq!(asks[2..], ["ask for Write because \"I save it.\""]);
    assert_eq!(after(&mut turn, [asked()]), ["call_2_1 Write held", "wait for an answer"]);
    turn
}

pub(super) fn told(turn: &Turn) -> String {
    match turn.messages.last() {
        Some(Message::ToolResults(answers)) => answers.iter().map(|answer| answer.text.as_str()).collect(),
        other => panic!("no answers: {other:?}"),
    }
}

/// The calls that an event lets the turn keep, in words.
fn keeps(turn: &mut Turn, event: TurnEvent) -> Vec<String> {
    let effects = turn.on(event, SECOND);
    effects.iter().filter(|effect| matches!(effect, TurnEffect::KeepCall(_))).map(words).collect()
}

#[test]
fn a_call_is_kept_when_it_ends_and_when_it_is_refused_with_what_the_model_is_told() {
    let mut turn = turn(9);
    after(&mut turn, [TurnEvent::Started, calls("Read"), ends()]);
    let result = Ok(ToolOutput::error("no such file"));
    let finished = TurnEvent::ToolFinished { call_id: "call_2_1".to_owned(), result };
    assert_eq!(keeps(&mut turn, finished), ["keep Read \"no such file\""]);

    let mut turn = asking(OnDenial::TellAssistant);
    assert!(keeps(&mut turn, TurnEvent::Answered(ApprovalAnswer::Once)).is_empty(), "it has not begun");
    let gone = TurnEvent::Planned(Err(ToolOutput::error("the text is gone")));
    assert_eq!(keeps(&mut turn, gone), ["keep Write \"the text is gone\""]);

    for on_denial in [OnDenial::TellAssistant, OnDenial::EndRun] {
        let mut turn = asking(on_denial);
        let denied = TurnEvent::Answered(ApprovalAnswer::Denied { reason: Some("Not now.".to_owned()) });
        assert_eq!(keeps(&mut turn, denied), ["keep Write \"The owner did not allow this call, and says: Not now.\""]);
    }

    let mut turn = held(OnDenial::TellAssistant);
    for event in [TurnEvent::Started, calls("Read"), ends()] {
        on(&mut turn, event);
    }
    let denied = keeps(&mut turn, TurnEvent::Planned(Ok(plan("keys"))));
    assert!(denied[0].starts_with("keep Read \"The owner's rules"), "{denied:?}");
}

#[test]
fn a_yes_lets_the_call_run_once_it_was_planned_anew_and_is_in_the_journal() {
    let mut turn = asking(OnDenial::TellAssistant);
    let one = |turn: &mut Turn, event| on(turn, event).iter().map(words).collect::<Vec<_>>();
    assert_eq!(one(&mut turn, TurnEvent::Answered(ApprovalAnswer::Once)), ["Approved", "plan Write"]);
    assert_eq!(one(&mut turn, TurnEvent::Planned(Ok(plan("a.txt")))), ["begin Write by approval"]);
    assert_eq!(turn.effects, Effects::None, "it has not begun");
    assert_eq!(one(&mut turn, TurnEvent::Begun), ["call_2_1 Write started", "run Write"]);
    assert_eq!(turn.effects, Effects::Possible);
    assert_eq!(one(&mut turn, answers("saved")), ["note true"]);
    assert_eq!(one(&mut turn, TurnEvent::Noted), ["call_2_1 Write completed Ok", "call the model with 3 messages"]);
    assert_eq!(turn.effects, Effects::Known);
    // An approval for one call covers one call.
    let asks = after(&mut turn, [calls("Write"), ends()]);
    assert_eq!(asks.last().expect("asks"), "ask for Write because \"\"");
}

#[test]
fn what_would_do_something_else_by_now_than_what_was_seen_is_asked_again() {
    let mut turn = asking(OnDenial::TellAssistant);
    turn.on(TurnEvent::Answered(ApprovalAnswer::Once), SECOND);
    let asks = turn.on(TurnEvent::Planned(Ok(plan("b/a.txt"))), SECOND);
    assert_eq!(asks.iter().map(words).collect::<Vec<_>>(), ["ask again for Write"]);
    // A call that is now denied is not even asked about.
    after(&mut turn, [asked()]);
    turn.on(TurnEvent::Answered(ApprovalAnswer::Once), SECOND);
    turn.on(TurnEvent::Planned(Ok(plan("keys/a.txt"))), SECOND);
    assert!(told(&turn).contains("rules"), "{}", told(&turn));
}

#[test]
fn a_change_that_is_only_drawn_otherwise_is_not_asked_again_and_begins_as_it_was_seen() {
    let change = |before: &str, after: &str, diff: &str| {
        let of = |text: &str| deskgate_protocol::canonical::Sha256Digest::of(text.as_bytes());
        let shown = PlanPreview::Change { before: Some(of(before)), after: of(after), diff: diff.to_owned() };
        Plan { place: Some("a.txt".into()), shown }
    };
    let seen = change("old", "new", "in few lines");
    let then = |plan: Plan| {
        let mut turn = held(OnDenial::TellAssistant);
        after(&mut turn, [TurnEvent::Started, calls("Write")]);
        turn.on(ends(), SECOND);
        turn.on(TurnEvent::Planned(Ok(seen.clone())), SECOND);
        turn.on(asked(), SECOND);
        turn.on(TurnEvent::Answered(ApprovalAnswer::Once), SECOND);
        turn.on(TurnEvent::Planned(Ok(plan)), SECOND)
    };
    match &then(change("old", "new", "in many lines"))[..] {
        [TurnEffect::Begin { call, basis: CallBasis::Approval(_) }] => assert_eq!(call.plan, seen),
        other => panic!("{other:?}"),
    }
    let elsewhere = Plan { place: Some("b.txt".into()), ..seen.clone() };
    for other in [change("older", "new", "in few lines"), change("old", "newer", "in few lines"), elsewhere] {
        assert_eq!(then(other).iter().map(words).collect::<Vec<_>>(), ["ask again for Write"]);
    }
}

#[test]
fn a_yes_for_the_run_is_about_one_tool_in_one_folder() {
    let mut turn = asking(OnDenial::TellAssistant);
    assert_eq!(after(&mut turn, [TurnEvent::Answered(ApprovalAnswer::ForRun)])[2], "run Write");
    after(&mut turn, [answers("saved")]);
    let next = |turn: &mut Turn, place: &str| {
        after(turn, [says("."), calls("Write")]);
        turn.on(ends(), SECOND);
        let effects = turn.on(TurnEvent::Planned(Ok(plan(place))), SECOND);
        effects.iter().map(words).collect::<Vec<_>>()
    };
    assert_eq!(next(&mut turn, "b.txt"), ["begin Write by a grant"]);
    after(&mut turn, [TurnEvent::Begun, answers("saved")]);
    assert_eq!(next(&mut turn, "docs/b.txt"), ["ask for Write because \".\""]);
    after(&mut turn, [asked(), TurnEvent::Answered(ApprovalAnswer::Expired)]);
    after(&mut turn, [calls("Write")]);
    turn.on(ends(), SECOND);
    turn.on(TurnEvent::Planned(Ok(plan("keys"))), SECOND);
    assert!(told(&turn).contains("rules"), "a grant beats no deny");
}

#[test]
fn a_page_asks_by_its_host_and_changes_nothing() {
    let allow = Rule { action: RuleAction::Allow, tool: "Fetch".into(), path: Some("*.example.com".into()) };
    let fetch = ToolSpec { name: "Fetch".into(), description: String::new(), parameters: json!({}) };
    let under = setup_under(9, ApprovalPolicy { rules: vec![allow], ..ApprovalPolicy::default() });
    let mut turn = Turn::new(Setup { tools: vec![(ToolKind::Read, fetch)], ..under });
    after(&mut turn, [TurnEvent::Started]);
    let next = |turn: &mut Turn, host: &str| {
        after(turn, [says("."), calls("Fetch")]);
        turn.on(ends(), SECOND);
        let effects = turn.on(TurnEvent::Planned(Ok(plan(host))), SECOND);
        effects.iter().map(words).collect::<Vec<_>>()
    };
    assert_eq!(next(&mut turn, "docs.example.com"), ["begin Fetch by the rules"]);
    after(&mut turn, [TurnEvent::Begun, answers("page")]);
    assert_eq!(next(&mut turn, "other.example"), ["ask for Fetch because \".\""]);
    after(&mut turn, [asked()]);
    turn.on(TurnEvent::Answered(ApprovalAnswer::ForRun), SECOND);
    let effects = turn.on(TurnEvent::Planned(Ok(plan("other.example"))), SECOND);
    assert_eq!(effects.iter().map(words).collect::<Vec<_>>(), ["begin Fetch by approval"]);
    after(&mut turn, [TurnEvent::Begun, answers("page")]);
    assert_eq!(next(&mut turn, "other.example"), ["begin Fetch by a grant"]);
    after(&mut turn, [TurnEvent::Begun, answers("page")]);
    assert_eq!(next(&mut turn, "www.other.example"), ["ask for Fetch because \".\""]);
    assert_eq!(turn.effects, Effects::None);
}

/// Ends the call under way with an unknown effect, and lets the model repeat it.
fn lost_and_repeated(turn: &mut Turn) -> Vec<String> {
    let lost = tool_ends(Ok(ToolOutput::unknown("It may have happened.")));
    let effects = on(turn, lost);
    let noted = effects.iter().any(|effect| matches!(effect, TurnEffect::Note { .. }));
    assert!(!noted, "nobody knows what to note: {effects:?}");
    assert!(told(turn).contains("may have happened"));
    assert_eq!(turn.effects, Effects::Possible);
    after(turn, [calls("Write"), ends()])
}

#[test]
fn a_call_that_may_have_happened_is_repeated_by_no_rule_and_no_grant_but_by_a_person() {
    let mut by_rule = turn(9);
    after(&mut by_rule, [TurnEvent::Started, calls("Write"), ends()]);
    assert_eq!(lost_and_repeated(&mut by_rule).last().expect("asks"), "ask for Write because \"\"");
    assert_eq!(after(&mut by_rule, [asked(), TurnEvent::Answered(ApprovalAnswer::Once)])[2], "run Write");
    // A different call is not affected.
    after(&mut by_rule, [answers("saved"), calls("Write")]);
    by_rule.on(ends(), SECOND);
    let other = by_rule.on(TurnEvent::Planned(Ok(plan("b.txt"))), SECOND);
    assert_eq!(other.iter().map(words).collect::<Vec<_>>(), ["begin Write by the rules"]);

    let mut by_grant = asking(OnDenial::TellAssistant);
    assert_eq!(after(&mut by_grant, [TurnEvent::Answered(ApprovalAnswer::ForRun)])[2], "run Write");
    assert_eq!(lost_and_repeated(&mut by_grant).last().expect("asks"), "ask for Write because \"\"");
}

#[test]
fn what_may_have_happened_in_an_earlier_attempt_is_asked_about_too_whatever_the_file_is_like_now() {
    let change = |before: &str| {
        let of = |text: &str| deskgate_protocol::canonical::Sha256Digest::of(text.as_bytes());
        let shown =
            PlanPreview::Change { before: Some(of(before)), after: of("new"), diff: format!("-{before}\n+new") };
        Plan { place: Some("a.txt".into()), shown }
    };
    let (call_id, tool, arguments) = ("call_1_1".to_owned(), "Write".to_owned(), json!({}));
    let call = PlannedCall { call_id, tool, kind: ToolKind::Write, arguments, plan: change("old") };
    let mut turn = Turn::new(Setup { uncertain: vec![call.digest()], ..setup(9) });
    after(&mut turn, [TurnEvent::Started, calls("Write")]);
    turn.on(ends(), SECOND);
    let asks = turn.on(TurnEvent::Planned(Ok(change("new"))), SECOND);
    assert_eq!(asks.iter().map(words).collect::<Vec<_>>(), ["ask for Write because \"\""]);
}

#[test]
fn a_call_that_the_journal_lets_only_a_person_begin_is_asked_about() {
    let mut turn = turn(9);
    after(&mut turn, [TurnEvent::Started, says("I save it."), calls("Write")]);
    turn.on(ends(), SECOND);
    let begins = turn.on(TurnEvent::Planned(Ok(plan("a.txt"))), SECOND);
    assert_eq!(begins.iter().map(words).collect::<Vec<_>>(), ["begin Write by the rules"]);
    assert_eq!(after(&mut turn, [TurnEvent::AsksFirst]), ["ask for Write because \"I save it.\""]);
    assert_eq!(turn.effects, Effects::None, "it has not begun");
    assert_eq!(after(&mut turn, [asked(), TurnEvent::Answered(ApprovalAnswer::Once)])[2], "run Write");
}

#[test]
fn a_no_is_told_to_the_assistant_with_the_owners_words_or_ends_the_run() {
    let no = |reason: Option<&str>| ApprovalAnswer::Denied { reason: reason.map(str::to_owned) };
    for (answer, word, code) in [
        (no(None), "did not allow", RunErrorCode::ApprovalDenied),
        (no(Some("Use the other file.")), "Use the other file.", RunErrorCode::ApprovalDenied),
        (ApprovalAnswer::Expired, "Nobody decided", RunErrorCode::ApprovalExpired),
    ] {
        let mut turn = asking(OnDenial::TellAssistant);
        let effects = after(&mut turn, [TurnEvent::Answered(answer.clone())]);
        assert_eq!(effects[1], "call the model with 3 messages");
        assert!(told(&turn).contains(word), "{}", told(&turn));
        assert_eq!((turn.effects, turn.usage.tool_calls), (Effects::None, 0));
        let mut turn = asking(OnDenial::EndRun);
        assert_eq!(after(&mut turn, [TurnEvent::Answered(answer)])[1], format!("failed {code:?}"));
    }
}

#[test]
fn a_request_that_the_journal_cannot_settle_is_taken_back_and_ends_the_run() {
    let mut turn = asking(OnDenial::TellAssistant);
    assert_eq!(after(&mut turn, [TurnEvent::NotWritten]), ["withdraw", "failed Internal"]);
}

#[test]
fn a_stop_takes_an_open_request_back_before_the_run_ends() {
    let mut turn = asking(OnDenial::TellAssistant);
    assert_eq!(after(&mut turn, [TurnEvent::Stop]), ["withdraw", "cancelled None"]);
}

#[test]
fn what_cannot_be_written_down_is_not_done() {
    let mut turn = asking(OnDenial::TellAssistant);
    turn.on(TurnEvent::Answered(ApprovalAnswer::Once), SECOND);
    turn.on(TurnEvent::Planned(Ok(plan("a.txt"))), SECOND);
    assert_eq!(after(&mut turn, [TurnEvent::NotWritten]), ["failed Internal"]);
    let mut turn = held(OnDenial::TellAssistant);
    after(&mut turn, [TurnEvent::Started, calls("Write"), ends()]);
    assert_eq!(after(&mut turn, [TurnEvent::NotWritten]), ["failed Internal"], "nor asked");
}

#[test]
fn effects_of_an_earlier_attempt_are_not_forgotten() {
    let mut turn = turn(9);
    turn.effects = Effects::Known;
    after(&mut turn, [TurnEvent::Started, calls("Write"), ends(), tool_ends(Ok(ToolOutput::error("no")))]);
    assert_eq!(after(&mut turn, [TurnEvent::Stop]), ["cancelled Known"]);
}

proptest! {
    /// In any order of events: a tool that writes runs only directly after its entry in the journal, that only after a
    /// plan, and then by a rule, or by an approval of exactly this plan, or of its scope.
    #[test]
    fn no_writing_call_runs_without_a_plan_a_verdict_and_an_intent(
        events in prop::collection::vec(any_event(), 0..200),
    ) {
        let mut turn = held(OnDenial::TellAssistant);
        let (mut planned, mut requested, mut begun) = (None, None, None);
        let (mut approved, mut granted) = (None, Vec::new());
        for event in events {
            let plans = match &event {
                TurnEvent::Planned(Ok(plan)) => Some(plan.clone()),
                // Of a question that waited until no call ran, too.
                TurnEvent::AsksFirst | TurnEvent::ToolFinished { .. } => begun.clone(),
                _ => None,
            };
            let answer = match &event {
                TurnEvent::Answered(answer) => Some(answer.clone()),
                _ => None,
            };
            let begins = matches!(event, TurnEvent::Begun);
            for effect in on(&mut turn, event) {
                match effect {
                    TurnEffect::Ask(request) => {
                        prop_assert_eq!(Some(&request.call.plan), plans.as_ref());
                        requested = Some(request.call.plan);
                    }
                    TurnEffect::Emit(DeviceEvent::ApprovalResolved { resolution: ApprovalResolution::Approved, .. }) => {
                        prop_assert!(matches!(answer, Some(ApprovalAnswer::Once | ApprovalAnswer::ForRun)));
                        approved = requested.take();
                        if answer == Some(ApprovalAnswer::ForRun) {
                            let place = approved.as_ref().and_then(|plan: &Plan| plan.place.clone());
                            granted.push(GrantScope::of("Write", place.as_deref()));
                        }
                    }
                    TurnEffect::Begin { call, basis } => {
                        prop_assert_eq!(Some(&call.plan), plans.as_ref(), "it was planned just now");
                        let place = call.plan.place.as_deref().unwrap_or_default();
                        prop_assert!(!place.starts_with("keys"), "a deny holds");
                        begun = Some(call.plan.clone());
                        match basis {
                            CallBasis::Rules => prop_assert_eq!(call.tool.as_str(), "Read"),
                            CallBasis::Approval(_) => prop_assert_eq!(Some(call.plan), approved.take()),
                            CallBasis::Grant(_) => prop_assert!(granted.contains(&GrantScope::of("Write", Some(place)))),
                        }
                        planned = Some(call.tool);
                    }
                    TurnEffect::RunTool { name, .. } => {
                        prop_assert!(begins, "right behind its entry");
                        prop_assert_eq!(Some(name), planned.take());
                    }
                    _ => {}
                }
            }
        }
    }
}
