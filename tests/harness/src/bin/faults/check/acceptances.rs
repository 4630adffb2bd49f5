//! I1: every accepted run is readable by its owner from every replica, and is in its owner's list.

use std::collections::BTreeSet;

use super::{Observations, Violation, lists};
use crate::evidence::bare;
use crate::history::{AnswerContent, CallAction};
use crate::testbed::REPLICA_COUNT;

pub(super) fn check(witnesses: &Observations) -> Vec<Violation> {
    let mut readable = BTreeSet::new();
    for call in witnesses.calls.iter().filter(|call| call.caller.starts_with("auditor")) {
        if let (CallAction::Read { run_id }, AnswerContent::Run { run_id: shown, .. }) = (&call.asked, &call.seen)
            && run_id == shown
        {
            readable.insert((run_id.as_str(), call.replica));
        }
    }
    let mut violations = lists::check(witnesses);
    for run_id in witnesses.jobs_of_runs().into_keys() {
        let missing: Vec<_> = (0..REPLICA_COUNT).filter(|replica| !readable.contains(&(run_id, *replica))).collect();
        if !missing.is_empty() {
            violations.push(Violation::of("I1", None, format!("{run_id} cannot be read from replicas {missing:?}")));
        }
        if !witnesses.evidence.rows.contains(&bare(run_id)) {
            violations.push(Violation::of("I1", None, format!("{run_id} has no row")));
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::super::samples::{call, calls, read, run, submit, texts};
    use super::*;

    fn told(replicas: &[usize]) -> Observations {
        let mut all = vec![call("a", 0, submit("j"), run("run_1", "queued"))];
        for replica in replicas {
            let mut audited = call("auditor-0", 9, read("run_1"), run("run_1", "succeeded"));
            audited.replica = *replica;
            all.push(audited);
        }
        let mut witnesses = calls(&all);
        witnesses.evidence.rows.insert("1".to_owned());
        witnesses
    }

    #[test]
    fn a_run_that_one_replica_does_not_show_is_found() {
        assert_eq!(check(&told(&[0, 1, 2])), []);
        assert_eq!(texts(&check(&told(&[0, 2]))), "I1: run_1 cannot be read from replicas [1]\n");
    }

    #[test]
    fn a_run_without_a_row_is_found() {
        let mut lost = told(&[0, 1, 2]);
        lost.evidence.rows.clear();
        assert_eq!(texts(&check(&lost)), "I1: run_1 has no row\n");
    }
}
