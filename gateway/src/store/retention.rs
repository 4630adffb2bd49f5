//! The end of ended runs: they are deleted when their time is over, and for as long again their owners
//! are told so.

use deskgate_protocol::{ApplicationId, EndpointId, RunId};

use super::{Error, Store};

/// Runs that one statement deletes at most.
const RUNS: i64 = 500;
/// Events that one statement deletes, up to those of its last run: so none holds its locks for long.
const EVENTS: i64 = 20_000;
/// Rows in one statement that forgets.
const FORGOTTEN: i64 = 10_000;

impl Store {
    /// Deletes ended runs whose time is over, with their events, their stops and their Idempotency-Keys.
    /// Returns how many; 0 when none is left.
    pub async fn purge_runs(&self) -> Result<usize, Error> {
        let sql = "-- retention::purge_runs
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
            )
            INSERT INTO purged_runs (run_id, app_id, subject, endpoint_id, forget_at)
            SELECT run_id, app_id, subject, endpoint_id, now() + kept FROM gone RETURNING run_id";
        Ok(self.durable_rows(sql, &[&RUNS, &EVENTS]).await?.len())
    }

    /// Forgets deleted runs of which their owners were told long enough. Returns how many.
    pub async fn forget_purged_runs(&self) -> Result<usize, Error> {
        let sql = "-- retention::forget_purged_runs
            DELETE FROM purged_runs WHERE run_id IN (
                SELECT run_id FROM purged_runs WHERE forget_at <= now() LIMIT $1 FOR UPDATE SKIP LOCKED)
            RETURNING run_id";
        Ok(self.durable_rows(sql, &[&FORGOTTEN]).await?.len())
    }

    /// The service of a deleted run of this application and subject, while it is remembered.
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
