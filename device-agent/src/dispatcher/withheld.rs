//! Slots that are free and yet not declared for a moment, because the run that they would bring was
//! just refused.
//!
//! A slot says nothing about which run it is for: as long as the oldest runs of the queue belong to
//! a service that is busy here, every slot brings one of them, and runs of other services behind
//! them wait. Only a `ready` that names the services which are full could change that. What can be
//! done here is to spare everybody the turning over of attempts: the slot waits for a run of *that*
//! service to end, or, in case this device counts wrong, for a while that grows.

use std::collections::HashMap;
use std::time::Duration;

use deskgate_protocol::ids::EndpointId;
use tokio::time::Instant;

/// The first pause, doubled each time that nothing has changed meanwhile ...
const FIRST: Duration = Duration::from_secs(1);
/// ... up to this one.
const LONGEST: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Withheld {
    general: u32,
    by_service: HashMap<EndpointId, u32>,
    pause: Duration,
    until: Option<Instant>,
}

impl Default for Withheld {
    fn default() -> Self {
        Self { general: 0, by_service: HashMap::new(), pause: FIRST, until: None }
    }
}

impl Withheld {
    /// How many slots are not declared.
    pub(super) fn count(&self) -> u32 {
        self.by_service.values().fold(self.general, |sum, count| sum.saturating_add(*count))
    }

    /// When they are declared again at the latest.
    pub(super) fn until(&self) -> Option<Instant> {
        self.until
    }

    /// A run was refused just now: because its service is busy, or for a reason that concerns every run.
    pub(super) fn refused(&mut self, busy: Option<EndpointId>, now: Instant) {
        let count = match busy {
            Some(service) => self.by_service.entry(service).or_default(),
            None => &mut self.general,
        };
        *count = count.saturating_add(1);
        self.until.get_or_insert(now + self.pause);
    }

    /// A run of this service gave its slot back: one that was refused may fit now.
    pub(super) fn ended(&mut self, service: EndpointId) {
        self.general = 0;
        self.by_service.remove(&service);
        if self.count() == 0 {
            *self = Self::default();
        }
    }

    /// The pause is over: everything is declared again.
    pub(super) fn release(&mut self) {
        *self = Self { pause: (self.pause * 2).min(LONGEST), ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_of_a_busy_service_waits_for_that_service_and_the_pauses_grow() {
        let (busy, other, now) = (EndpointId::new(), EndpointId::new(), Instant::now());
        let mut withheld = Withheld::default();
        withheld.refused(Some(busy), now);
        withheld.refused(Some(busy), now);
        withheld.refused(None, now);
        withheld.ended(other);
        assert_eq!(withheld.count(), 2, "only what concerns every run is declared again");
        withheld.ended(busy);
        assert_eq!((withheld.count(), withheld.until()), (0, None));
        let pauses = (0..4).map(|_| {
            withheld.refused(Some(busy), now);
            let pause = withheld.until().expect("withheld").duration_since(now);
            withheld.release();
            pause.as_secs()
        });
        assert_eq!(pauses.collect::<Vec<_>>(), [1, 2, 4, 5]);
    }
}
