//! The gateway's current status, for operators: counted where an index limits the count, so that a long queue is not
//! read to its end.

use deskgate_protocol::DeviceId;

use super::columns::word;
use super::devices::{PRESENCE_SQL, Presence};
use super::{Error, Store};

/// Runs of one device are counted up to here.
const MAX_COUNTED_RUNS: i64 = 100_000;

/// The counts of one device; revoked devices are left out.
#[derive(Clone, Debug)]
pub struct DeviceCounts {
    /// The device.
    pub device_id: DeviceId,
    /// Its presence.
    pub presence: Presence,
    /// Seconds since it was last seen.
    pub last_seen_s: Option<f64>,
    /// Sessions it ever began.
    pub sessions: u64,
    /// Runs that wait for it, counted up to 100,000.
    pub waiting: u64,
    /// Seconds since the oldest of those was accepted.
    pub oldest_s: Option<f64>,
    /// Started runs by state: running, awaiting approval, awaiting reconciliation, cancelling.
    pub started: [u64; 4],
}

/// The connections to the database.
#[derive(Clone, Copy, Debug)]
pub struct PoolStatus {
    /// Open and not in use.
    pub idle: usize,
    /// In use.
    pub busy: usize,
    /// Callers that wait for one.
    pub waiting: usize,
}

impl Store {
    /// Every device that is not revoked.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn device_counts(&self) -> Result<Vec<DeviceCounts>, Error> {
        let sql = format!(
            "-- census::census
            SELECT d.device_id, {PRESENCE_SQL} AS presence, d.epoch,
                extract(epoch FROM now() - d.last_seen_at)::float8 AS last_seen_s,
                (SELECT count(*) FROM (SELECT FROM run_queue q WHERE q.device_id = d.device_id
                    AND q.offered_until IS NULL LIMIT $1) w) AS waiting,
                (SELECT extract(epoch FROM now() - q.created_at)::float8 FROM run_queue q WHERE q.device_id = d.device_id
                    AND q.offered_until IS NULL ORDER BY q.created_at LIMIT 1) AS oldest_s,
                s.running, s.awaiting_approval, s.awaiting_reconciliation, s.cancelling
            FROM devices d CROSS JOIN LATERAL (
                SELECT count(*) FILTER (WHERE state = 'running') AS running,
                    count(*) FILTER (WHERE state = 'awaiting_approval') AS awaiting_approval,
                    count(*) FILTER (WHERE state = 'awaiting_reconciliation') AS awaiting_reconciliation,
                    count(*) FILTER (WHERE state = 'cancelling') AS cancelling
                FROM (SELECT r.state FROM runs r WHERE r.device_id = d.device_id AND r.state IN
                    ('running', 'awaiting_approval', 'awaiting_reconciliation', 'cancelling') LIMIT $1) started) s
            WHERE d.revoked_at IS NULL"
        );
        self.relaxed_rows(&sql, &[&MAX_COUNTED_RUNS]).await?.iter().map(device).collect()
    }

    /// Deliveries that wait for enabled callbacks, counted up to 10,000, and seconds since the oldest of those was
    /// queued.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn pending_deliveries(&self) -> Result<(u64, f64), Error> {
        let sql = "-- census::deliveries
            SELECT count(*), coalesce(extract(epoch FROM now() - min(p.created_at)), 0)::float8
            FROM (SELECT d.created_at FROM destinations t JOIN deliveries d USING (destination_id)
                WHERE d.state = 'pending' AND t.kind = 'callback' AND t.disabled_at IS NULL LIMIT 10000) p";
        let rows = self.relaxed_rows(sql, &[]).await?;
        let row = rows.first().ok_or_else(|| Error::Data("a count is missing".to_owned()))?;
        Ok((row.try_get::<_, i64>(0)?.unsigned_abs(), row.try_get(1)?))
    }

    /// The newest applied migration.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement. [`Error::Data`]: no migration is applied.
    pub async fn applied_migration(&self) -> Result<i32, Error> {
        let sql = "-- census::applied_migration
            SELECT version FROM deskgate_migrations ORDER BY version DESC LIMIT 1";
        Ok(self.durable_one(sql, &[]).await?.try_get(0)?)
    }

    /// The connections of all pools.
    pub fn connections(&self) -> PoolStatus {
        let all = [&self.durable, &self.relaxed, &self.filtered].map(|pool| pool.status());
        let sum = |of: fn(&deadpool_postgres::Status) -> usize| all.iter().map(of).sum::<usize>();
        let (open, idle) = (sum(|pool| pool.size), sum(|pool| pool.available));
        PoolStatus { idle, busy: open.saturating_sub(idle), waiting: sum(|pool| pool.waiting) }
    }
}

fn device(row: &tokio_postgres::Row) -> Result<DeviceCounts, Error> {
    let count = |name| row.try_get::<_, i64>(name).map(i64::unsigned_abs);
    Ok(DeviceCounts {
        device_id: row.try_get::<_, uuid::Uuid>("device_id")?.into(),
        presence: word(row.try_get("presence")?)?,
        last_seen_s: row.try_get("last_seen_s")?,
        sessions: count("epoch")?,
        waiting: count("waiting")?,
        oldest_s: row.try_get("oldest_s")?,
        started: [
            count("running")?,
            count("awaiting_approval")?,
            count("awaiting_reconciliation")?,
            count("cancelling")?,
        ],
    })
}
