//! What a device does to runs: take, start, report, finish.
//!
//! Every statement names run, attempt, device and epoch in its own condition. So a frame of an
//! older attempt or session changes nothing, whatever the session that carries it believes.

use std::time::Duration;

use deadpool_postgres::GenericClient;
use deskgate_protocol::control::{Offer, RevokeCode};
use deskgate_protocol::run::{Effects, EventType, Outcome, RunError, RunErrorCode, RunState};
use deskgate_protocol::{EventId, RunId};
use futures_util::future::try_join_all;
use serde_json::{Value, json};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::admissions::digest;
use super::devices::SessionKey;
use super::runs::{json as json_column, word};
use super::{Error, Store, patiently};
use crate::wake::Topic;

/// One thing to write down about an attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Which run.
    pub run_id: RunId,
    /// Which attempt.
    pub attempt: u32,
    /// What.
    pub what: What,
}

/// What can be written down about an attempt.
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// The device accepted the offer.
    Start,
    /// The device did not take the offer; the run is queued again.
    Return,
    /// Events of the device with dense numbers from `first`.
    Events {
        /// The number of the first.
        first: u64,
        /// What they say.
        events: Vec<(EventType, Value)>,
    },
    /// The end. `seq` is the number after the last event.
    End {
        /// The number of this, the last report.
        seq: u64,
        /// How it ended.
        outcome: Outcome,
    },
    /// The device does not hold the definition, so that nothing was executed: the run fails.
    Mismatch,
    /// The device is back and still executes it.
    Reconcile,
    /// The device is back, was cut off before it wrote anything, and starts it again.
    Restart,
    /// The device is back, a stop is open, and nothing of the run was executed that could have changed anything.
    Cancel {
        /// The attempt that the device still has in its journal.
        held: u32,
    },
    /// The device is back and knows nothing of it.
    Lose,
}

/// What became of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// It is durable, now or since an earlier repetition.
    Done,
    /// The attempt is not the device's any more.
    Revoked(RevokeCode),
    /// Numbers are missing before it: the device left something out.
    Gap,
    /// The device had no room for a run that it started before: it stays the device's, and is to be
    /// offered to it again.
    Kept,
}

impl What {
    fn statement(&self) -> &'static str {
        match self {
            Self::Start => START,
            Self::Return => RETURN,
            Self::Events { .. } => EVENTS,
            Self::End { .. } | Self::Mismatch => END,
            Self::Reconcile => RECONCILE,
            Self::Lose => MOVE,
            Self::Restart => RESTART,
            Self::Cancel { .. } => CANCEL,
        }
    }
}

impl Store {
    /// Takes up to `limit` queued runs for a session's device, oldest first, each with a fresh attempt.
    pub async fn claim(&self, session: SessionKey, limit: u32, offer: Duration) -> Result<Vec<Offer>, Error> {
        let sql = "-- attempts::claim
            WITH entitled AS (
                -- Locked, so that a newer session waits for this claim and then takes it over.
                SELECT device_id FROM devices
                WHERE device_id = $1 AND epoch = $2 AND access_enabled AND revoked_at IS NULL
                    AND asleep_since IS NULL FOR SHARE
            ), next AS (
                SELECT run_id FROM runs
                WHERE device_id = (SELECT device_id FROM entitled) AND state = 'queued' AND offered_until IS NULL
                    AND queue_expires_at > now()
                ORDER BY created_at, run_id LIMIT $3 FOR UPDATE SKIP LOCKED)
            UPDATE runs r SET attempt = attempt + 1, epoch = $2, offered_until = now() + make_interval(secs => $4),
                device_seq = 0
            FROM next WHERE r.run_id = next.run_id
            RETURNING r.run_id, attempt, endpoint_id, endpoint_version, definition_sha256, input, conversation_id,
                generation, max_duration_s, traceparent, created_at";
        let limit = i64::from(limit);
        let params: [&(dyn ToSql + Sync); 4] =
            [&session.device_id.uuid(), &session.epoch_column(), &limit, &offer.as_secs_f64()];
        let rows = self.relaxed_rows(sql, &params).await?;
        let aged =
            |row: &Row| -> Result<_, Error> { Ok((row.try_get::<_, jiff::Timestamp>("created_at")?, offer_of(row)?)) };
        let mut offers = rows.iter().map(aged).collect::<Result<Vec<_>, Error>>()?;
        // Whatever shares a commit shares its moment.
        offers.sort_by_key(|(created_at, offer)| (*created_at, offer.run_id));
        Ok(offers.into_iter().map(|(_, offer)| offer).collect())
    }

    /// The offer of an attempt that the session holds already.
    pub async fn offer(&self, session: SessionKey, run_id: RunId) -> Result<Option<Offer>, Error> {
        let sql = "-- attempts::offer
            SELECT run_id, attempt, endpoint_id, endpoint_version, definition_sha256, input, conversation_id,
                generation, max_duration_s, traceparent
            FROM runs WHERE run_id = $1 AND device_id = $2 AND epoch = $3";
        let params: [&(dyn ToSql + Sync); 3] = [&run_id.uuid(), &session.device_id.uuid(), &session.epoch_column()];
        self.durable_opt(sql, &params).await?.as_ref().map(offer_of).transpose()
    }

    /// Writes records down in their order, in one commit, and says for each what became of it.
    pub async fn record(
        &self,
        session: SessionKey,
        records: &[Record],
        retention: Duration,
    ) -> Result<Vec<Recorded>, Error> {
        let written = patiently(async {
            let mut client = self.client().await?;
            if let [record] = records {
                let written = write(&*client, session, record, retention).await?;
                client.give_back();
                return Ok(vec![written]);
            }
            let transaction = client.transaction().await?;
            // Once every statement is prepared, they are sent one behind the other without waiting,
            // and executed in this order.
            for record in records {
                transaction.prepare_cached(record.what.statement()).await?;
            }
            let written =
                try_join_all(records.iter().map(|record| write(&transaction, session, record, retention))).await?;
            transaction.commit().await?;
            client.give_back();
            Ok(written)
        })
        .await?;
        let mut results = Vec::with_capacity(records.len());
        for (record, written) in records.iter().zip(written) {
            self.wake().changed(Topic::Run(record.run_id));
            results.push(match written {
                Some(row) => {
                    self.count(&record.what, &row)?;
                    Recorded::Done
                }
                None => self.explain(session, record).await?,
            });
        }
        Ok(results)
    }

    /// Counts a start or an end, whose statements return how long it took.
    fn count(&self, what: &What, row: &Row) -> Result<(), Error> {
        match what {
            What::Start => self.meters().run_started(row.try_get::<_, f64>(0)?),
            What::End { outcome, .. } => self.meters().run_ended(outcome.state().as_str(), row.try_get(0)?),
            What::Mismatch => self.meters().run_ended(RunState::Failed.as_str(), row.try_get(0)?),
            _ => {}
        }
        Ok(())
    }

    /// Why a record changed nothing.
    async fn explain(&self, session: SessionKey, record: &Record) -> Result<Recorded, Error> {
        let sql = "-- attempts::explain
            SELECT attempt, epoch, state, device_seq FROM runs WHERE run_id = $1 AND device_id = $2";
        let Some(row) = self.durable_opt(sql, &[&record.run_id.uuid(), &session.device_id.uuid()]).await? else {
            return Ok(Recorded::Revoked(RevokeCode::UnknownRun));
        };
        let (attempt, epoch): (i32, i64) = (row.try_get(0)?, row.try_get(1)?);
        let state: RunState = word(row.try_get(2)?)?;
        let device_seq = row.try_get::<_, i64>(3)?.unsigned_abs();
        if attempt.unsigned_abs() != record.attempt || epoch != session.epoch_column() {
            let is_final = EventType::ending(state).is_some();
            let repeated = matches!(record.what, What::End { seq, .. } if is_final && seq <= device_seq);
            return Ok(match (repeated && attempt.unsigned_abs() == record.attempt, is_final) {
                (true, _) => Recorded::Done,
                (_, true) => Recorded::Revoked(RevokeCode::AlreadyFinal),
                _ => Recorded::Revoked(RevokeCode::StaleAttempt),
            });
        }
        if matches!(record.what, What::Return) && EventType::ending(state).is_some() {
            return Ok(Recorded::Revoked(RevokeCode::AlreadyFinal));
        }
        Ok(match &record.what {
            What::Start if matches!(state, RunState::Running | RunState::Cancelling) => Recorded::Done,
            What::Events { first, events } if device_seq + 1 >= first.saturating_add(events.len() as u64) => {
                Recorded::Done
            }
            What::Events { first, .. } if device_seq + 1 < *first => Recorded::Gap,
            // Only what is stored is acknowledged: an end before the last event is none.
            What::End { seq, .. } if device_seq >= *seq && EventType::ending(state).is_none() => Recorded::Gap,
            What::End { seq, .. } if device_seq >= *seq => Recorded::Done,
            What::End { seq, .. } if device_seq + 1 < *seq => Recorded::Gap,
            What::Mismatch if EventType::ending(state).is_some() => Recorded::Done,
            What::Mismatch => Recorded::Gap,
            What::Return if state == RunState::Queued => Recorded::Done,
            What::Return => Recorded::Kept,
            What::Reconcile | What::Lose => Recorded::Done,
            What::Cancel { .. } if EventType::ending(state).is_some() => Recorded::Done,
            _ if EventType::ending(state).is_some() => Recorded::Revoked(RevokeCode::AlreadyFinal),
            _ => Recorded::Revoked(RevokeCode::StaleAttempt),
        })
    }
}

/// Executes the one statement of a record; `None` when it changed nothing.
async fn write(
    client: &impl GenericClient,
    session: SessionKey,
    record: &Record,
    retention: Duration,
) -> Result<Option<Row>, Error> {
    let run_id = record.run_id.uuid();
    let attempt = i32::try_from(record.attempt).unwrap_or(i32::MAX);
    let (device_id, epoch) = (session.device_id.uuid(), session.epoch_column());
    let event_id = EventId::new().uuid();
    let fence: [&(dyn ToSql + Sync); 4] = [&run_id, &attempt, &device_id, &epoch];
    let sql = record.what.statement();
    match &record.what {
        What::Start => {
            let data = json!({ "attempt": record.attempt }).to_string();
            one(client, sql, &fence, &[&event_id, &EventType::RunStarted.as_str(), &data]).await
        }
        What::Return => one(client, sql, &fence, &[]).await,
        What::Events { first, events } => events_of(client, &fence, *first, events).await,
        What::End { seq, outcome } => end(client, &fence, Some(*seq), outcome, retention).await,
        What::Mismatch => end(client, &fence, None, &definition_mismatch(), retention).await,
        What::Reconcile => one(client, sql, &fence, &[&event_id, &EventType::RunReconciled.as_str()]).await,
        What::Lose => {
            let from = words(RunState::AwaitingReconciliation.predecessors());
            let kind = EventType::RunAwaitingReconciliation.as_str();
            let data = json!({ "reason": "the device no longer knows this run" }).to_string();
            let to = RunState::AwaitingReconciliation.as_str();
            one(client, sql, &fence, &[&event_id, &kind, &data, &from, &to]).await
        }
        What::Cancel { .. } => {
            let data = json!({ "effects": Effects::None }).to_string();
            let kind = EventType::RunCancelled.as_str();
            one(client, sql, &fence, &[&event_id, &kind, &data, &retention.as_secs_f64()]).await
        }
        What::Restart => {
            let data = json!({ "attempt": record.attempt.saturating_add(1) }).to_string();
            one(client, sql, &fence, &[&event_id, &EventType::RunRestarted.as_str(), &data]).await
        }
    }
}

const START: &str = "-- attempts::start
    WITH started AS (
        UPDATE runs SET state = 'running', started_at = now(), offered_until = NULL, last_sequence = last_sequence + 1
        WHERE run_id = $1 AND attempt = $2 AND device_id = $3 AND epoch = $4
            AND state = 'queued' AND offered_until IS NOT NULL
        RETURNING run_id, last_sequence, extract(epoch FROM started_at - created_at)::float8 AS seconds)
    INSERT INTO run_events (run_id, sequence, event_id, type, data)
    SELECT run_id, last_sequence, $5, $6, $7::text::json FROM started RETURNING (SELECT seconds FROM started)";

const RETURN: &str = "-- attempts::return
    UPDATE runs SET offered_until = NULL
    WHERE run_id = $1 AND attempt = $2 AND device_id = $3 AND epoch = $4 AND state = 'queued' RETURNING 1";

const MOVE: &str = "-- attempts::move
    WITH moved AS (
        UPDATE runs SET state = $9, last_sequence = last_sequence + 1
        WHERE run_id = $1 AND attempt = $2 AND device_id = $3 AND epoch = $4 AND state = ANY($8)
        RETURNING run_id, last_sequence)
    INSERT INTO run_events (run_id, sequence, event_id, type, data)
    SELECT run_id, last_sequence, $5, $6, $7::text::json FROM moved RETURNING 1";

/// What was to be stopped meanwhile is still to be stopped. Only the row itself says so in time.
const RECONCILE: &str = "-- attempts::reconcile
    WITH moved AS (
        UPDATE runs SET last_sequence = last_sequence + 1,
            state = CASE WHEN stop_operation_id IS NOT NULL THEN 'cancelling' ELSE 'running' END
        WHERE run_id = $1 AND attempt = $2 AND device_id = $3 AND epoch = $4 AND state = 'awaiting_reconciliation'
        RETURNING run_id, last_sequence, state)
    INSERT INTO run_events (run_id, sequence, event_id, type, data)
    SELECT run_id, last_sequence, $5, $6, json_build_object('state', state) FROM moved RETURNING 1";

const CANCEL: &str = "-- attempts::cancel
    WITH ended AS (
        UPDATE runs SET state = 'cancelled', finished_at = now(), purge_at = now() + make_interval(secs => $8),
            last_sequence = last_sequence + 1
        WHERE run_id = $1 AND attempt = $2 AND device_id = $3 AND epoch = $4
            AND state IN ('cancelling', 'awaiting_reconciliation') AND stop_operation_id IS NOT NULL
        RETURNING run_id, last_sequence)
    INSERT INTO run_events (run_id, sequence, event_id, type, data)
    SELECT run_id, last_sequence, $5, $6, $7::text::json FROM ended RETURNING 1";

const RESTART: &str = "-- attempts::restart
    WITH moved AS (
        UPDATE runs SET state = CASE WHEN stop_operation_id IS NOT NULL THEN 'cancelling' ELSE 'running' END,
            attempt = attempt + 1, device_seq = 0, last_sequence = last_sequence + 1
        WHERE run_id = $1 AND attempt = $2 AND device_id = $3 AND epoch = $4
            AND state IN ('running', 'awaiting_reconciliation', 'cancelling')
        RETURNING run_id, last_sequence)
    INSERT INTO run_events (run_id, sequence, event_id, type, data)
    SELECT run_id, last_sequence, $5, $6, $7::text::json FROM moved RETURNING 1";

/// The device's numbers are dense, so each event's sequence follows from the last one's. Numbers
/// that were stored before fall on sequences that exist, and stay as they are.
const EVENTS: &str = "-- attempts::events
    WITH moved AS (
        UPDATE runs SET device_seq = $6::bigint, last_sequence = last_sequence + ($6::bigint - device_seq)
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

async fn events_of(
    client: &impl GenericClient,
    fence: &[&(dyn ToSql + Sync); 4],
    first: u64,
    events: &[(EventType, Value)],
) -> Result<Option<Row>, Error> {
    let first = i64::try_from(first).unwrap_or(i64::MAX);
    let numbers: Vec<i64> = (0..).take(events.len()).map(|place| first.saturating_add(place)).collect();
    let last = numbers.last().copied().unwrap_or(first);
    let ids: Vec<_> = events.iter().map(|_| EventId::new().uuid()).collect();
    let types: Vec<_> = events.iter().map(|(kind, _)| kind.as_str()).collect();
    let data: Vec<_> = events.iter().map(|(_, data)| data.to_string()).collect();
    one(client, EVENTS, fence, &[&first, &last, &numbers, &ids, &types, &data]).await
}

/// An attempt that the device declined before it began has no number, and no event stored.
const END: &str = "-- attempts::end
    WITH ended AS (
        UPDATE runs SET state = $5, result = $6::text::json, error = $7::text::json, usage = $8::text::json,
            finished_at = now(), purge_at = now() + make_interval(secs => $9), offered_until = NULL,
            last_sequence = last_sequence + 1, device_seq = coalesce($10::bigint, device_seq)
        WHERE run_id = $1 AND attempt = $2 AND device_id = $3 AND epoch = $4 AND state = ANY($11)
            AND device_seq = coalesce($10::bigint - 1, 0)
        RETURNING run_id, last_sequence, extract(epoch FROM finished_at - started_at)::float8 AS seconds)
    INSERT INTO run_events (run_id, sequence, event_id, type, data)
    SELECT run_id, last_sequence, $12, $13, $14::text::json FROM ended RETURNING (SELECT seconds FROM ended)";

async fn end(
    client: &impl GenericClient,
    fence: &[&(dyn ToSql + Sync); 4],
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
    let from = words(state.predecessors().filter(|from| *from != RunState::Queued || seq.is_none()));
    let data = final_data(outcome).to_string();
    let usage = serde_json::to_string(usage)?;
    let seq = seq.map(|seq| i64::try_from(seq).unwrap_or(i64::MAX));
    let event_id = EventId::new().uuid();
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
    one(client, END, fence, &rest).await
}

/// What the final event says. The result itself stands in the run's record.
fn final_data(outcome: &Outcome) -> Value {
    match outcome {
        Outcome::Succeeded { result, usage } => json!({ "finish_reason": result.finish_reason, "usage": usage }),
        Outcome::Failed { error, usage } => json!({ "error": error, "usage": usage }),
        Outcome::Cancelled { effects, usage } => json!({ "effects": effects, "usage": usage }),
    }
}

/// The outcome of a run whose definition the device does not hold.
fn definition_mismatch() -> Outcome {
    Outcome::Failed {
        error: RunError {
            code: RunErrorCode::DefinitionMismatch,
            message: "The device no longer holds the version of the service that this run was accepted for.".to_owned(),
            retryable: true,
            effects: Effects::None,
        },
        usage: Default::default(),
    }
}

fn words(states: impl IntoIterator<Item = RunState>) -> Vec<&'static str> {
    states.into_iter().map(RunState::as_str).collect()
}

async fn one(
    client: &impl GenericClient,
    sql: &str,
    fence: &[&(dyn ToSql + Sync); 4],
    rest: &[&(dyn ToSql + Sync)],
) -> Result<Option<Row>, Error> {
    let statement = client.prepare_cached(sql).await?;
    let params: Vec<&(dyn ToSql + Sync)> = fence.iter().chain(rest).copied().collect();
    Ok(client.query(&statement, &params).await?.into_iter().next())
}

fn offer_of(row: &Row) -> Result<Offer, Error> {
    let missing = || Error::Data("a run without an input".to_owned());
    Ok(Offer {
        run_id: row.try_get::<_, uuid::Uuid>("run_id")?.into(),
        attempt: row.try_get::<_, i32>("attempt")?.unsigned_abs(),
        endpoint_id: row.try_get::<_, uuid::Uuid>("endpoint_id")?.into(),
        endpoint_version: row.try_get::<_, i32>("endpoint_version")?.unsigned_abs(),
        definition_sha256: digest(row.try_get("definition_sha256")?)?,
        input: json_column(row, "input")?.ok_or_else(missing)?,
        conversation: row.try_get::<_, Option<uuid::Uuid>>("conversation_id")?.map(Into::into),
        generation: row.try_get::<_, Option<i32>>("generation")?.map(i32::unsigned_abs),
        max_duration_s: row.try_get::<_, i32>("max_duration_s")?.unsigned_abs(),
        traceparent: row.try_get("traceparent")?,
    })
}
