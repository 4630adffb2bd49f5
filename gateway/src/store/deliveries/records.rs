//! The deliveries that callers and owners read.

use deskgate_protocol::delivery::{Delivery, DeliveryState};
use deskgate_protocol::management::{DeliveryAttempt, DeliveryDetail, DeliveryPage, ListDeliveries, OwnDelivery};
use deskgate_protocol::{ApplicationId, DeliveryId, DeviceId, EndpointId, RunId};
use tokio_postgres::types::ToSql;
use tokio_postgres::{IsolationLevel, Row};
use uuid::Uuid;

use crate::store::columns::word;
use crate::store::{Error, Page, PagePosition, Store, with_timeout};

/// The filter of a caller's list.
#[derive(Clone, Debug)]
pub struct DeliveryQuery<'a> {
    /// The application.
    pub app_id: ApplicationId,
    /// The subject of the runs.
    pub subject: &'a str,
    /// Only entries after this position, newest first.
    pub before: Option<PagePosition>,
    /// Only of runs and conversations of these services; empty: of all.
    pub endpoints: Vec<EndpointId>,
    /// Only of this run.
    pub run_id: Option<RunId>,
    /// Only in this state.
    pub state: Option<DeliveryState>,
}

/// The most deliveries on one page of an owner's list.
const MAX_PAGE_DELIVERIES: u32 = 100;

/// A delivery `d` with its destination `t` and its last attempt `x`.
const DELIVERY_SELECT_SQL: &str = "SELECT d.*, t.kind AS destination_kind, coalesce(x.host, t.host) AS url_host,
        x.took_ms, x.status_code, x.error_code
    FROM deliveries d JOIN destinations t USING (destination_id)
    LEFT JOIN delivery_attempts x ON x.delivery_id = d.delivery_id AND x.attempt = d.attempt";

/// The deliveries of a page of a device: the newest among the newest of each of its applications, so that other
/// devices' are not read. An application is selected by a range and by the order, which only its own index has: with
/// `=` the planner may walk all rows by the key of the table, as it does not know whose deliveries are the newest.
const OF_DEVICE_SQL: &str = "-- deliveries::own
    WITH newest AS (
        SELECT o.delivery_id FROM applications a CROSS JOIN LATERAL (
            SELECT d.delivery_id FROM deliveries d
            WHERE (d.app_id, d.delivery_id) < (a.app_id, $1::uuid) AND d.app_id >= a.app_id
                AND ($4::uuid IS NULL OR d.run_id = $4) AND ($5::text IS NULL OR d.state = $5)
            ORDER BY d.app_id DESC, d.delivery_id DESC LIMIT $6) o
        WHERE a.device_id = $2 AND ($3::uuid IS NULL OR a.app_id = $3)
        ORDER BY o.delivery_id DESC LIMIT $6)";

/// The same for all devices.
const OF_ALL_SQL: &str = "-- deliveries::of_all
    WITH newest AS (
        SELECT d.delivery_id FROM deliveries d
        WHERE d.delivery_id < $1 AND $2::uuid IS NULL AND ($3::uuid IS NULL OR d.app_id = $3)
            AND ($4::uuid IS NULL OR d.run_id = $4) AND ($5::text IS NULL OR d.state = $5)
        ORDER BY d.delivery_id DESC LIMIT $6)";

impl Store {
    /// A page of a caller's deliveries, newest first. Deliveries to listeners are left out.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn deliveries_of_caller(&self, sought: &DeliveryQuery<'_>, limit: u32) -> Result<Page<Delivery>, Error> {
        let sql = format!(
            "-- deliveries::of_caller
            {DELIVERY_SELECT_SQL}
            WHERE d.app_id = $1 AND d.subject = $2 AND (d.created_at, d.delivery_id) < ($3, $4) AND t.kind = 'callback'
                AND ($5::uuid IS NULL OR d.run_id = $5) AND ($6::text IS NULL OR d.state = $6)
                AND ($7::uuid[] IS NULL
                    OR EXISTS (SELECT FROM runs r WHERE r.run_id = d.run_id AND r.endpoint_id = ANY($7))
                    OR EXISTS (SELECT FROM conversations c
                        WHERE c.conversation_id = d.conversation_id AND c.endpoint_id = ANY($7)))
            ORDER BY d.created_at DESC, d.delivery_id DESC LIMIT $8"
        );
        let before = sought.before.unwrap_or(PagePosition::LIST_START);
        let endpoints: Vec<_> = sought.endpoints.iter().map(|id| id.uuid()).collect();
        let endpoints = Some(endpoints).filter(|endpoints| !endpoints.is_empty());
        let (app_id, run_id) = (sought.app_id.uuid(), sought.run_id.map(RunId::uuid));
        let state = sought.state.map(DeliveryState::as_str);
        // One more shows whether there are more.
        let count = i64::from(limit) + 1;
        let params: [&(dyn ToSql + Sync); 8] =
            [&app_id, &sought.subject, &before.moment, &before.id, &run_id, &state, &endpoints, &count];
        let rows = self.filtered_rows(&sql, &params).await?;
        let read = rows.iter().map(delivery).collect::<Result<_, _>>()?;
        Ok(Page::of(read, limit, |read: &Delivery| PagePosition {
            moment: read.created_at.0,
            id: read.delivery_id.uuid(),
        }))
    }

    /// A page of the deliveries of a device's applications, newest first; without a device of all, for the
    /// administrator.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn own_deliveries(
        &self,
        device_id: Option<DeviceId>,
        sought: &ListDeliveries,
    ) -> Result<DeliveryPage, Error> {
        let newest = match device_id {
            Some(_) => OF_DEVICE_SQL,
            None => OF_ALL_SQL,
        };
        let sql = format!(
            "{newest} {DELIVERY_SELECT_SQL} WHERE d.delivery_id = ANY(ARRAY(SELECT * FROM newest)) ORDER BY d.delivery_id DESC"
        );
        let before = sought.before.map_or(Uuid::max(), DeliveryId::uuid);
        let (device, app) = (device_id.map(DeviceId::uuid), sought.app_id.map(ApplicationId::uuid));
        let (run, state) = (sought.run_id.map(RunId::uuid), sought.state.map(DeliveryState::as_str));
        let limit = sought.limit.clamp(1, MAX_PAGE_DELIVERIES);
        // One more shows whether there are more.
        let params: [&(dyn ToSql + Sync); 6] = [&before, &device, &app, &run, &state, &(i64::from(limit) + 1)];
        let rows = self.filtered_rows(&sql, &params).await?;
        let mut deliveries = rows.iter().map(own).collect::<Result<Vec<_>, _>>()?;
        let is_full = deliveries.len() > limit as usize;
        deliveries.truncate(limit as usize);
        let next = deliveries.last().filter(|_| is_full).map(|last| last.delivery.delivery_id);
        Ok(DeliveryPage { deliveries, next })
    }

    /// One delivery with its attempts; without a device it may be anybody's.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn own_delivery(
        &self,
        device_id: Option<DeviceId>,
        delivery_id: DeliveryId,
    ) -> Result<Option<DeliveryDetail>, Error> {
        let sql = format!(
            "-- deliveries::one
            {DELIVERY_SELECT_SQL} JOIN applications a ON a.app_id = d.app_id
            WHERE d.delivery_id = $1 AND ($2::uuid IS NULL OR a.device_id = $2)"
        );
        let (id, device) = (delivery_id.uuid(), device_id.map(DeviceId::uuid));
        with_timeout(async {
            let mut client = self.client().await?;
            // One snapshot for both, so that they never contradict each other.
            let building = client.build_transaction().isolation_level(IsolationLevel::RepeatableRead).read_only(true);
            let transaction = building.start().await?;
            let row = transaction.query_opt(&sql, &[&id, &device]).await?;
            let sql = "-- deliveries::attempts
                SELECT * FROM delivery_attempts WHERE delivery_id = $1 ORDER BY attempt DESC LIMIT 100";
            let attempts = match &row {
                Some(_) => transaction.query(sql, &[&id]).await?,
                None => Vec::new(),
            };
            transaction.commit().await?;
            client.give_back();
            let Some(row) = row else { return Ok(None) };
            let attempts = attempts.iter().rev().map(attempt).collect::<Result<_, _>>()?;
            Ok(Some(DeliveryDetail { delivery: own(&row)?, attempts }))
        })
        .await
    }
}

fn own(row: &Row) -> Result<OwnDelivery, Error> {
    Ok(OwnDelivery {
        app_id: row.try_get::<_, Uuid>("app_id")?.into(),
        subject: row.try_get("subject")?,
        to: word(row.try_get("destination_kind")?)?,
        delivery: delivery(row)?,
    })
}

fn delivery(row: &Row) -> Result<Delivery, Error> {
    let id = |name| row.try_get::<_, Option<Uuid>>(name);
    let moment = |name| row.try_get::<_, Option<jiff::Timestamp>>(name).map(|time| time.map(Into::into));
    Ok(Delivery {
        delivery_id: row.try_get::<_, Uuid>("delivery_id")?.into(),
        event_id: row.try_get::<_, Uuid>("event_id")?.into(),
        run_id: id("run_id")?.map(Into::into),
        conversation_id: id("conversation_id")?.map(Into::into),
        sequence: row.try_get::<_, Option<i64>>("sequence")?.map(i64::unsigned_abs),
        kind: word(row.try_get("type")?)?,
        url_host: row.try_get("url_host")?,
        state: word(row.try_get("state")?)?,
        attempt: row.try_get::<_, i32>("attempt")?.unsigned_abs(),
        status_code: status_code(row)?,
        duration_ms: duration_ms(row)?,
        error_code: row.try_get::<_, Option<&str>>("error_code")?.map(word).transpose()?,
        next_attempt_at: moment("due_at")?,
        created_at: row.try_get::<_, jiff::Timestamp>("created_at")?.into(),
        finished_at: moment("finished_at")?,
    })
}

fn attempt(row: &Row) -> Result<DeliveryAttempt, Error> {
    Ok(DeliveryAttempt {
        attempt: row.try_get::<_, i32>("attempt")?.unsigned_abs(),
        started_at: row.try_get::<_, jiff::Timestamp>("started_at")?.into(),
        url_host: row.try_get("host")?,
        duration_ms: duration_ms(row)?,
        status_code: status_code(row)?,
        error_code: row.try_get::<_, Option<&str>>("error_code")?.map(word).transpose()?,
        answer: row.try_get("answer")?,
    })
}

fn duration_ms(row: &Row) -> Result<Option<u32>, Error> {
    Ok(row.try_get::<_, Option<i32>>("took_ms")?.map(i32::unsigned_abs))
}

fn status_code(row: &Row) -> Result<Option<u16>, Error> {
    Ok(row.try_get::<_, Option<i32>>("status_code")?.and_then(|code| u16::try_from(code).ok()))
}
