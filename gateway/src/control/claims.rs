//! Offers: as many runs as the device has room for, as soon as there are any.

use std::time::Duration;

use deskgate_protocol::control::GatewayFrame;
use tokio::sync::{mpsc, watch};

use super::door::Door;
use crate::store::devices::SessionKey;
use crate::wake::Topic;

/// Hints can be lost, so the queue is looked at this often while there is room.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Runs in one claim.
const BATCH: u32 = 32;

/// Claims and offers until the session ends. `credit` counts the slots the device ever declared.
pub(super) async fn offer(
    door: Door,
    session: SessionKey,
    mut credit: watch::Receiver<u64>,
    frames: mpsc::Sender<GatewayFrame>,
) {
    let mut watcher = door.store.wake().watch(Topic::Queue(session.device_id));
    let mut used = 0u64;
    loop {
        let room = credit.borrow_and_update().saturating_sub(used);
        if room == 0 {
            if credit.changed().await.is_err() {
                return;
            }
            continue;
        }
        let limit = u32::try_from(room).unwrap_or(BATCH).min(BATCH);
        let offers = match door.store.claim(session, limit, door.clocks.offer).await {
            Ok(offers) => offers,
            Err(error) => {
                tracing::warn!(device_id = %session.device_id, %error, "the queue could not be read");
                tokio::time::sleep(LOOK_AGAIN).await;
                continue;
            }
        };
        if offers.is_empty() {
            tokio::select! {
                () = watcher.changed() => {}
                // More room, and the queue was empty: it still is until the watcher says more.
                changed = credit.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(LOOK_AGAIN) => {}
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
