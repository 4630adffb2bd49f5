//! I18: from ten seconds after a fault on, 99 of 100 new submissions are accepted at the first try, every device's runs
//! end, and operations that begin without a fault succeed.

use std::collections::BTreeSet;

use super::{Observations, Violation};
use crate::history::OperationRecord;

/// The fewest submissions that allow a conclusion.
const MIN_SUBMISSIONS: usize = 10;

pub(super) fn check(witnesses: &Observations) -> Vec<Violation> {
    let mut violations: Vec<_> = witnesses.calm.iter().flat_map(|span| calm(witnesses, *span)).collect();
    let Some((from, to)) = witnesses.calm.last().copied() else {
        return vec![Violation::of("I18", None, "it never was calm".to_owned())];
    };
    let is_last = |done: &&OperationRecord| done.name == "run" && (from..to).contains(&done.begun);
    for run in witnesses.done.iter().filter(is_last).filter(|done| !done.succeeded) {
        let run_id = run.run_id.as_deref().unwrap_or_default();
        violations.push(Violation::of("I18", run.begun, format!("{run_id} began in calm and did not succeed")));
    }
    violations
}

/// Checks a span without faults.
fn calm(witnesses: &Observations, (from, to): (u64, u64)) -> Vec<Violation> {
    let is_new = |done: &&OperationRecord| done.name == "submit" && (from..to).contains(&done.begun);
    let submitted: Vec<_> = witnesses.done.iter().filter(is_new).collect();
    let mut violations = Vec::new();
    if submitted.len() < MIN_SUBMISSIONS {
        let text = format!("only {} submissions were made while nothing was broken", submitted.len());
        violations.push(Violation::of("I18", from, text));
    }
    let late: Vec<_> = submitted.iter().filter(|done| !done.succeeded || done.tries > 1).collect();
    if late.len() * 100 > submitted.len() {
        let text = format!("{} of {} submissions were not accepted at the first try", late.len(), submitted.len());
        violations.push(Violation::of("I18", late[0].begun, text));
    }
    let desktops = witnesses.desks_of_runs();
    let ended = witnesses.done.iter().filter(|done| done.name == "run" && (from..to).contains(&done.ended));
    let at_work: BTreeSet<_> = ended.filter_map(|done| desktops.get(done.run_id.as_deref()?).copied()).collect();
    let known: BTreeSet<_> = desktops.into_values().collect();
    for desktop in known.difference(&at_work) {
        let text =
            format!("no run of device {desktop} ended for {} s in which nothing was broken", (to - from) / 1_000_000);
        violations.push(Violation::of("I18", from, text));
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::super::samples::{call, done, read, run, texts};
    use super::*;

    fn told(count: u64) -> Observations {
        let done = (0..count).flat_map(|at| [done("submit", 100 + at, "r"), done("run", 100 + at, "r")]).collect();
        let calls = vec![call("a", 0, read("r"), run("r", "succeeded"))];
        Observations { done, calls, calm: vec![(100, 500)], ..Observations::default() }
    }

    #[test]
    fn submissions_that_are_accepted_at_once_and_end_are_good() {
        assert_eq!(check(&told(100)), []);
    }

    #[test]
    fn too_few_too_late_and_unfinished_are_found() {
        assert!(texts(&check(&told(3))).contains("only 3 submissions"));
        let mut late = told(100);
        late.done[0].tries = 2;
        assert_eq!(check(&late), [], "one of a hundred may be");
        late.done[2].tries = 2;
        assert!(texts(&check(&late)).contains("2 of 100 submissions"));
        let mut unfinished = told(100);
        unfinished.done[1].succeeded = false;
        assert!(texts(&check(&unfinished)).contains("did not succeed"));
        assert!(texts(&check(&Observations { calm: Vec::new(), ..told(100) })).contains("never was calm"));
    }

    #[test]
    fn a_device_that_stays_away_in_a_calm_span_is_found() {
        let mut away = told(100);
        let mut other = call("a", 0, read("r2"), run("r2", "queued"));
        other.desktop = 1;
        away.calls.push(other);
        assert!(texts(&check(&away)).contains("no run of device 1 ended"));
        away.done.push(done("run", 200, "r2"));
        assert_eq!(check(&away), []);
    }
}
