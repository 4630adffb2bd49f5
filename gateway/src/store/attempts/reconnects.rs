//! Reconnects: the runs that an interrupted device held when it comes back.

use std::time::Duration;

use deadpool_postgres::GenericClient;
use deskgate_protocol::EventId;
use deskgate_protocol::run::{EventType, Phase, RunState};
use serde_json::json;
use tokio_postgres::types::ToSql;

use super::batches::ReportedRecord;
use super::{Change, words};
use crate::store::Error;

/// A stop that was requested meanwhile stays open, and so does a request for approval. Only the row itself shows both
/// in time.
const RECONCILE_SQL: &str = "-- attempts::reconcile
    WITH moved AS (
        UPDATE runs SET last_sequence = last_sequence + 1,
            state = CASE WHEN stop_operation_id IS NOT NULL THEN 'cancelling'
                WHEN open_approval IS NOT NULL THEN 'awaiting_approval' ELSE 'running' END
        WHERE run_id = $1 AND attempt = $2 AND device_id = $3 AND epoch = $4 AND state = 'awaiting_reconciliation'
        RETURNING run_id, last_sequence, state)
    INSERT INTO run_events (run_id, sequence, event_id, type, data)
    SELECT run_id, last_sequence, $5, $6, json_build_object('state', state, 'by', 'device') FROM moved RETURNING NULL::float8";

/// A restarted attempt asks again: the request of the attempt before is withdrawn. A run in doubt is reconciled.
const RESTART_SQL: &str = "-- attempts::restart
    WITH held AS (
        SELECT run_id, state = 'awaiting_reconciliation' AS in_doubt, open_approval FROM runs
        WHERE run_id = $1 AND attempt = $2 AND device_id = $3 AND epoch = $4 AND state = ANY($8)
            AND ($9 OR unknown_attempt = attempt AND stop_operation_id IS NULL)
        FOR UPDATE
    ), moved AS (
        UPDATE runs r SET state = CASE WHEN stop_operation_id IS NOT NULL THEN 'cancelling' ELSE 'running' END,
            attempt = attempt + 1, restarts = restarts + 1, device_seq = 0, open_approval = NULL, model_unavailable_since = NULL, waited_until = now(), is_reoffered = true,
            last_sequence = last_sequence + 1 + in_doubt::integer + (held.open_approval IS NOT NULL)::integer
        FROM held WHERE r.run_id = held.run_id
        RETURNING r.run_id, last_sequence, restarts, state, in_doubt, held.open_approval AS withdrawn,
            unknown_attempt = attempt - 1 AS decided)
    INSERT INTO run_events (run_id, sequence, event_id, type, data)
    SELECT run_id, last_sequence - 1 - in_doubt::integer, $10::uuid, 'run.approval_resolved', json_build_object(
        'approval_id', 'apr_' || replace(withdrawn::text, '-', ''), 'resolution', 'withdrawn')
    FROM moved WHERE withdrawn IS NOT NULL UNION ALL
    SELECT run_id, last_sequence - 1, $7::uuid, 'run.reconciled',
        json_build_object('state', state, 'by', CASE WHEN decided THEN 'desktop_user' ELSE 'device' END)
    FROM moved WHERE in_doubt UNION ALL
    SELECT run_id, last_sequence, $5, $6, json_build_object('attempt', restarts + 1) FROM moved RETURNING NULL::float8";

/// Once a run was unknown, it may have changed something, whatever its later outcome. Its open request is withdrawn.
const CANCEL_SQL: &str = "-- attempts::cancel
    WITH held AS (
        SELECT run_id, state = 'awaiting_reconciliation' AS in_doubt, open_approval FROM runs
        WHERE run_id = $1 AND attempt = $2 AND device_id = $3 AND epoch = $4 AND state = ANY($9)
            AND stop_operation_id IS NOT NULL
        FOR UPDATE
    ), ended AS (
        UPDATE runs r SET state = 'cancelled', finished_at = now(), purge_at = now() + make_interval(secs => $7),
            open_approval = NULL,
            last_sequence = last_sequence + 1 + in_doubt::integer + (held.open_approval IS NOT NULL)::integer
        FROM held WHERE r.run_id = held.run_id
        RETURNING r.run_id, last_sequence, in_doubt, held.open_approval AS withdrawn, unknown_attempt,
            unknown_attempt = attempt AS decided, extract(epoch FROM finished_at - started_at)::float8 AS seconds)
    INSERT INTO run_events (run_id, sequence, event_id, type, data)
    SELECT run_id, last_sequence - 1 - in_doubt::integer, $10::uuid, 'run.approval_resolved', json_build_object(
        'approval_id', 'apr_' || replace(withdrawn::text, '-', ''), 'resolution', 'withdrawn')
    FROM ended WHERE withdrawn IS NOT NULL UNION ALL
    SELECT run_id, last_sequence - 1, $8::uuid, 'run.reconciled',
        json_build_object('state', 'cancelled', 'by', CASE WHEN decided THEN 'desktop_user' ELSE 'device' END)
    FROM ended WHERE in_doubt UNION ALL
    SELECT run_id, last_sequence, $5, $6,
        json_build_object('effects', CASE WHEN unknown_attempt IS NULL THEN 'none' ELSE 'possible' END)
    FROM ended RETURNING (SELECT seconds FROM ended)";

/// Repeated in every session. A run that already waited for its device gets the reason for its further wait once.
const MARK_UNKNOWN_SQL: &str = "-- attempts::unknown
    WITH moved AS (
        UPDATE runs SET state = 'awaiting_reconciliation', unknown_attempt = attempt, last_sequence = last_sequence + 1
        WHERE run_id = $1 AND attempt = $2 AND device_id = $3 AND epoch = $4 AND (state = ANY($8)
            OR state = 'awaiting_reconciliation' AND unknown_attempt IS DISTINCT FROM attempt)
        RETURNING run_id, last_sequence)
    INSERT INTO run_events (run_id, sequence, event_id, type, data)
    SELECT run_id, last_sequence, $5, $6, $7::text::json FROM moved RETURNING NULL::float8";

const LOSE_SQL: &str = "-- attempts::lose
    WITH moved AS (
        UPDATE runs SET state = $9, last_sequence = last_sequence + 1
        WHERE run_id = $1 AND attempt = $2 AND device_id = $3 AND epoch = $4 AND state = ANY($8)
        RETURNING run_id, last_sequence)
    INSERT INTO run_events (run_id, sequence, event_id, type, data)
    SELECT run_id, last_sequence, $5, $6, $7::text::json FROM moved RETURNING NULL::float8";

/// The device still executes the run.
pub(super) async fn reconcile(
    client: &impl GenericClient,
    reported: ReportedRecord<'_>,
) -> Result<Option<Change>, Error> {
    reported.one(client, RECONCILE_SQL, &[&EventId::new().uuid(), &EventType::RunReconciled.as_str()]).await
}

/// The device starts the run again, as the attempt after this one.
pub(super) async fn restart(
    client: &impl GenericClient,
    reported: ReportedRecord<'_>,
) -> Result<Option<Change>, Error> {
    let started = RunState::ALL.into_iter().filter(|state| state.phase() == Phase::Started);
    begin_again(client, reported, started, true).await
}

/// The desktop user has the run started again, unless a stop is open.
pub(super) async fn run_again(
    client: &impl GenericClient,
    reported: ReportedRecord<'_>,
    retention: Duration,
) -> Result<Option<Change>, Error> {
    let in_doubt = [RunState::AwaitingReconciliation];
    match begin_again(client, reported, in_doubt, false).await? {
        Some(restarted) => Ok(Some(restarted)),
        None => end_stopped(client, reported, in_doubt, retention).await,
    }
}

async fn begin_again(
    client: &impl GenericClient,
    reported: ReportedRecord<'_>,
    from: impl IntoIterator<Item = RunState>,
    by_itself: bool,
) -> Result<Option<Change>, Error> {
    let [event_id, reconciled_id, withdrawn_id] = std::array::from_fn(|_| EventId::new().uuid());
    let (kind, from) = (EventType::RunRestarted.as_str(), words(from));
    let rest: [&(dyn ToSql + Sync); 6] = [&event_id, &kind, &reconciled_id, &from, &by_itself, &withdrawn_id];
    reported.one(client, RESTART_SQL, &rest).await
}

/// A stop is open, and nothing was executed that could have changed anything.
pub(super) async fn cancel(
    client: &impl GenericClient,
    reported: ReportedRecord<'_>,
    retention: Duration,
) -> Result<Option<Change>, Error> {
    end_stopped(client, reported, RunState::Cancelled.predecessors(), retention).await
}

async fn end_stopped(
    client: &impl GenericClient,
    reported: ReportedRecord<'_>,
    from: impl IntoIterator<Item = RunState>,
    retention: Duration,
) -> Result<Option<Change>, Error> {
    let [event_id, reconciled_id, withdrawn_id] = std::array::from_fn(|_| EventId::new().uuid());
    // A queued run with an open stop has ended already.
    let from = words(from.into_iter().filter(|state| state.phase() == Phase::Started));
    let (kind, retention) = (EventType::RunCancelled.as_str(), retention.as_secs_f64());
    reported.one(client, CANCEL_SQL, &[&event_id, &kind, &retention, &reconciled_id, &from, &withdrawn_id]).await
}

/// The device was restarted and does not know what it changed.
pub(super) async fn unknown(
    client: &impl GenericClient,
    reported: ReportedRecord<'_>,
) -> Result<Option<Change>, Error> {
    let from = words(RunState::AwaitingReconciliation.predecessors());
    let kind = EventType::RunAwaitingReconciliation.as_str();
    let reason = "the device was restarted in the middle of a tool call; its user settles what became of it";
    let data = json!({ "reason": reason }).to_string();
    reported.one(client, MARK_UNKNOWN_SQL, &[&EventId::new().uuid(), &kind, &data, &from]).await
}

/// The device has no record of the run.
pub(super) async fn lose(client: &impl GenericClient, reported: ReportedRecord<'_>) -> Result<Option<Change>, Error> {
    let from = words(RunState::AwaitingReconciliation.predecessors());
    let kind = EventType::RunAwaitingReconciliation.as_str();
    let data = json!({ "reason": "the device no longer knows this run" }).to_string();
    let to = RunState::AwaitingReconciliation.as_str();
    reported.one(client, LOSE_SQL, &[&EventId::new().uuid(), &kind, &data, &from, &to]).await
}
