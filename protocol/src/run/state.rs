//! Phases, states, and the one transition table of both halves.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What callers branch on. A run's phase never goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Durable, and no device has started it.
    Accepted,
    /// The device acknowledged the start.
    Started,
    /// Ended. Nothing changes any more.
    Final,
}

impl Phase {
    /// Every phase, in order.
    pub const ALL: [Self; 3] = [Self::Accepted, Self::Started, Self::Final];

    /// The word for it in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Started => "started",
            Self::Final => "final",
        }
    }
}

impl FromStr for Phase {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        Self::ALL.into_iter().find(|phase| phase.as_str() == text).ok_or(UnknownWord)
    }
}

/// Where a run stands. New states may appear inside a phase; phases are fixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// Stored; the device is connected but busy.
    Queued,
    /// `queued`, seen while the device is away. Computed when read, never stored.
    WaitingForDevice,
    /// Taken and acknowledged by the device.
    Running,
    /// A tool call is held for the desktop user.
    AwaitingApproval,
    /// The device was lost after an effect may have begun; the outcome is unknown.
    AwaitingReconciliation,
    /// A stop was accepted and is not yet confirmed by the executor.
    Cancelling,
    /// The assistant answered.
    Succeeded,
    /// It ended without an answer; the error says why.
    Failed,
    /// It was stopped, or its device removed before it started.
    Cancelled,
    /// It never started within its queue time.
    Expired,
}

use RunState::*;

impl RunState {
    /// Every state, in the order of a run's life.
    pub const ALL: [Self; 10] = [
        Queued,
        WaitingForDevice,
        Running,
        AwaitingApproval,
        AwaitingReconciliation,
        Cancelling,
        Succeeded,
        Failed,
        Cancelled,
        Expired,
    ];

    /// The states a run may move to from here: the one transition table of both halves.
    pub const fn successors(self) -> &'static [Self] {
        match self {
            Queued => &[WaitingForDevice, Running, Cancelled, Expired, Failed],
            WaitingForDevice => &[Queued, Running, Cancelled, Expired, Failed],
            Running => &[AwaitingApproval, AwaitingReconciliation, Cancelling, Succeeded, Failed],
            AwaitingApproval => &[Running, AwaitingReconciliation, Cancelling, Failed],
            AwaitingReconciliation => &[Running, AwaitingApproval, Cancelling, Succeeded, Failed, Cancelled],
            Cancelling => &[Cancelled, Succeeded, Failed, AwaitingReconciliation],
            Succeeded | Failed | Cancelled | Expired => &[],
        }
    }

    /// Whether a run may move from here to `next`.
    pub fn may_become(self, next: Self) -> bool {
        self.successors().contains(&next)
    }

    /// The states from which a run may move to this one.
    pub fn predecessors(self) -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(move |state| state.may_become(self))
    }

    /// The phase this state belongs to.
    pub const fn phase(self) -> Phase {
        match self {
            Queued | WaitingForDevice => Phase::Accepted,
            Running | AwaitingApproval | AwaitingReconciliation | Cancelling => Phase::Started,
            Succeeded | Failed | Cancelled | Expired => Phase::Final,
        }
    }

    /// The word for it in the API, the tables and on every page.
    pub const fn as_str(self) -> &'static str {
        match self {
            Queued => "queued",
            WaitingForDevice => "waiting_for_device",
            Running => "running",
            AwaitingApproval => "awaiting_approval",
            AwaitingReconciliation => "awaiting_reconciliation",
            Cancelling => "cancelling",
            Succeeded => "succeeded",
            Failed => "failed",
            Cancelled => "cancelled",
            Expired => "expired",
        }
    }
}

impl fmt::Display for RunState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for RunState {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        Self::ALL.into_iter().find(|state| state.as_str() == text).ok_or(UnknownWord)
    }
}

/// The error for a text that is none of the expected words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not one of the possible words")]
pub struct UnknownWord;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_path_leaves_a_final_state_and_phase_never_goes_back(choices in prop::collection::vec(0usize..10, 1..40)) {
            let mut state = Queued;
            for choice in choices {
                let Some(&next) = state.successors().get(choice % state.successors().len().max(1)) else {
                    prop_assert_eq!(state.phase(), Phase::Final);
                    break;
                };
                prop_assert!(next.phase() >= state.phase(), "{} to {}", state, next);
                state = next;
            }
        }
    }

    #[test]
    fn every_state_is_reachable_from_queued() {
        let mut reached = vec![Queued];
        let mut next = 0;
        while let Some(state) = reached.get(next).copied() {
            next += 1;
            reached.extend(state.successors().iter().filter(|s| !reached.contains(s)).copied().collect::<Vec<_>>());
        }
        assert!(RunState::ALL.iter().all(|state| reached.contains(state)));
    }

    #[test]
    fn exactly_the_states_without_successors_are_final() {
        for state in RunState::ALL {
            assert_eq!(state.successors().is_empty(), state.phase() == Phase::Final, "{state}");
        }
    }

    #[test]
    fn every_word_reads_back_and_is_the_word_of_the_json() {
        for state in RunState::ALL {
            assert_eq!(state.as_str().parse(), Ok(state));
            assert_eq!(serde_json::to_value(state).expect("serialises"), state.as_str());
        }
    }
}
