//! Backpressure: runs that this device cannot take although it has free slots.
//!
//! A gateway offers no more runs of a service than it has places here (`places`). One that is older does not know of them,
//! and an offer may be on its way when a service gets fewer: such a run is refused, and `ready` asks the gateway to leave
//! that service's runs in the queue. Otherwise every slot would bring one of them, while runs of other services wait behind
//! them. A service counts as full from its first refused run until one of its runs ends.
//!
//! A run that was refused for a reason that concerns every run would come back at once with the slot that it used up.
//! So that slot is withheld for a pause, which grows. The same holds for a service that cannot be read, whose runs may
//! fit later without one of them ending.

use std::collections::BTreeSet;
use std::time::Duration;

use deskgate_protocol::control::MAX_NAMED_SERVICES;
use deskgate_protocol::ids::EndpointId;
use tokio::time::Instant;

/// The first pause, doubled each time the reason persists ...
const MIN_PAUSE: Duration = Duration::from_secs(1);
/// ... up to this one.
const MAX_PAUSE: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Backpressure {
    slots: u32,
    full: BTreeSet<EndpointId>,
    unreadable: BTreeSet<EndpointId>,
    pause: Duration,
    until: Option<Instant>,
}

/// Why an offered run is not taken now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeclineReason {
    /// A reason that concerns every run.
    Everything,
    /// Its service has reached its concurrency limit.
    Full(EndpointId),
    /// Its service cannot be read.
    Unreadable(EndpointId),
}

impl Default for Backpressure {
    fn default() -> Self {
        let (full, unreadable) = (BTreeSet::new(), BTreeSet::new());
        Self { slots: 0, full, unreadable, pause: MIN_PAUSE, until: None }
    }
}

impl Backpressure {
    /// How many slots are withheld.
    pub(super) fn slots(&self) -> u32 {
        self.slots
    }

    /// The services whose runs should not be offered, at most as many as one frame may name.
    pub(super) fn services(&self) -> Vec<EndpointId> {
        self.full.union(&self.unreadable).take(MAX_NAMED_SERVICES).copied().collect()
    }

    /// When everything except full services is offered again at the latest.
    pub(super) fn until(&self) -> Option<Instant> {
        self.until
    }

    /// Records that a run was refused.
    pub(super) fn record_refusal(&mut self, why: DeclineReason, now: Instant) {
        match why {
            DeclineReason::Everything => self.slots = self.slots.saturating_add(1),
            DeclineReason::Unreadable(service) => drop(self.unreadable.insert(service)),
            DeclineReason::Full(service) => {
                self.full.insert(service);
                return;
            }
        }
        self.until.get_or_insert(now + self.pause);
    }

    /// Records that a run of this service released its slot: a refused run may fit now.
    pub(super) fn record_end(&mut self, service: EndpointId) {
        self.slots = 0;
        self.full.remove(&service);
        if self.unreadable.is_empty() {
            (self.pause, self.until) = (MIN_PAUSE, None);
        }
    }

    /// Ends the pause.
    pub(super) fn release(&mut self) {
        self.slots = 0;
        self.unreadable.clear();
        (self.pause, self.until) = ((self.pause * 2).min(MAX_PAUSE), None);
    }

    /// Withdraws refusals that were caused by the computer's sleep.
    pub(super) fn reset_after_sleep(&mut self) {
        *self = Self { full: std::mem::take(&mut self.full), ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_service_costs_no_slot_and_is_named_until_a_run_of_it_ends() {
        let (full, other, now) = (EndpointId::new(), EndpointId::new(), Instant::now());
        let mut withheld = Backpressure::default();
        withheld.record_refusal(DeclineReason::Full(full), now);
        withheld.record_refusal(DeclineReason::Full(full), now);
        assert_eq!((withheld.slots(), withheld.services(), withheld.until()), (0, vec![full], None));
        withheld.record_refusal(DeclineReason::Everything, now);
        withheld.release();
        withheld.record_end(other);
        withheld.reset_after_sleep();
        assert_eq!((withheld.slots(), withheld.services()), (0, vec![full]), "no time and no other run makes room");
        withheld.record_end(full);
        assert_eq!(withheld.services(), []);
    }

    #[test]
    fn what_may_fit_later_by_itself_is_offered_again_after_pauses_that_grow() {
        let (damaged, now) = (EndpointId::new(), Instant::now());
        for why in [DeclineReason::Everything, DeclineReason::Unreadable(damaged)] {
            let mut withheld = Backpressure::default();
            let pauses = (0..4).map(|_| {
                withheld.record_refusal(why, now);
                let pause = withheld.until().expect("withheld").duration_since(now);
                withheld.release();
                assert_eq!((withheld.slots(), withheld.services()), (0, vec![]));
                pause.as_secs()
            });
            assert_eq!(pauses.collect::<Vec<_>>(), [1, 2, 4, 5], "{why:?}");
        }
    }
}
