//! Runs that a restored backup left in doubt and that had not begun: queued again once the device that executes them says
//! that its journal never had them.
//!
//! That word counts only from the journal that the device had when the backup was made: it has taken whatever began since.
//! A journal remembers a run for eight days at least, so it is not asked about older ones. What is not queued again waits for
//! its owner.

use deskgate_protocol::control::MAX_RECALLED_RUNS;
use deskgate_protocol::run::EventType;
use deskgate_protocol::{JournalId, RunId};
use tokio_postgres::types::ToSql;

use super::leases::SessionKey;
use super::operations::FIRST_RESTORED_ATTEMPT;
use super::{Error, Store};
use crate::notify::Topic;

/// The runs that may be recalled. What a second restore put back may have begun in a journal of before the first.
const RECALLABLE_SQL: &str = "r.device_id = $1 AND r.state = 'awaiting_reconciliation' AND r.started_at IS NULL
    AND r.attempt >= $3 AND r.attempt < 2 * $3 AND r.stop_operation_id IS NULL AND r.created_at > now() - interval '7 days'";

impl Store {
    /// Notes the journal of a session's device. Returns whether it is the one of the backup that was restored.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn note_journal(&self, session: SessionKey, journal_id: JournalId) -> Result<bool, Error> {
        let sql = "-- recalls::note_journal
            UPDATE devices SET journal_id = $3,
                restored_journal_id = CASE WHEN restored_journal_id = $3 THEN restored_journal_id END
            WHERE device_id = $1 AND epoch = $2 RETURNING restored_journal_id IS NOT NULL";
        let params: [&(dyn ToSql + Sync); 3] = [&session.device_id.uuid(), &session.epoch_column(), &journal_id.uuid()];
        let noted = self.durable_opt(sql, &params).await?;
        noted.map_or(Ok(false), |row| Ok(row.try_get(0)?))
    }

    /// Runs behind this one that the session's device is to be asked about, at most [`MAX_RECALLED_RUNS`], in their order.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn runs_to_recall(&self, session: SessionKey, behind: Option<RunId>) -> Result<Vec<RunId>, Error> {
        let sql = format!(
            "-- recalls::runs_to_recall
            SELECT r.run_id FROM runs r JOIN devices d USING (device_id)
            WHERE {RECALLABLE_SQL} AND d.epoch = $2 AND d.restored_journal_id IS NOT NULL
                AND ($4::uuid IS NULL OR r.run_id > $4)
            ORDER BY r.run_id LIMIT {MAX_RECALLED_RUNS}"
        );
        let behind = behind.map(|run_id| run_id.uuid());
        let params: [&(dyn ToSql + Sync); 4] =
            [&session.device_id.uuid(), &session.epoch_column(), &FIRST_RESTORED_ATTEMPT, &behind];
        let rows = self.durable_rows(&sql, &params).await?;
        rows.iter().map(|row| Ok(row.try_get::<_, uuid::Uuid>(0)?.into())).collect()
    }

    /// Queues runs again that the journal of the session's device never had: they keep their place in the queue, and their
    /// numbers go on where they were, as no offer since is in any journal. Returns how many.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn requeue(&self, session: SessionKey, never_had: &[RunId]) -> Result<usize, Error> {
        let sql = format!(
            "-- recalls::requeue
            WITH requeued AS (
                UPDATE runs r SET state = 'queued', attempt = attempt - $3, last_sequence = last_sequence + 1
                FROM devices d
                WHERE {RECALLABLE_SQL} AND r.run_id = ANY ($4) AND d.device_id = r.device_id AND d.epoch = $2
                    AND d.restored_journal_id IS NOT NULL
                RETURNING run_id, last_sequence)
            INSERT INTO run_events (run_id, sequence, event_id, type, data)
            SELECT run_id, last_sequence, gen_random_uuid(), $5, '{{\"state\":\"queued\",\"by\":\"device\"}}' FROM requeued
            RETURNING run_id"
        );
        let runs: Vec<_> = never_had.iter().map(|run_id| run_id.uuid()).collect();
        let kind = EventType::RunReconciled.as_str();
        let params: [&(dyn ToSql + Sync); 5] =
            [&session.device_id.uuid(), &session.epoch_column(), &FIRST_RESTORED_ATTEMPT, &runs, &kind];
        let rows = self.durable_rows(&sql, &params).await?;
        for row in &rows {
            self.notifier().notify(Topic::Run(row.try_get::<_, uuid::Uuid>(0)?.into()));
        }
        if !rows.is_empty() {
            self.notifier().notify(Topic::Queue(session.device_id));
        }
        Ok(rows.len())
    }
}
