//! Small histories for the checker's own tests.

use super::{Observations, Violation};
use crate::history::{AnswerContent, CallAction, CallRecord, OperationRecord, StoredEvent};
use crate::injection::InjectedFault;
use crate::plan::{FaultKind, PlannedFault};

/// The content of an answer that shows a run.
pub(super) fn run(run_id: &str, state: &str) -> AnswerContent {
    let phase = match state {
        "queued" => "accepted",
        "running" | "awaiting_reconciliation" => "started",
        _ => "final",
    };
    AnswerContent::Run {
        run_id: run_id.to_owned(),
        phase: phase.to_owned(),
        state: state.to_owned(),
        attempt: 1,
        digest: 7,
    }
}

/// A call that was answered with 200 or 202 within a microsecond.
pub(super) fn call(caller: &str, at: u64, asked: CallAction, seen: AnswerContent) -> CallRecord {
    let status = Some(200);
    CallRecord { caller: caller.to_owned(), begun: at, ended: at + 1, asked, seen, status, ..CallRecord::default() }
}

/// A submission of a job.
pub(super) fn submit(job: &str) -> CallAction {
    CallAction::Submit { job: job.to_owned(), changed: false }
}

/// A read of a run.
pub(super) fn read(run_id: &str) -> CallAction {
    CallAction::Read { run_id: run_id.to_owned() }
}

/// Stored events of these kinds.
pub(super) fn events(kinds: &[&str]) -> Vec<StoredEvent> {
    let event = |(place, kind): (usize, &&str)| StoredEvent {
        sequence: place as u64 + 1,
        kind: (*kind).to_owned(),
        ..StoredEvent::default()
    };
    kinds.iter().enumerate().map(event).collect()
}

/// A fault that struck, and was healed within a microsecond.
pub(super) fn strike(kind: FaultKind, begun: u64, proof: &str) -> InjectedFault {
    let planned = PlannedFault { number: 0, kind, pause_ms: 0, lasts_ms: 2000, target: 0, manner: 0 };
    InjectedFault { planned, begun, healed: begun + 1, proof: Ok(proof.to_owned()), noticed_ms: Vec::new() }
}

/// An operation that succeeded at its first try.
pub(super) fn done(name: &str, begun: u64, run_id: &str) -> OperationRecord {
    OperationRecord {
        caller: "a".to_owned(),
        operation: begun,
        name: name.to_owned(),
        begun,
        ended: begun + 1,
        tries: 1,
        succeeded: true,
        run_id: Some(run_id.to_owned()),
    }
}

/// Observations with only these calls.
pub(super) fn calls(calls: &[CallRecord]) -> Observations {
    Observations { calls: calls.to_vec(), ..Observations::default() }
}

/// The texts of violations, joined.
pub(super) fn texts(violations: &[Violation]) -> String {
    violations.iter().map(|violation| format!("{}: {}\n", violation.invariant, violation.text)).collect()
}
