//! I6 once more, by a third-party checker: `todc-utils` (Wing and Gong, extended by Lowe) looks for one order of all
//! operations on a conversation in which each answer is right.
//!
//! [`generations`](super::generations) explains in words what is wrong; this one is complete.

use std::collections::BTreeMap;

use todc_utils::linearizability::WGLChecker;
use todc_utils::linearizability::history::{Action, History};
use todc_utils::specifications::Specification;

use super::{Observations, Violation};
use crate::history::{AnswerContent, CallAction, CallRecord};

/// What an operation on a conversation did to its generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GenerationOperation {
    /// An answer showed it, or a message was accepted in it.
    Is(u64),
    /// A reset was completed, and made this generation.
    Reset { from: u64, made: u64 },
    /// A reset with an unknown result.
    MayReset { from: u64 },
}

/// A conversation's generation, which begins at 1.
struct GenerationRegister;

impl Specification for GenerationRegister {
    type State = u64;
    type Operation = GenerationOperation;

    fn init() -> u64 {
        1
    }

    fn apply(operation: &GenerationOperation, now: &u64) -> (bool, u64) {
        match *operation {
            GenerationOperation::Is(seen) => (seen == *now, *now),
            GenerationOperation::Reset { from, made } if from == *now && made == from + 1 => (true, made),
            GenerationOperation::Reset { .. } => (false, *now),
            // In some order it comes too early or too late, and is refused.
            GenerationOperation::MayReset { from } => (true, if from == *now { from + 1 } else { *now }),
        }
    }
}

/// An operation, and the span of time in which it can have happened.
#[derive(Clone, Copy, Debug)]
struct Interval {
    begun: u64,
    ended: u64,
    operation: GenerationOperation,
}

pub(super) fn check(witnesses: &Observations) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (conversation, intervals) in intervals(witnesses) {
        let begun = intervals.iter().map(|interval| interval.begun).min();
        let count = intervals.len();
        if !WGLChecker::<GenerationRegister>::is_linearizable(history(&intervals)) {
            let text = format!("no order of the {count} operations on {conversation} explains what each answered");
            violations.push(Violation::of("I6", begun, text));
        }
    }
    violations
}

/// The operations of each conversation. All tries of one message are one operation, beginning with the first; so are
/// all resets requested in one generation, of which at most one takes effect.
fn intervals(witnesses: &Observations) -> BTreeMap<&str, Vec<Interval>> {
    let mut by_conversation: BTreeMap<&str, Vec<Interval>> = BTreeMap::new();
    let mut accepted: BTreeMap<&str, (&str, Interval)> = BTreeMap::new();
    let mut resets: BTreeMap<(&str, u64), Interval> = BTreeMap::new();
    let mut operations: BTreeMap<&str, (&str, u64)> = BTreeMap::new();
    for call in &witnesses.calls {
        match (&call.asked, &call.seen) {
            (
                _,
                AnswerContent::Conversation { conversation, generation, .. }
                | AnswerContent::Generation { conversation, generation },
            ) => {
                by_conversation
                    .entry(conversation)
                    .or_default()
                    .push(of_call(call, GenerationOperation::Is(*generation)));
            }
            (CallAction::Say { job, conversation, generation }, AnswerContent::Run { .. }) => {
                let now = of_call(call, GenerationOperation::Is(*generation));
                let first = &mut accepted.entry(job).or_insert((conversation, now)).1;
                first.ended = first.ended.min(call.ended);
            }
            _ => {}
        }
        // A refused one did nothing.
        if let CallAction::Reset { conversation, generation: from } = &call.asked
            && call.status != Some(409)
        {
            let unknown = Interval { ended: u64::MAX, ..of_call(call, GenerationOperation::MayReset { from: *from }) };
            let reset = resets.entry((conversation, *from)).or_insert(unknown);
            reset.begun = reset.begun.min(call.begun);
            if let AnswerContent::Operation { operation_id, .. } = &call.seen {
                operations.insert(operation_id, (conversation, *from));
            }
        }
    }
    // The first try may have been accepted, with a lost answer.
    for call in &witnesses.calls {
        if let CallAction::Say { job, .. } = &call.asked
            && let Some((_, first)) = accepted.get_mut(job.as_str())
        {
            first.begun = first.begun.min(call.begun);
        }
    }
    let mut completed: BTreeMap<&str, (&str, Interval)> = BTreeMap::new();
    for call in &witnesses.calls {
        let AnswerContent::Operation { operation_id, new_generation: Some(made), .. } = &call.seen else { continue };
        let Some(&(conversation, from)) = operations.get(operation_id.as_str()) else { continue };
        let begun = resets[&(conversation, from)].begun;
        let operation = GenerationOperation::Reset { from, made: *made };
        let now = Interval { begun, ended: call.ended, operation };
        let first = &mut completed.entry(operation_id).or_insert((conversation, now)).1;
        first.ended = first.ended.min(call.ended);
    }
    for operation_id in completed.keys() {
        resets.remove(&operations[operation_id]);
    }
    let unknown = resets.into_iter().map(|((conversation, _), reset)| (conversation, reset));
    for (conversation, interval) in accepted.into_values().chain(completed.into_values()).chain(unknown) {
        by_conversation.entry(conversation).or_default().push(interval);
    }
    by_conversation
}

fn of_call(call: &CallRecord, operation: GenerationOperation) -> Interval {
    Interval { begun: call.begun, ended: call.ended, operation }
}

/// The history in the checker's form: every operation is a process of its own. Operations at one moment overlap.
fn history(intervals: &[Interval]) -> History<GenerationOperation> {
    let mut actions = Vec::with_capacity(intervals.len() * 2);
    for (process, interval) in intervals.iter().enumerate() {
        actions.push((interval.begun, 0, process, Action::Call(interval.operation)));
        actions.push((interval.ended, 1, process, Action::Response(interval.operation)));
    }
    actions.sort_by_key(|(at, part, ..)| (*at, *part));
    History::from_actions(actions.into_iter().map(|(_, _, process, action)| (process, action)).collect())
}

#[cfg(test)]
mod tests {
    use super::super::samples::{call, calls, run, texts};
    use super::*;

    fn look(begun: u64, ended: u64, generation: u64) -> CallRecord {
        let asked = CallAction::Look { conversation: "c".to_owned() };
        let seen = AnswerContent::Conversation {
            conversation: "c".to_owned(),
            generation,
            state: "idle".to_owned(),
            active: None,
        };
        CallRecord { ended, ..call("a", begun, asked, seen) }
    }

    fn reset(begun: u64, ended: u64, from: u64, made: Option<u64>) -> CallRecord {
        let asked = CallAction::Reset { conversation: "c".to_owned(), generation: from };
        let (operation_id, state) = (format!("o{begun}"), "completed".to_owned());
        let seen = AnswerContent::Operation { operation_id, state, code: String::new(), new_generation: made };
        CallRecord { operation: begun, ended, ..call("a", begun, asked, seen) }
    }

    fn say(begun: u64, ended: u64, job: &str, generation: u64, is_answered: bool) -> CallRecord {
        let asked = CallAction::Say { job: job.to_owned(), conversation: "c".to_owned(), generation };
        let seen = if is_answered { run(job, "queued") } else { AnswerContent::Nothing };
        CallRecord { operation: 1000, ended, ..call("a", begun, asked, seen) }
    }

    fn is_good(all: &[CallRecord]) -> bool {
        let violations = check(&calls(all));
        assert!(violations.is_empty() || texts(&violations).contains("no order of the"), "{violations:?}");
        violations.is_empty()
    }

    #[test]
    fn what_overlaps_may_have_happened_in_either_order() {
        assert!(is_good(&[
            look(0, 5, 1),
            reset(10, 50, 1, Some(2)),
            look(20, 30, 2),
            look(15, 18, 1),
            look(60, 65, 2)
        ]));
        assert!(!is_good(&[reset(10, 50, 1, Some(2)), look(20, 25, 2), look(30, 35, 1)]));
    }

    #[test]
    fn a_reset_that_nobody_was_told_of_may_come_to_be_at_any_later_time_and_once() {
        assert!(is_good(&[reset(10, 12, 1, None), look(20, 21, 1), look(30, 31, 2)]));
        assert!(is_good(&[reset(10, 12, 1, None), look(20, 21, 1)]));
        assert!(!is_good(&[reset(10, 12, 1, None), look(20, 21, 3)]));
        assert!(!is_good(&[look(5, 6, 2), reset(10, 12, 1, None)]));
    }

    #[test]
    fn a_reset_that_was_refused_did_nothing() {
        let refused = CallRecord { status: Some(409), ..reset(10, 12, 1, None) };
        assert!(is_good(&[refused.clone(), look(20, 21, 1)]));
        assert!(!is_good(&[refused, look(20, 21, 2)]));
    }

    #[test]
    fn two_resets_from_one_generation_are_never_both_completed() {
        assert!(is_good(&[reset(10, 20, 1, Some(2)), reset(15, 40, 2, Some(3))]));
        assert!(!is_good(&[reset(10, 20, 1, Some(2)), reset(15, 40, 1, Some(2))]));
    }

    #[test]
    fn of_resets_that_race_the_others_are_refused_or_told_of_the_one() {
        let joined = |begun: u64, ended: u64| {
            let seen = AnswerContent::Operation {
                operation_id: "o10".to_owned(),
                state: "pending".to_owned(),
                code: String::new(),
                new_generation: None,
            };
            CallRecord { operation: 10, seen, ..reset(begun, ended, 1, None) }
        };
        let refused =
            CallRecord { operation: 10, status: Some(409), seen: AnswerContent::Nothing, ..reset(11, 13, 1, None) };
        let won = reset(10, 40, 1, Some(2));
        assert!(is_good(&[won.clone(), joined(12, 14), refused.clone(), look(50, 51, 2)]));
        assert!(!is_good(&[won, joined(12, 14), refused, look(50, 51, 3)]));
    }

    #[test]
    fn a_message_is_accepted_in_the_generation_that_it_names() {
        assert!(is_good(&[say(0, 5, "j", 1, true), reset(10, 20, 1, Some(2)), say(30, 35, "k", 2, true)]));
        assert!(!is_good(&[reset(10, 20, 1, Some(2)), say(30, 35, "j", 1, true)]));
        // The first try was accepted; the second got its answer.
        assert!(is_good(&[say(0, 5, "j", 1, false), reset(10, 20, 1, Some(2)), say(30, 35, "j", 1, true)]));
    }

    #[test]
    fn a_long_history_is_judged_in_no_time() {
        let mut all = Vec::new();
        for round in 0..300_u64 {
            let at = round * 100;
            all.extend((0..4).map(|n| look(at + n, at + 10 + n, round + 1)));
            all.push(reset(at + 20, at + 90, round + 1, Some(round + 2)));
        }
        assert!(is_good(&all));
    }
}
