//! I7: at most one unfinished run in a conversation, and no busy conversation without one.

use std::collections::BTreeMap;

use super::attempts::overlaps;
use super::{Observations, RunObservation, Violation};
use crate::history::{AnswerContent, CallAction};
use crate::testbed::fake_model::ModelTurn;

pub(super) fn check(witnesses: &Observations) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut turns: BTreeMap<&str, Vec<&ModelTurn>> = BTreeMap::new();
    for turn in &witnesses.turns {
        if let Some(talk) = &turn.talk {
            turns.entry(talk).or_default().push(turn);
        }
    }
    for (talk, turns) in turns {
        for (one, other) in overlaps(&turns).into_iter().filter(|(one, other)| one.job != other.job) {
            let text = format!("{talk} had {} and {} before its model at once", one.job, other.job);
            violations.push(Violation::of("I7", other.begun, text));
        }
    }
    violations.extend(unfinished(witnesses));
    for call in witnesses.calls.iter().filter(|call| call.caller.starts_with("auditor")) {
        if let AnswerContent::Conversation { conversation, state, active, .. } = &call.seen
            && (state != "idle" || active.is_some())
        {
            let text = format!("{conversation} is {state} with {active:?} when everything has ended");
            violations.push(Violation::of("I7", call.begun, text));
        }
    }
    violations
}

/// Runs that were certainly unfinished when another run of their conversation was already accepted.
fn unfinished(witnesses: &Observations) -> Vec<Violation> {
    let seen = witnesses.seen_of_runs();
    let mut runs: BTreeMap<&str, BTreeMap<&str, (u64, u64)>> = BTreeMap::new();
    for call in &witnesses.calls {
        let (CallAction::Say { conversation, .. }, AnswerContent::Run { run_id, .. }) = (&call.asked, &call.seen)
        else {
            continue;
        };
        // The first answer counts; a later one repeats it.
        let accepted = runs.entry(conversation).or_default().entry(run_id).or_insert((call.begun, call.ended));
        *accepted = (call.begun.min(accepted.0), call.ended.min(accepted.1));
    }
    let mut violations = Vec::new();
    for (conversation, runs) in &runs {
        for (run_id, (_, accepted)) in runs {
            let is_unfinished = |sight: &&RunObservation<'_>| sight.phase != "final";
            let Some(last) = seen[run_id].iter().filter(is_unfinished).max_by_key(|sight| sight.call.begun) else {
                continue;
            };
            for (other, (begun, ended)) in runs {
                if other != run_id && begun > accepted && *ended < last.call.begun {
                    let text = format!("{conversation} accepted {other} while {run_id} was {}", last.state);
                    violations.push(Violation::of("I7", *begun, text));
                }
            }
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::super::samples::{call, calls, read, run, texts};
    use super::*;
    use crate::history::CallRecord;

    fn say(at: u64, job: &str, run_id: &str) -> CallRecord {
        let asked = CallAction::Say { job: job.to_owned(), conversation: "c".to_owned(), generation: 1 };
        call("a", at, asked, run(run_id, "queued"))
    }

    #[test]
    fn a_message_that_is_accepted_behind_the_end_of_the_one_before_is_good() {
        let all = [say(0, "j1", "r1"), call("a", 5, read("r1"), run("r1", "succeeded")), say(10, "j2", "r2")];
        assert_eq!(check(&calls(&all)), []);
    }

    #[test]
    fn two_unfinished_runs_of_one_conversation_are_found() {
        let all = [say(0, "j1", "r1"), say(10, "j2", "r2"), call("a", 20, read("r1"), run("r1", "running"))];
        assert!(texts(&check(&calls(&all))).contains("c accepted r2 while r1 was running"));
    }

    #[test]
    fn two_messages_before_the_model_at_once_are_found() {
        let turn = |job: &str, begun, ended| {
            let (job, talk) = (job.to_owned(), Some("c".to_owned()));
            ModelTurn { job, begun, ended, talk, ..ModelTurn::default() }
        };
        let told = |turns: &[ModelTurn]| Observations { turns: turns.to_vec(), ..Observations::default() };
        assert_eq!(check(&told(&[turn("j1", 0, 5), turn("j2", 6, 9)])), []);
        assert!(texts(&check(&told(&[turn("j1", 0, 7), turn("j2", 6, 9)]))).contains("at once"));
    }

    #[test]
    fn a_conversation_that_stays_busy_is_found() {
        let seen = |state: &str| {
            let (conversation, state) = ("c".to_owned(), state.to_owned());
            let asked = CallAction::Look { conversation: conversation.clone() };
            call("auditor", 9, asked, AnswerContent::Conversation { conversation, generation: 1, state, active: None })
        };
        assert_eq!(check(&calls(&[seen("idle")])), []);
        assert!(texts(&check(&calls(&[seen("busy")]))).contains("c is busy"));
    }
}
