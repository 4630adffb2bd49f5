//! Devices' changes to runs: claim, start, report, finish.
//!
//! Every statement that stores a record names run, attempt, device and epoch in its own condition. So a frame of an
//! older attempt or session changes nothing, whatever its session assumes. Here and on the control channel an attempt is
//! numbered when it is offered; callers see how often the run began instead (`started_at`, `restarts`).
//!
//! | file | what it does |
//! |---|---|
//! | `offers` | takes runs from the queue for devices |
//! | `claims` | the entrance: devices that have room at the same moment share a statement |
//! | `starts` | the device's answers to an offer |
//! | `events` | its events during the execution |
//! | `approvals` | requests for approval that it opens and closes |
//! | `ends` | the end of a run |
//! | `reconnects` | the device is back, and held the run |
//! | `explain` | why a record changed nothing |
//! | `batches` | the records of many runs in a few statements |
//! | `reports` | the entrance: what sessions report at the same moment shares a commit |

mod approvals;
mod batches;
mod claims;
mod ends;
mod events;
mod explain;
mod offers;
mod reconnects;
mod reports;
mod starts;

use std::time::Duration;

use deadpool_postgres::GenericClient;
use deskgate_protocol::RunId;
use deskgate_protocol::control::RevokeCode;
use deskgate_protocol::run::{EventType, Outcome, RunState};
use serde_json::Value;

pub use approvals::Approval;
pub use claims::Claims;
pub use offers::ServiceRoom;
pub use reports::Reports;

use batches::ReportedRecord;
use ends::RunEnding;

use super::leases::SessionKey;
use super::{Error, Store, commit, with_timeout};
use crate::notify::Topic;
use deskgate_program::crash;

/// A record about an attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct AttemptRecord {
    /// The run.
    pub run_id: RunId,
    /// The attempt.
    pub attempt: u32,
    /// The update.
    pub what: AttemptUpdate,
}

/// The content of a record.
#[derive(Clone, Debug, PartialEq)]
pub enum AttemptUpdate {
    /// The device accepted the offer.
    Start,
    /// The device did not accept the offer; the run is queued again.
    Return,
    /// Events of the device with dense numbers from `first`.
    Events {
        /// The number of the first.
        first: u64,
        /// Their types and data.
        events: Vec<(EventType, Value)>,
    },
    /// A request for approval is opened or closed.
    Approval {
        /// The number of the device's event.
        seq: u64,
        /// The request.
        approval: Approval,
    },
    /// The end. `seq` is the number after the last event.
    End {
        /// The number of this, the last report.
        seq: u64,
        /// The outcome.
        outcome: Outcome,
        /// Whether the data of a result is known to fit the run's output. Without it, a success of a run with an output is
        /// not stored.
        is_checked: bool,
        /// What the device signed about it: a foreign text that looks like a receipt.
        receipt: Option<String>,
    },
    /// The device does not hold the definition, so the run was not executed: it fails.
    Mismatch,
    /// The device is back and still executes it.
    Reconcile,
    /// The device is back, was interrupted before its first write or was asked to start over, and starts the run again.
    Restart,
    /// The device is back and does not know what the run changed.
    Unknown,
    /// The desktop user has decided that a run with an unknown outcome runs again. With an open stop it is cancelled.
    RunAgain,
    /// The device is back, a stop is open, and nothing was executed that could have changed anything.
    Cancel {
        /// The attempt that the device still has in its journal.
        held: u32,
    },
    /// The device is back and has no record of the run.
    Lose,
}

impl AttemptUpdate {
    /// About how many bytes its content has.
    fn content_bytes(&self) -> usize {
        match self {
            Self::Events { events, .. } => events.iter().map(|(_, data)| json_bytes(data)).sum(),
            Self::Approval { approval, .. } => json_bytes(&approval.data),
            Self::End { outcome: Outcome::Succeeded { result, .. }, .. } => {
                result.text.len() + result.data.as_deref().map_or(0, json_bytes)
            }
            Self::End { outcome: Outcome::Failed { error, .. }, .. } => error.message.len(),
            _ => 0,
        }
    }
}

/// About how many bytes a value has as JSON.
fn json_bytes(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(json_bytes).sum(),
        Value::Object(members) => members.iter().map(|(name, value)| name.len() + json_bytes(value)).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => size_of::<u64>(),
    }
}

/// The outcome of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordOutcome {
    /// It is durable, now or since an earlier repetition.
    Done,
    /// The attempt is no longer the device's.
    Revoked(RevokeCode),
    /// A newer session of the device holds this attempt. The device keeps its report, and repeats it there.
    Replaced,
    /// Numbers before it are missing: the device skipped some.
    Gap,
    /// It is the success of a run with an output, and its data was not checked.
    Unchecked,
    /// The device had no capacity for a run that it started before: it stays the device's, and is to be offered to it
    /// again.
    Kept,
}

/// The change that a record made.
#[derive(Clone, Copy, Debug, Default)]
struct Change {
    /// How long the run waited for its start, or took until its end; other records have none.
    seconds: Option<f64>,
}

impl Store {
    /// Stores a session's records in their order, in one commit, and returns the outcome of each.
    ///
    /// # Errors
    /// The database failed; the records may or may not be stored.
    pub async fn record(
        &self,
        session: SessionKey,
        records: &[AttemptRecord],
        retention: Duration,
    ) -> Result<Vec<RecordOutcome>, Error> {
        let reported: Vec<_> = records.iter().map(|record| ReportedRecord { session, record }).collect();
        let changes = self.write(&reported, retention).await?;
        self.outcomes(session, records, &changes).await
    }

    /// Stores records of any sessions in one commit, tells of them, and returns the change of each; `None` when it
    /// changed nothing.
    async fn write(&self, records: &[ReportedRecord<'_>], retention: Duration) -> Result<Vec<Option<Change>>, Error> {
        let written = with_timeout(async {
            let mut client = self.client().await?;
            let rounds = batches::rounds(records);
            if batches::is_one_statement(records, &rounds) {
                crash::before("attempts::record");
                let changes = batches::write_all(&*client, records, &rounds, retention).await?;
                crash::after("attempts::record");
                client.give_back();
                return Ok(changes);
            }
            let transaction = client.transaction().await?;
            let changes = batches::write_all(&transaction, records, &rounds, retention).await?;
            commit(transaction, "attempts::record").await?;
            client.give_back();
            Ok(changes)
        });
        let changes = self.note(written.await)?;
        for (ReportedRecord { session, record }, change) in records.iter().zip(&changes) {
            self.notifier().notify(Topic::Run(record.run_id));
            if matches!(record.what, AttemptUpdate::Return) {
                self.notifier().notify(Topic::Queue(session.device_id));
            }
            if let Some(change) = change {
                self.count(&record.what, *change);
            }
        }
        Ok(changes)
    }

    /// What became of a session's records that are committed.
    async fn outcomes(
        &self,
        session: SessionKey,
        records: &[AttemptRecord],
        changes: &[Option<Change>],
    ) -> Result<Vec<RecordOutcome>, Error> {
        let mut outcomes = Vec::with_capacity(records.len());
        for (record, change) in records.iter().zip(changes) {
            outcomes.push(match change {
                Some(_) => RecordOutcome::Done,
                None => self.explain(session, record).await?,
            });
        }
        Ok(outcomes)
    }

    /// Counts a start or an end. A run that was to run again may have been cancelled.
    fn count(&self, what: &AttemptUpdate, change: Change) {
        let ended = |state: RunState| self.metrics().run_ended(state.as_str(), change.seconds);
        match (what, change.seconds) {
            (AttemptUpdate::Start, Some(seconds)) => self.metrics().run_started(seconds),
            (AttemptUpdate::End { outcome, .. }, _) => ended(outcome.state()),
            (AttemptUpdate::Mismatch, _) => ended(RunState::Failed),
            (AttemptUpdate::Cancel { .. } | AttemptUpdate::RunAgain, Some(_)) => ended(RunState::Cancelled),
            _ => {}
        }
    }
}

/// Executes one record by itself; `None` when it changed nothing.
async fn write(
    client: &impl GenericClient,
    reported: ReportedRecord<'_>,
    retention: Duration,
) -> Result<Option<Change>, Error> {
    match &reported.record.what {
        AttemptUpdate::Start => starts::start_one(client, reported).await,
        AttemptUpdate::Return => starts::return_offer(client, reported).await,
        AttemptUpdate::Events { .. } => Ok(events::store(client, &[reported]).await?.into_values().next()),
        AttemptUpdate::Approval { seq, approval } => approvals::store(client, reported, *seq, approval).await,
        AttemptUpdate::End { .. } => match RunEnding::of(reported, &[]) {
            Some(ending) => ends::end(client, ending, retention).await,
            None => Ok(None),
        },
        AttemptUpdate::Mismatch => ends::mismatch(client, reported, retention).await,
        AttemptUpdate::Reconcile => reconnects::reconcile(client, reported).await,
        AttemptUpdate::Lose => reconnects::lose(client, reported).await,
        AttemptUpdate::Cancel { .. } => reconnects::cancel(client, reported, retention).await,
        AttemptUpdate::Restart => reconnects::restart(client, reported).await,
        AttemptUpdate::Unknown => reconnects::unknown(client, reported).await,
        AttemptUpdate::RunAgain => reconnects::run_again(client, reported, retention).await,
    }
}

fn words(states: impl IntoIterator<Item = RunState>) -> Vec<&'static str> {
    states.into_iter().map(RunState::as_str).collect()
}
