//! Listeners at the desktop: a developer follows an application's events while building a receiver.
//!
//! A listener polls over the desktop's own connection, and gets what a callback would: the same headers, the same body,
//! a signature of its own secret. No request goes to an address from here.

use std::time::Duration;

use deskgate_protocol::DestinationId;
use deskgate_protocol::delivery::{CallbackEvent, DeliveryErrorCode};
use deskgate_protocol::management::{
    CloseListener, ForwardBatch, ForwardOutcome, ForwardedDelivery, OpenListener, OpenedListener, PollListener,
};
use tokio::time::{Instant, sleep, timeout_at};

use super::callbacks::chosen;
use super::{Desktop, DesktopResult, MAX_WAIT, not_found, quota_reached};
use crate::domain::deliveries::{AttemptResponse, SignedRequest, judge, refused};
use crate::signing::SigningSecret;
use crate::store::deliveries::claims::ClaimedDelivery;
use crate::store::deliveries::outcomes::AttemptOutcome;
use crate::store::destinations::NewListener;

/// A listener that does not poll for so long has ended.
const LISTENER_TTL: Duration = Duration::from_secs(120);
/// A delivery without a reported outcome is handed out again after this time.
const DELIVERY_LEASE: Duration = Duration::from_secs(30);
/// The retention of deliveries to a listener.
const DELIVERED_RETENTION: Duration = Duration::from_secs(3600);
/// Deliveries in one reply.
const MAX_DELIVERIES_PER_REPLY: u32 = 16;
/// Bytes of the bodies in one reply, so that it fits a frame even with escaped characters.
const MAX_REPLY_BODY_BYTES: usize = 1024 * 1024;
/// The pause between two polls while changes keep coming.
const LISTENER_DEBOUNCE_INTERVAL: Duration = Duration::from_millis(20);
/// Hints can be lost, so waiting reads poll this often.
const LISTENER_POLL_INTERVAL: Duration = Duration::from_secs(1);

impl Desktop {
    /// Opens a listener.
    ///
    /// # Errors
    /// `NotFound`: the device has no such application. `Conflict`: the application was disabled. `Invalid`: the events
    /// cannot be chosen. `QuotaReached`: the application has the most listeners it may. `Unavailable`: the database does
    /// not answer, or refuses the statement.
    pub async fn open_listener(&self, request: OpenListener) -> DesktopResult<OpenedListener> {
        self.check_active(request.app_id).await?;
        let every = || CallbackEvent::ALL.iter().copied().filter(|kind| kind.can_be_chosen()).collect();
        let types = if request.types.is_empty() { every() } else { chosen(&request.types)? };
        let (secret, listener_id) = (SigningSecret::generate(), DestinationId::new());
        let new = NewListener {
            destination_id: listener_id,
            app_id: request.app_id,
            types: &types,
            sealed_secret: &self.callbacks.scribe.cipher(&secret, listener_id),
            lives: LISTENER_TTL,
        };
        let opened = self.store.open_listener(self.owner(), &new).await?;
        let expires_at = opened
            .map_err(quota_reached)?
            .ok_or_else(|| not_found(format!("there is no application {}", request.app_id)))?;
        Ok(OpenedListener { listener_id, secret: secret.reveal().to_string(), expires_at })
    }

    /// Stores the outcomes of earlier deliveries, and hands out the next; waits for one if there is none.
    ///
    /// # Errors
    /// `NotFound`: the listener has ended, or is another device's. `Unavailable`: the database does not answer, or
    /// refuses the statement.
    pub async fn poll_listener(&self, request: PollListener) -> DesktopResult<ForwardBatch> {
        let PollListener { listener_id, limit, wait_s, outcomes } = request;
        let deadline = Instant::now() + Duration::from_secs(wait_s.into()).min(MAX_WAIT);
        let mut anything = self.store.notifier().subscribe_any();
        self.alive(listener_id).await?;
        self.note(listener_id, &outcomes).await?;
        loop {
            anything.borrow_and_update();
            let forwards = if limit == 0 {
                Vec::new()
            } else {
                self.forwards(listener_id, limit.min(MAX_DELIVERIES_PER_REPLY)).await?
            };
            if !forwards.is_empty() || limit == 0 || Instant::now() >= deadline {
                return Ok(ForwardBatch { forwards });
            }
            let look_again = (Instant::now() + LISTENER_POLL_INTERVAL).min(deadline);
            let _ = timeout_at(look_again, anything.changed()).await;
            sleep(LISTENER_DEBOUNCE_INTERVAL).await;
        }
    }

    /// Ends a listener.
    ///
    /// # Errors
    /// `NotFound`: the device has no such listener. `Unavailable`: the database does not answer, or refuses the
    /// statement.
    pub async fn close_listener(&self, request: CloseListener) -> DesktopResult<()> {
        if self.store.close_listener(self.device_id, request.listener_id).await? {
            Ok(())
        } else {
            Err(ended(request.listener_id))
        }
    }

    async fn alive(&self, listener_id: DestinationId) -> DesktopResult<()> {
        if self.store.keep_listener(self.device_id, listener_id, LISTENER_TTL).await? {
            Ok(())
        } else {
            Err(ended(listener_id))
        }
    }

    async fn note(&self, listener_id: DestinationId, outcomes: &[ForwardOutcome]) -> DesktopResult<()> {
        let mut settled = Vec::with_capacity(outcomes.len());
        for outcome in outcomes.iter().take(MAX_DELIVERIES_PER_REPLY as usize) {
            let held = self.store.held_by_listener(listener_id, outcome.delivery_id, outcome.attempt).await?;
            settled.extend(held.map(|claimed| judge(&claimed, &came(outcome))));
        }
        self.settle(&settled).await
    }

    async fn settle(&self, outcomes: &[AttemptOutcome]) -> DesktopResult<()> {
        if !outcomes.is_empty() {
            // Only callbacks are disabled by the outcomes of their deliveries.
            self.store.settle_deliveries(outcomes, DELIVERED_RETENTION).await?;
        }
        Ok(())
    }

    async fn forwards(&self, listener_id: DestinationId, limit: u32) -> DesktopResult<Vec<ForwardedDelivery>> {
        let claimed = self.store.claim_for_listener(listener_id, limit, MAX_REPLY_BODY_BYTES, DELIVERY_LEASE).await?;
        let (mut forwards, mut outcomes, mut bytes) = (Vec::new(), Vec::new(), 0);
        for signed in self.callbacks.scribe.build(claimed).await? {
            match signed {
                // A delivery that does not fit beside the others follows when its lease is over.
                Ok(signed) if signed.body.len() > MAX_REPLY_BODY_BYTES => {
                    outcomes.push(refused(&signed.claimed, DeliveryErrorCode::TooLarge));
                }
                Ok(signed) if bytes + signed.body.len() > MAX_REPLY_BODY_BYTES => {}
                Ok(signed) => {
                    bytes += signed.body.len();
                    forwards.push(forward(signed));
                }
                Err(outcome) => outcomes.push(outcome),
            }
        }
        self.settle(&outcomes).await?;
        Ok(forwards)
    }
}

fn forward(signed: SignedRequest) -> ForwardedDelivery {
    let SignedRequest { claimed: ClaimedDelivery { delivery_id, attempt, kind, .. }, headers, body } = signed;
    let headers = headers.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    ForwardedDelivery { delivery_id, attempt, kind, headers, body }
}

fn came(outcome: &ForwardOutcome) -> AttemptResponse {
    AttemptResponse {
        took: Duration::from_millis(outcome.duration_ms.into()),
        status_code: outcome.status_code,
        error_code: outcome.error_code,
        ..AttemptResponse::default()
    }
}

fn ended(listener_id: DestinationId) -> super::ManagementError {
    not_found(format!("there is no listener {listener_id} any more; listen again"))
}
