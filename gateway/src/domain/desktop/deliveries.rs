//! Deliveries as a desktop user sees them, and what the user may have sent.

use std::time::Duration;

use deskgate_protocol::delivery::{CallbackEvent, DeliveryState};
use deskgate_protocol::management::{
    DeliveryDetail, DeliveryPage, ListDeliveries, OwnDelivery, RecoverDeliveries, Recovery, ResendDelivery,
    ShowDelivery, TestCallback, TriggerDelivery,
};
use deskgate_protocol::{ApplicationId, DeliveryId};
use serde_json::json;
use tokio::time::{Instant, sleep, timeout_at};

use super::{Desktop, DesktopResult, MAX_WAIT, conflict, invalid, not_found};
use crate::domain::samples;

/// The pause between two polls while changes keep coming.
const DELIVERY_DEBOUNCE_INTERVAL: Duration = Duration::from_millis(20);
/// Hints can be lost, so waiting reads poll this often.
const DELIVERY_POLL_INTERVAL: Duration = Duration::from_secs(1);

impl Desktop {
    /// Sends a `webhook.test` to a callback.
    ///
    /// # Errors
    /// `NotFound`: the device has no such application. `Conflict`: the application was disabled, or has no enabled
    /// callback. `Unavailable`: the database does not answer, or refuses the statement.
    pub async fn test_callback(&self, request: TestCallback) -> DesktopResult<OwnDelivery> {
        self.check_active(request.app_id).await?;
        let data = json!({ "message": "This is a test. Nothing happened." }).to_string();
        let mut queued = self.queue(request.app_id, CallbackEvent::WebhookTest, &data, false).await?;
        queued.pop().ok_or_else(|| nowhere("callback that is on"))
    }

    /// Sends a sample to the receivers of the application's events.
    ///
    /// # Errors
    /// `NotFound`: the device has no such application. `Conflict`: the application was disabled, or has neither an
    /// enabled callback nor a listener. `Unavailable`: the database does not answer, or refuses the statement.
    pub async fn trigger(&self, request: TriggerDelivery) -> DesktopResult<Vec<OwnDelivery>> {
        self.check_active(request.app_id).await?;
        let data = samples::data(request.kind);
        let queued = self.queue(request.app_id, request.kind, &data, true).await?;
        if queued.is_empty() { Err(nowhere("callback that is on, and nobody listens")) } else { Ok(queued) }
    }

    async fn queue(
        &self,
        app_id: ApplicationId,
        kind: CallbackEvent,
        data: &str,
        with_listeners: bool,
    ) -> DesktopResult<Vec<OwnDelivery>> {
        let ids = self.store.queue_by_hand(self.owner(), app_id, kind, data, with_listeners).await?;
        let mut queued = Vec::with_capacity(ids.len());
        for delivery_id in ids {
            queued.push(self.delivery(delivery_id).await?.delivery);
        }
        Ok(queued)
    }

    /// A page of deliveries, newest first.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn deliveries(&self, request: ListDeliveries) -> DesktopResult<DeliveryPage> {
        Ok(self.store.own_deliveries(Some(self.device_id), &request).await?)
    }

    /// One delivery with its attempts. With `wait_s`, waits until more attempts have an outcome than the caller has
    /// seen.
    ///
    /// # Errors
    /// `NotFound`: the device has no such delivery. `Unavailable`: the database does not answer, or refuses the
    /// statement.
    pub async fn show_delivery(&self, request: ShowDelivery) -> DesktopResult<DeliveryDetail> {
        let deadline = Instant::now() + Duration::from_secs(request.wait_s.into()).min(MAX_WAIT);
        let mut anything = self.store.notifier().subscribe_any();
        loop {
            anything.borrow_and_update();
            let detail = self.delivery(request.delivery_id).await?;
            let known = detail.attempts.iter().filter(|attempt| attempt.duration_ms.is_some()).count();
            let over = detail.delivery.delivery.state != DeliveryState::Pending;
            if over || known > request.seen as usize || Instant::now() >= deadline {
                return Ok(detail);
            }
            let look_again = (Instant::now() + DELIVERY_POLL_INTERVAL).min(deadline);
            let _ = timeout_at(look_again, anything.changed()).await;
            sleep(DELIVERY_DEBOUNCE_INTERVAL).await;
        }
    }

    /// Sends one again.
    ///
    /// # Errors
    /// `NotFound`: the device has no such delivery. `Conflict`: its destination is disabled or has ended.
    /// `Unavailable`: the database does not answer, or refuses the statement.
    pub async fn resend(&self, request: ResendDelivery) -> DesktopResult<OwnDelivery> {
        let delivery_id = request.delivery_id;
        self.delivery(delivery_id).await?;
        if !self.store.resend_delivery(Some(self.owner()), delivery_id).await? {
            return Err(conflict("nothing is sent where this went; enable it first, or listen again".to_owned()));
        }
        Ok(self.delivery(delivery_id).await?.delivery)
    }

    /// Sends the failed deliveries of an application's callback since a time again, or counts them.
    ///
    /// # Errors
    /// `Invalid`: the time is before 1970. `NotFound`: the device has no such application, or it has no callback.
    /// `Conflict`: the callback is disabled, and its deliveries are not only to be counted. `Unavailable`: the database
    /// does not answer, or refuses the statement.
    pub async fn recover(&self, request: RecoverDeliveries) -> DesktopResult<Recovery> {
        let RecoverDeliveries { app_id, since, only_count } = request;
        if since.0.as_second() < 0 {
            return Err(invalid("since: nothing was sent before 1970".to_owned()));
        }
        let callback = self.store.callback(self.device_id, app_id).await?;
        let callback = callback.ok_or_else(|| super::callbacks::no_callback(app_id))?;
        if only_count {
            let deliveries = self.store.count_failed_deliveries(Some(self.device_id), app_id, since).await?;
            return Ok(Recovery { deliveries });
        }
        if callback.off.is_some() {
            return Err(conflict("the callback is off; enable it first".to_owned()));
        }
        Ok(Recovery { deliveries: self.store.recover_deliveries(Some(self.owner()), app_id, since).await? })
    }

    async fn delivery(&self, delivery_id: DeliveryId) -> DesktopResult<DeliveryDetail> {
        let found = self.store.own_delivery(Some(self.device_id), delivery_id).await?;
        found.ok_or_else(|| not_found(format!("there is no delivery {delivery_id}")))
    }
}

fn nowhere(what: &str) -> super::ManagementError {
    conflict(format!("this application has no {what}"))
}
