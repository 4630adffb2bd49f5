//! How an attempt ends its run.

use std::time::Duration;

use deadpool_postgres::GenericClient;
use deskgate_protocol::EventId;
use deskgate_protocol::run::{Effects, EventType, Outcome, RunError, RunErrorCode, RunState};
use serde_json::{Value, json};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::{Fence, one, words};
use crate::store::Error;

/// An attempt that the device declined before it began has no number, and no event stored.
pub(super) const END: &str = "-- attempts::end
    WITH ended AS (
        UPDATE runs SET state = $5, result = $6::text::json, error = $7::text::json, usage = $8::text::json,
            finished_at = now(), purge_at = now() + make_interval(secs => $9), offered_until = NULL,
            last_sequence = last_sequence + 1, device_seq = coalesce($10::bigint, device_seq)
        WHERE run_id = $1 AND attempt = $2 AND device_id = $3 AND epoch = $4 AND state = ANY($11)
            AND device_seq = coalesce($10::bigint - 1, 0)
        RETURNING run_id, last_sequence, extract(epoch FROM finished_at - started_at)::float8 AS seconds)
    INSERT INTO run_events (run_id, sequence, event_id, type, data)
    SELECT run_id, last_sequence, $12, $13, $14::text::json FROM ended RETURNING (SELECT seconds FROM ended)";

/// The same for a run in doubt, which is reconciled by it, and for one that awaits approval, whose request is
/// withdrawn by it: an event before the final one says so.
const END_UNSETTLED: &str = "-- attempts::end_unsettled
    WITH held AS (
        SELECT run_id, state, open_approval FROM runs
        WHERE run_id = $1 AND attempt = $2 AND device_id = $3 AND epoch = $4 AND state = ANY($11)
            AND device_seq = coalesce($10::bigint - 1, 0)
        FOR UPDATE
    ), ended AS (
        UPDATE runs r SET state = $5, result = $6::text::json, error = $7::text::json, usage = $8::text::json,
            finished_at = now(), purge_at = now() + make_interval(secs => $9), offered_until = NULL,
            last_sequence = last_sequence + 2, device_seq = coalesce($10::bigint, device_seq)
        FROM held WHERE r.run_id = held.run_id
        RETURNING r.run_id, last_sequence, extract(epoch FROM finished_at - started_at)::float8 AS seconds,
            held.state = 'awaiting_approval' AS was_held, held.open_approval, r.state, attempt, unknown_attempt)
    INSERT INTO run_events (run_id, sequence, event_id, type, data)
    SELECT run_id, last_sequence - 1, $15::uuid,
        CASE WHEN was_held THEN 'run.approval_resolved' ELSE 'run.reconciled' END,
        CASE WHEN was_held
            THEN json_build_object('approval_id', 'apr_' || replace(open_approval::text, '-', ''), 'resolution', 'withdrawn')
            ELSE json_build_object('state', state, 'by',
                CASE WHEN unknown_attempt = attempt THEN 'desktop_user' ELSE 'device' END) END
    FROM ended UNION ALL
    SELECT run_id, last_sequence, $12, $13, $14::text::json FROM ended RETURNING (SELECT seconds FROM ended)";

/// Ends a run with the device's report `seq`; without one nothing was executed.
pub(super) async fn end(
    client: &impl GenericClient,
    fence: &Fence<'_>,
    seq: Option<u64>,
    outcome: &Outcome,
    retention: Duration,
) -> Result<Option<Row>, Error> {
    let (result, error, usage) = match outcome {
        Outcome::Succeeded { result, usage } => (Some(serde_json::to_string(result)?), None, usage),
        Outcome::Failed { error, usage } => (None, Some(serde_json::to_string(error)?), usage),
        Outcome::Cancelled { usage, .. } => (None, None, usage),
    };
    let state = outcome.state();
    let kind = EventType::ending(state).ok_or_else(|| Error::Data(format!("{state} ends nothing")))?;
    // What the device executed was started; what it declined may never have been.
    let from = state.predecessors().filter(|from| *from != RunState::Queued || seq.is_none());
    let (from, unsettled) = (words(from.filter(|from| !UNSETTLED.contains(from))), unsettled(state));
    let data = final_data(outcome).to_string();
    let usage = serde_json::to_string(usage)?;
    let seq = seq.map(|seq| i64::try_from(seq).unwrap_or(i64::MAX));
    let (event_id, settled_id) = (EventId::new().uuid(), EventId::new().uuid());
    let rest: [&(dyn ToSql + Sync); 10] = [
        &state.as_str(),
        &result,
        &error,
        &usage,
        &retention.as_secs_f64(),
        &seq,
        &from,
        &event_id,
        &kind.as_str(),
        &data,
    ];
    if let Some(ended) = one(client, END, fence, &rest).await? {
        return Ok(Some(ended));
    }
    let mut rest: Vec<&(dyn ToSql + Sync)> = rest.into();
    rest[6] = &unsettled;
    rest.push(&settled_id);
    one(client, END_UNSETTLED, fence, &rest).await
}

/// Where something is open that the end settles.
const UNSETTLED: [RunState; 2] = [RunState::AwaitingApproval, RunState::AwaitingReconciliation];

/// Those of them that `state` ends: what awaits approval ends by way of running, now that nothing is asked any more.
fn unsettled(state: RunState) -> Vec<&'static str> {
    let passes = |from: &RunState| match from {
        RunState::AwaitingApproval => RunState::Running,
        other => *other,
    };
    words(UNSETTLED.into_iter().filter(|from| passes(from).may_become(state)))
}

/// What the final event says. The result itself stands in the run's record.
fn final_data(outcome: &Outcome) -> Value {
    match outcome {
        Outcome::Succeeded { result, usage } => json!({ "finish_reason": result.finish_reason, "usage": usage }),
        Outcome::Failed { error, usage } => json!({ "error": error, "usage": usage }),
        Outcome::Cancelled { effects, usage } => json!({ "effects": effects, "usage": usage }),
    }
}

const WAS_UNKNOWN: &str = "-- attempts::was_unknown
    SELECT 1 FROM runs WHERE run_id = $1 AND attempt = $2 AND device_id = $3 AND epoch = $4
        AND unknown_attempt IS NOT NULL";

/// Ends a run whose definition the device does not hold. Of this attempt nothing was executed; of one before that was
/// to run again nobody knows.
pub(super) async fn mismatch(
    client: &impl GenericClient,
    fence: &Fence<'_>,
    retention: Duration,
) -> Result<Option<Row>, Error> {
    let was_unknown = one(client, WAS_UNKNOWN, fence, &[]).await?.is_some();
    let effects = if was_unknown { Effects::Possible } else { Effects::None };
    end(client, fence, None, &definition_mismatch(effects), retention).await
}

fn definition_mismatch(effects: Effects) -> Outcome {
    Outcome::Failed {
        error: RunError {
            code: RunErrorCode::DefinitionMismatch,
            message: "The device no longer holds the version of the service that this run was accepted for.".to_owned(),
            retryable: true,
            effects,
        },
        usage: Default::default(),
    }
}
