//! The outcomes of attempts. Only the newest attempt of a pending delivery changes it; every attempt's own record is
//! completed once. The consequences for a callback are drawn in the same commit.

use std::time::Duration;

use deskgate_protocol::delivery::{DeliveryErrorCode, DeliveryState};
use deskgate_protocol::management::CallbackOff;
use deskgate_protocol::{ApplicationId, DeliveryId};
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::store::columns::word;
use crate::store::{Error, Store};

/// The outcome of one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptOutcome {
    /// The delivery.
    pub delivery_id: DeliveryId,
    /// The attempt.
    pub attempt: u32,
    /// How long it took.
    pub took: Duration,
    /// The answer's status code.
    pub status_code: Option<u16>,
    /// Why there was no usable answer.
    pub error_code: Option<DeliveryErrorCode>,
    /// The beginning of the answer, if it is stored.
    pub answer: Option<String>,
    /// What follows for the delivery.
    pub becomes: Disposition,
}

/// What follows for a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// It was delivered.
    Delivered,
    /// It is attempted again after this time.
    Again(Duration),
    /// It is given up.
    Exhausted,
    /// It cannot be delivered any more.
    Discarded,
    /// This replica cannot attempt it: it is due for the others, and the attempt never was.
    GivenBack,
}

impl Disposition {
    /// The delivery's state after it.
    pub fn state(self) -> DeliveryState {
        match self {
            Self::Delivered => DeliveryState::Delivered,
            Self::Again(_) | Self::GivenBack => DeliveryState::Pending,
            Self::Exhausted => DeliveryState::Exhausted,
            Self::Discarded => DeliveryState::Discarded,
        }
    }
}

/// A callback that was disabled because of its attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DisabledCallback {
    /// The application.
    pub app_id: ApplicationId,
    /// The reason.
    pub why: CallbackOff,
}

const SETTLE_SQL: &str = "-- deliveries::settle
    WITH told AS (
        SELECT * FROM unnest($1::uuid[], $2::int[], $3::int[], $4::int[], $5::text[], $6::text[], $7::text[], $8::float8[],
            $10::bool[])
            AS told(delivery_id, attempt, took_ms, status_code, error_code, answer, becomes, wait_s, is_given_back)
    ), given_back AS (
        UPDATE deliveries d SET due_at = now(), attempt = d.attempt - 1
        FROM told WHERE told.is_given_back
            AND d.delivery_id = told.delivery_id AND d.attempt = told.attempt AND d.state = 'pending'
        RETURNING d.delivery_id, told.attempt
    ), forgotten AS (
        DELETE FROM delivery_attempts a USING given_back g
        WHERE a.delivery_id = g.delivery_id AND a.attempt = g.attempt
    ), noted AS (
        UPDATE delivery_attempts a SET took_ms = told.took_ms, status_code = told.status_code,
            error_code = told.error_code, answer = told.answer
        FROM told WHERE a.delivery_id = told.delivery_id AND a.attempt = told.attempt AND a.took_ms IS NULL
            AND NOT told.is_given_back
    ), settled AS (
        UPDATE deliveries d SET state = told.becomes,
            due_at = CASE WHEN told.becomes = 'pending' THEN now() + make_interval(secs => told.wait_s) END,
            finished_at = CASE WHEN told.becomes <> 'pending' THEN now() END,
            purge_at = CASE WHEN told.becomes <> 'pending' THEN now() + make_interval(secs => $9) END
        FROM told WHERE d.delivery_id = told.delivery_id AND d.attempt = told.attempt AND d.state = 'pending'
            AND NOT told.is_given_back
        RETURNING d.destination_id, told.becomes, told.status_code
    ), seen AS (
        SELECT destination_id, bool_or(becomes = 'delivered') AS good, coalesce(bool_or(status_code = 410), false) AS gone
        FROM settled WHERE becomes <> 'discarded' GROUP BY destination_id
    ), changing AS (
        -- In one order, so that two replicas never wait for each other; and only where something changes.
        SELECT t.destination_id, s.good, s.gone,
            NOT s.good AND coalesce(t.failing_since < now() - interval '5 days', false) AS failing
        FROM destinations t JOIN seen s USING (destination_id)
        WHERE t.kind = 'callback' AND t.disabled_at IS NULL AND (s.gone OR CASE WHEN s.good
            THEN t.failing_since IS NOT NULL
            ELSE coalesce(t.failing_since < now() - interval '5 days', true) END)
        ORDER BY t.destination_id FOR UPDATE OF t
    ), changed AS (
        UPDATE destinations t SET
            failing_since = CASE WHEN NOT c.good THEN coalesce(t.failing_since, now()) END,
            disabled_at = CASE WHEN c.gone OR c.failing THEN now() END,
            disabled_for = CASE WHEN c.gone THEN 'gone' WHEN c.failing THEN 'failing' END
        FROM changing c WHERE t.destination_id = c.destination_id
        RETURNING t.app_id, t.disabled_for)
    SELECT app_id, disabled_for FROM changed WHERE disabled_for IS NOT NULL";

impl Store {
    /// Stores the outcomes of these attempts. `retention`: how long deliveries that end by it are kept. Returns the
    /// callbacks that are disabled because of it: the receiver answered that it is gone, or failed for five days.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn settle_deliveries(
        &self,
        outcomes: &[AttemptOutcome],
        retention: Duration,
    ) -> Result<Vec<DisabledCallback>, Error> {
        let column = |of: fn(&AttemptOutcome) -> i32| outcomes.iter().map(of).collect::<Vec<_>>();
        let ids: Vec<Uuid> = outcomes.iter().map(|outcome| outcome.delivery_id.uuid()).collect();
        let statuses: Vec<Option<i32>> = outcomes.iter().map(|outcome| outcome.status_code.map(i32::from)).collect();
        let errors: Vec<_> = outcomes.iter().map(|outcome| outcome.error_code.map(DeliveryErrorCode::as_str)).collect();
        let answers: Vec<_> = outcomes.iter().map(|outcome| outcome.answer.as_deref()).collect();
        let becomes: Vec<_> = outcomes.iter().map(|outcome| outcome.becomes.state().as_str()).collect();
        let waits: Vec<f64> = outcomes.iter().map(|outcome| wait_s(outcome.becomes)).collect();
        let given_back: Vec<_> = outcomes.iter().map(|outcome| outcome.becomes == Disposition::GivenBack).collect();
        let params: [&(dyn ToSql + Sync); 10] = [
            &ids,
            &column(|outcome| i32::try_from(outcome.attempt).unwrap_or(i32::MAX)),
            &column(|outcome| i32::try_from(outcome.took.as_millis()).unwrap_or(i32::MAX)),
            &statuses,
            &errors,
            &answers,
            &becomes,
            &waits,
            &retention.as_secs_f64(),
            &given_back,
        ];
        let rows = self.relaxed_rows(SETTLE_SQL, &params).await?;
        self.notifier().notify_any();
        let off = rows
            .iter()
            .map(|row| Ok(DisabledCallback { app_id: row.try_get::<_, Uuid>(0)?.into(), why: word(row.try_get(1)?)? }));
        off.collect()
    }
}

fn wait_s(becomes: Disposition) -> f64 {
    match becomes {
        Disposition::Again(wait) => wait.as_secs_f64(),
        _ => 0.0,
    }
}
