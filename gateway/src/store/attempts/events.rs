//! A device's events during an execution.

use std::collections::HashMap;

use deadpool_postgres::GenericClient;
use deskgate_protocol::EventId;
use deskgate_protocol::run::EventType;
use serde_json::Value;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::AttemptUpdate;
use super::batches::{Changed, Fences, ReportedRecord, number};
use crate::store::Error;

/// The device's numbers are dense, so each event's sequence follows from the last one's. Numbers that were stored
/// before map to existing sequences, which stay as they are.
///
/// The states are a parameter, so that the index of started runs is no way to one of them.
const STORE_EVENTS_SQL: &str = "-- attempts::events
    WITH moved AS (
        UPDATE runs r SET device_seq = s.last, last_sequence = last_sequence + (s.last - device_seq),
            model_unavailable_since = CASE s.unavailable WHEN true THEN coalesce(model_unavailable_since, now())
                WHEN false THEN NULL ELSE model_unavailable_since END
        FROM unnest($1::uuid[], $2::integer[], $3::uuid[], $4::bigint[], $5::bigint[], $6::bigint[], $7::boolean[])
            AS s (run_id, attempt, device_id, epoch, first, last, unavailable)
        WHERE r.run_id = ANY ($1) AND r.run_id = s.run_id AND r.attempt = s.attempt AND r.device_id = s.device_id
            AND r.epoch = s.epoch
            AND r.state = ANY ($8) AND device_seq BETWEEN s.first - 1 AND s.last - 1
        RETURNING r.run_id, last_sequence - s.last AS shift
    ), stored AS (
        INSERT INTO run_events (run_id, sequence, event_id, type, data)
        SELECT run_id, shift + e.seq, e.event_id, e.type, e.data::json
        FROM moved JOIN unnest($9::uuid[], $10::bigint[], $11::uuid[], $12::text[], $13::text[])
            AS e (run_id, seq, event_id, type, data) USING (run_id)
        ON CONFLICT (run_id, sequence) DO NOTHING)
    SELECT run_id, NULL::float8 FROM moved";

/// The states in which a device may report events.
const REPORTING_STATES: [&str; 4] = ["running", "awaiting_approval", "awaiting_reconciliation", "cancelling"];

/// Columns of `run_events`, each event with the run and a number that gives its place there.
#[derive(Default)]
pub(super) struct EventColumns {
    pub runs: Vec<Uuid>,
    pub numbers: Vec<i64>,
    pub ids: Vec<Uuid>,
    pub types: Vec<&'static str>,
    pub data: Vec<String>,
}

impl EventColumns {
    pub(super) fn push(&mut self, run_id: Uuid, number: i64, kind: EventType, data: String) {
        self.runs.push(run_id);
        self.numbers.push(number);
        self.ids.push(EventId::new().uuid());
        self.types.push(kind.as_str());
        self.data.push(data);
    }
}

/// Stores events of these attempts, each of another run.
pub(super) async fn store(client: &impl GenericClient, records: &[ReportedRecord<'_>]) -> Result<Changed, Error> {
    if records.is_empty() {
        return Ok(HashMap::new());
    }
    let (mut firsts, mut lasts, mut unavailable) = (Vec::new(), Vec::new(), Vec::new());
    let mut columns = EventColumns::default();
    for reported in records {
        let AttemptUpdate::Events { first, events } = &reported.record.what else { continue };
        let first = number(*first);
        let mut last = first;
        for (place, (kind, data)) in (0..).zip(events) {
            last = first.saturating_add(place);
            columns.push(reported.record.run_id.uuid(), last, *kind, data.to_string());
        }
        firsts.push(first);
        lasts.push(last);
        unavailable.push(model_is_unavailable(events));
    }
    let EventColumns { runs, numbers, ids, types, data } = &columns;
    let states = REPORTING_STATES.as_slice();
    let rest: [&(dyn ToSql + Sync); 9] = [&firsts, &lasts, &unavailable, &states, runs, numbers, ids, types, data];
    Fences::of(records).change(client, STORE_EVENTS_SQL, &rest).await
}

/// Whether the model can no longer be used after these events; `None`: they do not say.
pub(super) fn model_is_unavailable(events: &[(EventType, Value)]) -> Option<bool> {
    let (_, data) = events.iter().rfind(|(kind, _)| *kind == EventType::UsageUpdated)?;
    Some(data["model_unavailable"] == true)
}
