//! Token limits: how much a run may write, and how much its model can read.

use deskgate_assistant::prices::Prices;
use deskgate_definition::tool::{Attachment, MediaType};

use super::*;

fn usage(input_tokens: u64, output_tokens: u64) -> TurnEvent {
    TurnEvent::Model(ModelEvent::Usage(TokenUsage { input_tokens, output_tokens, ..TokenUsage::default() }))
}

fn user(text: &str) -> Message {
    Message::User { text: text.into(), details: None }
}

fn assistant(text: &str) -> Message {
    Message::assistant(text, Vec::new())
}

/// A run in a conversation, with a model that reads so many tokens.
fn in_a_conversation(context_tokens: u64) -> Turn {
    let messages = vec![user("before"), assistant(&"b".repeat(3200)), user("now")];
    Turn::new(Setup { messages, context_tokens: Some(context_tokens), ..setup(9) })
}

/// The request of the one model call among these effects.
fn request(effects: Vec<TurnEffect>) -> ModelRequest {
    let mut requests = effects.into_iter().filter_map(|effect| match effect {
        TurnEffect::CallModel(request) => Some(request),
        _ => None,
    });
    requests.next().expect("a call of the model")
}

fn text_of(message: &Message) -> &str {
    match message {
        Message::User { text, .. } | Message::Assistant { text, .. } => text,
        Message::ToolResults(answers) => &answers[0].text,
    }
}

/// What stands beside the text of a request.
fn details_of(message: &Message) -> &str {
    match message {
        Message::User { details: Some(details), .. } => details,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_provider_that_counts_too_little_is_not_believed() {
    let mut turn = Turn::new(Setup { context_tokens: Some(4096), ..setup(9) });
    after(&mut turn, [TurnEvent::Started, usage(1, 1), calls("Read"), ends(), answers(&"1".repeat(9000))]);
    let told = after(&mut turn, [usage(1, 1), calls("Read"), ends(), answers(&"2".repeat(9500))]);
    assert_eq!(told[1], "call the model with 1 messages", "to sum up");
}

#[test]
fn each_call_may_write_what_the_calls_before_it_left() {
    let mut turn = Turn::new(Setup { max_output_tokens: Some(100), ..setup(9) });
    assert_eq!(request(turn.on(TurnEvent::Started, SECOND)).max_output_tokens, Some(100));
    after(&mut turn, [usage(5, 30), calls("Read"), ends()]);
    assert_eq!(request(on(&mut turn, answers("x"))).max_output_tokens, Some(70));
    // The output of a broken call counts too; a provider that sends no counts is counted by bytes.
    after(&mut turn, [usage(5, 20), fails(ErrorKind::Overloaded, true)]);
    assert_eq!(request(turn.on(TurnEvent::RetryDue, SECOND)).max_output_tokens, Some(50));
    after(&mut turn, [says(&"x".repeat(40)), fails(ErrorKind::Overloaded, true)]);
    assert_eq!(request(turn.on(TurnEvent::RetryDue, SECOND)).max_output_tokens, Some(40));
}

#[test]
fn what_a_stopped_call_read_is_counted() {
    let mut turn = turn(9);
    after(&mut turn, [TurnEvent::Started, usage(27, 0), says("Half an ans")]);
    match &turn.on(TurnEvent::Stop, SECOND)[..] {
        [TurnEffect::Spent(_), TurnEffect::Finish(Outcome::Cancelled { usage, .. })] => {
            assert_eq!(usage.input_tokens, 27)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_answer_at_the_limit_is_a_cut_answer_and_work_at_the_limit_is_a_failure() {
    let length = || TurnEvent::Model(ModelEvent::End(StopReason::Length));
    let limited = || Turn::new(Setup { max_output_tokens: Some(10), ..setup(9) });
    let mut turn = limited();
    after(&mut turn, [TurnEvent::Started, says("Half an ans"), usage(5, 10)]);
    let Some(TurnEffect::Finish(Outcome::Succeeded { result, .. })) = turn.on(length(), SECOND).pop() else { panic!() };
    assert_eq!(result.finish_reason, FinishReason::Length);
    // A call whose result could no longer become an answer does not run.
    let ended = after(&mut limited(), [TurnEvent::Started, calls("Write"), usage(5, 12), ends()]);
    assert_eq!(ended, ["usage after 1 calls", "failed ModelError"]);
    assert_eq!(after(&mut limited(), [TurnEvent::Started, usage(5, 10), length()])[1], "failed ModelError");
    let failed = [TurnEvent::Started, usage(5, 10), fails(ErrorKind::Overloaded, true), TurnEvent::RetryDue];
    assert_eq!(after(&mut limited(), failed), ["failed ModelError"], "asked again for nothing");
}

#[test]
fn what_was_said_before_is_summed_up_when_the_window_is_nearly_full_and_the_request_stays_whole() {
    let mut turn = in_a_conversation(1024);
    let asked = request(turn.on(TurnEvent::Started, SECOND));
    assert!(asked.tools.is_empty() && asked.messages.len() == 1 && asked.max_output_tokens == Some(384));
    assert!(text_of(&asked.messages[0]).contains("Application: before"), "{:?}", asked.messages);
    let said = turn.on(usage(700, 9), SECOND);
    assert!(said.is_empty());
    turn.on(says("They agreed."), SECOND);
    let effects = turn.on(ends(), SECOND);
    let expected = "[A summary of what was said in this conversation before:]\nThey agreed.";
    assert_eq!(
        effects.iter().map(words).collect::<Vec<_>>(),
        [
            "spent 700 + 9 tokens".to_owned(),
            "usage after 1 calls".to_owned(),
            format!("remember {expected:?}"),
            "call the model with 3 messages".to_owned()
        ]
    );
    let asked = request(effects);
    assert_eq!((text_of(&asked.messages[0]), text_of(&asked.messages[2])), (expected, "now"));
    assert_eq!((&*asked.system, asked.tools.len()), ("system", 2));
    assert_eq!(after(&mut turn, [says("Yes."), ends()])[2], "succeeded \"Yes.\"");
    assert_eq!((turn.usage.model_calls, turn.usage.input_tokens, turn.usage.output_tokens), (2, 700, 9));
}

#[test]
fn a_summary_that_fails_leaves_the_oldest_out_with_a_note_and_the_run_goes_on() {
    let refuses = || TurnEvent::Model(ModelEvent::End(StopReason::Refused));
    for failure in [vec![fails(ErrorKind::Model, false)], vec![ends()], vec![says("No."), refuses()]] {
        let mut turn = in_a_conversation(1024);
        turn.on(TurnEvent::Started, SECOND);
        assert_eq!(after(&mut turn, failure), ["usage after 1 calls", "call the model with 3 messages"]);
        assert!(text_of(&conversation(&turn)[0]).contains("left out here"));
        assert_eq!(text_of(&conversation(&turn)[2]), "now");
    }
}

#[test]
fn a_summary_that_fails_in_passing_is_tried_again_and_then_the_call_itself_has_all_its_attempts() {
    let overloaded = || fails(ErrorKind::Overloaded, true);
    let mut turn = in_a_conversation(1024);
    turn.on(TurnEvent::Started, SECOND);
    assert_eq!(after(&mut turn, [overloaded()]), ["the model is away", "retry in 250 ms"]);
    // The text before that does not count.
    let asked = request(turn.on(TurnEvent::RetryDue, SECOND));
    assert!(asked.tools.is_empty(), "it is summed up again");
    assert_eq!(after(&mut turn, [says("Half a"), TurnEvent::ModelClosed])[1], "retry in 500 ms");
    let said = after(&mut turn, [TurnEvent::RetryDue, says("They agreed."), ends()]);
    assert_eq!(said[2], "call the model with 3 messages");
    assert!(text_of(&conversation(&turn)[0]).ends_with(":]\nThey agreed."));
    assert_eq!(after(&mut turn, [overloaded()]), ["the model is away", "retry in 250 ms"]);
    assert_eq!(after(&mut turn, [TurnEvent::RetryDue]), ["call the model with 3 messages"]);
    assert_eq!(turn.usage.model_calls, 5);
}

#[test]
fn a_run_whose_work_nobody_sums_up_still_knows_what_it_wrote() {
    let mut turn = Turn::new(Setup { context_tokens: Some(4096), ..setup(9) });
    after(&mut turn, [TurnEvent::Started, says("First I save."), calls("Write"), ends()]);
    after(&mut turn, [answers("invoice.txt was created."), calls("Read"), ends(), answers(&"1".repeat(9000))]);
    after(&mut turn, [says("Next."), calls("Read"), ends()]);
    assert_eq!(after(&mut turn, [answers(&"2".repeat(4000))])[1], "call the model with 1 messages", "to sum up");
    let mut told = after(&mut turn, [fails(ErrorKind::Protocol, true)]);
    for _ in 1..MAX_MALFORMED_ATTEMPTS {
        assert!(told[0].starts_with("retry in"), "{told:?}");
        told = after(&mut turn, [TurnEvent::RetryDue, fails(ErrorKind::Protocol, true)]);
    }
    assert_eq!(told[1], "call the model with 3 messages");
    let (work, last) = (details_of(&conversation(&turn)[0]), text_of(&conversation(&turn)[2]));
    for known in
        ["Assistant: First I save.", "Assistant calls Write: ", "Result: invoice.txt was created.", "Result: 11"]
    {
        assert!(work.contains(known), "{known:?} is missing: {work}");
    }
    assert!(work.len() < 2500, "{}", work.len());
    assert_eq!(text_of(&conversation(&turn)[1]), "Next.");
    assert_eq!(last, "2".repeat(4000));
}

#[test]
fn a_second_summary_of_the_work_takes_the_place_of_the_first_and_knows_it() {
    let mut turn = Turn::new(Setup { context_tokens: Some(4096), ..setup(20) });
    turn.on(TurnEvent::Started, SECOND);
    let mut seen = Vec::new();
    for number in 0..8 {
        let asked = after_effects(&mut turn, [says(&format!("Step {number}.")), calls("Read"), ends()]);
        assert!(matches!(asked.last(), Some(TurnEffect::Plan { .. })), "{asked:?}");
        with_its_steps(&mut turn, TurnEvent::Planned(Ok(Plan { place: None, shown: PlanPreview::Arguments })));
        let effects = with_its_steps(&mut turn, answers(&"x".repeat(5000)));
        let asked = request(effects);
        if asked.tools.is_empty() {
            seen.push(text_of(&asked.messages[0]).to_owned());
            turn.on(says(&format!("Summary {number}.")), SECOND);
            turn.on(ends(), SECOND);
        }
    }
    assert!(seen.len() >= 2, "{}", seen.len());
    assert!(seen.windows(2).all(|pair| pair[1].contains("Summary ") && !pair[0].contains("left out")), "{seen:#?}");
    let note = details_of(&conversation(&turn)[0]);
    assert_eq!(note.matches("A summary of your work").count(), 1, "{note}");
}

#[test]
fn an_outage_while_summing_up_is_waited_out_and_forgets_nothing() {
    let mut turn = in_a_conversation(1024);
    turn.on(TurnEvent::Started, SECOND);
    let mut told = after(&mut turn, [fails(ErrorKind::Unreachable, true)]);
    for _ in 0..20 {
        assert!(told.last().is_some_and(|last| last.starts_with("retry in")), "{told:?}");
        told = after(&mut turn, [TurnEvent::RetryDue, fails(ErrorKind::Unreachable, true)]);
    }
    assert_eq!(
        after(&mut turn, [TurnEvent::RetryDue, says("They agreed."), ends()])[2],
        "call the model with 3 messages"
    );
}

#[test]
fn older_work_of_a_long_run_is_summed_up_and_the_last_results_stay_whole() {
    let mut turn = Turn::new(Setup { context_tokens: Some(4096), ..setup(9) });
    after(&mut turn, [TurnEvent::Started, says("First."), calls("Read"), ends()]);
    after(&mut turn, [answers(&"1".repeat(6000)), calls("Read"), ends(), answers(&"2".repeat(4000))]);
    after(&mut turn, [calls("Read"), ends()]);
    // By its bytes alone it would fit; the provider's count is higher.
    after(&mut turn, [answers("3"), usage(3000, 50), says("Next."), calls("Read"), ends()]);
    let asked = request(on(&mut turn, answers(&"4".repeat(4000))));
    let shown = text_of(&asked.messages[0]);
    assert!(shown.contains("Assistant: First.") && shown.contains("Result: 111") && !shown.contains("444"), "{shown}");
    assert_eq!(after(&mut turn, [says("Read three files."), ends()])[1], "call the model with 3 messages");
    let texts: Vec<_> = conversation(&turn).iter().map(text_of).collect();
    assert_eq!(texts[0], "hello");
    let noted = details_of(&conversation(&turn)[0]);
    assert_eq!((noted, texts[1]), ("[A summary of your work on this request so far:]\nRead three files.", "Next."));
    assert_eq!(texts[2], "4".repeat(4000));
}

#[test]
fn a_conversation_that_the_model_calls_too_long_is_shortened_once_and_then_it_is_a_failure() {
    let too_long = || fails(ErrorKind::TooLong, false);
    let mut turn = in_a_conversation(1_000_000);
    assert_eq!(after(&mut turn, [TurnEvent::Started]), ["call the model with 3 messages"]);
    assert_eq!(after(&mut turn, [too_long()]), ["call the model with 1 messages"]);
    assert_eq!(after(&mut turn, [says("Short."), ends()])[2], "call the model with 3 messages");
    assert_eq!(after(&mut turn, [too_long()]), ["failed ModelError"]);
    // If no part can be summarised, it fails at once.
    assert_eq!(after(&mut super::turn(9), [TurnEvent::Started, too_long()]), ["failed ModelError"]);
}

#[test]
fn a_window_that_was_found_smaller_than_told_is_kept_in_mind() {
    let mut turn = in_a_conversation(1_000_000);
    after(&mut turn, [TurnEvent::Started, fails(ErrorKind::TooLong, false), says("Short."), ends()]);
    after(&mut turn, [calls("Read"), ends(), answers(&"x".repeat(2000)), calls("Read"), ends()]);
    assert_eq!(after(&mut turn, [answers(&"y".repeat(900))])[1], "call the model with 1 messages", "to sum up");
}

#[test]
fn what_is_summed_up_at_once_is_bounded_and_its_newest_part_stays() {
    let earlier = (0..100).flat_map(|n| [user(&format!("question {n}")), assistant(&"a".repeat(30_000))]);
    let messages = earlier.chain([user("now")]).collect();
    let mut turn = Turn::new(Setup { messages, context_tokens: Some(20_000), ..setup(9) });
    let asked = request(turn.on(TurnEvent::Started, SECOND));
    let text = text_of(&asked.messages[0]);
    assert!(
        text.len() <= 40_100 && text.contains("question 99") && text.starts_with("[What stood before"),
        "{text:.80}"
    );
    // A summary that never ends is cut.
    for _ in 0..100 {
        turn.on(says(&"s".repeat(1000)), SECOND);
    }
    turn.on(ends(), SECOND);
    assert!(text_of(&conversation(&turn)[0]).len() < 21_000);
}

/// What a turn's model calls of these tokens are said to have spent, and the usage for callers at the run's end.
fn spent_by(prices: Option<Prices>, shares_cost: bool, calls: &[TokenUsage]) -> (Vec<Spending>, Option<f64>) {
    let facts = ModelFacts { prices, ..ModelFacts::default() };
    let mut turn = Turn::new(Setup { facts, shares_cost, ..setup(9) });
    turn.on(TurnEvent::Started, SECOND);
    let mut spent = Vec::new();
    let mut told = None;
    for (number, tokens) in calls.iter().enumerate() {
        turn.on(TurnEvent::Model(ModelEvent::Usage(*tokens)), SECOND);
        let goes_on = number + 1 < calls.len();
        turn.on(if goes_on { self::calls("Read") } else { says("Done.") }, SECOND);
        let ended = with_its_steps(&mut turn, ends());
        for effect in ended.iter().chain(&if goes_on { with_its_steps(&mut turn, answers("x")) } else { Vec::new() }) {
            match effect {
                TurnEffect::Spent(spending) => spent.push(*spending),
                TurnEffect::Finish(Outcome::Succeeded { usage, .. }) => told = usage.cost_usd,
                _ => {}
            }
        }
    }
    (spent, told)
}

#[test]
fn what_each_call_cost_is_counted_and_told_to_callers_only_if_the_service_says_so() {
    let prices = Some(Prices { input: 2.0, cached_input: None, cache_write: None, output: 10.0, long: None });
    let call = TokenUsage { input_tokens: 1000, output_tokens: 100, ..TokenUsage::default() };
    let costs = |spent: &[Spending]| spent.iter().map(|call| (call.cost.0, call.unpriced_calls)).collect::<Vec<_>>();
    let (spent, told) = spent_by(prices, false, &[call, call]);
    assert_eq!((costs(&spent), told), (vec![(3000, 0), (3000, 0)], None));
    assert_eq!(spent_by(prices, true, &[call, call]).1, Some(0.006));
    // What the provider says itself counts.
    let said = TokenUsage { cost: Some(MicroUsd(7)), ..call };
    assert_eq!(spent_by(prices, true, &[said, call]).1, Some(0.003_007));
    // A sum without one of its parts would be wrong.
    let (spent, told) = spent_by(None, true, &[said, call]);
    assert_eq!((costs(&spent), told), (vec![(7, 0), (0, 1)], None));
    assert!(spent_by(prices, true, &[TokenUsage::default()]).0.is_empty(), "nothing was counted");
}

#[test]
fn what_a_run_spent_is_counted_before_its_end_also_when_it_is_stopped() {
    let mut turn = turn(9);
    after(&mut turn, [TurnEvent::Started, usage(1000, 0)]);
    match &turn.on(TurnEvent::Stop, SECOND)[..] {
        [TurnEffect::Spent(spent), TurnEffect::Finish(_)] => assert_eq!(spent.input_tokens, 1000),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_call_that_breaks_off_before_it_was_counted_is_estimated_and_its_cost_is_not_told() {
    let prices = Some(Prices { input: 2.0, cached_input: None, cache_write: None, output: 10.0, long: None });
    let facts = ModelFacts { prices, ..ModelFacts::default() };
    let spent = |begins: Vec<TurnEvent>| {
        let mut turn = Turn::new(Setup { facts, shares_cost: true, is_counted: true, ..setup(9) });
        let asked = match &turn.on(TurnEvent::Started, SECOND)[0] {
            TurnEffect::Reserve(expected) => expected.input_tokens,
            other => panic!("{other:?}"),
        };
        begins.into_iter().for_each(|event| drop(turn.on(event, SECOND)));
        let spent = match turn.on(TurnEvent::Stop, SECOND).remove(0) {
            TurnEffect::Spent(spent) => Some(spent),
            _ => None,
        };
        assert_eq!(turn.usage.cost_usd, None);
        (asked, spent.map(|spent| (spent.input_tokens, spent.output_tokens, spent.cost)))
    };
    let (asked, counted) = spent(vec![says(&"x".repeat(400))]);
    assert_eq!(counted, Some((asked, 100, MicroUsd(asked * 2 + 1000))));
    // What was counted at its beginning stays, and what was only thought costs as well.
    let thinks = TurnEvent::Model(ModelEvent::ReasoningDelta("r".repeat(80)));
    let (_, counted) = spent(vec![usage(5_000, 1), thinks, says("x".repeat(40).as_str())]);
    assert_eq!(counted, Some((5_000, 30, MicroUsd(10_300))));
    assert_eq!(spent(Vec::new()).1, None, "it may never have come to the provider");
    // The arguments of a call that is not complete are no event of their own.
    let progress = |bytes| TurnEvent::Model(ModelEvent::Progress(bytes));
    let (asked, counted) = spent(vec![progress(0)]);
    assert_eq!(counted, Some((asked, 0, MicroUsd(asked * 2))));
    let (asked, counted) = spent(vec![progress(0), progress(4_000)]);
    assert_eq!(counted, Some((asked, 1_000, MicroUsd(asked * 2 + 10_000))));
    // A server that never says what it counted.
    let mut turn = Turn::new(Setup { is_counted: true, ..setup(9) });
    turn.on(TurnEvent::Started, SECOND);
    turn.on(says(&"x".repeat(400)), SECOND);
    match &turn.on(ends(), SECOND)[0] {
        TurnEffect::Spent(spent) => assert_eq!((spent.output_tokens, spent.unpriced_calls), (100, 1)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_run_makes_no_call_that_its_budget_does_not_allow_and_answers_no_longer_than_it_leaves() {
    let budget = |tokens| Budget { tokens: Some(tokens), cost: None };
    let mut turn = Turn::new(Setup { budget: budget(10_000), ..setup(9) });
    let first = request(turn.on(TurnEvent::Started, SECOND)).max_output_tokens.expect("a limit");
    assert!((9_900..10_000).contains(&first), "{first}");
    after(&mut turn, [usage(2_000, 500), calls("Read"), ends()]);
    // What it read and wrote before is read again.
    let next = request(on(&mut turn, answers("x"))).max_output_tokens.expect("a limit");
    assert!((4_900..=5_000).contains(&next), "{next}");
    after(&mut turn, [usage(4_000, 500), calls("Read"), ends()]);
    assert_eq!(after(&mut turn, [answers("x")])[1], "failed BudgetReached");
}

#[test]
fn a_summary_is_no_longer_than_the_budget_of_its_run_leaves() {
    let messages = || vec![user("before"), assistant(&"b".repeat(64_000)), user("now")];
    let of = |tokens| {
        let budget = Budget { tokens, cost: None };
        let mut turn = Turn::new(Setup { messages: messages(), context_tokens: Some(16_384), budget, ..setup(9) });
        let asked = request(turn.on(TurnEvent::Started, SECOND));
        assert!(asked.tools.is_empty(), "it is summed up");
        (context::tokens(text_of(&asked.messages[0]).len()), asked.max_output_tokens.expect("a limit"))
    };
    let (read, unlimited) = of(None);
    let left = unlimited / 2;
    // Beside the text the prompt is read, too.
    let (_, most) = of(Some(read + left));
    assert!(most < left && most + 400 > left, "{most} of {left}");
}

#[test]
fn a_budget_that_is_reached_ends_the_run_before_the_call() {
    let spent = Spending { input_tokens: 9_990, cost: MicroUsd(500), ..Spending::default() };
    for budget in [Budget { tokens: Some(10_000), cost: None }, Budget { tokens: None, cost: Some(MicroUsd(500)) }] {
        // What earlier attempts spent counts, too.
        let prices = Some(Prices { input: 100.0, cached_input: None, cache_write: None, output: 100.0, long: None });
        let facts = ModelFacts { prices, ..ModelFacts::default() };
        let mut turn = Turn::new(Setup { budget, spent, facts, ..setup(9) });
        match &turn.on(TurnEvent::Started, SECOND)[..] {
            [TurnEffect::Finish(Outcome::Failed { error, usage })] => {
                assert_eq!((error.code, error.retryable, usage.model_calls), (RunErrorCode::BudgetReached, false, 0));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_budget_of_the_month_is_asked_before_each_call_and_may_end_the_run() {
    let mut turn = Turn::new(Setup { is_counted: true, ..setup(9) });
    assert!(matches!(turn.on(TurnEvent::Started, SECOND)[..], [TurnEffect::Reserve(_), TurnEffect::CallModel(_)]));
    after(&mut turn, [usage(1_000, 10), calls("Read"), ends()]);
    match &on(&mut turn, answers("x"))[..] {
        [_, TurnEffect::Reserve(expected), TurnEffect::CallModel(_)] => assert!(expected.input_tokens >= 1_010),
        other => panic!("{other:?}"),
    }
    let refused = turn.on(TurnEvent::BudgetReached(BudgetScope::Device), SECOND);
    match &refused[..] {
        [TurnEffect::Finish(Outcome::Failed { error, .. })] => {
            assert_eq!(error.code, RunErrorCode::BudgetReached);
            assert!(error.message.contains("month"), "{}", error.message);
        }
        other => panic!("{other:?}"),
    }
    // What cannot be read allows nothing.
    let mut turn = Turn::new(Setup { is_counted: true, ..setup(9) });
    turn.on(TurnEvent::Started, SECOND);
    assert_eq!(after(&mut turn, [TurnEvent::NotWritten]), ["failed Internal"]);
}

/// The answer of a call that shows so many bytes, worth so many tokens.
fn shows(bytes: usize, tokens: u64) -> TurnEvent {
    let about = "An image.".to_owned();
    let shown = Attachment { media_type: MediaType::Png, bytes: vec![0; bytes].into(), pages: 1, tokens, about };
    tool_ends(Ok(ToolOutput::showing(shown)))
}

#[test]
fn images_fill_the_window_by_what_they_cost_and_not_by_their_bytes() {
    let mut turn = Turn::new(Setup { context_tokens: Some(40_000), ..setup(20) });
    after(&mut turn, [TurnEvent::Started, calls("Read"), ends(), shows(4_000_000, 1_600), calls("Read"), ends()]);
    for _ in 0..16 {
        assert!(after(&mut turn, [shows(1000, 1_600)])[1].contains("call the model"));
        after(&mut turn, [calls("Read"), ends()]);
    }
    let asked = request(on(&mut turn, shows(1000, 10_000)));
    assert!(asked.tools.is_empty(), "it is summed up");
}

#[test]
fn images_beyond_what_one_request_takes_are_left_out_and_the_model_is_told() {
    let mut turn = turn(9);
    after(&mut turn, [TurnEvent::Started, calls("Read"), calls("Read"), ends()]);
    after(&mut turn, [shows(9 << 20, 1), shows(9 << 20, 1)]);
    let shown = |turn: &Turn| match turn.messages.last() {
        Some(Message::ToolResults(answers)) => {
            answers.iter().map(|answer| (answer.attachments.len(), answer.text.contains("not shown"))).collect()
        }
        _ => Vec::new(),
    };
    assert_eq!(shown(&turn), [(1, false), (0, true)]);
    after(&mut turn, [calls("Read"), ends(), shows(5 << 20, 1)]);
    assert_eq!(shown(&turn), [(1, false)], "there is room for it");
    let of_pages = |pages| {
        let about = format!("A PDF of {pages} pages.");
        let document = Attachment { media_type: MediaType::Pdf, bytes: vec![0].into(), pages, tokens: 1, about };
        tool_ends(Ok(ToolOutput::showing(document)))
    };
    let mut turn = self::turn(9);
    after(&mut turn, [TurnEvent::Started, calls("Read"), calls("Read"), ends()]);
    after(&mut turn, [of_pages(60), of_pages(60)]);
    assert_eq!(shown(&turn), [(1, false), (0, true)]);
    after(&mut turn, [calls("Read"), ends(), of_pages(40)]);
    assert_eq!(shown(&turn), [(1, false)]);
}
