//! Limits on attempts under way per destination: more for one that answers well, one at a time for one that fails. So a
//! receiver that never answers holds one slot, and other destinations do not wait for it.

use std::collections::HashMap;
use std::time::Duration;

use deskgate_protocol::DestinationId;
use tokio::time::Instant;

use crate::store::deliveries::claims::DestinationCapacity;

/// Concurrent attempts for an unknown destination.
pub(super) const INITIAL_CONCURRENCY: u32 = 2;
/// Concurrent attempts for a destination that answers well.
const MAX_CONCURRENCY: u32 = 64;
/// For how long a destination is left to the other replicas.
const LEFT_DURATION: Duration = Duration::from_secs(60);
/// Destinations that are remembered without attempts under way.
const MAX_REMEMBERED_DESTINATIONS: usize = 4096;

/// One destination.
#[derive(Clone, Copy, Debug)]
struct DestinationConcurrency {
    width: u32,
    under_way: u32,
    /// Until when other replicas attempt its deliveries.
    left_until: Option<Instant>,
}

impl DestinationConcurrency {
    const NEW: Self = Self { width: INITIAL_CONCURRENCY, under_way: 0, left_until: None };

    fn is_left(&self) -> bool {
        self.left_until.is_some_and(|until| Instant::now() < until)
    }
}

/// Every destination that this gateway remembers.
#[derive(Debug, Default)]
pub(super) struct ConcurrencyLimits(HashMap<DestinationId, DestinationConcurrency>);

impl ConcurrencyLimits {
    /// Records the start of an attempt.
    pub(super) fn begin(&mut self, to: DestinationId) {
        self.0.entry(to).or_insert(DestinationConcurrency::NEW).under_way += 1;
    }

    /// Records the end of an attempt; `good`: with 2xx.
    pub(super) fn end(&mut self, to: DestinationId, good: bool) {
        let Some(lane) = self.0.get_mut(&to) else { return };
        lane.under_way = lane.under_way.saturating_sub(1);
        lane.width = if good { (lane.width + 1).min(MAX_CONCURRENCY) } else { 1 };
        if self.0.len() > MAX_REMEMBERED_DESTINATIONS {
            self.0.retain(|_, lane| lane.under_way > 0 || lane.is_left());
        }
    }

    /// Ends an attempt that this replica could not make, and leaves the destination to the others for a while.
    pub(super) fn leave_to_others(&mut self, to: DestinationId) {
        let Some(lane) = self.0.get_mut(&to) else { return };
        lane.under_way = lane.under_way.saturating_sub(1);
        lane.left_until = Some(Instant::now() + LEFT_DURATION);
    }

    /// The remaining capacity of each destination.
    pub(super) fn rooms(&self) -> Vec<DestinationCapacity> {
        let room = |(id, lane): (&DestinationId, &DestinationConcurrency)| DestinationCapacity {
            destination_id: *id,
            free: if lane.is_left() { 0 } else { lane.width.saturating_sub(lane.under_way) },
        };
        self.0.iter().map(room).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn free(limits: &ConcurrencyLimits, to: DestinationId) -> Option<u32> {
        limits.rooms().iter().find(|room| room.destination_id == to).map(|room| room.free)
    }

    #[test]
    fn a_lane_widens_with_each_good_answer_and_closes_to_one_with_a_failure() {
        let (mut limits, to) = (ConcurrencyLimits::default(), DestinationId::new());
        assert_eq!(free(&limits, to), None);
        limits.begin(to);
        assert_eq!(free(&limits, to), Some(INITIAL_CONCURRENCY - 1));
        for _ in 0..2 * MAX_CONCURRENCY {
            limits.end(to, true);
            limits.begin(to);
        }
        assert_eq!(free(&limits, to), Some(MAX_CONCURRENCY - 1));
        limits.begin(to);
        limits.end(to, false);
        assert_eq!(free(&limits, to), Some(0), "one is under way still");
        limits.end(to, false);
        assert_eq!(free(&limits, to), Some(1));
    }

    #[test]
    fn a_destination_that_is_left_to_others_has_no_room_until_its_time_is_over() {
        let (mut limits, to) = (ConcurrencyLimits::default(), DestinationId::new());
        limits.begin(to);
        limits.leave_to_others(to);
        assert_eq!(free(&limits, to), Some(0));
        limits.0.get_mut(&to).expect("remembered").left_until = Some(Instant::now());
        assert_eq!(free(&limits, to), Some(INITIAL_CONCURRENCY));
    }

    #[test]
    fn only_so_many_idle_destinations_are_remembered() {
        let (mut limits, busy) = (ConcurrencyLimits::default(), DestinationId::new());
        limits.begin(busy);
        for _ in 0..2 * MAX_REMEMBERED_DESTINATIONS {
            let to = DestinationId::new();
            limits.begin(to);
            limits.end(to, true);
        }
        assert!(limits.0.len() <= MAX_REMEMBERED_DESTINATIONS + 1);
        assert_eq!(free(&limits, busy), Some(INITIAL_CONCURRENCY - 1));
    }
}
