//! I3: a tool call takes effect at most once, and a run begins at most once, plus once for a recorded safe restart,
//! plus once for each time the owner let it run again.

use std::collections::BTreeMap;

use super::{Observations, Violation};

pub(super) fn check(witnesses: &Observations) -> Vec<Violation> {
    let runs = witnesses.runs_of_jobs();
    let count = |job: &str, counted: &dyn Fn(&str) -> usize| -> usize {
        runs.get(job).into_iter().flatten().map(|run_id| counted(run_id)).sum()
    };
    // A decision also counts if only the run's events record it.
    let decisions = |job: &str| {
        let recorded = count(job, &|run_id| witnesses.count_events(run_id, "run.reconciled"));
        recorded.min(count(job, &|run_id| witnesses.count_again(run_id)))
    };
    let mut violations = Vec::new();
    let mut effects: BTreeMap<(&str, usize), Vec<u64>> = BTreeMap::new();
    for effect in &witnesses.effects {
        effects.entry((&effect.job, effect.call)).or_default().push(effect.at);
    }
    for ((job, call), times) in effects {
        let decisions = decisions(job);
        if times.len() > 1 + decisions {
            let text =
                format!("call {call} of {job} took effect {} times, with {decisions} decisions to that", times.len());
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
        let restarts = count(job, &|run_id| witnesses.count_events(run_id, "run.restarted"));
        let decisions = decisions(job);
        // A run that begins again by a decision is a restart in its events too.
        let safe = restarts.saturating_sub(decisions).min(1);
        if times.len() > 1 + safe + decisions {
            let text = format!(
                "{job} had {} first turns, with {restarts} restarts recorded and {decisions} decisions",
                times.len()
            );
            violations.push(Violation::of("I3", times.last().copied(), text));
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::super::samples::{call, calls, events, run, submit, texts};
    use super::*;
    use crate::history::{DecisionRecord, DecisionTopic};
    use crate::testbed::effect_log::Effect;
    use crate::testbed::fake_model::ModelTurn;

    fn told(effects: usize, turns: usize, kinds: &[&str]) -> Observations {
        let mut witnesses = calls(&[call("a", 0, submit("j"), run("run_1", "queued"))]);
        witnesses.effects = vec![Effect { job: "j".to_owned(), call: 0, at: 5 }; effects];
        let turn = ModelTurn { job: "j".to_owned(), served: "whole".to_owned(), ..ModelTurn::default() };
        witnesses.turns = vec![turn; turns];
        witnesses.evidence.events.insert("run_1".to_owned(), events(kinds));
        witnesses
    }

    fn decided(mut witnesses: Observations) -> Observations {
        let (run_id, matter) = ("run_1".to_owned(), DecisionTopic::RunAgain);
        witnesses.decided.push(DecisionRecord { run_id, at: 3, matter, is_yes: true, is_taken: true });
        witnesses
    }

    #[test]
    fn an_effect_twice_is_good_only_with_a_decision_that_is_recorded() {
        assert_eq!(check(&told(1, 1, &[])), []);
        assert!(texts(&check(&told(2, 1, &["run.restarted"]))).contains("took effect 2 times, with 0 decisions"));
        assert!(texts(&check(&told(2, 1, &["run.reconciled"]))).contains("took effect 2 times, with 0 decisions"));
        assert!(texts(&check(&decided(told(2, 1, &[])))).contains("took effect 2 times, with 0 decisions"));
        assert_eq!(check(&decided(told(2, 1, &["run.reconciled"]))), []);
    }

    #[test]
    fn an_effect_of_a_job_that_nobody_accepted_is_found() {
        let mut unknown = told(1, 0, &[]);
        unknown.calls.clear();
        assert!(texts(&check(&unknown)).contains("never accepted"));
    }

    #[test]
    fn a_second_first_turn_needs_one_restart_that_is_recorded() {
        assert!(texts(&check(&told(0, 2, &[]))).contains("2 first turns"));
        assert_eq!(check(&told(0, 2, &["run.restarted"])), []);
        assert!(texts(&check(&told(0, 3, &["run.restarted", "run.restarted"]))).contains("3 first turns"));
        let again = ["run.reconciled", "run.restarted"];
        assert_eq!(check(&decided(told(0, 2, &again))), []);
        assert!(texts(&check(&decided(told(0, 3, &again)))).contains("3 first turns"));
        assert_eq!(check(&decided(told(0, 3, &[&again[..], &["run.restarted"]].concat()))), []);
    }
}
