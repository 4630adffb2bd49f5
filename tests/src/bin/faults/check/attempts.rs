//! I5: at most one live attempt of a run. Its model is asked by one of them at a time, and their number never goes back.

use std::collections::BTreeMap;

use super::{Violation, Witnesses, goes_back};
use crate::scene::model::Turn;

pub(super) fn check(witnesses: &Witnesses) -> Vec<Violation> {
    let mut turns: BTreeMap<&str, Vec<&Turn>> = BTreeMap::new();
    for turn in &witnesses.turns {
        turns.entry(&turn.job).or_default().push(turn);
    }
    let mut violations = Vec::new();
    for (job, turns) in turns {
        for (one, other) in overlaps(&turns) {
            let text = format!("{job} asked its model twice at once: turns {} and {}", one.place, other.place);
            violations.push(Violation::of("I5", other.begun, text));
        }
    }
    for (run_id, sights) in witnesses.seen_of_runs() {
        let back = goes_back(&sights, |sight| sight.call.begun, |sight| sight.call.ended, |sight| sight.attempt);
        for (earlier, later) in back {
            let text = format!("{run_id} was in attempt {}, and then in {}", earlier.attempt, later.attempt);
            violations.push(Violation::of("I5", later.call.begun, text));
        }
    }
    violations
}

/// Pairs of turns that were under way at the same time.
pub(super) fn overlaps<'a>(turns: &[&'a Turn]) -> Vec<(&'a Turn, &'a Turn)> {
    let mut sorted = turns.to_vec();
    sorted.sort_by_key(|turn| turn.begun);
    let pairs = sorted.windows(2).map(|pair| (pair[0], pair[1]));
    pairs.filter(|(one, other)| one.ended > other.begun).collect()
}

#[cfg(test)]
mod tests {
    use super::super::told::{call, calls, read, run, texts};
    use super::*;
    use crate::history::Seen;

    #[test]
    fn two_turns_of_one_job_at_once_are_found() {
        let turn = |begun, ended| Turn { job: "j".to_owned(), begun, ended, ..Turn::default() };
        let told = |turns: &[Turn]| Witnesses { turns: turns.to_vec(), ..Witnesses::default() };
        assert_eq!(check(&told(&[turn(0, 5), turn(5, 9)])), []);
        assert!(texts(&check(&told(&[turn(0, 5), turn(4, 9)]))).contains("twice at once"));
    }

    #[test]
    fn an_attempt_that_goes_back_is_found() {
        let attempt = |number| match run("run_1", "running") {
            Seen::Run { run_id, phase, state, digest, .. } => {
                Seen::Run { run_id, phase, state, attempt: number, digest }
            }
            other => other,
        };
        let told = |numbers: [u64; 2]| {
            let both: Vec<_> =
                (0..2).map(|at| call("a", at * 10, read("run_1"), attempt(numbers[at as usize]))).collect();
            calls(&both)
        };
        assert_eq!(check(&told([1, 2])), []);
        assert!(texts(&check(&told([2, 1]))).contains("was in attempt 2, and then in 1"));
    }
}
