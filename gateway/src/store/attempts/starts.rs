//! A device's answers to an offer: it begins, or it declines.

use std::collections::HashMap;

use deadpool_postgres::GenericClient;
use deskgate_protocol::EventId;
use deskgate_protocol::run::EventType;

use super::Change;
use super::batches::{Changed, Fences, ReportedRecord};
use crate::store::Error;

const START_SQL: &str = "-- attempts::start
    WITH started AS (
        UPDATE runs r SET state = 'running', started_at = now(), offered_until = NULL,
            last_sequence = last_sequence + 1, model_unavailable_since = NULL
        FROM unnest($1::uuid[], $2::integer[], $3::uuid[], $4::bigint[], $5::uuid[])
            AS s (run_id, attempt, device_id, epoch, event_id)
        WHERE r.run_id = ANY ($1) AND r.run_id = s.run_id AND r.attempt = s.attempt AND r.device_id = s.device_id
            AND r.epoch = s.epoch
            AND r.state = 'queued' AND r.offered_until IS NOT NULL
        RETURNING r.run_id, s.event_id, last_sequence, restarts,
            extract(epoch FROM started_at - created_at)::float8 AS seconds
    ), noted AS (
        INSERT INTO run_events (run_id, sequence, event_id, type, data)
        SELECT run_id, last_sequence, event_id, $6, json_build_object('attempt', restarts + 1) FROM started)
    SELECT run_id, seconds FROM started";

/// The same for an attempt that was begun again without having been in the queue.
const ACCEPT_AGAIN_SQL: &str = "-- attempts::accept_again
    UPDATE runs SET is_reoffered = false
    WHERE run_id = $1 AND attempt = $2 AND device_id = $3 AND epoch = $4 AND is_reoffered
        AND state IN ('running', 'cancelling') RETURNING NULL::float8";

const RETURN_SQL: &str = "-- attempts::return
    UPDATE runs SET offered_until = NULL
    WHERE run_id = $1 AND attempt = $2 AND device_id = $3 AND epoch = $4 AND state = 'queued' RETURNING NULL::float8";

/// The device accepted the offers of these attempts, each of another run.
pub(super) async fn start(client: &impl GenericClient, records: &[ReportedRecord<'_>]) -> Result<Changed, Error> {
    if records.is_empty() {
        return Ok(HashMap::new());
    }
    let fences = Fences::of(records);
    let ids: Vec<_> = records.iter().map(|_| EventId::new().uuid()).collect();
    fences.change(client, START_SQL, &[&ids, &EventType::RunStarted.as_str()]).await
}

/// The device accepted the offer of this attempt, which may have been begun again.
pub(super) async fn start_one(
    client: &impl GenericClient,
    reported: ReportedRecord<'_>,
) -> Result<Option<Change>, Error> {
    match start(client, &[reported]).await?.into_values().next() {
        Some(started) => Ok(Some(started)),
        None => reported.one(client, ACCEPT_AGAIN_SQL, &[]).await,
    }
}

/// The device did not accept it.
pub(super) async fn return_offer(
    client: &impl GenericClient,
    reported: ReportedRecord<'_>,
) -> Result<Option<Change>, Error> {
    reported.one(client, RETURN_SQL, &[]).await
}
