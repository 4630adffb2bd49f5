//! Offers: as many runs as the device has capacity for, as soon as they are queued, and of each service as many as it has
//! places there.

use std::time::Duration;

use deskgate_protocol::EndpointId;
use deskgate_protocol::control::GatewayFrame;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::capacity::{DeviceCapacity, UsedCapacity};
use super::service::ControlService;
use crate::notify::{Topic, Watcher};
use crate::store::attempts::ServiceRoom;
use crate::store::leases::SessionKey;

/// The pause before a queue that could not be read is read again.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Runs in one claim.
const MAX_CLAIM_RUNS: u32 = 32;

/// Claims that find nothing but runs of full services, however many, take at most one part in this many of the time.
const SCAN_TIME_SHARE: u32 = 10;

/// Claims and offers runs until the session ends.
pub(super) async fn offer(
    service: ControlService,
    session: SessionKey,
    mut declared: watch::Receiver<DeviceCapacity>,
    frames: mpsc::Sender<GatewayFrame>,
) {
    let mut watcher = service.store.notifier().watch(Topic::Queue(session.device_id));
    let mut used = UsedCapacity::default();
    let mut seen = QueueView::default();
    loop {
        let capacity = declared.borrow_and_update().clone();
        let free = used.free_slots(&capacity);
        let limit = u32::try_from(free).unwrap_or(MAX_CLAIM_RUNS).min(MAX_CLAIM_RUNS);
        let room = seen.worth_a_look(used.room(&capacity, limit));
        let Some(room) = room.filter(|_| limit > 0) else {
            tokio::select! {
                changed = declared.changed() => if changed.is_err() { return },
                () = seen.news(&mut watcher), if limit > 0 => {}
            }
            continue;
        };
        let began = Instant::now();
        let offers = match service.claims.claim(session, limit, &room).await {
            Ok(offers) => offers,
            Err(error) => {
                tracing::warn!(device_id = %session.device_id, %error, "the queue could not be read");
                tokio::time::sleep(RETRY_INTERVAL).await;
                continue;
            }
        };
        // A service with few places may have more runs behind those that were looked at.
        if offers.is_empty() || (offers.len() < limit as usize && room.places.is_empty()) {
            seen.nothing_is_left(&room, if offers.is_empty() { began.elapsed() } else { Duration::ZERO });
        }
        for offer in offers {
            used.note(&capacity, offer.endpoint_id);
            tracing::debug!(run_id = %offer.run_id, attempt = offer.attempt, device_id = %session.device_id,
                trace_id = offer.trace_id(), "offered");
            if frames.send(GatewayFrame::Offer(offer)).await.is_err() {
                return;
            }
        }
    }
}

/// What is known of the queue since it was last looked through: until it changes, it holds nothing but runs of the
/// services that were full then.
#[derive(Debug, Default)]
struct QueueView {
    passed: Option<Vec<EndpointId>>,
    /// When a hint, those of the gateway's looks among them, counts again after a look through many runs.
    rested_at: Option<Instant>,
}

impl QueueView {
    /// The services whose runs may be queued and have room; none if a claim would find nothing.
    fn worth_a_look(&self, room: ServiceRoom) -> Option<ServiceRoom> {
        let Some(passed) = &self.passed else { return Some(room) };
        let only: Vec<_> = passed.iter().filter(|service| !room.full.contains(service)).copied().collect();
        (!only.is_empty()).then_some(ServiceRoom { only: Some(only), ..room })
    }

    /// A claim left nothing that fits into this room. `looked`: how long it looked in vain.
    fn nothing_is_left(&mut self, room: &ServiceRoom, looked: Duration) {
        match (&mut self.passed, &room.only) {
            (Some(passed), Some(only)) => passed.retain(|service| !only.contains(service)),
            _ => {
                let rest = if room.full.is_empty() { Duration::ZERO } else { looked * (SCAN_TIME_SHARE - 1) };
                self.passed = Some(room.full.clone());
                self.rested_at = Some(Instant::now() + rest);
            }
        }
    }

    /// Waits until the queue may hold something else. Cancel-safe.
    async fn news(&mut self, queue: &mut Watcher) {
        let Some(rested_at) = self.rested_at else { return };
        tokio::time::sleep_until(rested_at).await;
        queue.changed().await;
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(full: &[EndpointId]) -> ServiceRoom {
        ServiceRoom { full: full.to_vec(), ..ServiceRoom::default() }
    }

    #[test]
    fn a_queue_of_full_services_is_looked_through_once_and_then_only_for_those_that_have_room_again() {
        let (one, two) = (EndpointId::new(), EndpointId::new());
        let mut seen = QueueView::default();
        assert_eq!(seen.worth_a_look(room(&[one, two])), Some(room(&[one, two])));
        seen.nothing_is_left(&room(&[one, two]), Duration::ZERO);
        assert_eq!(seen.worth_a_look(room(&[one, two])), None);
        let only_two = ServiceRoom { only: Some(vec![two]), ..room(&[one]) };
        assert_eq!(seen.worth_a_look(room(&[one])), Some(only_two.clone()));
        seen.nothing_is_left(&only_two, Duration::ZERO);
        assert_eq!(seen.worth_a_look(room(&[one])), None, "it has no run either");
        assert_eq!(seen.worth_a_look(room(&[])).and_then(|room| room.only), Some(vec![one]));
    }

    #[tokio::test]
    async fn a_hint_is_followed_after_the_rest_however_often_the_device_has_something_to_say() {
        let (notifier, _replicas) = crate::notify::ChangeNotifier::new();
        let topic = Topic::Queue(deskgate_protocol::DeviceId::new());
        let mut watcher = notifier.watch(topic);
        let (mut seen, took) = (QueueView::default(), Duration::from_millis(5));
        seen.nothing_is_left(&room(&[EndpointId::new()]), took);
        let rest = Instant::now() + took * (SCAN_TIME_SHARE - 2);
        notifier.notify(topic);
        let followed = tokio::time::timeout(Duration::from_secs(20), async {
            while seen.passed.is_some() {
                tokio::select! {
                    () = tokio::time::sleep(Duration::from_millis(1)) => {}
                    () = seen.news(&mut watcher) => {}
                }
            }
        });
        followed.await.expect("the hint is followed");
        assert!(Instant::now() >= rest, "it did not rest");
    }
}
