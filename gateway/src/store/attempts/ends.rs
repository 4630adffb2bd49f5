//! The end of a run by an attempt.

use std::time::Duration;

use deadpool_postgres::GenericClient;
use deskgate_protocol::EventId;
use deskgate_protocol::run::{Effects, EventType, Outcome, Phase, RunError, RunErrorCode, RunState};
use serde_json::{Value, json};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::{AttemptFence, one, words};
use crate::store::Error;

/// An attempt that the device declined before it began has no number, and no event stored.
///
/// With an open request there is more to settle: see `END_UNSETTLED_SQL`.
pub(super) const END_SQL: &str = "-- attempts::end
    WITH ended AS (
        UPDATE runs SET state = $5, result = $6::text::json, error = $7::text::json, usage = $8::text::json,
            finished_at = now(), purge_at = now() + make_interval(secs => $9), offered_until = NULL,
            last_sequence = last_sequence + 1, device_seq = coalesce($10::bigint, device_seq), receipt = $15::text
        WHERE run_id = $1 AND attempt = $2 AND device_id = $3 AND epoch = $4 AND state = ANY($11)
            AND device_seq = coalesce($10::bigint - 1, 0) AND open_approval IS NULL
        RETURNING run_id, last_sequence, extract(epoch FROM finished_at - started_at)::float8 AS seconds)
    INSERT INTO run_events (run_id, sequence, event_id, type, data)
    SELECT run_id, last_sequence, $12, $13, $14::text::json FROM ended RETURNING (SELECT seconds FROM ended)";

/// The same for a run in doubt, which is reconciled by it, and for one with an open request, which is withdrawn by it:
/// events before the final one say so.
const END_UNSETTLED_SQL: &str = "-- attempts::end_unsettled
    WITH held AS (
        SELECT run_id, state = 'awaiting_reconciliation' AS in_doubt, open_approval FROM runs
        WHERE run_id = $1 AND attempt = $2 AND device_id = $3 AND epoch = $4 AND state = ANY($11)
            AND device_seq = coalesce($10::bigint - 1, 0)
        FOR UPDATE
    ), ended AS (
        UPDATE runs r SET state = $5, result = $6::text::json, error = $7::text::json, usage = $8::text::json,
            finished_at = now(), purge_at = now() + make_interval(secs => $9), offered_until = NULL,
            open_approval = NULL, device_seq = coalesce($10::bigint, device_seq), receipt = $15::text,
            last_sequence = last_sequence + 1 + in_doubt::integer + (held.open_approval IS NOT NULL)::integer
        FROM held WHERE r.run_id = held.run_id
        RETURNING r.run_id, last_sequence, extract(epoch FROM finished_at - started_at)::float8 AS seconds,
            in_doubt, held.open_approval AS withdrawn, r.state, unknown_attempt = attempt AS decided)
    INSERT INTO run_events (run_id, sequence, event_id, type, data)
    SELECT run_id, last_sequence - 1 - in_doubt::integer, $16::uuid, 'run.approval_resolved', json_build_object(
        'approval_id', 'apr_' || replace(withdrawn::text, '-', ''), 'resolution', 'withdrawn')
    FROM ended WHERE withdrawn IS NOT NULL UNION ALL
    SELECT run_id, last_sequence - 1, $17::uuid, 'run.reconciled',
        json_build_object('state', state, 'by', CASE WHEN decided THEN 'desktop_user' ELSE 'device' END)
    FROM ended WHERE in_doubt UNION ALL
    SELECT run_id, last_sequence, $12, $13, $14::text::json FROM ended RETURNING (SELECT seconds FROM ended)";

/// Ends a run with the device's report `seq`; without one it was not executed. `receipt`: what the device signed about it.
pub(super) async fn end(
    client: &impl GenericClient,
    fence: &AttemptFence<'_>,
    seq: Option<u64>,
    outcome: &Outcome,
    receipt: Option<&str>,
    retention: Duration,
) -> Result<Option<Row>, Error> {
    let (result, error, usage) = match outcome {
        Outcome::Succeeded { result, usage } => (Some(serde_json::to_string(result)?), None, usage),
        Outcome::Failed { error, usage } => (None, Some(serde_json::to_string(error)?), usage),
        Outcome::Cancelled { usage, .. } => (None, None, usage),
    };
    let state = outcome.state();
    let kind = EventType::ending(state).ok_or_else(|| Error::Data(format!("{state} ends nothing")))?;
    // A run that the device executed was started; one that it declined may never have been.
    let from = state.predecessors().filter(|from| *from != RunState::Queued || seq.is_none());
    let plain = from.filter(|from| *from != RunState::AwaitingApproval && *from != RunState::AwaitingReconciliation);
    let (from, unsettled) = (words(plain), unsettled(state));
    let data = final_data(outcome, receipt).to_string();
    let usage = serde_json::to_string(usage)?;
    let seq = seq.map(|seq| i64::try_from(seq).unwrap_or(i64::MAX));
    let [event_id, withdrawn_id, reconciled_id] = std::array::from_fn(|_| EventId::new().uuid());
    let rest: [&(dyn ToSql + Sync); 11] = [
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
        &receipt,
    ];
    if let Some(ended) = one(client, END_SQL, fence, &rest).await? {
        return Ok(Some(ended));
    }
    let mut rest: Vec<&(dyn ToSql + Sync)> = rest.into();
    rest[6] = &unsettled;
    rest.extend([&withdrawn_id as &(dyn ToSql + Sync), &reconciled_id]);
    one(client, END_UNSETTLED_SQL, fence, &rest).await
}

/// The states in which something may be open that the end `state` settles. A run that awaits approval ends by way of
/// running, as its request is closed.
fn unsettled(state: RunState) -> Vec<&'static str> {
    let passes = |from: &RunState| match from {
        RunState::AwaitingApproval => RunState::Running,
        other => *other,
    };
    let started = RunState::ALL.into_iter().filter(|from| from.phase() == Phase::Started);
    words(started.filter(|from| passes(from).may_become(state)))
}

/// The data of the final event. The result itself stands in the run's record.
fn final_data(outcome: &Outcome, receipt: Option<&str>) -> Value {
    let mut data = match outcome {
        Outcome::Succeeded { result, usage } => json!({ "finish_reason": result.finish_reason, "usage": usage }),
        Outcome::Failed { error, usage } => json!({ "error": error, "usage": usage }),
        Outcome::Cancelled { effects, usage } => json!({ "effects": effects, "usage": usage }),
    };
    if let Some(receipt) = receipt {
        data["receipt"] = receipt.into();
    }
    data
}

const WAS_UNKNOWN_SQL: &str = "-- attempts::was_unknown
    SELECT 1 FROM runs WHERE run_id = $1 AND attempt = $2 AND device_id = $3 AND epoch = $4
        AND unknown_attempt IS NOT NULL";

/// Ends a run whose definition the device does not hold. This attempt was not executed; the effects of an earlier one
/// that was to run again are unknown.
pub(super) async fn mismatch(
    client: &impl GenericClient,
    fence: &AttemptFence<'_>,
    retention: Duration,
) -> Result<Option<Row>, Error> {
    let was_unknown = one(client, WAS_UNKNOWN_SQL, fence, &[]).await?.is_some();
    let effects = if was_unknown { Effects::Possible } else { Effects::None };
    end(client, fence, None, &definition_mismatch(effects), None, retention).await
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
