//! I10: one valid event is one run, however often it arrives; a forged or stale one is no run.

use std::collections::{BTreeMap, BTreeSet};

use super::{Observations, Violation};
use crate::history::{AnswerContent, CallAction};

pub(super) fn check(witnesses: &Observations) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut became: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut forged = BTreeSet::new();
    for call in &witnesses.calls {
        match (&call.asked, &call.seen) {
            (CallAction::Event { job, forged: false }, AnswerContent::Became { run_id }) => {
                became.entry(job).or_default().insert(run_id);
            }
            (CallAction::Event { job, forged: true }, _) => {
                forged.insert(job.as_str());
                if call.status.is_some_and(|status| status < 300) {
                    violations.push(Violation::of("I10", call.begun, format!("{job} was forged, and accepted")));
                }
            }
            _ => {}
        }
    }
    for (job, runs) in became.iter().filter(|(_, runs)| runs.len() > 1) {
        violations.push(Violation::of("I10", None, format!("event {job} became {runs:?}")));
    }
    // If such a run existed, the model would be asked about it, whatever the event's answer was.
    for turn in witnesses.turns.iter().filter(|turn| forged.contains(turn.job.as_str())) {
        violations.push(Violation::of("I10", turn.begun, format!("{} was forged, and ran", turn.job)));
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::super::samples::{call, calls, texts};
    use super::*;
    use crate::history::CallRecord;
    use crate::testbed::fake_model::ModelTurn;

    fn event(forged: bool, run_id: &str) -> CallRecord {
        let asked = CallAction::Event { job: "j".to_owned(), forged };
        call("a", 0, asked, AnswerContent::Became { run_id: run_id.to_owned() })
    }

    #[test]
    fn an_event_that_becomes_two_runs_is_found() {
        assert_eq!(check(&calls(&[event(false, "r1"), event(false, "r1")])), []);
        assert!(texts(&check(&calls(&[event(false, "r1"), event(false, "r2")]))).contains("event j became"));
    }

    #[test]
    fn a_forged_event_that_is_accepted_or_runs_is_found() {
        let refused = CallRecord { status: Some(401), seen: AnswerContent::Nothing, ..event(true, "") };
        let mut witnesses = calls(&[refused]);
        assert_eq!(check(&witnesses), []);
        witnesses.turns.push(ModelTurn { job: "j".to_owned(), ..ModelTurn::default() });
        assert!(texts(&check(&witnesses)).contains("j was forged, and ran"));
        assert!(texts(&check(&calls(&[event(true, "r1")]))).contains("j was forged, and accepted"));
    }
}
