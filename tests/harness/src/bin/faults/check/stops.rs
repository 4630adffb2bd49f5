//! I12: after a stop is completed with `stopped`, no tool call of that run begins, and a cancelled run has no later
//! effect.

use std::collections::BTreeMap;

use super::{Observations, Violation};
use crate::history::{AnswerContent, CallAction};

pub(super) fn check(witnesses: &Observations) -> Vec<Violation> {
    let stops: BTreeMap<&str, &str> = witnesses.calls.iter().filter_map(stop).collect();
    // The time from which on each run was known to be inactive.
    let mut quiet: BTreeMap<&str, u64> = BTreeMap::new();
    for call in &witnesses.calls {
        let run_id = match &call.seen {
            AnswerContent::Operation { operation_id, code, .. } if code == "stopped" => {
                stops.get(operation_id.as_str()).copied()
            }
            AnswerContent::Run { run_id, state, .. } if state == "cancelled" => Some(run_id.as_str()),
            _ => None,
        };
        if let Some(run_id) = run_id {
            let since = quiet.entry(run_id).or_insert(call.ended);
            *since = call.ended.min(*since);
        }
    }
    let runs = witnesses.runs_of_jobs();
    let mut violations = Vec::new();
    for effect in &witnesses.effects {
        for run_id in runs.get(effect.job.as_str()).into_iter().flatten() {
            if quiet.get(run_id).is_some_and(|since| effect.at > *since) {
                let text = format!("call {} of {} began behind the stop of {run_id}", effect.call, effect.job);
                violations.push(Violation::of("I12", effect.at, text));
            }
        }
    }
    violations
}

/// The operation of a stop, and the run that it is to stop.
fn stop(call: &crate::history::CallRecord) -> Option<(&str, &str)> {
    match (&call.asked, &call.seen) {
        (CallAction::Stop { run_id }, AnswerContent::Operation { operation_id, .. }) => Some((operation_id, run_id)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::{call, calls, read, run, submit, texts};
    use super::*;
    use crate::testbed::effect_log::Effect;

    fn stopped(effect_at: u64, code: &str) -> Observations {
        let operation = |code: &str| AnswerContent::Operation {
            operation_id: "o".to_owned(),
            state: "completed".to_owned(),
            code: code.to_owned(),
            new_generation: None,
        };
        let mut witnesses = calls(&[
            call("a", 0, submit("j"), run("r", "queued")),
            call("a", 10, CallAction::Stop { run_id: "r".to_owned() }, operation("")),
            call("a", 20, CallAction::Operation { operation_id: "o".to_owned() }, operation(code)),
        ]);
        witnesses.effects.push(Effect { job: "j".to_owned(), call: 0, at: effect_at });
        witnesses
    }

    #[test]
    fn an_effect_behind_a_completed_stop_is_found() {
        assert_eq!(check(&stopped(15, "stopped")), []);
        assert!(texts(&check(&stopped(30, "stopped"))).contains("began behind the stop of r"));
        assert_eq!(check(&stopped(30, "already_final")), []);
    }

    #[test]
    fn an_effect_of_a_cancelled_run_is_found() {
        let mut witnesses = stopped(30, "already_final");
        witnesses.calls.push(call("a", 25, read("r"), run("r", "cancelled")));
        assert!(texts(&check(&witnesses)).contains("began behind"));
    }
}
