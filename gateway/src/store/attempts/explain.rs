//! Why a record changed nothing: it was stored before, numbers are missing, or the attempt is another's.

use std::time::Duration;

use deskgate_protocol::control::RevokeCode;
use deskgate_protocol::run::{EventType, Outcome, RunState};

use super::batches::ReportedRecord;
use super::{AttemptRecord, AttemptUpdate, RecordOutcome, write};
use crate::notify::Topic;
use crate::store::columns::word;
use crate::store::leases::SessionKey;
use crate::store::{Error, Store};

impl Store {
    /// Stores a start that could not be stored a moment ago. Returns whether it could be now.
    async fn start_after_all(&self, session: SessionKey, record: &AttemptRecord) -> Result<bool, Error> {
        let client = self.client().await?;
        let change = write(&*client, ReportedRecord { session, record }, Duration::ZERO).await?;
        client.give_back();
        if let Some(change) = change {
            self.count(&record.what, change);
            self.notifier().notify(Topic::Run(record.run_id));
        }
        Ok(change.is_some())
    }

    /// Why a record changed nothing.
    pub(super) async fn explain(&self, session: SessionKey, record: &AttemptRecord) -> Result<RecordOutcome, Error> {
        if matches!(record.what, AttemptUpdate::Start) {
            self.pass_over_lost_claims(session, &[(record.run_id, record.attempt)]).await?;
        }
        let sql = "-- attempts::explain
            SELECT attempt, epoch, state, device_seq, unknown_attempt = $3, output IS NOT NULL FROM runs WHERE run_id = $1 AND device_id = $2";
        let said = i32::try_from(record.attempt).unwrap_or(i32::MAX);
        let Some(row) = self.durable_opt(sql, &[&record.run_id.uuid(), &session.device_id.uuid(), &said]).await? else {
            return Ok(RecordOutcome::Revoked(RevokeCode::UnknownRun));
        };
        let (attempt, epoch): (i32, i64) = (row.try_get(0)?, row.try_get(1)?);
        let state: RunState = word(row.try_get(2)?)?;
        let device_seq = row.try_get::<_, i64>(3)?.unsigned_abs();
        if attempt.unsigned_abs() != record.attempt || epoch != session.epoch_column() {
            let is_final = EventType::ending(state).is_some();
            // The next attempt was begun when this was reported before; its offer may have got lost.
            let begun = row.try_get::<_, Option<bool>>(4)? == Some(true) && epoch == session.epoch_column();
            if matches!(record.what, AttemptUpdate::RunAgain) && begun && !is_final {
                return Ok(RecordOutcome::Done);
            }
            let repeated = matches!(record.what, AttemptUpdate::End { seq, .. } if is_final && seq <= device_seq);
            let same_attempt = attempt.unsigned_abs() == record.attempt;
            return Ok(match (repeated && same_attempt, is_final) {
                (true, _) => RecordOutcome::Done,
                (_, true) => RecordOutcome::Revoked(RevokeCode::AlreadyFinal),
                // Revoked, the device would forget how the run ended.
                _ if same_attempt && session.epoch_column() < epoch => RecordOutcome::Replaced,
                _ => RecordOutcome::Revoked(RevokeCode::StaleAttempt),
            });
        }
        if matches!(record.what, AttemptUpdate::Return) && EventType::ending(state).is_some() {
            return Ok(RecordOutcome::Revoked(RevokeCode::AlreadyFinal));
        }
        Ok(match &record.what {
            AttemptUpdate::Start if matches!(state, RunState::Running | RunState::Cancelling) => RecordOutcome::Done,
            // It was claimed anew in between, under the number that a lost claim had: the device holds just that.
            AttemptUpdate::Start if state == RunState::Queued && self.start_after_all(session, record).await? => {
                RecordOutcome::Done
            }
            AttemptUpdate::Events { first, events } if device_seq + 1 >= first.saturating_add(events.len() as u64) => {
                RecordOutcome::Done
            }
            AttemptUpdate::Events { first, .. } if device_seq + 1 < *first => RecordOutcome::Gap,
            AttemptUpdate::Approval { seq, .. } if device_seq >= *seq => RecordOutcome::Done,
            AttemptUpdate::Approval { seq, .. } if device_seq + 1 < *seq => RecordOutcome::Gap,
            // Only stored events are acknowledged: an end with a gap before it is not acknowledged.
            AttemptUpdate::End { seq, .. } if device_seq >= *seq && EventType::ending(state).is_none() => {
                RecordOutcome::Gap
            }
            AttemptUpdate::End { seq, .. } if device_seq >= *seq => RecordOutcome::Done,
            AttemptUpdate::End { seq, .. } if device_seq + 1 < *seq => RecordOutcome::Gap,
            AttemptUpdate::End { outcome: Outcome::Succeeded { .. }, is_checked: false, .. } if row.try_get(5)? => {
                RecordOutcome::Unchecked
            }
            AttemptUpdate::Mismatch if EventType::ending(state).is_some() => RecordOutcome::Done,
            AttemptUpdate::Mismatch => RecordOutcome::Gap,
            AttemptUpdate::Return if state == RunState::Queued => RecordOutcome::Done,
            AttemptUpdate::Return => RecordOutcome::Kept,
            AttemptUpdate::Reconcile | AttemptUpdate::Unknown | AttemptUpdate::Lose => RecordOutcome::Done,
            AttemptUpdate::Cancel { .. } if EventType::ending(state).is_some() => RecordOutcome::Done,
            _ if EventType::ending(state).is_some() => RecordOutcome::Revoked(RevokeCode::AlreadyFinal),
            _ => RecordOutcome::Revoked(RevokeCode::StaleAttempt),
        })
    }
}
