//! Reading the stored events of a run.

use deskgate_protocol::RunId;
use deskgate_protocol::run::RunEvent;
use tokio_postgres::Row;

use super::runs::{json, word};
use super::{Error, Store};

impl Store {
    /// The events of a run after a sequence, oldest first. Who may see the run is decided before.
    pub async fn events_after(&self, run_id: RunId, after: u64, limit: i64) -> Result<Vec<RunEvent>, Error> {
        let sql = "-- events::events_after
            SELECT event_id, run_id, sequence, type, created_at, data FROM run_events
            WHERE run_id = $1 AND sequence > $2 ORDER BY sequence LIMIT $3";
        let after = i64::try_from(after).unwrap_or(i64::MAX);
        self.durable_rows(sql, &[&run_id.uuid(), &after, &limit]).await?.iter().map(event).collect()
    }
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
