//! The end of deliveries: discards those without a receiver, and deletes those that ended long ago.

use std::time::Duration;

use crate::store::{Error, Store};

/// Rows in one statement, so that none holds its locks for long.
const MAX_BATCH_ROWS: i64 = 2000;

impl Store {
    /// Discards deliveries of a callback whose application was disabled, or that was disabled for longer than the
    /// retention of their events. Returns how many.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn discard_deliveries(&self, retention: Duration) -> Result<usize, Error> {
        let sql = "-- deliveries::discard
            UPDATE deliveries SET state = 'discarded', due_at = NULL, finished_at = now(),
                purge_at = now() + make_interval(secs => $1)
            WHERE state = 'pending' AND delivery_id IN (
                SELECT d.delivery_id FROM destinations t CROSS JOIN LATERAL (
                    SELECT delivery_id FROM deliveries
                    WHERE destination_id = t.destination_id AND state = 'pending'
                        AND (t.disabled_for = 'application' OR due_at < now() - make_interval(secs => $1))
                    LIMIT $2 FOR UPDATE SKIP LOCKED) d
                WHERE t.disabled_at IS NOT NULL LIMIT $2)
            RETURNING 1";
        Ok(self.durable_rows(sql, &[&retention.as_secs_f64(), &MAX_BATCH_ROWS]).await?.len())
    }

    /// Deletes deliveries whose time is over, with their attempts. Returns how many.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn purge_deliveries(&self) -> Result<usize, Error> {
        let sql = "-- deliveries::purge
            WITH gone AS (
                DELETE FROM deliveries WHERE delivery_id IN (
                    SELECT delivery_id FROM deliveries WHERE purge_at <= now() LIMIT $1 FOR UPDATE SKIP LOCKED)
                RETURNING delivery_id
            ), attempts AS (
                DELETE FROM delivery_attempts WHERE delivery_id IN (SELECT delivery_id FROM gone))
            SELECT 1 FROM gone";
        Ok(self.durable_rows(sql, &[&MAX_BATCH_ROWS]).await?.len())
    }
}
