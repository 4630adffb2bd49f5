//! A device's answers to an offer: it begins, or it declines.

use deadpool_postgres::GenericClient;
use deskgate_protocol::EventId;
use deskgate_protocol::run::EventType;
use tokio_postgres::Row;

use super::{AttemptFence, one};
use crate::store::Error;

pub(super) const START_SQL: &str = "-- attempts::start
    WITH started AS (
        UPDATE runs SET state = 'running', started_at = now(), offered_until = NULL, last_sequence = last_sequence + 1,
            model_unavailable_since = NULL
        WHERE run_id = $1 AND attempt = $2 AND device_id = $3 AND epoch = $4
            AND state = 'queued' AND offered_until IS NOT NULL
        RETURNING run_id, last_sequence, restarts, extract(epoch FROM started_at - created_at)::float8 AS seconds)
    INSERT INTO run_events (run_id, sequence, event_id, type, data)
    SELECT run_id, last_sequence, $5, $6, json_build_object('attempt', restarts + 1) FROM started
    RETURNING (SELECT seconds FROM started)";

/// The same for an attempt that was begun again without having been in the queue.
const ACCEPT_AGAIN_SQL: &str = "-- attempts::accept_again
    UPDATE runs SET is_reoffered = false
    WHERE run_id = $1 AND attempt = $2 AND device_id = $3 AND epoch = $4 AND is_reoffered
        AND state IN ('running', 'cancelling') RETURNING NULL::float8";

pub(super) const RETURN_SQL: &str = "-- attempts::return
    UPDATE runs SET offered_until = NULL
    WHERE run_id = $1 AND attempt = $2 AND device_id = $3 AND epoch = $4 AND state = 'queued' RETURNING 1";

/// The device accepted the offer of this attempt.
pub(super) async fn start(client: &impl GenericClient, fence: &AttemptFence<'_>) -> Result<Option<Row>, Error> {
    let started = one(client, START_SQL, fence, &[&EventId::new().uuid(), &EventType::RunStarted.as_str()]).await?;
    if started.is_some() { Ok(started) } else { one(client, ACCEPT_AGAIN_SQL, fence, &[]).await }
}
