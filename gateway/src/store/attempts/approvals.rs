//! Requests for approval: the run awaits approval while one is open. Only the device opens and closes them.

use deadpool_postgres::GenericClient;
use deskgate_protocol::run::{EventType, RunState};
use deskgate_protocol::{ApprovalId, EventId, Timestamp};
use serde_json::Value;

use super::Change;
use super::batches::ReportedRecord;
use crate::store::Error;

/// A request for approval that the device has opened or closed.
#[derive(Clone, Debug, PartialEq)]
pub struct Approval {
    /// The request.
    pub approval_id: ApprovalId,
    /// Until when a decision about it counts, by the device's clock; `None` closes it.
    pub open_until: Option<Timestamp>,
    /// Its data for callers.
    pub data: Value,
}

impl Approval {
    fn event(&self) -> EventType {
        match self.open_until {
            Some(_) => EventType::RunAwaitingApproval,
            None => EventType::RunApprovalResolved,
        }
    }

    /// The change of the run's state. A run that is in doubt or being stopped keeps its state.
    fn step(&self) -> (RunState, RunState) {
        match self.open_until {
            Some(_) => (RunState::Running, RunState::AwaitingApproval),
            None => (RunState::AwaitingApproval, RunState::Running),
        }
    }
}

/// Closing a request that is not the open one changes no state. A device may keep a request open for at most a week.
const APPROVAL_SQL: &str = "-- attempts::approval
    WITH moved AS (
        UPDATE runs SET device_seq = $5, last_sequence = last_sequence + 1,
            state = CASE WHEN state = $8 AND ($7::timestamptz IS NOT NULL OR open_approval = $6) THEN $9 ELSE state END,
            open_approval = CASE WHEN $7 IS NOT NULL THEN $6 ELSE nullif(open_approval, $6) END,
            waited_until = least(coalesce($7, now()), now() + interval '7 days')
        WHERE run_id = $1 AND attempt = $2 AND device_id = $3 AND epoch = $4
            AND state IN ('running', 'awaiting_approval', 'awaiting_reconciliation', 'cancelling')
            AND device_seq = $5::bigint - 1
        RETURNING run_id, last_sequence)
    INSERT INTO run_events (run_id, sequence, event_id, type, data)
    SELECT run_id, last_sequence, $10, $11, $12::text::json FROM moved RETURNING NULL::float8";

/// Stores the device's event `seq`, which opens or closes a request.
pub(super) async fn store(
    client: &impl GenericClient,
    reported: ReportedRecord<'_>,
    seq: u64,
    approval: &Approval,
) -> Result<Option<Change>, Error> {
    let seq = i64::try_from(seq).unwrap_or(i64::MAX);
    let (approval_id, until) = (approval.approval_id.uuid(), approval.open_until.map(|until| until.0));
    let (from, to) = approval.step();
    let (event_id, kind, data) = (EventId::new().uuid(), approval.event(), approval.data.to_string());
    let (from, to, kind) = (from.as_str(), to.as_str(), kind.as_str());
    reported.one(client, APPROVAL_SQL, &[&seq, &approval_id, &until, &from, &to, &event_id, &kind, &data]).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opening_and_closing_are_steps_of_the_transition_table() {
        for open_until in [None, Some(Timestamp::now())] {
            let (from, to) = Approval { approval_id: ApprovalId::new(), open_until, data: Value::Null }.step();
            assert!(from.may_become(to), "{from} to {to}");
        }
    }
}
