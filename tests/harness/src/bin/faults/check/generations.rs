//! I6: a conversation's generation is a register with compare-and-set.
//!
//! It only goes up, by one for each completed reset. So it is linearizable exactly if no value is seen after a greater
//! one, no value is seen before its reset was requested, and no two resets make the same value. The model is the
//! witness of where a message ran: it sees the generation that each earlier message named.

use std::collections::{BTreeMap, BTreeSet};

use super::{Observations, Violation, goes_back, linearizability};
use crate::history::{AnswerContent, CallAction, CallRecord};

/// Values by conversation and generation.
type ByGeneration<'a, T> = BTreeMap<(&'a str, u64), T>;

/// A generation that an answer showed.
#[derive(Debug)]
struct ObservedGeneration<'a> {
    call: &'a CallRecord,
    generation: u64,
}

pub(super) fn check(witnesses: &Observations) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut values: BTreeMap<&str, Vec<ObservedGeneration<'_>>> = BTreeMap::new();
    let mut asked: ByGeneration<'_, u64> = BTreeMap::new();
    let mut resets: BTreeMap<&str, (&str, u64)> = BTreeMap::new();
    for call in &witnesses.calls {
        if let Some((conversation, generation)) = value(call) {
            values.entry(conversation).or_default().push(ObservedGeneration { call, generation });
        }
        if let CallAction::Reset { conversation, generation } = &call.asked {
            let first = asked.entry((conversation, *generation)).or_insert(call.begun);
            *first = call.begun.min(*first);
            if let AnswerContent::Operation { operation_id, .. } = &call.seen {
                resets.insert(operation_id, (conversation, *generation));
            }
        }
    }
    for (conversation, values) in &values {
        for (earlier, later) in goes_back(values, |v| v.call.begun, |v| v.call.ended, |v| v.generation) {
            let text =
                format!("{conversation} was in generation {}, and then in {}", earlier.generation, later.generation);
            violations.push(Violation::of("I6", later.call.begun, text));
        }
        for value in values.iter().filter(|value| value.generation > 1) {
            let made = asked.get(&(*conversation, value.generation - 1));
            if made.is_none_or(|begun| *begun > value.call.ended) {
                let text = format!("{conversation} was in generation {} before anybody asked for it", value.generation);
                violations.push(Violation::of("I6", value.call.begun, text));
            }
        }
    }
    violations.extend(made(witnesses, &resets));
    violations.extend(messages(witnesses));
    violations.extend(linearizability::check(witnesses));
    violations
}

/// The conversation and generation that an answer shows.
fn value(call: &CallRecord) -> Option<(&str, u64)> {
    match (&call.asked, &call.seen) {
        (
            _,
            AnswerContent::Conversation { conversation, generation, .. }
            | AnswerContent::Generation { conversation, generation },
        ) => Some((conversation, *generation)),
        _ => None,
    }
}

/// Checks the generations that completed resets made.
fn made(witnesses: &Observations, resets: &BTreeMap<&str, (&str, u64)>) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut by_value: ByGeneration<'_, BTreeSet<&str>> = BTreeMap::new();
    for call in &witnesses.calls {
        let AnswerContent::Operation { operation_id, new_generation: Some(made), .. } = &call.seen else { continue };
        let Some((conversation, from)) = resets.get(operation_id.as_str()) else { continue };
        by_value.entry((conversation, *made)).or_default().insert(operation_id);
        if *made != from + 1 {
            let text = format!("the reset of {conversation} from generation {from} made {made}");
            violations.push(Violation::of("I6", call.begun, text));
        }
    }
    for ((conversation, made), operations) in by_value.into_iter().filter(|(_, operations)| operations.len() > 1) {
        let text = format!("{} resets of {conversation} made generation {made}", operations.len());
        violations.push(Violation::of("I6", None, text));
    }
    violations
}

/// Checks that the model saw only messages of an accepted message's own generation.
fn messages(witnesses: &Observations) -> Vec<Violation> {
    let mixed = witnesses.turns.iter().filter(|turn| turn.generations.windows(2).any(|pair| pair[0] != pair[1]));
    let text = |job: &str, generations: &[u64]| format!("{job} ran among messages of the generations {generations:?}");
    mixed.map(|turn| Violation::of("I6", turn.begun, text(&turn.job, &turn.generations))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::samples::{call, calls, texts};
    use super::*;
    use crate::testbed::fake_model::ModelTurn;

    fn look(at: u64, generation: u64) -> CallRecord {
        let asked = CallAction::Look { conversation: "c".to_owned() };
        let seen = AnswerContent::Conversation {
            conversation: "c".to_owned(),
            generation,
            state: "idle".to_owned(),
            active: None,
        };
        call("a", at, asked, seen)
    }

    fn reset(at: u64, from: u64, operation_id: &str, made: Option<u64>) -> CallRecord {
        let asked = CallAction::Reset { conversation: "c".to_owned(), generation: from };
        let (operation_id, state) = (operation_id.to_owned(), "completed".to_owned());
        call(
            "a",
            at,
            asked,
            AnswerContent::Operation { operation_id, state, code: "reset".to_owned(), new_generation: made },
        )
    }

    #[test]
    fn resets_one_after_the_other_are_good() {
        let all = [look(0, 1), reset(10, 1, "o1", Some(2)), look(20, 2), reset(30, 2, "o2", Some(3)), look(40, 3)];
        assert_eq!(check(&calls(&all)), []);
    }

    #[test]
    fn a_generation_that_goes_back_or_comes_from_nowhere_is_found() {
        let back = [look(0, 1), reset(10, 1, "o1", Some(2)), look(20, 2), look(30, 1)];
        assert!(texts(&check(&calls(&back))).contains("was in generation 2, and then in 1"));
        assert!(texts(&check(&calls(&[look(0, 2), reset(10, 1, "o1", Some(2))]))).contains("before anybody asked"));
    }

    #[test]
    fn two_resets_to_one_generation_or_over_one_are_found() {
        let twice = [reset(10, 1, "o1", Some(2)), reset(20, 1, "o2", Some(2))];
        assert!(texts(&check(&calls(&twice))).contains("2 resets of c made generation 2"));
        assert!(texts(&check(&calls(&[reset(10, 1, "o1", Some(3))]))).contains("from generation 1 made 3"));
    }

    #[test]
    fn a_message_that_runs_among_those_of_another_generation_is_found() {
        let told = |generations: &[u64]| {
            let turn = ModelTurn { job: "j".to_owned(), generations: generations.to_vec(), ..ModelTurn::default() };
            Observations { turns: vec![turn], ..Observations::default() }
        };
        assert_eq!(check(&told(&[2, 2])), []);
        assert!(texts(&check(&told(&[2, 1]))).contains("among messages of the generations [2, 1]"));
    }
}
