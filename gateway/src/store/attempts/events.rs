//! A device's events during an execution.

use deadpool_postgres::GenericClient;
use deskgate_protocol::EventId;
use deskgate_protocol::run::EventType;
use serde_json::Value;
use tokio_postgres::Row;

use super::{AttemptFence, one};
use crate::store::Error;

/// The device's numbers are dense, so each event's sequence follows from the last one's. Numbers that were stored
/// before map to existing sequences, which stay as they are.
pub(super) const STORE_EVENTS_SQL: &str = "-- attempts::events
    WITH moved AS (
        UPDATE runs SET device_seq = $6::bigint, last_sequence = last_sequence + ($6::bigint - device_seq),
            model_unavailable_since = CASE $11::boolean WHEN true THEN coalesce(model_unavailable_since, now())
                WHEN false THEN NULL ELSE model_unavailable_since END
        WHERE run_id = $1 AND attempt = $2 AND device_id = $3 AND epoch = $4
            AND state IN ('running', 'awaiting_approval', 'awaiting_reconciliation', 'cancelling')
            AND device_seq BETWEEN $5::bigint - 1 AND $6::bigint - 1
        RETURNING run_id, last_sequence - $6::bigint AS shift
    ), stored AS (
        INSERT INTO run_events (run_id, sequence, event_id, type, data)
        SELECT run_id, shift + e.seq, e.event_id, e.type, e.data::json
        FROM moved, unnest($7::bigint[], $8::uuid[], $9::text[], $10::text[]) AS e(seq, event_id, type, data)
        ON CONFLICT (run_id, sequence) DO NOTHING)
    SELECT 1 FROM moved";

/// Stores events with dense numbers from `first`.
pub(super) async fn store(
    client: &impl GenericClient,
    fence: &AttemptFence<'_>,
    first: u64,
    events: &[(EventType, Value)],
) -> Result<Option<Row>, Error> {
    let first = i64::try_from(first).unwrap_or(i64::MAX);
    let numbers: Vec<i64> = (0..).take(events.len()).map(|place| first.saturating_add(place)).collect();
    let last = numbers.last().copied().unwrap_or(first);
    let ids: Vec<_> = events.iter().map(|_| EventId::new().uuid()).collect();
    let types: Vec<_> = events.iter().map(|(kind, _)| kind.as_str()).collect();
    let data: Vec<_> = events.iter().map(|(_, data)| data.to_string()).collect();
    let unavailable = model_is_unavailable(events);
    one(client, STORE_EVENTS_SQL, fence, &[&first, &last, &numbers, &ids, &types, &data, &unavailable]).await
}

/// Whether the model can no longer be used after these events; `None`: they do not say.
fn model_is_unavailable(events: &[(EventType, Value)]) -> Option<bool> {
    let (_, data) = events.iter().rfind(|(kind, _)| *kind == EventType::UsageUpdated)?;
    Some(data["model_unavailable"] == true)
}
