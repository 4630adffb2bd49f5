//! Reading the stored events of a run.

use deskgate_protocol::run::{RunEvent, RunState};
use deskgate_protocol::{DeviceId, RunId};
use tokio_postgres::Row;

use super::columns::{json, word};
use super::devices::{PRESENCE_SQL, Presence};
use super::{Error, Store};

/// A run's progress since it was last read.
#[derive(Clone, Debug)]
pub struct RunProgress {
    /// The run.
    pub run_id: RunId,
    /// The device that executes it.
    pub device_id: DeviceId,
    /// The attempt.
    pub attempt: u32,
    /// How many events of this attempt the device has reported.
    pub device_seq: u64,
    /// Its stored state.
    pub state: RunState,
    /// The device's presence.
    pub presence: Presence,
    /// Whether it waits for the messages of its conversation that came before it.
    pub awaits_turn: bool,
    /// The new events, oldest first.
    pub events: Vec<RunEvent>,
}

impl Store {
    /// The events of a run after a sequence, oldest first. The caller checks who may see the run.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn events_after(&self, run_id: RunId, after: u64, limit: i64) -> Result<Vec<RunEvent>, Error> {
        let sql = "-- events::events_after
            SELECT event_id, run_id, sequence, type, created_at, data FROM run_events
            WHERE run_id = $1 AND sequence > $2 ORDER BY sequence LIMIT $3";
        let after = i64::try_from(after).unwrap_or(i64::MAX);
        self.durable_rows(sql, &[&run_id.uuid(), &after, &limit]).await?.iter().map(event).collect()
    }

    /// The progress of several runs, each after a sequence and with at most `limit` events. Runs that no longer exist
    /// are left out.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn progress(&self, runs: &[(RunId, u64)], limit: i64) -> Result<Vec<RunProgress>, Error> {
        let sql = format!(
            "-- events::progress
            SELECT r.run_id, r.device_id, r.attempt, r.device_seq, r.state, r.awaits_turn, {PRESENCE_SQL} AS presence,
                e.event_id, e.sequence, e.type, e.created_at, e.data
            FROM unnest($1::uuid[], $2::bigint[]) AS f(run_id, after)
            JOIN runs r USING (run_id) JOIN devices d USING (device_id)
            LEFT JOIN LATERAL (
                SELECT event_id, sequence, type, created_at, data FROM run_events
                WHERE run_id = f.run_id AND sequence > f.after ORDER BY sequence LIMIT $3) e ON true
            ORDER BY r.run_id, e.sequence"
        );
        let ids: Vec<_> = runs.iter().map(|(run_id, _)| run_id.uuid()).collect();
        let after: Vec<_> = runs.iter().map(|(_, after)| i64::try_from(*after).unwrap_or(i64::MAX)).collect();
        let mut found: Vec<RunProgress> = Vec::with_capacity(runs.len());
        for row in &self.durable_rows(&sql, &[&ids, &after, &limit]).await? {
            let run_id = RunId::from(row.try_get::<_, uuid::Uuid>("run_id")?);
            if found.last().is_none_or(|last| last.run_id != run_id) {
                found.push(progress(row)?);
            }
            let happened = row.try_get::<_, Option<i64>>("sequence")?.is_some();
            if let (true, Some(last)) = (happened, found.last_mut()) {
                last.events.push(event(row)?);
            }
        }
        Ok(found)
    }
}

fn progress(row: &Row) -> Result<RunProgress, Error> {
    Ok(RunProgress {
        run_id: row.try_get::<_, uuid::Uuid>("run_id")?.into(),
        device_id: row.try_get::<_, uuid::Uuid>("device_id")?.into(),
        attempt: row.try_get::<_, i32>("attempt")?.unsigned_abs(),
        device_seq: row.try_get::<_, i64>("device_seq")?.unsigned_abs(),
        state: word(row.try_get("state")?)?,
        presence: word(row.try_get("presence")?)?,
        awaits_turn: row.try_get("awaits_turn")?,
        events: Vec::new(),
    })
}

fn event(row: &Row) -> Result<RunEvent, Error> {
    Ok(RunEvent {
        event_id: row.try_get::<_, uuid::Uuid>("event_id")?.into(),
        run_id: row.try_get::<_, uuid::Uuid>("run_id")?.into(),
        sequence: row.try_get::<_, i64>("sequence")?.unsigned_abs(),
        kind: word(row.try_get("type")?)?,
        created_at: row.try_get::<_, jiff::Timestamp>("created_at")?.into(),
        data: json(row, "data")?.unwrap_or_default(),
    })
}
