//! Confirmations: a device's results of control operations.

use std::time::Duration;

use deskgate_protocol::operation::OutcomeCode;
use deskgate_protocol::run::{EventType, RunState};
use deskgate_protocol::{EventId, OperationId, RunId};
use serde_json::json;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::leases::SessionKey;
use super::operations::FIRST_RESTORED_ATTEMPT;
use super::{Error, Store};
use crate::notify::Topic;

impl Store {
    /// Stores a device's result of an operation. For a stop it counts only where the run does not say more: a run that
    /// ended has completed its stop already. The device reports it after the run's end, so a run without an end by now
    /// gets none from the device. `retention` is how long a run that ends by it is kept.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn operation_done(
        &self,
        session: SessionKey,
        operation_id: OperationId,
        outcome: OutcomeCode,
        retention: Duration,
    ) -> Result<(), Error> {
        let fence: OperationFence<'_> = [&operation_id.uuid(), &session.device_id.uuid(), &session.epoch_column()];
        let changed = match outcome {
            OutcomeCode::Reset => self.durable_opt(RESET_DONE_SQL, &fence).await?,
            OutcomeCode::OutcomeUnknown => self.end_forgotten(&fence, retention, false).await?,
            // A run that a restore left in doubt ended before on the device: its outcome stays unknown.
            OutcomeCode::Stopped | OutcomeCode::AlreadyFinal => {
                match self.end_forgotten(&fence, retention, true).await? {
                    Some(ended) => Some(ended),
                    None => self.await_end(&fence).await?,
                }
            }
        };
        if let Some(run_id) = changed.map(|row| row.try_get::<_, Option<uuid::Uuid>>(0)).transpose()?.flatten() {
            self.notifier().notify(Topic::Run(RunId::from(run_id)));
        }
        self.notifier().notify(Topic::Control(session.device_id));
        Ok(())
    }

    /// Ends a run that is to be stopped and that its device no longer knows.
    async fn end_forgotten(
        &self,
        fence: &OperationFence<'_>,
        retention: Duration,
        restored_only: bool,
    ) -> Result<Option<Row>, Error> {
        let [event_id, reconciled_id, withdrawn_id] = std::array::from_fn(|_| EventId::new().uuid());
        let retention = retention.as_secs_f64();
        // A run that was never offered has that very number.
        let after = if restored_only { FIRST_RESTORED_ATTEMPT - 1 } else { -1 };
        let rest: [&(dyn ToSql + Sync); 5] = [&event_id, &reconciled_id, &withdrawn_id, &retention, &after];
        let ended = self.durable_opt(STOP_FORGOTTEN_SQL, &[&fence[..], &rest[..]].concat()).await?;
        if let Some(row) = &ended {
            self.metrics().run_ended(RunState::Cancelled.as_str(), row.try_get(1)?);
        }
        Ok(ended)
    }

    /// Leaves a run in doubt that ended on the device, but whose outcome got lost.
    async fn await_end(&self, fence: &OperationFence<'_>) -> Result<Option<Row>, Error> {
        let (event_id, kind) = (EventId::new().uuid(), EventType::RunAwaitingReconciliation.as_str());
        let data = json!({ "reason": "the device says that this run ended, and no longer knows how" }).to_string();
        let rest: [&(dyn ToSql + Sync); 3] = [&event_id, &kind, &data];
        self.durable_opt(STOP_LOST_SQL, &[&fence[..], &rest[..]].concat()).await
    }
}

/// Operation, device and epoch: the first three parameters of every statement here.
type OperationFence<'a> = [&'a (dyn ToSql + Sync); 3];

const RESET_DONE_SQL: &str = "-- confirmations::reset_done
    WITH done AS (
        UPDATE control_operations o SET state = 'completed', outcome = 'reset', completed_at = now()
        FROM devices d
        WHERE o.operation_id = $1 AND o.device_id = $2 AND o.kind = 'conversation.reset' AND o.completed_at IS NULL
            AND d.device_id = $2 AND d.epoch = $3
        RETURNING o.operation_id, o.conversation_id, o.run_id)
    UPDATE conversations c SET generation = c.generation + 1, reset_operation_id = NULL, updated_at = now()
    FROM done WHERE c.conversation_id = done.conversation_id AND c.reset_operation_id = done.operation_id
    RETURNING done.run_id";

/// A device that does not know a run neither executes it nor will: it is cancelled, and whether it changed anything is
/// unknown. So is whether the stop ended it; the operation is therefore completed before the run's end would do it.
const STOP_FORGOTTEN_SQL: &str = "-- confirmations::stop_forgotten
    WITH held AS (
        SELECT run_id, state = 'awaiting_reconciliation' AS in_doubt, open_approval FROM runs
        WHERE run_id = (SELECT run_id FROM control_operations WHERE operation_id = $1 AND completed_at IS NULL)
            AND device_id = $2 AND epoch = $3 AND stop_operation_id = $1 AND finished_at IS NULL AND attempt > $8
        FOR UPDATE
    ), ended AS (
        UPDATE runs r SET state = 'cancelled', finished_at = now(), purge_at = now() + make_interval(secs => $7),
            open_approval = NULL,
            last_sequence = last_sequence + 1 + in_doubt::integer + (held.open_approval IS NOT NULL)::integer
        FROM held WHERE r.run_id = held.run_id
        RETURNING r.run_id, last_sequence, in_doubt, held.open_approval AS withdrawn,
            extract(epoch FROM finished_at - started_at)::float8 AS seconds
    ), told AS (
        INSERT INTO run_events (run_id, sequence, event_id, type, data)
        SELECT run_id, last_sequence - 1 - in_doubt::integer, $6::uuid, 'run.approval_resolved', json_build_object(
            'approval_id', 'apr_' || replace(withdrawn::text, '-', ''), 'resolution', 'withdrawn')
        FROM ended WHERE withdrawn IS NOT NULL UNION ALL
        SELECT run_id, last_sequence - 1, $5::uuid, 'run.reconciled',
            json_build_object('state', 'cancelled', 'by', 'device')
        FROM ended WHERE in_doubt UNION ALL
        SELECT run_id, last_sequence, $4::uuid, 'run.cancelled', json_build_object('effects', 'possible') FROM ended)
    UPDATE control_operations o SET state = 'completed', outcome = 'outcome_unknown', completed_at = now(),
        run_state = 'cancelled'
    FROM ended WHERE o.operation_id = $1 RETURNING o.run_id, ended.seconds";

const STOP_LOST_SQL: &str = "-- confirmations::stop_lost
    WITH held AS (
        SELECT run_id, state FROM runs
        WHERE run_id = (SELECT run_id FROM control_operations WHERE operation_id = $1 AND completed_at IS NULL)
            AND device_id = $2 AND epoch = $3 AND stop_operation_id = $1 AND finished_at IS NULL
        FOR UPDATE
    ), moved AS (
        UPDATE runs r SET state = 'awaiting_reconciliation', last_sequence = r.last_sequence + 1
        FROM held WHERE r.run_id = held.run_id AND held.state <> 'awaiting_reconciliation'
        RETURNING r.run_id, r.last_sequence
    ), told AS (
        INSERT INTO run_events (run_id, sequence, event_id, type, data)
        SELECT run_id, last_sequence, $4, $5, $6::text::json FROM moved)
    UPDATE control_operations o SET state = 'completed', outcome = 'outcome_unknown', completed_at = now(),
        run_state = 'awaiting_reconciliation'
    FROM held WHERE o.operation_id = $1 RETURNING o.run_id";
