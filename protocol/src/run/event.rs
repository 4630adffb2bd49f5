//! The stored events of a run.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::RunState;
use crate::ids::{EventId, RunId};
use crate::time::Timestamp;
use crate::words::api_words;

api_words! {
    /// The names of stored events.
    pub enum EventType {
        /// The run is durable.
        RunAccepted = "run.accepted",
        /// The device acknowledged the start.
        RunStarted = "run.started",
        /// A tool call is held for the desktop user.
        RunAwaitingApproval = "run.awaiting_approval",
        /// It is no longer held: approved, refused, expired or withdrawn.
        RunApprovalResolved = "run.approval_resolved",
        /// The outcome became unknown.
        RunAwaitingReconciliation = "run.awaiting_reconciliation",
        /// The outcome is known again.
        RunReconciled = "run.reconciled",
        /// The same device starts it again: nothing had been written, or a `run.reconciled` stands before it.
        RunRestarted = "run.restarted",
        /// A tool began.
        ToolStarted = "tool.started",
        /// A tool ended.
        ToolCompleted = "tool.completed",
        /// The assistant finished a message.
        MessageCompleted = "message.completed",
        /// A file was handed out.
        ArtifactCreated = "artifact.created",
        /// The usage so far.
        UsageUpdated = "usage.updated",
        /// A stop was accepted.
        RunCancelling = "run.cancelling",
        /// Final: it succeeded.
        RunSucceeded = "run.succeeded",
        /// Final: it failed.
        RunFailed = "run.failed",
        /// Final: it was cancelled.
        RunCancelled = "run.cancelled",
        /// Final: it never started in time.
        RunExpired = "run.expired",
    }
}

impl EventType {
    /// Whether it is the last event of a run.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::RunSucceeded | Self::RunFailed | Self::RunCancelled | Self::RunExpired)
    }

    /// The event that ends a run in `state`; `None` while it is not final.
    pub const fn ending(state: RunState) -> Option<Self> {
        match state {
            RunState::Succeeded => Some(Self::RunSucceeded),
            RunState::Failed => Some(Self::RunFailed),
            RunState::Cancelled => Some(Self::RunCancelled),
            RunState::Expired => Some(Self::RunExpired),
            _ => None,
        }
    }
}

/// One stored event of a run. `sequence` is dense from 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RunEvent {
    /// Unique among all events.
    pub event_id: EventId,
    /// The run it belongs to.
    pub run_id: RunId,
    /// Its place in the run, assigned when it was committed.
    pub sequence: u64,
    /// What happened.
    #[serde(rename = "type")]
    pub kind: EventType,
    /// When it was committed.
    pub created_at: Timestamp,
    /// Members that depend on the type: `run.awaiting_approval` has `approval_id`, `tool` and `expires_at`; `run.approval_resolved` has
    /// `approval_id` and `resolution` (`approved`, `denied`, `expired` or `withdrawn`); `run.reconciled` has the `state` it came to, and `by`
    /// (`device` or `desktop_user`); `artifact.created` has the members of an artifact; `run.failed` has `error`; `run.cancelled` has `effects`, or `error` when the device was
    /// removed; `run.expired` has none. Those that end a run have its `receipt`, if the device has signed one.
    pub data: Value,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Phase;

    #[test]
    fn exactly_the_events_that_end_in_a_final_state_are_final() {
        for state in RunState::ALL {
            assert_eq!(EventType::ending(state).is_some(), state.phase() == Phase::Final, "{state}");
        }
        let ending: Vec<_> = RunState::ALL.into_iter().filter_map(EventType::ending).collect();
        assert!(EventType::ALL.iter().all(|kind| kind.is_final() == ending.contains(kind)));
    }

    #[test]
    fn every_word_reads_back_and_is_the_word_of_the_json() {
        for kind in EventType::ALL {
            assert_eq!(kind.as_str().parse(), Ok(kind));
            assert_eq!(serde_json::to_value(kind).expect("serialises"), kind.as_str());
        }
    }
}
