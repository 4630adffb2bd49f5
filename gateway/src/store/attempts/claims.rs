//! The entrance for claims: what devices ask for while a statement is under way waits for the next one and shares it.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use deskgate_protocol::DeviceId;
use deskgate_protocol::control::Offer;
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::ServiceRoom;
use crate::store::leases::SessionKey;
use crate::store::{Error, Store};
use deskgate_program::tasks::Tasks;

/// Tasks that claim. One alone would leave the processor idle while it waits for the database.
const CLAIMERS: usize = 2;
/// Claims that may wait; beyond that their sessions wait.
const MAX_WAITING_CLAIMS: usize = 1024;
/// Claims in one statement.
const MAX_SHARED_CLAIMS: usize = 32;
/// Runs that they may take together, as an input may be a megabyte.
const MAX_SHARED_SLOTS: u32 = 64;

/// A session that claims up to `slots` runs of any service. No reply: it has to claim by itself.
struct Claim {
    session: SessionKey,
    slots: u32,
    reply: oneshot::Sender<Vec<Offer>>,
}

/// The entrance to the shared claims.
#[derive(Clone)]
pub struct Claims {
    store: Store,
    offer: Duration,
    queue: mpsc::Sender<Claim>,
}

impl Claims {
    /// Starts the tasks that claim. They end with their group, or when every clone of the entrance is gone. A run is offered
    /// for the duration `offer`.
    pub fn start(store: &Store, tasks: &Tasks, offer: Duration) -> Self {
        let (queue, receiver) = mpsc::channel(MAX_WAITING_CLAIMS);
        let receiver = Arc::new(Mutex::new(receiver));
        for _ in 0..CLAIMERS {
            tasks.spawn("claims", claim_for_ever(store.clone(), receiver.clone(), offer, tasks.stopping()));
        }
        Self { store: store.clone(), offer, queue }
    }

    /// Claims runs for a session, see [`Store::claim`]. A session has one claim at a time.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn claim(&self, session: SessionKey, limit: u32, room: &ServiceRoom) -> Result<Vec<Offer>, Error> {
        if room.is_unlimited() {
            let (reply, answer) = oneshot::channel();
            if self.queue.send(Claim { session, slots: limit, reply }).await.is_ok()
                && let Ok(offers) = answer.await
            {
                return Ok(offers);
            }
        }
        self.store.claim(session, limit, room, self.offer).await
    }
}

async fn claim_for_ever(
    store: Store,
    receiver: Arc<Mutex<mpsc::Receiver<Claim>>>,
    offer: Duration,
    stop: CancellationToken,
) {
    let mut batch = Vec::new();
    loop {
        let next = async { receiver.lock().await.recv_many(&mut batch, MAX_SHARED_CLAIMS).await };
        if stop.run_until_cancelled(next).await.unwrap_or(0) == 0 {
            return;
        }
        let (mut devices, mut slots) = (HashSet::<DeviceId>::new(), 0);
        // Who has gone claims nothing, and what does not fit claims by itself.
        batch.retain(|claim| {
            let fits = !claim.reply.is_closed()
                && slots + claim.slots <= MAX_SHARED_SLOTS
                && devices.insert(claim.session.device_id);
            slots += if fits { claim.slots } else { 0 };
            fits
        });
        if batch.len() > 1 {
            claim_shared(&store, batch.drain(..), offer).await;
        }
        batch.clear();
    }
}

async fn claim_shared(store: &Store, claims: impl Iterator<Item = Claim>, offer: Duration) {
    let (asked, replies): (Vec<_>, Vec<_>) =
        claims.map(|Claim { session, slots, reply }| ((session, slots), (session.device_id, reply))).unzip();
    match store.claim_shared(&asked, offer).await {
        Ok(mut claimed) => {
            for (device_id, reply) in replies {
                if let Some(offers) = claimed.remove(&device_id) {
                    // What a session was given that ended meanwhile is taken over by the next, or its offer runs out.
                    let _ = reply.send(offers);
                }
            }
        }
        Err(error) => tracing::warn!(%error, devices = asked.len(), "runs could not be claimed together"),
    }
}
