//! I2: every accepted run reaches one final state, which never changes on any replica; a phase never goes back.

use super::{Observations, Violation, goes_back};

pub(super) fn check(witnesses: &Observations) -> Vec<Violation> {
    let mut violations = Vec::new();
    let seen = witnesses.seen_of_runs();
    for run_id in witnesses.jobs_of_runs().into_keys() {
        let sights = seen.get(run_id).map(Vec::as_slice).unwrap_or_default();
        let ends: Vec<_> = sights.iter().filter(|sight| sight.phase == "final").collect();
        let Some(end) = ends.first() else {
            let state = sights.last().map_or("never seen", |sight| sight.state);
            violations.push(Violation::of("I2", None, format!("{run_id} did not end: {state}")));
            continue;
        };
        for other in ends.iter().filter(|other| (other.state, other.digest) != (end.state, end.digest)) {
            let text = format!("{run_id} was {}, and then {} or with another outcome", end.state, other.state);
            violations.push(Violation::of("I2", other.call.begun, text));
        }
        let back = goes_back(sights, |sight| sight.call.begun, |sight| sight.call.ended, |sight| rank(sight.phase));
        for (earlier, later) in back {
            let text = format!("{run_id} was {}, and then {} again", earlier.state, later.state);
            violations.push(Violation::of("I2", later.call.begun, text));
        }
        let finals = witnesses.evidence.events.get(run_id).into_iter().flatten().filter(|event| event.is_final());
        let kinds: Vec<_> = finals.map(|event| event.kind.as_str()).collect();
        if kinds != [format!("run.{}", end.state)] {
            let text = format!("{run_id} is {}, and its final events are {kinds:?}", end.state);
            violations.push(Violation::of("I2", None, text));
        }
    }
    violations
}

fn rank(phase: &str) -> u64 {
    match phase {
        "accepted" => 0,
        "started" => 1,
        _ => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::{call, calls, events, read, run, submit, texts};
    use super::*;
    use crate::history::AnswerContent;

    fn told(states: &[&str]) -> Observations {
        let mut all = vec![call("a", 0, submit("j"), run("run_1", "queued"))];
        for (place, state) in states.iter().enumerate() {
            all.push(call("a", 10 * (place as u64 + 1), read("run_1"), run("run_1", state)));
        }
        let mut witnesses = calls(&all);
        let kinds = ["run.accepted", "run.started", "run.succeeded"];
        witnesses.evidence.events.insert("run_1".to_owned(), events(&kinds));
        witnesses
    }

    #[test]
    fn a_run_that_ends_once_and_stays_so_is_good() {
        assert_eq!(check(&told(&["running", "succeeded", "succeeded"])), []);
    }

    #[test]
    fn a_run_that_never_ends_changes_its_end_or_goes_back_is_found() {
        assert!(texts(&check(&told(&["running"]))).contains("did not end: running"));
        assert!(texts(&check(&told(&["succeeded", "failed"]))).contains("was succeeded, and then failed"));
        assert!(texts(&check(&told(&["running", "queued", "succeeded"]))).contains("was running, and then queued"));
        let mut other = told(&["succeeded", "succeeded"]);
        if let AnswerContent::Run { digest, .. } = &mut other.calls[2].seen {
            *digest += 1;
        }
        assert!(texts(&check(&other)).contains("another outcome"));
    }

    #[test]
    fn two_final_events_are_found() {
        let mut twice = told(&["succeeded"]);
        let kinds = ["run.accepted", "run.succeeded", "run.succeeded"];
        twice.evidence.events.insert("run_1".to_owned(), events(&kinds));
        assert!(texts(&check(&twice)).contains("its final events are"));
    }
}
