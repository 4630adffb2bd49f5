//! Claims due deliveries. One statement claims a delivery and records the start of its attempt, so an attempt in which
//! the gateway dies stays in the record without an outcome, and the next begins when its lease is over.

use std::time::Duration;

use deskgate_protocol::delivery::CallbackEvent;
use deskgate_protocol::management::CallbackFormat;
use deskgate_protocol::{ConversationId, DeliveryId, DestinationId, EventId, RunId, Timestamp};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::store::columns::word;
use crate::store::{Error, Store};

/// A delivery that this replica may attempt, until its lease is over.
#[derive(Clone, Debug)]
pub struct ClaimedDelivery {
    /// Its identifier.
    pub delivery_id: DeliveryId,
    /// Its destination.
    pub destination_id: DestinationId,
    /// The number of the attempt.
    pub attempt: u32,
    /// Its position in the schedule, counted from 1.
    pub turn: u32,
    /// The event.
    pub event_id: EventId,
    /// The event's type.
    pub kind: CallbackEvent,
    /// The event's time.
    pub event_at: Timestamp,
    /// The event's number in its run.
    pub sequence: Option<u64>,
    /// The subject of the event.
    pub about: DeliverySubject,
    /// The moment of the claim.
    pub at: Timestamp,
    /// The caller's trace.
    pub traceparent: Option<String>,
    /// The address, if it is a callback's.
    pub url: Option<String>,
    /// Whether its host is allowed, at the moment of the claim.
    pub allowed: bool,
    /// The signing secrets, encrypted, the newest first.
    pub sealed_secrets: Vec<Vec<u8>>,
    /// Whether the beginning of the answer is stored.
    pub keep_answers: bool,
    /// The form of the ends of runs.
    pub format: CallbackFormat,
}

impl ClaimedDelivery {
    /// The run of the event.
    pub fn run_id(&self) -> Option<RunId> {
        match self.about {
            DeliverySubject::Run(run_id) => Some(run_id),
            _ => None,
        }
    }

    /// The conversation of the event.
    pub fn conversation_id(&self) -> Option<ConversationId> {
        match self.about {
            DeliverySubject::Conversation(conversation_id) => Some(conversation_id),
            _ => None,
        }
    }
}

/// The subject of a delivery's event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeliverySubject {
    /// A run.
    Run(RunId),
    /// A conversation.
    Conversation(ConversationId),
    /// Sample data that is not stored elsewhere, as JSON.
    Said(String),
}

/// The capacity of a destination for deliveries.
#[derive(Clone, Copy, Debug)]
pub struct DestinationCapacity {
    /// The destination.
    pub destination_id: DestinationId,
    /// The number of further deliveries.
    pub free: u32,
}

/// Due deliveries of enabled callbacks. Destinations with pending deliveries are found by steps from one to the next
/// along the index, so one with a long queue costs no more than one with a short one.
const CLAIM_DUE_SQL: &str = "-- deliveries::claim
    WITH RECURSIVE waiting AS (
        (SELECT destination_id FROM deliveries WHERE state = 'pending' ORDER BY destination_id LIMIT 1)
        UNION ALL
        SELECT (SELECT n.destination_id FROM deliveries n
            WHERE n.state = 'pending' AND n.destination_id > w.destination_id ORDER BY n.destination_id LIMIT 1)
        FROM waiting w WHERE w.destination_id IS NOT NULL
    ), due AS MATERIALIZED (
        SELECT d.delivery_id, d.due_at, d.run_id, d.data FROM waiting w
        JOIN destinations t ON t.destination_id = w.destination_id AND t.kind = 'callback' AND t.disabled_at IS NULL
        LEFT JOIN unnest($3::uuid[], $4::int[]) AS known(destination_id, free)
            ON known.destination_id = w.destination_id
        CROSS JOIN LATERAL (
            SELECT delivery_id, due_at, run_id, data FROM deliveries
            WHERE destination_id = w.destination_id AND state = 'pending' AND due_at <= now()
            ORDER BY due_at LIMIT coalesce(known.free, $5) FOR UPDATE SKIP LOCKED) d
        ORDER BY d.due_at LIMIT $1)";

/// Due deliveries of one listener.
const CLAIM_FOR_LISTENER_SQL: &str = "-- deliveries::claim_for_listener
    WITH due AS MATERIALIZED (
        SELECT delivery_id, due_at, run_id, data FROM deliveries
        WHERE destination_id = $3 AND state = 'pending' AND due_at <= now()
        ORDER BY due_at LIMIT $1 FOR UPDATE SKIP LOCKED)";

/// The statement that claims due deliveries, the longest due first, as long as the earlier ones have fewer bytes than
/// that parameter: each is read whole, and a run can be large.
fn take(due: &str, bytes: &str) -> String {
    format!(
        "{due}, sized AS (
            SELECT due.delivery_id, due.due_at, coalesce(octet_length(due.data), (
                SELECT coalesce(octet_length(r.input::text), 0) + coalesce(octet_length(r.result::text), 0)
                    + coalesce(octet_length(r.error::text), 0)
                FROM runs r WHERE r.run_id = due.run_id), 0) AS bytes
            FROM due
        ), fitting AS (
            SELECT delivery_id, sum(bytes) OVER (ORDER BY due_at, delivery_id) - bytes AS before FROM sized
        ), taken AS (
            UPDATE deliveries d SET attempt = d.attempt + 1, due_at = now() + make_interval(secs => $2)
            FROM fitting f WHERE d.delivery_id = f.delivery_id AND f.before < {bytes} RETURNING d.*
        ), begun AS (
            INSERT INTO delivery_attempts (delivery_id, attempt, host)
            SELECT d.delivery_id, d.attempt, t.host FROM taken d JOIN destinations t USING (destination_id))
        SELECT d.*, now() AS taken_at, t.url, t.sealed_secret, t.keep_answers, t.format,
            CASE WHEN t.old_secret_until > now() THEN t.sealed_old_secret END AS sealed_old_secret,
            EXISTS (SELECT FROM allowed_hosts h WHERE h.host = t.host) AS allowed
        FROM taken d JOIN destinations t USING (destination_id)"
    )
}

impl Store {
    /// Claims at most `limit` deliveries that are due at callbacks, the longest due first: for the destinations in
    /// `known` as many as their capacity, for the others `usual` each. Their objects have at most `bytes` and one more
    /// run.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn claim_deliveries(
        &self,
        limit: u32,
        bytes: usize,
        known: &[DestinationCapacity],
        usual: u32,
        lease: Duration,
    ) -> Result<Vec<ClaimedDelivery>, Error> {
        let sql = take(CLAIM_DUE_SQL, "$6::int8");
        let ids: Vec<Uuid> = known.iter().map(|room| room.destination_id.uuid()).collect();
        let free: Vec<i32> = known.iter().map(|room| i32::try_from(room.free).unwrap_or(i32::MAX)).collect();
        let rows = self
            .relaxed_rows(
                &sql,
                &[
                    &i64::from(limit),
                    &lease.as_secs_f64(),
                    &ids,
                    &free,
                    &i32::try_from(usual).unwrap_or(i32::MAX),
                    &i64::try_from(bytes).unwrap_or(i64::MAX),
                ],
            )
            .await?;
        rows.iter().map(claimed).collect()
    }

    /// Claims at most `limit` deliveries that are due at a listener, bounded by `bytes` likewise.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn claim_for_listener(
        &self,
        listener_id: DestinationId,
        limit: u32,
        bytes: usize,
        lease: Duration,
    ) -> Result<Vec<ClaimedDelivery>, Error> {
        let sql = take(CLAIM_FOR_LISTENER_SQL, "$4::int8");
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        let rows =
            self.relaxed_rows(&sql, &[&i64::from(limit), &lease.as_secs_f64(), &listener_id.uuid(), &bytes]).await?;
        rows.iter().map(claimed).collect()
    }
}

/// The deliveries that a listener holds.
const HELD_BY_LISTENER_SQL: &str = "-- deliveries::held_by_listener
    SELECT d.*, now() AS taken_at, t.url, t.sealed_secret, t.keep_answers, t.format, NULL::bytea AS sealed_old_secret,
        true AS allowed
    FROM deliveries d JOIN destinations t USING (destination_id)
    WHERE d.delivery_id = $1 AND d.destination_id = $2 AND d.attempt = $3 AND t.kind = 'listener'
        AND EXISTS (SELECT FROM delivery_attempts x
            WHERE x.delivery_id = d.delivery_id AND x.attempt = d.attempt AND x.took_ms IS NULL)";

impl Store {
    /// The delivery that was handed out to a listener, if that attempt is the newest and has no outcome yet.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn held_by_listener(
        &self,
        listener_id: DestinationId,
        delivery_id: DeliveryId,
        attempt: u32,
    ) -> Result<Option<ClaimedDelivery>, Error> {
        let attempt = i32::try_from(attempt).unwrap_or(i32::MAX);
        let rows =
            self.relaxed_rows(HELD_BY_LISTENER_SQL, &[&delivery_id.uuid(), &listener_id.uuid(), &attempt]).await?;
        rows.first().map(claimed).transpose()
    }
}

fn claimed(row: &Row) -> Result<ClaimedDelivery, Error> {
    let id = |name| row.try_get::<_, Option<Uuid>>(name);
    let about = match (id("run_id")?, id("conversation_id")?, row.try_get::<_, Option<String>>("data")?) {
        (Some(run_id), ..) => DeliverySubject::Run(run_id.into()),
        (_, Some(conversation_id), _) => DeliverySubject::Conversation(conversation_id.into()),
        (.., data) => DeliverySubject::Said(data.unwrap_or_default()),
    };
    let secrets = [row.try_get("sealed_secret")?, row.try_get::<_, Option<Vec<u8>>>("sealed_old_secret")?];
    let attempt = row.try_get::<_, i32>("attempt")?;
    Ok(ClaimedDelivery {
        delivery_id: row.try_get::<_, Uuid>("delivery_id")?.into(),
        destination_id: row.try_get::<_, Uuid>("destination_id")?.into(),
        attempt: attempt.unsigned_abs(),
        turn: attempt.saturating_sub(row.try_get::<_, i32>("attempts_before")?).unsigned_abs(),
        event_id: row.try_get::<_, Uuid>("event_id")?.into(),
        kind: word(row.try_get("type")?)?,
        event_at: row.try_get::<_, jiff::Timestamp>("event_at")?.into(),
        sequence: row.try_get::<_, Option<i64>>("sequence")?.map(i64::unsigned_abs),
        about,
        at: row.try_get::<_, jiff::Timestamp>("taken_at")?.into(),
        traceparent: row.try_get("traceparent")?,
        url: row.try_get("url")?,
        allowed: row.try_get("allowed")?,
        sealed_secrets: secrets.into_iter().flatten().collect(),
        keep_answers: row.try_get("keep_answers")?,
        format: word(row.try_get("format")?)?,
    })
}
