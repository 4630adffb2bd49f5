//! I21: of the calls of one answer, one that may write runs alone: it begins when all before it have ended, and ends
//! before the next begins. The model gets the results right behind its answer, in the order of its calls.

use std::collections::BTreeMap;

use super::{Observations, Violation};
use crate::testbed::shelf::CallSpan;

pub(super) fn check(witnesses: &Observations) -> Vec<Violation> {
    let mut violations = Vec::new();
    for calls in answers(witnesses).values() {
        for (place, later) in calls.iter().enumerate() {
            let alone = calls[..place].iter().filter(|earlier| earlier.writes || later.writes);
            // One that never ended was killed with its run, and nothing of this answer comes behind it.
            for earlier in alone.filter(|earlier| earlier.ended.is_none_or(|ended| ended > later.begun)) {
                let CallSpan { job, index, at, .. } = later;
                let text =
                    format!("call {index} of {job} began before call {} had ended, and one writes", earlier.index);
                violations.push(Violation::of("I21", *at, text));
            }
        }
    }
    for turn in &witnesses.turns {
        if let Some(what) = &turn.disorder {
            violations.push(Violation::of("I21", turn.begun, format!("{}: {what}", turn.job)));
        }
    }
    violations
}

/// How many answers had reads that ran beside each other: without any, nothing was tried.
pub(super) fn beside(witnesses: &Observations) -> usize {
    let is_beside = |pair: &[&CallSpan]| !pair[1].writes && pair[0].ended.is_some_and(|ended| ended > pair[1].begun);
    answers(witnesses).values().filter(|calls| calls.windows(2).any(is_beside)).count()
}

/// The calls of each answer, in their order.
fn answers(witnesses: &Observations) -> BTreeMap<u64, Vec<&CallSpan>> {
    let mut answers: BTreeMap<u64, Vec<&CallSpan>> = BTreeMap::new();
    for span in &witnesses.spans {
        answers.entry(span.answer).or_default().push(span);
    }
    for calls in answers.values_mut() {
        calls.sort_by_key(|call| call.index);
    }
    answers
}

#[cfg(test)]
mod tests {
    use super::super::samples::texts;
    use super::*;
    use crate::testbed::fake_model::ModelTurn;

    /// Calls that may write or not, with the places of their first and last marks.
    fn told(calls: &[(bool, usize, Option<usize>)]) -> Observations {
        let span = |(index, (writes, begun, ended)): (usize, &(bool, usize, Option<usize>))| CallSpan {
            job: "j".to_owned(),
            index,
            writes: *writes,
            begun: *begun,
            ended: *ended,
            ..CallSpan::default()
        };
        Observations { spans: calls.iter().enumerate().map(span).collect(), ..Observations::default() }
    }

    #[test]
    fn reads_may_run_beside_each_other_and_a_call_that_writes_only_alone() {
        let good = told(&[(false, 0, Some(3)), (false, 1, Some(2)), (true, 4, Some(5)), (true, 6, None)]);
        assert_eq!((check(&good), beside(&good)), (Vec::new(), 1));
        let over = told(&[(false, 0, Some(3)), (true, 2, Some(4))]);
        assert!(texts(&check(&over)).contains("call 1 of j began before call 0 had ended"));
        assert!(texts(&check(&told(&[(true, 0, Some(3)), (true, 1, Some(2))]))).contains("call 1 of j began"));
        assert!(texts(&check(&told(&[(true, 0, None), (false, 1, Some(2))]))).contains("call 1 of j began"));
        assert!(texts(&check(&told(&[(true, 4, Some(5)), (false, 0, Some(1))]))).contains("call 1 of j began"));
        assert_eq!(beside(&told(&[(false, 0, Some(1)), (false, 2, Some(3))])), 0);
    }

    #[test]
    fn a_call_of_another_answer_is_none_of_these() {
        let mut again = told(&[(true, 0, None), (false, 1, Some(2))]);
        again.spans[1].answer = 1;
        assert_eq!(check(&again), []);
    }

    #[test]
    fn results_out_of_order_are_found() {
        let turn = ModelTurn { job: "j".to_owned(), disorder: Some("b came first".to_owned()), ..ModelTurn::default() };
        let told = Observations { turns: vec![ModelTurn::default(), turn], ..Observations::default() };
        assert_eq!(texts(&check(&told)), "I21: j: b came first\n");
    }
}
