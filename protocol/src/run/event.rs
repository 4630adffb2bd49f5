//! The stored events of a run.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{RunState, UnknownWord};
use crate::ids::{EventId, RunId};
use crate::time::Timestamp;

/// The names of stored events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum EventType {
    /// The run is durable.
    #[serde(rename = "run.accepted")]
    RunAccepted,
    /// The device acknowledged the start.
    #[serde(rename = "run.started")]
    RunStarted,
    /// A tool call is held for the desktop user.
    #[serde(rename = "run.awaiting_approval")]
    RunAwaitingApproval,
    /// It is no longer held: approved, refused, expired or withdrawn.
    #[serde(rename = "run.approval_resolved")]
    RunApprovalResolved,
    /// The outcome became unknown.
    #[serde(rename = "run.awaiting_reconciliation")]
    RunAwaitingReconciliation,
    /// The outcome is known again.
    #[serde(rename = "run.reconciled")]
    RunReconciled,
    /// The same device starts it again: nothing had been written, or a `run.reconciled` stands before it.
    #[serde(rename = "run.restarted")]
    RunRestarted,
    /// A tool began.
    #[serde(rename = "tool.started")]
    ToolStarted,
    /// A tool ended.
    #[serde(rename = "tool.completed")]
    ToolCompleted,
    /// The assistant finished a message.
    #[serde(rename = "message.completed")]
    MessageCompleted,
    /// The usage so far.
    #[serde(rename = "usage.updated")]
    UsageUpdated,
    /// A stop was accepted.
    #[serde(rename = "run.cancelling")]
    RunCancelling,
    /// Final: it succeeded.
    #[serde(rename = "run.succeeded")]
    RunSucceeded,
    /// Final: it failed.
    #[serde(rename = "run.failed")]
    RunFailed,
    /// Final: it was cancelled.
    #[serde(rename = "run.cancelled")]
    RunCancelled,
    /// Final: it never started in time.
    #[serde(rename = "run.expired")]
    RunExpired,
}

impl EventType {
    /// Every event that is stored.
    pub const ALL: [Self; 16] = [
        Self::RunAccepted,
        Self::RunStarted,
        Self::RunAwaitingApproval,
        Self::RunApprovalResolved,
        Self::RunAwaitingReconciliation,
        Self::RunReconciled,
        Self::RunRestarted,
        Self::RunCancelling,
        Self::ToolStarted,
        Self::ToolCompleted,
        Self::MessageCompleted,
        Self::UsageUpdated,
        Self::RunSucceeded,
        Self::RunFailed,
        Self::RunCancelled,
        Self::RunExpired,
    ];

    /// The name callers see.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RunAccepted => "run.accepted",
            Self::RunStarted => "run.started",
            Self::RunAwaitingApproval => "run.awaiting_approval",
            Self::RunApprovalResolved => "run.approval_resolved",
            Self::RunAwaitingReconciliation => "run.awaiting_reconciliation",
            Self::RunReconciled => "run.reconciled",
            Self::RunRestarted => "run.restarted",
            Self::RunCancelling => "run.cancelling",
            Self::ToolStarted => "tool.started",
            Self::ToolCompleted => "tool.completed",
            Self::MessageCompleted => "message.completed",
            Self::UsageUpdated => "usage.updated",
            Self::RunSucceeded => "run.succeeded",
            Self::RunFailed => "run.failed",
            Self::RunCancelled => "run.cancelled",
            Self::RunExpired => "run.expired",
        }
    }

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

impl fmt::Display for EventType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for EventType {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text).ok_or(UnknownWord)
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
    /// (`device` or `desktop_user`); `run.failed` has `error`; `run.cancelled` has `effects`, or `error` when the device was
    /// removed; `run.expired` has none.
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
