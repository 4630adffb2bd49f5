//! I9: the end of each run reaches the receiver with a 2xx answer, under one identifier and with a valid signature; a
//! delivery marked as delivered was received, and a repetition has a fault that may have lost the answer.

use std::collections::{BTreeMap, BTreeSet};

use super::{Observations, Violation};
use crate::evidence::bare;
use crate::plan::FaultKind;
use crate::testbed::fake_receiver::ReceivedCallback;

/// The faults that can lose an attempt's outcome between the answer and its commit.
const OUTCOME_LOSING_FAULTS: [FaultKind; 19] = [
    FaultKind::KillGateway,
    FaultKind::CrashGateway,
    FaultKind::KillAllGateways,
    FaultKind::RollingRestart,
    FaultKind::FreezeGateway,
    FaultKind::TerminateDatabaseSessions,
    FaultKind::KillDatabase,
    FaultKind::FreezeDatabase,
    FaultKind::BlockDatabase,
    FaultKind::FailTransactions,
    FaultKind::FillDatabaseDisk,
    FaultKind::FailDatabaseSync,
    // A gateway is stopped and started, as by F4.
    FaultKind::SkewGatewayClock,
    FaultKind::MismatchVersion,
    FaultKind::BreakReceiver,
    FaultKind::ExhaustFiles,
    FaultKind::StopAndResumeAll,
    FaultKind::RestoreBackup,
    FaultKind::OverlapTwo,
];
/// Microseconds around an attempt in which its outcome may be lost.
const ATTEMPT_MARGIN_US: u64 = 3_000_000;

pub(super) fn check(witnesses: &Observations) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut by_event: BTreeMap<&str, Vec<&ReceivedCallback>> = BTreeMap::new();
    let mut events_of: BTreeMap<(&str, &str), BTreeSet<&str>> = BTreeMap::new();
    for receipt in &witnesses.receipts {
        by_event.entry(&receipt.event_id).or_default().push(receipt);
        events_of.entry((&receipt.run_id, &receipt.kind)).or_default().insert(&receipt.event_id);
        if !receipt.is_genuine {
            let text =
                format!("{} of {} came to {} without a valid signature", receipt.kind, receipt.run_id, receipt.path);
            violations.push(Violation::of("I9", receipt.at, text));
        }
    }
    let is_confirmed = |event_id: &str| by_event.get(event_id).is_some_and(|all| all.iter().any(|one| confirms(one)));
    for (run_id, sights) in witnesses.seen_of_runs() {
        let Some(end) = sights.iter().find(|sight| sight.phase == "final") else { continue };
        let kind = format!("run.{}", end.state);
        let events = events_of.get(&(run_id, kind.as_str()));
        if !events.is_some_and(|events| events.iter().any(|event| is_confirmed(event))) {
            violations.push(Violation::of("I9", end.call.begun, format!("nobody was told of {kind} of {run_id}")));
        }
    }
    for ((run_id, kind), events) in events_of.iter().filter(|(_, events)| events.len() > 1) {
        violations.push(Violation::of("I9", None, format!("{kind} of {run_id} came as {events:?}")));
    }
    let received: BTreeSet<_> = by_event.keys().filter(|event| is_confirmed(event)).map(|event| bare(event)).collect();
    for event in witnesses.evidence.delivered.difference(&received) {
        violations.push(Violation::of("I9", None, format!("event {event} stands as delivered, and was not received")));
    }
    for (event, receipts) in by_event {
        violations.extend(receipts.windows(2).filter_map(|pair| again(witnesses, event, pair[0], pair[1])));
    }
    violations
}

fn confirms(receipt: &ReceivedCallback) -> bool {
    receipt.answered.is_some_and(|status| (200..300).contains(&status))
}

/// A callback that was repeated after its confirmation, although no fault can have lost that.
fn again(witnesses: &Observations, event: &str, one: &ReceivedCallback, other: &ReceivedCallback) -> Option<Violation> {
    let is_explained = !confirms(one)
        || one.manner != "Confirms"
        || witnesses.was_disturbed(
            &OUTCOME_LOSING_FAULTS,
            one.at.saturating_sub(ATTEMPT_MARGIN_US),
            one.answered_at + ATTEMPT_MARGIN_US,
        );
    let text = || format!("{event} of {} was confirmed and came again, without a reason", one.run_id);
    (!is_explained).then(|| Violation::of("I9", other.at, text()))
}

#[cfg(test)]
mod tests {
    use super::super::samples::{call, calls, read, run, texts};
    use super::*;
    use crate::injection::InjectedFault;
    use crate::plan::PlannedFault;

    fn receipt(at: u64, answered: Option<u16>) -> ReceivedCallback {
        ReceivedCallback {
            at,
            answered_at: at + 1,
            answered,
            event_id: "evt_1".to_owned(),
            kind: "run.succeeded".to_owned(),
            run_id: "r".to_owned(),
            is_genuine: true,
            manner: "Confirms".to_owned(),
            ..ReceivedCallback::default()
        }
    }

    fn told(receipts: &[ReceivedCallback]) -> Observations {
        let ended = calls(&[call("a", 0, read("r"), run("r", "succeeded"))]);
        Observations { receipts: receipts.to_vec(), ..ended }
    }

    #[test]
    fn an_end_that_is_not_confirmed_is_found() {
        assert_eq!(check(&told(&[receipt(1, Some(204))])), []);
        assert!(texts(&check(&told(&[]))).contains("nobody was told"));
        assert!(texts(&check(&told(&[receipt(1, Some(503))]))).contains("nobody was told"));
    }

    #[test]
    fn a_signature_that_is_not_valid_and_a_second_identifier_are_found() {
        let forged = ReceivedCallback { is_genuine: false, ..receipt(1, Some(204)) };
        assert!(texts(&check(&told(&[forged]))).contains("without a valid signature"));
        let other = ReceivedCallback { event_id: "evt_2".to_owned(), ..receipt(5, Some(204)) };
        assert!(texts(&check(&told(&[receipt(1, Some(204)), other]))).contains("came as"));
    }

    #[test]
    fn what_stands_as_delivered_and_was_not_received_is_found() {
        let mut claimed = told(&[receipt(1, Some(204))]);
        claimed.evidence.delivered.insert("1".to_owned());
        assert_eq!(check(&claimed), []);
        claimed.evidence.delivered.insert("2".to_owned());
        assert!(texts(&check(&claimed)).contains("event 2 stands as delivered"));
    }

    #[test]
    fn a_repetition_needs_a_reason() {
        let mut twice = told(&[receipt(100, Some(204)), receipt(40_000_000, Some(204))]);
        assert!(texts(&check(&twice)).contains("without a reason"));
        let planned =
            PlannedFault { number: 0, kind: FaultKind::KillGateway, pause_ms: 0, lasts_ms: 0, target: 0, manner: 0 };
        twice.strikes.push(InjectedFault {
            planned,
            begun: 102,
            healed: 900,
            proof: Ok(String::new()),
            noticed_ms: Vec::new(),
        });
        assert_eq!(check(&twice), []);
        assert_eq!(check(&told(&[receipt(1, None), receipt(9, Some(204))])), []);
    }
}
