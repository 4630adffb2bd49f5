//! Deliveries that people request: tests, samples, and repetitions.

use deskgate_protocol::delivery::CallbackEvent;
use deskgate_protocol::management::ActivityKind;
use deskgate_protocol::{ApplicationId, DeliveryId, DeviceId, EventId, Timestamp};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::UNDER_WAY_CONDITION;
use crate::store::activity::{ActivityEntry, Owner};
use crate::store::{Error, Store};

/// The failed deliveries of a callback since a time.
const FAILED_DELIVERIES_SQL: &str =
    "SELECT f.delivery_id FROM destinations t JOIN applications a USING (app_id) CROSS JOIN LATERAL (
        SELECT d.delivery_id FROM deliveries d
        WHERE d.destination_id = t.destination_id AND d.state = 'exhausted' AND d.event_at >= $3
        UNION ALL
        SELECT d.delivery_id FROM deliveries d
        WHERE d.destination_id = t.destination_id AND d.state = 'pending' AND d.attempt > d.attempts_before
            AND d.due_at > now() AND d.event_at >= $3 AND NOT";

impl Store {
    /// Queues a sample event for an application's callback, and with `with_listeners` for its listeners. Returns what
    /// was queued.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn queue_by_hand(
        &self,
        owner: Owner,
        app_id: ApplicationId,
        kind: CallbackEvent,
        data: &str,
        with_listeners: bool,
    ) -> Result<Vec<DeliveryId>, Error> {
        let sql = "-- deliveries::queue_by_hand
            WITH queued AS (
                INSERT INTO deliveries (delivery_id, destination_id, app_id, event_id, type, event_at, data)
                SELECT new_delivery_id(), t.destination_id, t.app_id, $3, $4, now(), $5
                FROM destinations t JOIN applications a USING (app_id)
                WHERE a.device_id = $1 AND t.app_id = $2 AND t.disabled_at IS NULL
                    AND (t.kind = 'callback' OR $6 AND t.expires_at > now())
                RETURNING delivery_id)
            SELECT array_agg(delivery_id) FROM queued HAVING count(*) > 0";
        let (device, app, event) = (owner.device_id.uuid(), app_id.uuid(), EventId::new().uuid());
        let params: [&(dyn ToSql + Sync); 6] = [&device, &app, &event, &kind.as_str(), &data, &with_listeners];
        let queued = |_: &Row| Ok(Some(note(Some(app_id), ActivityKind::DeliveryTriggered, None, kind.as_str())));
        let row = self.execute_with_activity(owner, sql, &params, queued).await?;
        self.notifier().notify_any();
        let ids: Vec<Uuid> = row.map(|row| row.try_get(0)).transpose()?.unwrap_or_default();
        Ok(ids.into_iter().map(Into::into).collect())
    }

    /// Makes a delivery due now, in any state, unless an attempt is under way. False if its destination is disabled or
    /// gone, or it is not this owner's; without an owner it may be anybody's.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn resend_delivery(&self, owner: Option<Owner>, delivery_id: DeliveryId) -> Result<bool, Error> {
        let sql = format!(
            "-- deliveries::resend
            WITH before AS (
                SELECT d.delivery_id, {UNDER_WAY_CONDITION} AS under_way FROM deliveries d
                JOIN destinations t USING (destination_id) JOIN applications a ON a.app_id = d.app_id
                WHERE d.delivery_id = $2 AND ($1::uuid IS NULL OR a.device_id = $1) AND t.disabled_at IS NULL
                    AND coalesce(t.expires_at, 'infinity') > now() FOR UPDATE OF d
            ), again AS (
                UPDATE deliveries d SET state = 'pending', due_at = now(), attempts_before = d.attempt,
                    finished_at = NULL, purge_at = NULL
                FROM before b WHERE d.delivery_id = b.delivery_id AND NOT b.under_way
                RETURNING d.app_id, d.type)
            SELECT again.app_id, again.type FROM before LEFT JOIN again ON true"
        );
        let device = owner.map(|owner| owner.device_id.uuid());
        let params: [&(dyn ToSql + Sync); 2] = [&device, &delivery_id.uuid()];
        let row = match owner {
            None => self.durable_opt(&sql, &params).await?,
            Some(owner) => {
                let again = |row: &Row| {
                    let Some(app_id) = row.try_get::<_, Option<Uuid>>(0)? else { return Ok(None) };
                    let about = Some(delivery_id.to_string());
                    Ok(Some(note(Some(app_id.into()), ActivityKind::DeliveryResent, about, row.try_get(1)?)))
                };
                self.execute_with_activity(owner, &sql, &params, again).await?
            }
        };
        self.notifier().notify_any();
        Ok(row.is_some())
    }

    /// How many deliveries of a callback failed since a time. Without a device it may be anybody's callback.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn count_failed_deliveries(
        &self,
        device_id: Option<DeviceId>,
        app_id: ApplicationId,
        since: Timestamp,
    ) -> Result<u32, Error> {
        let sql = format!(
            "-- deliveries::count_failed
            SELECT count(*) FROM ({FAILED_DELIVERIES_SQL} {UNDER_WAY_CONDITION}) f
                WHERE ($1::uuid IS NULL OR a.device_id = $1) AND t.app_id = $2 AND t.kind = 'callback') failed"
        );
        let device = device_id.map(DeviceId::uuid);
        let row = self.durable_one(&sql, &[&device, &app_id.uuid(), &since.0]).await?;
        Ok(u32::try_from(row.try_get::<_, i64>(0)?).unwrap_or(u32::MAX))
    }

    /// Makes them due now. Returns how many.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn recover_deliveries(
        &self,
        owner: Option<Owner>,
        app_id: ApplicationId,
        since: Timestamp,
    ) -> Result<u32, Error> {
        let sql = format!(
            "-- deliveries::recover
            WITH again AS (
                UPDATE deliveries d SET state = 'pending', due_at = now(), attempts_before = d.attempt,
                    finished_at = NULL, purge_at = NULL
                WHERE d.state IN ('exhausted', 'pending') AND d.delivery_id IN (
                    {FAILED_DELIVERIES_SQL} {UNDER_WAY_CONDITION}) f
                    WHERE ($1::uuid IS NULL OR a.device_id = $1) AND t.app_id = $2 AND t.kind = 'callback')
                RETURNING 1)
            SELECT count(*) FROM again"
        );
        let device = owner.map(|owner| owner.device_id.uuid());
        let params: [&(dyn ToSql + Sync); 3] = [&device, &app_id.uuid(), &since.0];
        let row = match owner {
            None => self.durable_opt(&sql, &params).await?,
            Some(owner) => {
                let again = |row: &Row| {
                    let count = row.try_get::<_, i64>(0)?;
                    let name = count.to_string();
                    Ok((count > 0).then(|| note(Some(app_id), ActivityKind::DeliveriesRecovered, None, &name)))
                };
                self.execute_with_activity(owner, &sql, &params, again).await?
            }
        };
        self.notifier().notify_any();
        let count = row.map(|row| row.try_get::<_, i64>(0)).transpose()?.unwrap_or_default();
        Ok(u32::try_from(count).unwrap_or(u32::MAX))
    }
}

fn note(app_id: Option<ApplicationId>, what: ActivityKind, about: Option<String>, name: &str) -> ActivityEntry {
    ActivityEntry { app_id, what, about, name: Some(name.to_owned()) }
}
