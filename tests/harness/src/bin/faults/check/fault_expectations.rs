//! Checks of single faults beyond the invariants.

use std::collections::BTreeMap;

use super::{Observations, Violation};
use crate::history::{CallAction, CallRecord, StoredEvent, StreamConnection};
use crate::injection::{InjectedFault, one_of};
use crate::plan::FaultKind;
use crate::testbed::REPLICA_COUNT;
use crate::testbed::fake_tool_server::NoteCall;

/// Microseconds in which another gateway must have answered.
const FAILOVER_LIMIT_US: u64 = 1_000_000;
/// Three heartbeats of a second, plus one for an overloaded machine; in milliseconds.
const SILENCE_NOTICE_LIMIT_MS: u64 = 4000;

/// The proven faults of a kind.
fn struck(witnesses: &Observations, kind: FaultKind) -> impl Iterator<Item = &InjectedFault> {
    witnesses.strikes.iter().filter(move |strike| strike.kind() == kind && strike.proof.is_ok())
}

/// F1: another gateway answers a caller correctly within a second.
pub(super) fn others_serve(witnesses: &Observations) -> Vec<Violation> {
    let silent = struck(witnesses, FaultKind::KillGateway).filter(|strike| {
        let killed = one_of(strike.planned.target, REPLICA_COUNT);
        let answered = witnesses.calls.iter().filter(|call| call.replica != killed && call.begun >= strike.begun);
        !answered
            .into_iter()
            .any(|call| call.ended <= strike.begun + FAILOVER_LIMIT_US && call.status.is_some_and(|s| s < 300))
    });
    silent
        .map(|strike| {
            let text = format!("nobody answered within a second of fault {}", strike.planned.number);
            Violation::of("F1", strike.begun, text)
        })
        .collect()
}

/// Milliseconds after their start in which one of all gateways has to accept a submission.
const START_LIMIT_MS: u64 = 5000;
/// Microseconds in which a caller is answered while the database hangs, with half a second for the machine.
const ANSWER_LIMIT_US: u64 = 3_500_000;

/// F3: a submission is accepted soon after the start.
pub(super) fn starts_at_once(witnesses: &Observations) -> Vec<Violation> {
    let late = struck(witnesses, FaultKind::KillAllGateways)
        .filter(|strike| strike.noticed_ms.iter().any(|after| *after > START_LIMIT_MS));
    late.map(|strike| {
        let text = format!("the first 202 came {:?} ms after fault {}", strike.noticed_ms, strike.planned.number);
        Violation::of("F3", strike.begun, text)
    })
    .collect()
}

/// F4: no submission that begins meanwhile needs a third try, and every ended stream was closed with a notice.
pub(super) fn rolls(witnesses: &Observations) -> Vec<Violation> {
    let mut violations = Vec::new();
    for strike in struck(witnesses, FaultKind::RollingRestart) {
        let within = |at: u64| (strike.begun..=strike.healed).contains(&at);
        let submitted = witnesses.done.iter().filter(|done| done.name == "submit" && within(done.begun));
        for done in submitted.filter(|done| !done.succeeded || done.tries > 2) {
            let text = format!("a submission of {} took {} tries", done.caller, done.tries);
            violations.push(Violation::of("F4", done.begun, text));
        }
        for followed in &witnesses.followed {
            let mut events = followed.connections.iter().flat_map(|connection| &connection.events);
            let last = events.find(|event| event.is_final()).map(|event| event.sequence);
            let ends = |connection: &&StreamConnection| {
                // Also if the follower already has the end.
                let is_over = connection.events.last().is_some_and(StoredEvent::is_final)
                    || last.is_some_and(|last| connection.after >= last);
                within(connection.ended) && connection.was_open && !connection.was_left && !is_over
            };
            for connection in followed.connections.iter().filter(ends).filter(|connection| !connection.was_told) {
                let text = format!("a stream of {} ended without a word", followed.run_id);
                violations.push(Violation::of("F4", connection.ended, text));
            }
        }
    }
    violations
}

/// F11: no caller waits for the database.
pub(super) fn nobody_hangs(witnesses: &Observations) -> Vec<Violation> {
    let mut violations = Vec::new();
    for strike in struck(witnesses, FaultKind::FreezeDatabase) {
        // What comes behind it is another fault's.
        let waited = |call: &CallRecord| call.ended.min(strike.healed).saturating_sub(call.begun.max(strike.begun));
        let submitted = witnesses.calls.iter().filter(|call| matches!(call.asked, CallAction::Submit { .. }));
        for call in submitted.filter(|call| waited(call) > ANSWER_LIMIT_US) {
            let text = format!("{} waited {} ms for an answer", call.caller, waited(call) / 1000);
            violations.push(Violation::of("F11", call.begun, text));
        }
    }
    violations
}

/// F12: readiness reports that all connections are taken.
pub(super) fn readiness_says_so(witnesses: &Observations) -> Vec<Violation> {
    let silent = struck(witnesses, FaultKind::BlockDatabase).filter(|strike| strike.noticed_ms.contains(&u64::MAX));
    silent
        .map(|strike| {
            Violation::of("F12", strike.begun, format!("readiness did not say so in fault {}", strike.planned.number))
        })
        .collect()
}

/// F15: a submission is accepted only if it is on disk. Earlier submissions may be there already.
pub(super) fn nothing_unsynced_is_accepted(witnesses: &Observations) -> Vec<Violation> {
    let mut violations = Vec::new();
    for strike in struck(witnesses, FaultKind::FailDatabaseSync) {
        let [from, to] = strike.noticed_ms[..] else { continue };
        let (from, to) = (strike.begun + from * 1000, strike.begun + to * 1000);
        let asked = |job| witnesses.calls.iter().filter(move |call| call.asked.job() == Some(job));
        for call in
            witnesses.calls.iter().filter(|call| call.status == Some(202) && call.begun >= from && call.ended <= to)
        {
            let Some(job) = call.asked.job() else { continue };
            if asked(job).all(|call| call.begun >= from) {
                let text = format!("{job} of {} was accepted while nothing could be made durable", call.caller);
                violations.push(Violation::of("F15", call.begun, text));
            }
        }
    }
    violations
}

/// F17 and F18: both agent and gateway notice.
pub(super) fn silence_is_noticed(witnesses: &Observations) -> Vec<Violation> {
    let both = struck(witnesses, FaultKind::BlackholeConnection).chain(struck(witnesses, FaultKind::BlackholeOneWay));
    let late = both.filter(|strike| strike.noticed_ms.iter().any(|after| *after > SILENCE_NOTICE_LIMIT_MS));
    late.map(|strike| {
        let text = format!("fault {} was noticed after {:?} ms only", strike.planned.number, strike.noticed_ms);
        Violation::of("F17", strike.begun, text)
    })
    .collect()
}

/// Milliseconds in which a device is back although others of its address hold connections open.
const COME_BACK_LIMIT_MS: u64 = 6000;
/// Milliseconds in which `status` and `approvals list` answer: two seconds of patience, and the start of a program on an
/// overloaded machine.
const GLANCE_LIMIT_MS: u64 = 4000;
/// Milliseconds in which a run whose command fills the disk has ended.
const FILLED_LIMIT_MS: u64 = 40_000;

/// F35: idle connections of others keep no device out.
pub(super) fn a_device_comes_back(witnesses: &Observations) -> Vec<Violation> {
    let late = struck(witnesses, FaultKind::KnockIdle)
        .filter(|strike| strike.noticed_ms.iter().any(|after| *after > COME_BACK_LIMIT_MS));
    late.map(|strike| {
        let text = format!("the device was back after {:?} ms in fault {}", strike.noticed_ms, strike.planned.number);
        Violation::of("F35", strike.begun, text)
    })
    .collect()
}

/// F36: the owner is answered soon, and told what is wrong.
pub(super) fn a_silent_gateway_is_named(witnesses: &Observations) -> Vec<Violation> {
    let mut violations = Vec::new();
    for strike in struck(witnesses, FaultKind::StallRequests) {
        let [status, approvals, is_silent] = strike.noticed_ms[..] else { continue };
        if status.max(approvals) > GLANCE_LIMIT_MS {
            let text = format!("status took {status} ms and approvals list {approvals} ms");
            violations.push(Violation::of("F36", strike.begun, text));
        }
        if is_silent > 0 {
            let text =
                format!("status did not say that the gateway does not answer, in fault {}", strike.planned.number);
            violations.push(Violation::of("F36", strike.begun, text));
        }
    }
    violations
}

/// F37: the journal has room, the run ends, and so does the next one.
pub(super) fn a_full_disk_ends_the_command_alone(witnesses: &Observations) -> Vec<Violation> {
    let mut violations = Vec::new();
    for strike in struck(witnesses, FaultKind::FillByCommand) {
        let [ended, failures, again] = strike.noticed_ms[..] else { continue };
        if failures > 0 {
            let text = format!("the device's store had no room {failures} times while a command filled the disk");
            violations.push(Violation::of("F37", strike.begun, text));
        }
        if ended.max(again) > FILLED_LIMIT_MS {
            let text = format!("a run that fills the disk ended after {ended} ms, the next one after {again} ms");
            violations.push(Violation::of("F37", strike.begun, text));
        }
    }
    violations
}

/// F40: whoever was confirmed is paired and stays so, whoever was refused is not, and a line is of no use to a second device.
pub(super) fn a_newcomer_is_paired_once(witnesses: &Observations) -> Vec<Violation> {
    let wrong = struck(witnesses, FaultKind::InterruptPairing)
        .filter(|strike| strike.noticed_ms.iter().any(|mistakes| *mistakes > 0));
    wrong
        .map(|strike| {
            let proof = strike.proof.as_deref().unwrap_or_default();
            let text = format!("in fault {}: {proof}", strike.planned.number);
            Violation::of("F40", strike.begun, text)
        })
        .collect()
}

/// F25: a call that took effect without an answer is reported to the model as one that may have happened. I3 checks
/// that it does not happen again.
pub(super) fn an_untold_call_is_told_as_one(witnesses: &Observations) -> Vec<Violation> {
    let mut notes: BTreeMap<(&str, usize), Vec<&NoteCall>> = BTreeMap::new();
    for note in &witnesses.notes {
        notes.entry((&note.job, note.call)).or_default().push(note);
    }
    let mut violations = Vec::new();
    for ((job, call), notes) in notes {
        // A run that the owner let run again makes another call, and begins with another first turn.
        let [note] = notes[..] else { continue };
        let behind = witnesses.turns.iter().filter(|turn| turn.job == job && turn.begun > note.at);
        let next = behind.min_by_key(|turn| turn.begun).filter(|turn| turn.place > 2 * call && note.is_untold());
        if let Some(turn) = next.filter(|turn| !turn.is_unsure) {
            let text = format!("call {call} of {job} was noted and not answered, and its model was told otherwise");
            violations.push(Violation::of("F25", turn.begun, text));
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::super::samples::{call, calls, done, events, read, run, submit, texts};
    use super::*;
    use crate::history::{AnswerContent, FollowRecord};
    use crate::plan::PlannedFault;
    use crate::testbed::fake_model::ModelTurn;

    fn strike(kind: FaultKind, noticed_ms: &[u64]) -> InjectedFault {
        let planned = PlannedFault { number: 0, kind, pause_ms: 0, lasts_ms: 0, target: 1, manner: 0 };
        InjectedFault { planned, begun: 10, healed: 20, proof: Ok(String::new()), noticed_ms: noticed_ms.to_vec() }
    }

    #[test]
    fn a_killed_gateway_whose_like_are_silent_is_found() {
        let told = |at, replica| {
            let mut answered = calls(&[call("a", at, read("r"), run("r", "queued"))]);
            answered.calls[0].replica = replica;
            answered.strikes.push(strike(FaultKind::KillGateway, &[]));
            answered
        };
        assert_eq!(others_serve(&told(15, 0)), []);
        assert!(texts(&others_serve(&told(15, 1))).contains("nobody answered"), "it is the one that was killed");
        assert!(texts(&others_serve(&told(2_000_000, 0))).contains("nobody answered"));
    }

    #[test]
    fn a_silence_that_one_end_does_not_notice_is_found() {
        let told = |noticed_ms: &[u64]| Observations {
            strikes: vec![strike(FaultKind::BlackholeConnection, noticed_ms)],
            ..Observations::default()
        };
        assert_eq!(silence_is_noticed(&told(&[3100, 2900])), []);
        assert!(texts(&silence_is_noticed(&told(&[3100, u64::MAX]))).contains("noticed after"));
    }

    #[test]
    fn a_device_kept_out_a_slow_status_and_a_journal_without_room_are_found() {
        let told = |kind, noticed_ms: &[u64]| Observations {
            strikes: vec![strike(kind, noticed_ms)],
            ..Observations::default()
        };
        assert_eq!(a_device_comes_back(&told(FaultKind::KnockIdle, &[900])), []);
        assert!(texts(&a_device_comes_back(&told(FaultKind::KnockIdle, &[9000]))).contains("back after [9000] ms"));
        assert_eq!(a_silent_gateway_is_named(&told(FaultKind::StallRequests, &[2100, 2200, 0])), []);
        let slow = told(FaultKind::StallRequests, &[2100, 30_000, 0]);
        assert!(texts(&a_silent_gateway_is_named(&slow)).contains("approvals list 30000 ms"));
        let mute = told(FaultKind::StallRequests, &[2100, 2200, 1]);
        assert!(texts(&a_silent_gateway_is_named(&mute)).contains("did not say"));
        assert_eq!(a_full_disk_ends_the_command_alone(&told(FaultKind::FillByCommand, &[9000, 0, 8000])), []);
        let broken = told(FaultKind::FillByCommand, &[9000, 2, 8000]);
        assert!(texts(&a_full_disk_ends_the_command_alone(&broken)).contains("no room 2 times"));
        let stuck = told(FaultKind::FillByCommand, &[u64::MAX, 0, 8000]);
        assert!(texts(&a_full_disk_ends_the_command_alone(&stuck)).contains("fills the disk ended after"));
    }

    #[test]
    fn a_late_start_a_third_try_and_a_stream_without_a_word_are_found() {
        let with = |kind, noticed_ms: &[u64]| Observations {
            strikes: vec![strike(kind, noticed_ms)],
            ..Observations::default()
        };
        assert_eq!(starts_at_once(&with(FaultKind::KillAllGateways, &[900])), []);
        assert!(texts(&starts_at_once(&with(FaultKind::KillAllGateways, &[5100]))).contains("[5100] ms after"));
        let mut rolled = with(FaultKind::RollingRestart, &[]);
        rolled.done.push(done("submit", 15, "r"));
        rolled.done[0].tries = 2;
        let told = StreamConnection { was_open: true, was_told: true, ended: 15, ..StreamConnection::default() };
        let followed = |connection: &StreamConnection| FollowRecord {
            connections: vec![connection.clone()],
            ..FollowRecord::default()
        };
        rolled.followed.push(followed(&told));
        assert_eq!(rolls(&rolled), []);
        let whole =
            StreamConnection { events: events(&["run.accepted", "run.succeeded"]), was_told: false, ..told.clone() };
        let again = StreamConnection { after: 2, was_told: false, ..told.clone() };
        rolled.followed.push(FollowRecord { connections: vec![whole, again], ..FollowRecord::default() });
        assert_eq!(rolls(&rolled), [], "it is over, and nothing is left to be told");
        rolled.done[0].tries = 3;
        rolled.followed.push(followed(&StreamConnection { was_told: false, ..told }));
        let found = texts(&rolls(&rolled));
        assert!(found.contains("took 3 tries") && found.contains("ended without a word"), "{found}");
    }

    #[test]
    fn what_is_accepted_and_not_on_the_disk_is_found() {
        let told = |first, at| {
            let mut accepted = call("a", at, submit("j"), run("r", "queued"));
            accepted.status = Some(202);
            let mut asked = call("a", first, submit("j"), AnswerContent::Nothing);
            asked.status = None;
            let strike = InjectedFault { healed: 90_000_000, ..strike(FaultKind::FailDatabaseSync, &[2000, 5000]) };
            Observations { strikes: vec![strike], ..calls(&[asked, accepted]) }
        };
        assert_eq!(nothing_unsynced_is_accepted(&told(3_000_000, 6_000_000)), []);
        assert_eq!(nothing_unsynced_is_accepted(&told(1_000_000, 3_500_000)), [], "it may have been there already");
        assert!(texts(&nothing_unsynced_is_accepted(&told(3_000_000, 3_500_000))).contains("j of a was accepted"));
    }

    #[test]
    fn whoever_waits_for_the_database_and_a_readiness_that_is_wrong_are_found() {
        let told = |kind, noticed_ms: &[u64], ended| {
            let mut call = call("a", 15, submit("j"), run("r", "queued"));
            call.ended = ended;
            let strike = InjectedFault { healed: 9_000_000, ..strike(kind, noticed_ms) };
            Observations { strikes: vec![strike], ..calls(&[call]) }
        };
        assert_eq!(nobody_hangs(&told(FaultKind::FreezeDatabase, &[], 3_000_000)), []);
        assert!(
            texts(&nobody_hangs(&told(FaultKind::FreezeDatabase, &[], 4_000_000))).contains("3999 ms for an answer")
        );
        assert_eq!(readiness_says_so(&told(FaultKind::BlockDatabase, &[300], 16)), []);
        assert!(texts(&readiness_says_so(&told(FaultKind::BlockDatabase, &[u64::MAX], 16))).contains("did not say so"));
    }

    #[test]
    fn a_pairing_that_went_wrong_is_found() {
        let told = |mistakes| Observations {
            strikes: vec![strike(FaultKind::InterruptPairing, &[mistakes])],
            ..Observations::default()
        };
        assert_eq!(a_newcomer_is_paired_once(&told(0)), []);
        assert!(texts(&a_newcomer_is_paired_once(&told(1))).contains("in fault"));
    }

    #[test]
    fn a_call_that_may_have_happened_and_is_told_as_one_that_did_not_is_found() {
        let told = |manner: &str, is_unsure| {
            let (job, manner) = ("j".to_owned(), manner.to_owned());
            let turns = vec![ModelTurn { job: job.clone(), place: 2, begun: 5, is_unsure, ..ModelTurn::default() }];
            let notes = vec![NoteCall { job, is_noted: true, manner, ..NoteCall::default() }];
            Observations { turns, notes, ..Observations::default() }
        };
        assert_eq!(an_untold_call_is_told_as_one(&told("Answers", false)), []);
        assert_eq!(an_untold_call_is_told_as_one(&told("Vanishes", true)), []);
        assert!(texts(&an_untold_call_is_told_as_one(&told("Vanishes", false))).contains("told otherwise"));
        let mut again = told("Vanishes", false);
        again.notes.push(NoteCall { manner: "Answers".to_owned(), ..again.notes[0].clone() });
        assert_eq!(an_untold_call_is_told_as_one(&again), [], "its owner let it run again");
        let mut denied = told("Vanishes", false);
        denied.turns.push(ModelTurn { begun: 3, place: 0, ..denied.turns[0].clone() });
        assert_eq!(an_untold_call_is_told_as_one(&denied), [], "and did not allow it then");
    }
}
