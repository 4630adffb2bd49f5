//! A part of I1: a list that is read page by page shows each of its owner's runs exactly once.

use std::collections::BTreeSet;

use super::{Observations, Violation};

pub(super) fn check(witnesses: &Observations) -> Vec<Violation> {
    let mut violations = Vec::new();
    let accepted: BTreeSet<_> = witnesses.jobs_of_runs().into_keys().collect();
    let desktops = witnesses.desks_of_runs();
    for (desktop, listed) in &witnesses.evidence.listed {
        let mut shown = BTreeSet::new();
        for run_id in listed.iter().filter(|run_id| !shown.insert(run_id.as_str())) {
            violations.push(Violation::of("I1", None, format!("the list of desk {desktop} shows {run_id} twice")));
        }
        let own = accepted.iter().filter(|run_id| desktops.get(*run_id) == Some(desktop));
        for run_id in own.filter(|run_id| !shown.contains(*run_id)) {
            violations.push(Violation::of("I1", None, format!("the list of desk {desktop} leaves {run_id} out")));
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::super::samples::{call, calls, run, submit, texts};
    use super::*;

    fn told(listed: &[&str]) -> Observations {
        let mut witnesses =
            calls(&[call("a", 0, submit("j1"), run("r1", "queued")), call("a", 5, submit("j2"), run("r2", "queued"))]);
        witnesses.evidence.listed.insert(0, listed.iter().map(|run_id| (*run_id).to_owned()).collect());
        witnesses
    }

    #[test]
    fn a_run_that_a_list_shows_twice_or_not_is_found() {
        assert_eq!(check(&told(&["r2", "r1"])), []);
        assert_eq!(texts(&check(&told(&["r2", "r2", "r1"]))), "I1: the list of desk 0 shows r2 twice\n");
        assert_eq!(texts(&check(&told(&["r2"]))), "I1: the list of desk 0 leaves r1 out\n");
    }
}
