//! A device that was cut off is back: what becomes of the run that it held.

use std::time::Duration;

use deadpool_postgres::GenericClient;
use deskgate_protocol::EventId;
use deskgate_protocol::run::{Effects, EventType, RunState};
use serde_json::json;
use tokio_postgres::Row;

use super::{Fence, one, words};
use crate::store::Error;

/// What was to be stopped meanwhile is still to be stopped. Only the row itself says so in time.
pub(super) const RECONCILE: &str = "-- attempts::reconcile
    WITH moved AS (
        UPDATE runs SET last_sequence = last_sequence + 1,
            state = CASE WHEN stop_operation_id IS NOT NULL THEN 'cancelling' ELSE 'running' END
        WHERE run_id = $1 AND attempt = $2 AND device_id = $3 AND epoch = $4 AND state = 'awaiting_reconciliation'
        RETURNING run_id, last_sequence, state)
    INSERT INTO run_events (run_id, sequence, event_id, type, data)
    SELECT run_id, last_sequence, $5, $6, json_build_object('state', state) FROM moved RETURNING 1";

pub(super) const RESTART: &str = "-- attempts::restart
    WITH moved AS (
        UPDATE runs SET state = CASE WHEN stop_operation_id IS NOT NULL THEN 'cancelling' ELSE 'running' END,
            attempt = attempt + 1, device_seq = 0, last_sequence = last_sequence + 1
        WHERE run_id = $1 AND attempt = $2 AND device_id = $3 AND epoch = $4
            AND state IN ('running', 'awaiting_reconciliation', 'cancelling')
        RETURNING run_id, last_sequence)
    INSERT INTO run_events (run_id, sequence, event_id, type, data)
    SELECT run_id, last_sequence, $5, $6, $7::text::json FROM moved RETURNING 1";

pub(super) const CANCEL: &str = "-- attempts::cancel
    WITH ended AS (
        UPDATE runs SET state = 'cancelled', finished_at = now(), purge_at = now() + make_interval(secs => $8),
            last_sequence = last_sequence + 1
        WHERE run_id = $1 AND attempt = $2 AND device_id = $3 AND epoch = $4
            AND state IN ('cancelling', 'awaiting_reconciliation') AND stop_operation_id IS NOT NULL
        RETURNING run_id, last_sequence)
    INSERT INTO run_events (run_id, sequence, event_id, type, data)
    SELECT run_id, last_sequence, $5, $6, $7::text::json FROM ended RETURNING 1";

pub(super) const LOSE: &str = "-- attempts::lose
    WITH moved AS (
        UPDATE runs SET state = $9, last_sequence = last_sequence + 1
        WHERE run_id = $1 AND attempt = $2 AND device_id = $3 AND epoch = $4 AND state = ANY($8)
        RETURNING run_id, last_sequence)
    INSERT INTO run_events (run_id, sequence, event_id, type, data)
    SELECT run_id, last_sequence, $5, $6, $7::text::json FROM moved RETURNING 1";

/// The device still executes it.
pub(super) async fn reconcile(client: &impl GenericClient, fence: &Fence<'_>) -> Result<Option<Row>, Error> {
    one(client, RECONCILE, fence, &[&EventId::new().uuid(), &EventType::RunReconciled.as_str()]).await
}

/// The device starts it again, as the attempt after this one.
pub(super) async fn restart(
    client: &impl GenericClient,
    fence: &Fence<'_>,
    attempt: u32,
) -> Result<Option<Row>, Error> {
    let (event_id, data) = (EventId::new().uuid(), json!({ "attempt": attempt.saturating_add(1) }).to_string());
    one(client, RESTART, fence, &[&event_id, &EventType::RunRestarted.as_str(), &data]).await
}

/// It was to be stopped, and nothing of it was executed that could have changed anything.
pub(super) async fn cancel(
    client: &impl GenericClient,
    fence: &Fence<'_>,
    retention: Duration,
) -> Result<Option<Row>, Error> {
    let (event_id, data) = (EventId::new().uuid(), json!({ "effects": Effects::None }).to_string());
    one(client, CANCEL, fence, &[&event_id, &EventType::RunCancelled.as_str(), &data, &retention.as_secs_f64()]).await
}

/// The device knows nothing of it.
pub(super) async fn lose(client: &impl GenericClient, fence: &Fence<'_>) -> Result<Option<Row>, Error> {
    let from = words(RunState::AwaitingReconciliation.predecessors());
    let kind = EventType::RunAwaitingReconciliation.as_str();
    let data = json!({ "reason": "the device no longer knows this run" }).to_string();
    let to = RunState::AwaitingReconciliation.as_str();
    one(client, LOSE, fence, &[&EventId::new().uuid(), &kind, &data, &from, &to]).await
}
