//! I3: a call of a tool takes effect at most once, and a run begins at most once, unless it is written down why again.

use std::collections::BTreeMap;

use super::{Violation, Witnesses};

pub(super) fn check(witnesses: &Witnesses) -> Vec<Violation> {
    let runs = witnesses.runs_of_jobs();
    let recorded = |job: &str, kind: &str| -> usize {
        runs.get(job).into_iter().flatten().map(|run_id| witnesses.count_events(run_id, kind)).sum()
    };
    let mut violations = Vec::new();
    let mut effects: BTreeMap<(&str, usize), Vec<u64>> = BTreeMap::new();
    for effect in &witnesses.effects {
        effects.entry((&effect.job, effect.call)).or_default().push(effect.at);
    }
    for ((job, call), times) in effects {
        let decisions = recorded(job, "run.reconciled");
        if times.len() > 1 + decisions {
            let text =
                format!("call {call} of {job} took effect {} times, with {decisions} decisions recorded", times.len());
            violations.push(Violation::of("I3", times.last().copied(), text));
        }
        if !runs.contains_key(job) {
            violations.push(Violation::of(
                "I3",
                times.first().copied(),
                format!("{job} was never accepted, and wrote"),
            ));
        }
    }
    let mut first_turns: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for turn in witnesses.turns.iter().filter(|turn| turn.place == 0 && turn.served == "whole") {
        first_turns.entry(&turn.job).or_default().push(turn.begun);
    }
    for (job, times) in first_turns {
        let (restarts, decisions) = (recorded(job, "run.restarted"), recorded(job, "run.reconciled"));
        if restarts > 1 + decisions || times.len() > 1 + restarts + decisions {
            let text = format!(
                "{job} had {} first turns, with {restarts} restarts and {decisions} decisions recorded",
                times.len()
            );
            violations.push(Violation::of("I3", times.last().copied(), text));
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::super::told::{call, calls, events, run, submit, texts};
    use super::*;
    use crate::scene::ledger::Effect;
    use crate::scene::model::Turn;

    fn told(effects: usize, kinds: &[&str]) -> Witnesses {
        let mut witnesses = calls(&[call("a", 0, submit("j"), run("run_1", "queued"))]);
        witnesses.effects = vec![Effect { job: "j".to_owned(), call: 0, at: 5 }; effects];
        witnesses.evidence.events.insert("run_1".to_owned(), events(kinds));
        witnesses
    }

    #[test]
    fn an_effect_twice_is_good_only_with_a_decision() {
        assert_eq!(check(&told(1, &[])), []);
        assert!(texts(&check(&told(2, &["run.restarted"]))).contains("took effect 2 times, with 0 decisions"));
        assert_eq!(check(&told(2, &["run.reconciled"])), []);
    }

    #[test]
    fn an_effect_of_a_job_that_nobody_accepted_is_found() {
        let mut unknown = told(1, &[]);
        unknown.calls.clear();
        assert!(texts(&check(&unknown)).contains("never accepted"));
    }

    #[test]
    fn a_second_first_turn_needs_a_restart_that_is_recorded() {
        let with_turns = |turns: usize, kinds: &[&str]| {
            let turn = Turn { job: "j".to_owned(), served: "whole".to_owned(), ..Turn::default() };
            Witnesses { turns: vec![turn; turns], ..told(0, kinds) }
        };
        assert_eq!(check(&with_turns(1, &[])), []);
        assert!(texts(&check(&with_turns(2, &[]))).contains("2 first turns"));
        assert_eq!(check(&with_turns(2, &["run.restarted"])), []);
        assert!(texts(&check(&with_turns(3, &["run.restarted", "run.restarted"]))).contains("3 first turns"));
    }
}
