//! I15, as far as the owner is a witness: a call that needs approval runs only if the owner approved it.

use std::collections::BTreeSet;

use super::{Observations, Violation};
use crate::history::DecisionTopic;

pub(super) fn check(witnesses: &Observations) -> Vec<Violation> {
    let approved = witnesses.decided.iter().filter(|decided| decided.matter == DecisionTopic::Call && decided.is_yes);
    let approved: BTreeSet<_> = approved.map(|decided| decided.run_id.as_str()).collect();
    let runs = witnesses.runs_of_jobs();
    let mut violations = Vec::new();
    for job in &witnesses.written {
        let is_approved = runs.get(job.as_str()).into_iter().flatten().any(|run_id| approved.contains(run_id));
        if !is_approved {
            violations.push(Violation::of("I15", None, format!("{job} wrote, and its owner did not approve that")));
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::super::samples::{call, calls, run, submit, texts};
    use super::*;
    use crate::history::DecisionRecord;

    #[test]
    fn a_call_that_was_denied_and_ran_is_found() {
        let told = |is_yes| {
            let mut witnesses = calls(&[call("a", 0, submit("j"), run("r", "queued"))]);
            witnesses.written.insert("j".to_owned());
            let run_id = "r".to_owned();
            witnesses.decided.push(DecisionRecord {
                run_id,
                at: 5,
                matter: DecisionTopic::Call,
                is_yes,
                is_taken: true,
            });
            witnesses
        };
        assert_eq!(check(&told(true)), []);
        assert!(texts(&check(&told(false))).contains("j wrote, and its owner did not approve"));
    }
}
