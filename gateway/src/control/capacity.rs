//! A device's capacity: what it declared in this session, and what is left of it.

use std::collections::{BTreeSet, HashMap};

use deskgate_protocol::EndpointId;
use deskgate_protocol::control::{MAX_NAMED_SERVICES, ServicePlaces};

use crate::store::attempts::ServiceRoom;

/// Slots and places that a device may declare at once.
const MAX_SLOTS: u32 = 1024;

/// What a device declared in this session.
#[derive(Clone, Debug, Default)]
pub(super) struct DeviceCapacity {
    /// The slots that it ever declared.
    slots: u64,
    /// The places that it ever gave to each service that it named.
    places: HashMap<EndpointId, u64>,
    /// The services that are full.
    full: Vec<EndpointId>,
}

impl DeviceCapacity {
    /// Adds what a `ready` declares; its full services take the place of those before. Refused, in words, if it is more
    /// than any device has.
    pub(super) fn add(&mut self, slots: u32, places: &[ServicePlaces], full: Vec<EndpointId>) -> Result<(), String> {
        if slots > MAX_SLOTS || full.len() > MAX_NAMED_SERVICES {
            return Err(format!("{slots} slots at once, and {} full services", full.len()));
        }
        for named in places {
            let given = self.places.entry(named.endpoint_id).or_default();
            *given += u64::from(named.places);
            if named.places > MAX_SLOTS || self.places.len() > MAX_NAMED_SERVICES {
                return Err(format!("{} places at once, for {} services", named.places, self.places.len()));
            }
        }
        self.slots += u64::from(slots);
        self.full = full;
        Ok(())
    }
}

/// The offers that a device was sent in this session: each uses up a slot, and a place of its service.
#[derive(Debug, Default)]
pub(super) struct UsedCapacity {
    slots: u64,
    places: HashMap<EndpointId, u64>,
}

impl UsedCapacity {
    /// The slots that are left.
    pub(super) fn free_slots(&self, of: &DeviceCapacity) -> u64 {
        of.slots.saturating_sub(self.slots)
    }

    /// The room of the services in a claim of up to `limit` runs.
    pub(super) fn room(&self, of: &DeviceCapacity, limit: u32) -> ServiceRoom {
        let (mut full, mut places): (BTreeSet<_>, Vec<_>) = (of.full.iter().copied().collect(), Vec::new());
        for (endpoint_id, given) in &of.places {
            let left = given.saturating_sub(self.places.get(endpoint_id).copied().unwrap_or(0));
            match u32::try_from(left) {
                Ok(0) => drop(full.insert(*endpoint_id)),
                Ok(left) if left < limit => places.push((*endpoint_id, left)),
                _ => {}
            }
        }
        ServiceRoom { full: full.into_iter().collect(), places, only: None }
    }

    /// Notes an offer that is sent.
    pub(super) fn note(&mut self, of: &DeviceCapacity, endpoint_id: EndpointId) {
        self.slots += 1;
        // Before a device named a service, it does not count that one's places.
        if of.places.contains_key(&endpoint_id) {
            *self.places.entry(endpoint_id).or_default() += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(endpoint_id: EndpointId, places: u32) -> ServicePlaces {
        ServicePlaces { endpoint_id, places }
    }

    #[test]
    fn a_service_has_as_many_places_as_it_was_given_and_one_without_a_word_as_many_as_there_are_slots() {
        let (one, many, silent) = (EndpointId::new(), EndpointId::new(), EndpointId::new());
        let (mut capacity, mut used) = (DeviceCapacity::default(), UsedCapacity::default());
        capacity.add(4, &[places(one, 1), places(many, 9)], Vec::new()).expect("plausible");
        let room = used.room(&capacity, 4);
        assert_eq!((room.full, room.places), (vec![], vec![(one, 1)]), "more than the slots is no limit");
        for offered in [one, silent] {
            used.note(&capacity, offered);
        }
        assert_eq!((used.free_slots(&capacity), used.room(&capacity, 2).full), (2, vec![one]));
        capacity.add(1, &[places(one, 1)], vec![silent]).expect("plausible");
        let room = used.room(&capacity, 3);
        assert_eq!((used.free_slots(&capacity), room.full, room.places), (3, vec![silent], vec![(one, 1)]));
    }

    #[test]
    fn a_service_that_was_named_without_a_place_is_full_until_it_gets_one() {
        let busy = EndpointId::new();
        let mut capacity = DeviceCapacity::default();
        capacity.add(2, &[places(busy, 0)], Vec::new()).expect("plausible");
        assert_eq!(UsedCapacity::default().room(&capacity, 2).full, [busy]);
        capacity.add(0, &[places(busy, 1)], Vec::new()).expect("plausible");
        assert_eq!(UsedCapacity::default().room(&capacity, 2).full, []);
    }

    #[test]
    fn more_than_any_device_has_is_refused_however_it_is_spread() {
        let mut capacity = DeviceCapacity::default();
        assert!(capacity.add(MAX_SLOTS + 1, &[], Vec::new()).is_err());
        assert!(capacity.add(0, &[places(EndpointId::new(), MAX_SLOTS + 1)], Vec::new()).is_err());
        let mut capacity = DeviceCapacity::default();
        let more = (0..=MAX_NAMED_SERVICES).map(|_| capacity.add(0, &[places(EndpointId::new(), 1)], Vec::new()));
        assert_eq!(more.filter(Result::is_err).count(), 1);
    }
}
