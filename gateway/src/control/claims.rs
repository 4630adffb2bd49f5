//! Offers: as many runs as the device has capacity for, as soon as they are queued, and none of a service that is full
//! there.

use std::time::Duration;

use deskgate_protocol::EndpointId;
use deskgate_protocol::control::GatewayFrame;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::service::ControlService;
use crate::notify::{Topic, Watcher};
use crate::store::leases::SessionKey;

/// Hints can be lost, so the queue is polled this often while there is capacity.
const QUEUE_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Runs in one claim.
const MAX_CLAIM_RUNS: u32 = 32;

/// Claims that find nothing but runs of full services, however many, take at most one part in this many of the time.
const SCAN_TIME_SHARE: u32 = 10;

/// The device's capacity.
#[derive(Clone, Debug, Default)]
pub(super) struct DeviceCapacity {
    /// The slots that it ever declared in this session.
    pub(super) slots: u64,
    /// The services that are full.
    pub(super) full: Vec<EndpointId>,
}

/// Claims and offers runs until the session ends.
pub(super) async fn offer(
    service: ControlService,
    session: SessionKey,
    mut room: watch::Receiver<DeviceCapacity>,
    frames: mpsc::Sender<GatewayFrame>,
) {
    let mut watcher = service.store.notifier().watch(Topic::Queue(session.device_id));
    let mut used = 0u64;
    loop {
        let DeviceCapacity { slots, full } = room.borrow_and_update().clone();
        let free = slots.saturating_sub(used);
        if free == 0 {
            if room.changed().await.is_err() {
                return;
            }
            continue;
        }
        let limit = u32::try_from(free).unwrap_or(MAX_CLAIM_RUNS).min(MAX_CLAIM_RUNS);
        let began = Instant::now();
        let offers = match service.store.claim(session, limit, &full, service.clocks.offer).await {
            Ok(offers) => offers,
            Err(error) => {
                tracing::warn!(device_id = %session.device_id, %error, "the queue could not be read");
                tokio::time::sleep(QUEUE_POLL_INTERVAL).await;
                continue;
            }
        };
        if offers.is_empty() {
            let rest = if full.is_empty() { Duration::ZERO } else { began.elapsed() * (SCAN_TIME_SHARE - 1) };
            tokio::select! {
                // The capacity grew, and the queue was empty: it still is until the watcher reports a change. Runs of a
                // service that was full may wait.
                changed = room.changed() => if changed.is_err() { return },
                () = news(&mut watcher, rest) => {}
            }
            continue;
        }
        used += offers.len() as u64;
        for offer in offers {
            tracing::debug!(run_id = %offer.run_id, attempt = offer.attempt, device_id = %session.device_id,
                trace_id = offer.trace_id(), "offered");
            if frames.send(GatewayFrame::Offer(offer)).await.is_err() {
                return;
            }
        }
    }
}

/// Waits until the queue may have changed, and at least for `rest`.
async fn news(queue: &mut Watcher, rest: Duration) {
    tokio::time::sleep(rest).await;
    tokio::select! {
        () = queue.changed() => {}
        () = tokio::time::sleep(QUEUE_POLL_INTERVAL) => {}
    }
}
