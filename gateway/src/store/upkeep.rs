//! Time-outs: offers without an answer, queue times that ran out, and the end of a device. What a
//! lease that ran out does is in [`super::leases`].
//!
//! These are asked every second. What is due in the queue stands first in an index of its own, and each run is found by its
//! key, so that no plan reads the queue whole.

use std::time::Duration;

use deskgate_protocol::run::{Effects, EventType, RunError, RunErrorCode, RunState};
use deskgate_protocol::{DeviceId, RunId};
use tokio_postgres::types::ToSql;

use super::{Error, Store};
use crate::notify::Topic;

/// Rows in one statement, so that none holds its locks for long.
pub(super) const MAX_BATCH_ROWS: i64 = 500;
/// Batches of a removed device's runs that are ended while the caller waits.
const MAX_ROUNDS: usize = 20;

/// Whether runs wait for their conversation: those that do are ended first, in a statement of their own. The end of another
/// run waits for the lock of the one that follows it, so a statement that ends both kinds could meet its like.
pub(super) const WAITING_FIRST: [bool; 2] = [true, false];

impl Store {
    /// Queues offers again that were not accepted in time. Returns how many.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn return_unaccepted_offers(&self) -> Result<usize, Error> {
        let sql = "-- upkeep::return_unaccepted_offers
            UPDATE runs SET offered_until = NULL WHERE run_id = ANY (ARRAY(
                SELECT q.run_id FROM run_queue q CROSS JOIN LATERAL (
                    SELECT FROM runs WHERE run_id = q.run_id AND offered_until < now() FOR UPDATE SKIP LOCKED) free
                WHERE q.offered_until < now() ORDER BY q.offered_until LIMIT $1))
            RETURNING device_id";
        let rows = self.durable_rows(sql, &[&MAX_BATCH_ROWS]).await?;
        for row in &rows {
            self.notifier().notify(Topic::Queue(row.try_get::<_, uuid::Uuid>(0)?.into()));
        }
        Ok(rows.len())
    }

    /// Expires runs that did not start within their queue time. Returns how many.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn expire_queued(&self, retention: Duration) -> Result<usize, Error> {
        let sql = "-- upkeep::expire_queued
            WITH expired AS (
                UPDATE runs SET state = 'expired', finished_at = now(), offered_until = NULL,
                    purge_at = now() + make_interval(secs => $2), last_sequence = last_sequence + 1
                WHERE run_id = ANY (ARRAY(
                    SELECT q.run_id FROM run_queue q CROSS JOIN LATERAL (
                        SELECT FROM runs WHERE run_id = q.run_id AND state = 'queued' AND awaits_turn = $4
                        FOR UPDATE SKIP LOCKED) free
                    WHERE q.queue_expires_at <= now() AND q.awaits_turn = $4 ORDER BY q.queue_expires_at LIMIT $1))
                RETURNING run_id, last_sequence)
            INSERT INTO run_events (run_id, sequence, event_id, type, data)
            SELECT run_id, last_sequence, gen_random_uuid(), $3, '{}' FROM expired RETURNING run_id, type";
        let kind = EventType::RunExpired.as_str();
        let mut expired = 0;
        for awaits_turn in WAITING_FIRST {
            expired += self.announce(sql, &[&MAX_BATCH_ROWS, &retention.as_secs_f64(), &kind, &awaits_turn]).await?;
        }
        Ok(expired)
    }

    /// Ends a device: its key is refused from now on, its session ends, and so do its runs. False if it is unknown. The
    /// key is refused even if ending the runs takes longer than this: upkeep goes on with them.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement. Runs that cannot be ended now are no failure.
    pub async fn revoke_device(&self, device_id: DeviceId, retention: Duration) -> Result<bool, Error> {
        let sql = "-- upkeep::revoke_device
            UPDATE devices SET revoked_at = coalesce(revoked_at, now()), epoch = epoch + 1, connected_epoch = NULL,
                asleep_since = NULL
            WHERE device_id = $1 RETURNING 1";
        let revoked = self.durable_opt(sql, &[&device_id.uuid()]).await?.is_some();
        self.notifier().notify(Topic::Session(device_id));
        for _ in 0..MAX_ROUNDS {
            match self.end_runs_of_revoked_devices(retention).await {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(%error, %device_id, "runs of the removed device are ended later");
                    break;
                }
            }
        }
        Ok(revoked)
    }

    /// Cancels the runs of revoked devices that had not started, and fails the started ones, both with
    /// `device_removed`; their open requests are withdrawn. Returns how many.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn end_runs_of_revoked_devices(&self, retention: Duration) -> Result<usize, Error> {
        let removed = |effects| RunError {
            code: RunErrorCode::DeviceRemoved,
            message: "The device that executes this service was removed from the gateway.".to_owned(),
            retryable: false,
            effects,
        };
        let untouched = serde_json::to_string(&removed(Effects::None))?;
        let possible = serde_json::to_string(&removed(Effects::Possible))?;
        let sql = "-- upkeep::end_runs_of_revoked_devices
            WITH left_over AS (
                SELECT r.run_id FROM devices d CROSS JOIN LATERAL (
                    SELECT run_id FROM run_queue WHERE device_id = d.device_id AND offered_until IS NULL
                    UNION ALL
                    SELECT run_id FROM run_queue WHERE device_id = d.device_id AND offered_until IS NOT NULL
                    UNION ALL
                    SELECT run_id FROM runs WHERE device_id = d.device_id AND state IN
                        ('running', 'awaiting_approval', 'awaiting_reconciliation', 'cancelling')) r
                    CROSS JOIN LATERAL (
                        SELECT FROM runs WHERE run_id = r.run_id AND finished_at IS NULL AND awaits_turn = $5
                        FOR UPDATE SKIP LOCKED) free
                WHERE d.revoked_at IS NOT NULL LIMIT $4
            ), ended AS (
                UPDATE runs SET state = CASE WHEN state = 'queued' THEN 'cancelled' ELSE 'failed' END,
                    error = CASE WHEN state = 'queued' THEN $1::text ELSE $2::text END::json,
                    finished_at = now(), purge_at = now() + make_interval(secs => $3), offered_until = NULL,
                    last_sequence = last_sequence + 1 + (open_approval IS NOT NULL)::integer
                WHERE run_id = ANY (ARRAY(SELECT run_id FROM left_over)) AND finished_at IS NULL
                RETURNING run_id, last_sequence, state, error, open_approval
            ), withdrawn AS (
                INSERT INTO run_events (run_id, sequence, event_id, type, data)
                SELECT run_id, last_sequence - 1, gen_random_uuid(), 'run.approval_resolved', json_build_object(
                    'approval_id', 'apr_' || replace(open_approval::text, '-', ''), 'resolution', 'withdrawn')
                FROM ended WHERE open_approval IS NOT NULL)
            INSERT INTO run_events (run_id, sequence, event_id, type, data)
            SELECT run_id, last_sequence, gen_random_uuid(), 'run.' || state, json_build_object('error', error)
            FROM ended RETURNING run_id, type";
        let mut ended = 0;
        for awaits_turn in WAITING_FIRST {
            let params: [&(dyn ToSql + Sync); 5] =
                [&untouched, &possible, &retention.as_secs_f64(), &MAX_BATCH_ROWS, &awaits_turn];
            ended += self.announce(sql, &params).await?;
        }
        Ok(ended)
    }

    /// Fails the open resets of revoked devices; their conversations stay as they were. Returns how many.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn fail_resets_of_revoked_devices(&self) -> Result<usize, Error> {
        let sql = "-- upkeep::fail_resets_of_revoked_devices
            WITH failed AS (
                UPDATE control_operations o SET state = 'failed', error = $1, completed_at = now()
                FROM devices d
                WHERE d.revoked_at IS NOT NULL AND o.device_id = d.device_id AND o.completed_at IS NULL
                    AND o.kind = 'conversation.reset'
                RETURNING o.operation_id, o.conversation_id)
            UPDATE conversations c SET reset_operation_id = NULL, updated_at = now()
            FROM failed WHERE c.conversation_id = failed.conversation_id AND c.reset_operation_id = failed.operation_id
            RETURNING 1";
        Ok(self.durable_rows(sql, &[&"device_removed"]).await?.len())
    }

    pub(super) async fn announce(&self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<usize, Error> {
        let rows = self.durable_rows(sql, params).await?;
        for row in &rows {
            self.notifier().notify(Topic::Run(RunId::from(row.try_get::<_, uuid::Uuid>(0)?)));
            let event: &str = row.try_get(1)?;
            if let Some(ended) = RunState::ALL.into_iter().find(|state| ends_with(*state, event)) {
                self.metrics().run_ended(ended.as_str(), None);
            }
        }
        Ok(rows.len())
    }
}

/// Whether a state is final and this is its event.
fn ends_with(state: RunState, event: &str) -> bool {
    EventType::ending(state).is_some_and(|ending| ending.as_str() == event)
}
