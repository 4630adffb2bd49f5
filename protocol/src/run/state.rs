//! Phases, states, and the one transition table of both halves.

use crate::words::api_words;

api_words! {
    /// What callers branch on. A run's phase never goes back.
    #[derive(PartialOrd, Ord)]
    pub enum Phase {
        /// Durable, and no device has started it.
        Accepted = "accepted",
        /// The device acknowledged the start.
        Started = "started",
        /// Ended. Nothing changes any more.
        Final = "final",
    }
}

api_words! {
    /// Where a run stands. New states may appear inside a phase; phases are fixed.
    pub enum RunState {
        /// Stored; the device is connected but busy.
        Queued = "queued",
        /// `queued`, seen while the device is away. Computed when read, never stored.
        WaitingForDevice = "waiting_for_device",
        /// Taken and acknowledged by the device.
        Running = "running",
        /// A tool call is held for the desktop user.
        AwaitingApproval = "awaiting_approval",
        /// The device was lost after an effect may have begun; the outcome is unknown.
        AwaitingReconciliation = "awaiting_reconciliation",
        /// A stop was accepted and is not yet confirmed by the executor.
        Cancelling = "cancelling",
        /// The assistant answered.
        Succeeded = "succeeded",
        /// It ended without an answer; the error says why.
        Failed = "failed",
        /// It was stopped, or its device removed before it started.
        Cancelled = "cancelled",
        /// It never started within its queue time.
        Expired = "expired",
    }
}

use RunState::*;

impl RunState {
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
}

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
