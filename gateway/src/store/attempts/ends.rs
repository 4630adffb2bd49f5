//! The end of a run by an attempt.

use std::collections::HashMap;
use std::time::Duration;

use deadpool_postgres::GenericClient;
use deskgate_protocol::EventId;
use deskgate_protocol::run::{Effects, EventType, Outcome, Phase, RunError, RunErrorCode, RunState};
use serde_json::{Value, json};
use tokio_postgres::types::ToSql;

use super::batches::{Changed, Fences, ReportedRecord, number};
use super::events::{EventColumns, model_is_unavailable};
use super::{AttemptUpdate, Change, words};
use crate::store::Error;

/// How an attempt's report ends its run.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunEnding<'a> {
    /// The record that says so, with its session.
    pub reported: ReportedRecord<'a>,
    /// The number of the device's report; without one the run was not executed.
    pub seq: Option<u64>,
    /// The outcome.
    pub outcome: &'a Outcome,
    /// Whether its data is known to fit the run's output.
    pub is_checked: bool,
    /// What the device signed about it.
    pub receipt: Option<&'a str>,
    /// Events of the attempt right before it, which are stored with it.
    pub events: &'a [(EventType, Value)],
}

impl<'a> RunEnding<'a> {
    /// The ending that a record reports, if it does.
    pub(super) fn of(reported: ReportedRecord<'a>, events: &'a [(EventType, Value)]) -> Option<Self> {
        match &reported.record.what {
            AttemptUpdate::End { seq, outcome, is_checked, receipt } => {
                let (seq, is_checked, receipt) = (Some(*seq), *is_checked, receipt.as_deref());
                Some(Self { reported, seq, outcome, is_checked, receipt, events })
            }
            _ => None,
        }
    }

    fn columns(&self) -> Result<EndColumns, Error> {
        let (result, error, usage) = match self.outcome {
            Outcome::Succeeded { result, usage } => (Some(serde_json::to_string(result)?), None, usage),
            Outcome::Failed { error, usage } => (None, Some(serde_json::to_string(error)?), usage),
            Outcome::Cancelled { usage, .. } => (None, None, usage),
        };
        let state = self.outcome.state();
        Ok(EndColumns {
            state,
            kind: EventType::ending(state).ok_or_else(|| Error::Data(format!("{state} ends nothing")))?,
            result,
            error,
            usage: serde_json::to_string(usage)?,
            seq: self.seq.map(number),
            data: final_data(self.outcome, self.receipt).to_string(),
        })
    }

    /// The states from which a run with nothing open ends so. One that the device executed was started; one that it
    /// declined may never have been.
    fn plain_states(&self, state: RunState) -> String {
        let from = state.predecessors().filter(|from| *from != RunState::Queued || self.seq.is_none());
        let open = [RunState::AwaitingApproval, RunState::AwaitingReconciliation];
        words(from.filter(|from| !open.contains(from))).join(",")
    }
}

/// What an end writes.
struct EndColumns {
    state: RunState,
    kind: EventType,
    result: Option<String>,
    error: Option<String>,
    usage: String,
    seq: Option<i64>,
    data: String,
}

/// An attempt that the device declined before it began has no number, and no event stored.
///
/// With an open request there is more to settle: see `END_UNSETTLED_SQL`.
const END_SQL: &str = "-- attempts::end
    WITH ended AS (
        UPDATE runs r SET state = s.state, result = s.result::json, error = s.error::json, usage = s.usage::json,
            finished_at = now(), purge_at = now() + make_interval(secs => $14), offered_until = NULL,
            last_sequence = last_sequence + 1 + s.events, device_seq = coalesce(s.seq, device_seq), receipt = s.receipt,
            model_unavailable_since = CASE s.unavailable WHEN true THEN coalesce(model_unavailable_since, now())
                WHEN false THEN NULL ELSE model_unavailable_since END
        FROM unnest($1::uuid[], $2::integer[], $3::uuid[], $4::bigint[], $5::text[], $6::text[], $7::text[], $8::text[],
                $9::text[], $10::bigint[], $11::bigint[], $12::text[], $13::boolean[], $20::boolean[])
            AS s (run_id, attempt, device_id, epoch, state, from_states, result, error, usage, seq, events, receipt,
                unavailable, is_checked)
        WHERE r.run_id = ANY ($1) AND r.run_id = s.run_id AND r.attempt = s.attempt AND r.device_id = s.device_id
            AND r.epoch = s.epoch
            AND r.state = ANY (string_to_array(s.from_states, ','))
            AND device_seq = coalesce(s.seq - 1 - s.events, 0) AND open_approval IS NULL
            AND (r.output IS NULL OR s.is_checked OR s.state <> 'succeeded')
        RETURNING r.run_id, last_sequence, extract(epoch FROM finished_at - started_at)::float8 AS seconds
    ), noted AS (
        INSERT INTO run_events (run_id, sequence, event_id, type, data)
        SELECT run_id, last_sequence + e.place, e.event_id, e.type, e.data::json
        FROM ended JOIN unnest($15::uuid[], $16::bigint[], $17::uuid[], $18::text[], $19::text[])
            AS e (run_id, place, event_id, type, data) USING (run_id))
    SELECT run_id, seconds FROM ended";

/// The same for a run in doubt, which is reconciled by it, and for one with an open request, which is withdrawn by it:
/// events before the final one say so.
const END_UNSETTLED_SQL: &str = "-- attempts::end_unsettled
    WITH held AS (
        SELECT run_id, state = 'awaiting_reconciliation' AS in_doubt, open_approval FROM runs
        WHERE run_id = $1 AND attempt = $2 AND device_id = $3 AND epoch = $4 AND state = ANY($11)
            AND device_seq = coalesce($10::bigint - 1, 0) AND (output IS NULL OR $18 OR $5 <> 'succeeded')
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

/// Ends runs that have nothing open, each another one.
pub(super) async fn end_all(
    client: &impl GenericClient,
    endings: &[RunEnding<'_>],
    retention: Duration,
) -> Result<Changed, Error> {
    if endings.is_empty() {
        return Ok(HashMap::new());
    }
    let columns = endings.iter().map(RunEnding::columns).collect::<Result<Vec<_>, _>>()?;
    let mut noted = EventColumns::default();
    for (ending, end) in endings.iter().zip(&columns) {
        let run_id = ending.reported.record.run_id.uuid();
        // Back from the end, which is the last.
        let places = -i64::try_from(ending.events.len()).unwrap_or(i64::MAX)..;
        for (place, (kind, data)) in places.zip(ending.events) {
            noted.push(run_id, place, *kind, data.to_string());
        }
        noted.push(run_id, 0, end.kind, end.data.clone());
    }
    let states: Vec<_> = columns.iter().map(|end| end.state.as_str()).collect();
    let from: Vec<_> = endings.iter().zip(&columns).map(|(ending, end)| ending.plain_states(end.state)).collect();
    let results: Vec<_> = columns.iter().map(|end| end.result.as_deref()).collect();
    let errors: Vec<_> = columns.iter().map(|end| end.error.as_deref()).collect();
    let usages: Vec<_> = columns.iter().map(|end| end.usage.as_str()).collect();
    let seqs: Vec<_> = columns.iter().map(|end| end.seq).collect();
    let before: Vec<_> = endings.iter().map(|ending| i64::try_from(ending.events.len()).unwrap_or(i64::MAX)).collect();
    let receipts: Vec<_> = endings.iter().map(|ending| ending.receipt).collect();
    let unavailable: Vec<_> = endings.iter().map(|ending| model_is_unavailable(ending.events)).collect();
    let checked: Vec<_> = endings.iter().map(|ending| ending.is_checked).collect();
    let retention = retention.as_secs_f64();
    let EventColumns { runs, numbers, ids, types, data } = &noted;
    let rest: [&(dyn ToSql + Sync); 16] = [
        &states,
        &from,
        &results,
        &errors,
        &usages,
        &seqs,
        &before,
        &receipts,
        &unavailable,
        &retention,
        runs,
        numbers,
        ids,
        types,
        data,
        &checked,
    ];
    Fences::of(endings.iter().map(|ending| &ending.reported)).change(client, END_SQL, &rest).await
}

/// Ends a run, whatever is open.
pub(super) async fn end(
    client: &impl GenericClient,
    ending: RunEnding<'_>,
    retention: Duration,
) -> Result<Option<Change>, Error> {
    if let Some(ended) = end_all(client, &[ending], retention).await?.into_values().next() {
        return Ok(Some(ended));
    }
    let end = ending.columns()?;
    let [event_id, withdrawn_id, reconciled_id] = std::array::from_fn(|_| EventId::new().uuid());
    let rest: [&(dyn ToSql + Sync); 14] = [
        &end.state.as_str(),
        &end.result,
        &end.error,
        &end.usage,
        &retention.as_secs_f64(),
        &end.seq,
        &unsettled(end.state),
        &event_id,
        &end.kind.as_str(),
        &end.data,
        &ending.receipt,
        &withdrawn_id,
        &reconciled_id,
        &ending.is_checked,
    ];
    ending.reported.one(client, END_UNSETTLED_SQL, &rest).await
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
    SELECT NULL::float8 FROM runs WHERE run_id = $1 AND attempt = $2 AND device_id = $3 AND epoch = $4
        AND unknown_attempt IS NOT NULL";

/// Ends a run whose definition the device does not hold. This attempt was not executed; the effects of an earlier one
/// that was to run again are unknown.
pub(super) async fn mismatch(
    client: &impl GenericClient,
    reported: ReportedRecord<'_>,
    retention: Duration,
) -> Result<Option<Change>, Error> {
    let was_unknown = reported.one(client, WAS_UNKNOWN_SQL, &[]).await?.is_some();
    let effects = if was_unknown { Effects::Possible } else { Effects::None };
    let outcome = definition_mismatch(effects);
    let ending = RunEnding { reported, seq: None, outcome: &outcome, is_checked: true, receipt: None, events: &[] };
    end(client, ending, retention).await
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
