//! Places: how many runs of each service may be active at once, and how many of them the gateway may still fill.
//!
//! A place is declared like a slot: `ready` adds to those before, and each offer uses one up, whatever comes of it. So an
//! offer that is on its way is never counted twice, and no run is offered that the service has no place for.

use std::collections::BTreeMap;

use deskgate_protocol::control::{MAX_NAMED_SERVICES, ServicePlaces};
use deskgate_protocol::ids::EndpointId;
use deskgate_store::Services;
use tokio::sync::watch;

#[derive(Debug)]
pub(super) struct Places {
    /// Changes with each publication.
    publications: watch::Receiver<()>,
    /// Whether the limits are those of the present publications.
    is_current: bool,
    /// How many runs each service executes at once, as it was published last.
    limits: BTreeMap<EndpointId, u32>,
    /// The places that were declared in this session and that the gateway has not used.
    credit: BTreeMap<EndpointId, u32>,
}

impl Places {
    pub(super) fn new(publications: watch::Receiver<()>) -> Self {
        Self { publications, is_current: false, limits: BTreeMap::new(), credit: BTreeMap::new() }
    }

    /// Reads the limits of the services anew if one was published since. While they cannot be read, those of before hold,
    /// and what is offered beyond them is refused.
    pub(super) async fn learn(&mut self, services: &Services) {
        if self.is_current && !self.publications.has_changed().unwrap_or(false) {
            return;
        }
        self.publications.mark_unchanged();
        self.is_current = true;
        match services.concurrency().await {
            Ok(limits) => self.limits = limits.into_iter().take(MAX_NAMED_SERVICES).collect(),
            Err(error) => tracing::warn!(%error, "how many runs each service may execute at once cannot be read"),
        }
    }

    /// In a new session every place is declared again.
    pub(super) fn forget_declared(&mut self) {
        self.credit.clear();
    }

    /// The gateway used a place.
    pub(super) fn note_offer(&mut self, endpoint_id: EndpointId) {
        if let Some(credit) = self.credit.get_mut(&endpoint_id) {
            *credit = credit.saturating_sub(1);
        }
    }

    /// The places to declare now, given how many runs of each service are `active`, and the services that are named as
    /// `full` for another reason. A service is named once even if it has no place.
    pub(super) fn declare(&mut self, active: &BTreeMap<EndpointId, u32>, full: &[EndpointId]) -> Vec<ServicePlaces> {
        let mut declared = Vec::new();
        for (&endpoint_id, limit) in &self.limits {
            let free = match full.contains(&endpoint_id) {
                true => 0,
                false => limit.saturating_sub(active.get(&endpoint_id).copied().unwrap_or(0)),
            };
            let known = self.credit.get(&endpoint_id).copied();
            let places = free.saturating_sub(known.unwrap_or(0));
            if places > 0 || known.is_none() {
                *self.credit.entry(endpoint_id).or_default() += places;
                declared.push(ServicePlaces { endpoint_id, places });
            }
        }
        declared
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_declared_once_and_again_when_the_run_that_took_it_is_over() {
        let (one, many) = (EndpointId::new(), EndpointId::new());
        let mut places = Places::new(watch::Sender::new(()).subscribe());
        places.limits = BTreeMap::from([(one, 1), (many, 4)]);
        let named = |declared: Vec<ServicePlaces>| -> BTreeMap<_, _> {
            declared.into_iter().map(|named| (named.endpoint_id, named.places)).collect()
        };
        let nothing = BTreeMap::new();
        let active = BTreeMap::from([(many, 1)]);
        assert_eq!(named(places.declare(&active, &[])), BTreeMap::from([(one, 1), (many, 3)]));
        assert_eq!(named(places.declare(&active, &[])), nothing);
        places.note_offer(one);
        let active = BTreeMap::from([(one, 1), (many, 1)]);
        assert_eq!(named(places.declare(&active, &[])), nothing, "a taken place is no free one");
        assert_eq!(
            named(places.declare(&nothing, &[one])),
            BTreeMap::from([(many, 1)]),
            "one that is withheld is neither"
        );
        assert_eq!(named(places.declare(&nothing, &[])), BTreeMap::from([(one, 1)]));
        places.forget_declared();
        assert_eq!(named(places.declare(&BTreeMap::from([(one, 1)]), &[])), BTreeMap::from([(one, 0), (many, 4)]));
    }

    #[test]
    fn a_service_that_gets_fewer_places_declares_none_until_those_of_before_are_used() {
        let service = EndpointId::new();
        let mut places = Places::new(watch::Sender::new(()).subscribe());
        places.limits.insert(service, 3);
        assert_eq!(places.declare(&BTreeMap::new(), &[]).len(), 1);
        places.limits.insert(service, 1);
        for refused_or_taken in [1, 2] {
            places.note_offer(service);
            assert_eq!(places.declare(&BTreeMap::new(), &[]), [], "{refused_or_taken}");
        }
        places.note_offer(service);
        assert_eq!(places.declare(&BTreeMap::from([(service, 1)]), &[]), []);
        assert_eq!(places.declare(&BTreeMap::new(), &[]), [ServicePlaces { endpoint_id: service, places: 1 }]);
    }
}
