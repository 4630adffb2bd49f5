//! I4: one key is one run in all answers and look-ups, and another body under it is a conflict.

use super::{Observations, Violation};
use crate::evidence::bare;
use crate::history::CallAction;

pub(super) fn check(witnesses: &Observations) -> Vec<Violation> {
    let mut violations = Vec::new();
    let runs = witnesses.runs_of_jobs();
    // Events have no keys; I10 covers them.
    let events = witnesses.events();
    let with_key = runs.iter().filter(|(job, _)| !events.contains(*job));
    for (job, runs) in with_key {
        let found = witnesses.evidence.found.get(*job).map(Vec::as_slice).unwrap_or_default();
        if runs.len() != 1 {
            violations.push(Violation::of("I4", None, format!("{job} was accepted as {runs:?}")));
        } else if found.len() != 1 || !runs.contains(found[0].as_str()) {
            violations.push(Violation::of(
                "I4",
                None,
                format!("{job} was accepted as {runs:?} and is found as {found:?}"),
            ));
        }
    }
    for (job, found) in witnesses.evidence.found.iter().filter(|(_, found)| found.len() > 1) {
        violations.push(Violation::of("I4", None, format!("{job} is found as {found:?}")));
    }
    for call in &witnesses.calls {
        let is_conflict = call.code == "idempotency_key_reused";
        match &call.asked {
            CallAction::Submit { job, changed: true } if call.status.is_some_and(|status| status < 300) => {
                violations.push(Violation::of("I4", call.begun, format!("{job} was accepted with another body")));
            }
            CallAction::Submit { job, changed: false } if is_conflict => {
                violations.push(Violation::of("I4", call.begun, format!("{job} is a conflict with its own body")));
            }
            _ => {}
        }
    }
    // A row without a key would be a run that no caller requested.
    let of_events = runs.iter().filter(|(job, _)| events.contains(*job)).flat_map(|(_, runs)| runs.iter().copied());
    let found = witnesses.evidence.found.values().flatten().map(String::as_str).chain(of_events).map(bare).collect();
    for row in witnesses.evidence.rows.difference(&found) {
        violations.push(Violation::of("I4", None, format!("run {row} has a row, and no job leads to it")));
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::super::samples::{call, calls, run, submit, texts};
    use super::*;

    fn told(runs: &[&str], found: &[&str]) -> Observations {
        let all: Vec<_> = runs.iter().map(|run_id| call("a", 0, submit("j"), run(run_id, "queued"))).collect();
        let mut witnesses = calls(&all);
        witnesses.evidence.found.insert("j".to_owned(), found.iter().map(|id| (*id).to_owned()).collect());
        witnesses
    }

    #[test]
    fn one_key_with_two_runs_is_found() {
        assert_eq!(check(&told(&["run_1", "run_1"], &["run_1"])), []);
        assert!(texts(&check(&told(&["run_1", "run_2"], &["run_1"]))).contains("was accepted as"));
        assert!(texts(&check(&told(&["run_1"], &["run_1", "run_2"]))).contains("is found as"));
        assert!(texts(&check(&told(&["run_1"], &[]))).contains("is found as []"));
    }

    #[test]
    fn another_body_that_is_accepted_is_found() {
        let mut witnesses = told(&["run_1"], &["run_1"]);
        let asked = CallAction::Submit { job: "j".to_owned(), changed: true };
        witnesses.calls.push(call("a", 5, asked, run("run_1", "queued")));
        assert!(texts(&check(&witnesses)).contains("with another body"));
    }

    #[test]
    fn a_row_that_nobody_asked_for_is_found() {
        let mut witnesses = told(&["run_1"], &["run_1"]);
        witnesses.evidence.rows.extend(["1".to_owned(), "2".to_owned()]);
        assert!(texts(&check(&witnesses)).contains("run 2 has a row"));
    }
}
