//! I5: at most one live attempt of a run. Only one attempt asks the model at a time, attempt numbers never go back,
//! each offer is executed at most once and in order, and a report of an outdated attempt changes nothing.
//!
//! What callers see as `attempt` counts how often the run began, by its stored events, however often it was offered: 0
//! before its start, and no less than the executions in its device's log. It may be more by those that a crash cut off
//! before the log had them, of which each was begun again.

use std::collections::BTreeMap;

use super::{Observations, RunObservation, Violation, goes_back, stale_finishes};
use crate::testbed::fake_model::ModelTurn;

pub(super) fn check(witnesses: &Observations) -> Vec<Violation> {
    let mut turns: BTreeMap<&str, Vec<&ModelTurn>> = BTreeMap::new();
    for turn in &witnesses.turns {
        turns.entry(&turn.job).or_default().push(turn);
    }
    let mut violations = stale_finishes::check(witnesses);
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
    violations.extend(executed(witnesses));
    violations.extend(counted(witnesses));
    violations
}

/// Checks the executions in the devices' logs. The order is that of the log: a device's clock may be wrong, and a run
/// belongs to one device.
fn executed(witnesses: &Observations) -> Vec<Violation> {
    let mut begun: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for execution in &witnesses.evidence.executions {
        begun.entry(&execution.run_id).or_default().push(execution.attempt);
    }
    let mut violations = Vec::new();
    let seen = witnesses.seen_of_runs();
    for (run_id, attempts) in begun {
        if !attempts.is_sorted_by(|one, next| one < next) {
            let text = format!("{run_id} was executed in the offers {attempts:?}");
            violations.push(Violation::of("I5", None, text));
        }
        let last = seen.get(run_id).and_then(|sights| sights.iter().rfind(|sight| sight.state == "succeeded"));
        let executions = attempts.len() as u64;
        if let Some(sight) = last.filter(|sight| sight.attempt < executions) {
            let text = format!("{run_id} succeeded in attempt {} and was executed {executions} times", sight.attempt);
            violations.push(Violation::of("I5", sight.call.begun, text));
        }
    }
    violations
}

/// Compares the numbers that callers saw with the events of the run: each begin is one.
fn counted(witnesses: &Observations) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (run_id, sights) in witnesses.seen_of_runs() {
        let begins =
            (witnesses.count_events(run_id, "run.started") + witnesses.count_events(run_id, "run.restarted")) as u64;
        let is_wrong = |sight: &&RunObservation<'_>| match sight.phase {
            "accepted" => sight.attempt != 0,
            "started" => sight.attempt == 0 || sight.attempt > begins,
            _ => sight.attempt != begins,
        };
        // Without its events nothing can be said of it.
        let known = witnesses.evidence.events.contains_key(run_id);
        if let Some(sight) = sights.iter().filter(|_| known).find(is_wrong) {
            let text = format!("{run_id} was {} in attempt {}; it began {begins} times", sight.state, sight.attempt);
            violations.push(Violation::of("I5", sight.call.begun, text));
        }
    }
    violations
}

/// Pairs of turns that overlapped in time.
pub(super) fn overlaps<'a>(turns: &[&'a ModelTurn]) -> Vec<(&'a ModelTurn, &'a ModelTurn)> {
    let mut sorted = turns.to_vec();
    sorted.sort_by_key(|turn| turn.begun);
    let pairs = sorted.windows(2).map(|pair| (pair[0], pair[1]));
    pairs.filter(|(one, other)| one.ended > other.begun).collect()
}

#[cfg(test)]
mod tests {
    use super::super::samples::{call, calls, events, read, run, texts};
    use super::*;
    use crate::evidence::Execution;
    use crate::history::AnswerContent;

    #[test]
    fn two_turns_of_one_job_at_once_are_found() {
        let turn = |begun, ended| ModelTurn { job: "j".to_owned(), begun, ended, ..ModelTurn::default() };
        let told = |turns: &[ModelTurn]| Observations { turns: turns.to_vec(), ..Observations::default() };
        assert_eq!(check(&told(&[turn(0, 5), turn(5, 9)])), []);
        assert!(texts(&check(&told(&[turn(0, 5), turn(4, 9)]))).contains("twice at once"));
    }

    #[test]
    fn an_attempt_that_goes_back_is_found() {
        let attempt = |number| match run("run_1", "running") {
            AnswerContent::Run { run_id, phase, state, digest, .. } => {
                AnswerContent::Run { run_id, phase, state, attempt: number, digest }
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

    #[test]
    fn an_offer_that_is_executed_twice_and_executions_that_are_not_counted_are_found() {
        let told = |attempts: &[u64], succeeded: u64| {
            let seen = match run("run_1", "succeeded") {
                AnswerContent::Run { run_id, phase, state, digest, .. } => {
                    AnswerContent::Run { run_id, phase, state, attempt: succeeded, digest }
                }
                other => other,
            };
            let mut witnesses = calls(&[call("a", 9, read("run_1"), seen)]);
            let execution = |attempt: &u64| Execution { run_id: "run_1".to_owned(), attempt: *attempt };
            witnesses.evidence.executions = attempts.iter().map(execution).collect();
            witnesses
        };
        assert_eq!(check(&told(&[7], 1)), [], "offers that were refused are no attempts");
        assert_eq!(check(&told(&[1, 3], 2)), []);
        assert_eq!(check(&told(&[1], 2)), [], "one was cut off before the log had it");
        assert!(texts(&check(&told(&[1, 1], 2))).contains("in the offers [1, 1]"));
        assert!(texts(&check(&told(&[2, 1], 2))).contains("in the offers [2, 1]"));
        assert!(texts(&check(&told(&[1, 2], 1))).contains("succeeded in attempt 1 and was executed 2 times"));
    }

    #[test]
    fn an_attempt_that_counts_anything_but_begins_is_found() {
        let told = |state: &str, attempt: u64, kinds: &[&str]| {
            let AnswerContent::Run { run_id, phase, state, digest, .. } = run("run_1", state) else {
                unreachable!("a run")
            };
            let seen = AnswerContent::Run { run_id, phase, state, attempt, digest };
            let mut witnesses = calls(&[call("a", 9, read("run_1"), seen)]);
            witnesses.evidence.events.insert("run_1".to_owned(), events(kinds));
            texts(&check(&witnesses))
        };
        let (once, twice) = (["run.accepted", "run.started"], ["run.accepted", "run.started", "run.restarted"]);
        for (state, attempt, kinds) in [
            ("queued", 0, &once[..]),
            ("running", 1, &twice[..]),
            ("succeeded", 1, &once[..]),
            ("succeeded", 2, &twice[..]),
            ("expired", 0, &once[..1]),
        ] {
            assert_eq!(told(state, attempt, kinds), "", "{state} in {attempt}");
        }
        assert!(told("queued", 1, &once).contains("was queued in attempt 1"));
        assert!(told("running", 0, &once).contains("was running in attempt 0"));
        assert!(told("succeeded", 9, &once).contains("in attempt 9; it began 1 times"));
        assert!(told("succeeded", 1, &twice).contains("it began 2 times"));
    }
}
