//! The deletion of ended work. Runs are deleted when their retention is over, and for as long again their owners can
//! learn that; resets, and the requests that opened conversations, are deleted after the same time.

use std::time::Duration;

use deskgate_protocol::{ApplicationId, EndpointId, RunId};

use super::files::RELEASE_SQL;
use super::{Error, Store};

/// The most runs that one statement deletes.
const MAX_RUNS_PER_DELETE: i64 = 500;
/// The most events that one statement deletes, up to those of its last run: so none holds its locks for long.
const MAX_EVENTS_PER_DELETE: i64 = 20_000;
/// The most rows that one statement of the other kinds deletes.
const MAX_ROWS_PER_DELETE: i64 = 10_000;

impl Store {
    /// Deletes ended runs whose time is over, with their events, their stops and their Idempotency-Keys.
    /// Returns how many; 0 when none is left.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn purge_runs(&self) -> Result<usize, Error> {
        let sql = format!(
            "-- retention::purge_runs
            WITH due AS (
                SELECT run_id, last_sequence, purge_at FROM runs WHERE purge_at <= now()
                ORDER BY purge_at LIMIT $1 FOR UPDATE SKIP LOCKED
            ), counted AS (
                -- Events are numbered without gaps, so the last number is how many there are.
                SELECT run_id, sum(last_sequence) OVER (ORDER BY purge_at, run_id) - last_sequence AS events FROM due
            ), gone AS (
                DELETE FROM runs WHERE run_id IN (SELECT run_id FROM counted WHERE events < $2::bigint)
                RETURNING run_id, app_id, subject, endpoint_id, purge_at - finished_at AS kept
            ), events AS (
                DELETE FROM run_events WHERE run_id IN (SELECT run_id FROM gone)
            ), stops AS (
                DELETE FROM control_operations WHERE run_id IN (SELECT run_id FROM gone)
            ), {RELEASE_SQL}
            INSERT INTO purged_runs (run_id, app_id, subject, endpoint_id, forget_at)
            SELECT run_id, app_id, subject, endpoint_id, now() + kept FROM gone RETURNING run_id"
        );
        Ok(self.durable_rows(&sql, &[&MAX_RUNS_PER_DELETE, &MAX_EVENTS_PER_DELETE]).await?.len())
    }

    /// How many ended runs are stored, and how many of them ended longer ago than this.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn ended_runs(&self, ago: Duration) -> Result<(i64, i64), Error> {
        let sql = "-- retention::ended_runs
            SELECT count(*), count(*) FILTER (WHERE finished_at < now() - make_interval(secs => $1))
            FROM runs WHERE finished_at IS NOT NULL";
        let rows = self.relaxed_rows(sql, &[&ago.as_secs_f64()]).await?;
        let Some(row) = rows.first() else { return Ok((0, 0)) };
        Ok((row.try_get(0)?, row.try_get(1)?))
    }

    /// Shortens the retention of ended runs to at most this. Returns for how many it changed.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn shorten_retention(&self, retention: Duration) -> Result<usize, Error> {
        let sql = "-- retention::shorten
            UPDATE runs SET purge_at = finished_at + make_interval(secs => $1) WHERE run_id IN (
                SELECT run_id FROM runs WHERE purge_at > finished_at + make_interval(secs => $1)
                LIMIT $2 FOR UPDATE SKIP LOCKED)
            RETURNING run_id";
        let mut shortened = 0;
        loop {
            match self.durable_rows(sql, &[&retention.as_secs_f64(), &MAX_ROWS_PER_DELETE]).await?.len() {
                0 => return Ok(shortened),
                count => shortened += count,
            }
        }
    }

    /// Deletes the last trace of runs that were deleted long ago. Returns how many.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn forget_purged_runs(&self) -> Result<usize, Error> {
        let sql = "-- retention::forget_purged_runs
            DELETE FROM purged_runs WHERE run_id IN (
                SELECT run_id FROM purged_runs WHERE forget_at <= now() LIMIT $1 FOR UPDATE SKIP LOCKED)
            RETURNING run_id";
        Ok(self.durable_rows(sql, &[&MAX_ROWS_PER_DELETE]).await?.len())
    }

    /// Deletes resets that ended so long ago, with the requests that asked for them. Returns how many.
    /// (Stops go with their runs.)
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn forget_resets(&self, retention: Duration) -> Result<usize, Error> {
        let sql = "-- retention::forget_resets
            DELETE FROM control_operations WHERE operation_id IN (
                SELECT operation_id FROM control_operations
                WHERE kind = 'conversation.reset' AND completed_at <= now() - make_interval(secs => $1)
                LIMIT $2 FOR UPDATE SKIP LOCKED)
            RETURNING operation_id";
        Ok(self.durable_rows(sql, &[&retention.as_secs_f64(), &MAX_ROWS_PER_DELETE]).await?.len())
    }

    /// Deletes requests that opened a conversation so long ago; the conversation stays. Returns how many.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn forget_openings(&self, retention: Duration) -> Result<usize, Error> {
        let sql = "-- retention::forget_openings
            DELETE FROM request_identities WHERE identity IN (
                SELECT identity FROM request_identities
                WHERE conversation_id IS NOT NULL AND created_at <= now() - make_interval(secs => $1)
                LIMIT $2 FOR UPDATE SKIP LOCKED)
            RETURNING identity";
        Ok(self.durable_rows(sql, &[&retention.as_secs_f64(), &MAX_ROWS_PER_DELETE]).await?.len())
    }

    /// The service of a deleted run of this application and subject, while it is remembered.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn purged_run(
        &self,
        app_id: ApplicationId,
        subject: &str,
        run_id: RunId,
    ) -> Result<Option<EndpointId>, Error> {
        let sql = "-- retention::purged_run
            SELECT endpoint_id FROM purged_runs WHERE run_id = $1 AND app_id = $2 AND subject = $3";
        let row = self.durable_opt(sql, &[&run_id.uuid(), &app_id.uuid(), &subject]).await?;
        row.map(|row| Ok(row.try_get::<_, uuid::Uuid>(0)?.into())).transpose()
    }
}
