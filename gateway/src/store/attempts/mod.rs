//! Devices' changes to runs: claim, start, report, finish.
//!
//! Every statement that stores a record names run, attempt, device and epoch in its own condition. So a frame of an
//! older attempt or session changes nothing, whatever its session assumes. Here and on the control channel an attempt is
//! numbered when it is offered; callers see how often the run began instead (`started_at`, `restarts`).
//!
//! | file | what it does |
//! |---|---|
//! | `offers` | takes runs from the queue for a device |
//! | `starts` | the device's answers to an offer |
//! | `events` | its events during the execution |
//! | `approvals` | requests for approval that it opens and closes |
//! | `ends` | the end of a run |
//! | `reconnects` | the device is back, and held the run |
//! | `explain` | why a record changed nothing |

mod approvals;
mod ends;
mod events;
mod explain;
mod offers;
mod reconnects;
mod starts;

use std::time::Duration;

use deadpool_postgres::GenericClient;
use deskgate_protocol::RunId;
use deskgate_protocol::control::RevokeCode;
use deskgate_protocol::run::{EventType, Outcome, RunState};
use futures_util::future::try_join_all;
use serde_json::Value;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

pub use approvals::Approval;
pub use offers::ServiceRoom;

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
    /// The device had no capacity for a run that it started before: it stays the device's, and is to be offered to it
    /// again.
    Kept,
}

/// Run, attempt, device and epoch: the first four parameters of every statement that stores a record.
type AttemptFence<'a> = [&'a (dyn ToSql + Sync); 4];

impl AttemptUpdate {
    fn statement(&self) -> &'static str {
        match self {
            Self::Start => starts::START_SQL,
            Self::Return => starts::RETURN_SQL,
            Self::Events { .. } => events::STORE_EVENTS_SQL,
            Self::Approval { .. } => approvals::APPROVAL_SQL,
            Self::End { .. } | Self::Mismatch => ends::END_SQL,
            Self::Reconcile => reconnects::RECONCILE_SQL,
            Self::Lose => reconnects::LOSE_SQL,
            Self::Restart | Self::RunAgain => reconnects::RESTART_SQL,
            Self::Unknown => reconnects::MARK_UNKNOWN_SQL,
            Self::Cancel { .. } => reconnects::CANCEL_SQL,
        }
    }
}

impl Store {
    /// Stores records in their order, in one commit, and returns the outcome of each.
    ///
    /// # Errors
    /// The database failed; the records may or may not be stored.
    pub async fn record(
        &self,
        session: SessionKey,
        records: &[AttemptRecord],
        retention: Duration,
    ) -> Result<Vec<RecordOutcome>, Error> {
        let written = with_timeout(async {
            let mut client = self.client().await?;
            if let [record] = records {
                crash::before("attempts::record");
                let written = write(&*client, session, record, retention).await?;
                crash::after("attempts::record");
                client.give_back();
                return Ok(vec![written]);
            }
            let transaction = client.transaction().await?;
            // Once every statement is prepared, they are sent one after the other without waiting, and executed in this
            // order.
            for record in records {
                transaction.prepare_cached(record.what.statement()).await?;
            }
            let written =
                try_join_all(records.iter().map(|record| write(&transaction, session, record, retention))).await?;
            commit(transaction, "attempts::record").await?;
            client.give_back();
            Ok(written)
        })
        .await?;
        let mut results = Vec::with_capacity(records.len());
        for (record, written) in records.iter().zip(written) {
            self.notifier().notify(Topic::Run(record.run_id));
            if matches!(record.what, AttemptUpdate::Return) {
                self.notifier().notify(Topic::Queue(session.device_id));
            }
            results.push(match written {
                Some(row) => {
                    self.count(&record.what, &row)?;
                    RecordOutcome::Done
                }
                None => self.explain(session, record).await?,
            });
        }
        Ok(results)
    }

    /// Counts a start or an end, whose statements return the duration. A run that was to run again may have been
    /// cancelled.
    fn count(&self, what: &AttemptUpdate, row: &Row) -> Result<(), Error> {
        match what {
            AttemptUpdate::Start => {
                if let Some(seconds) = row.try_get::<_, Option<f64>>(0)? {
                    self.metrics().run_started(seconds);
                }
            }
            AttemptUpdate::End { outcome, .. } => self.metrics().run_ended(outcome.state().as_str(), row.try_get(0)?),
            AttemptUpdate::Mismatch => self.metrics().run_ended(RunState::Failed.as_str(), row.try_get(0)?),
            AttemptUpdate::Cancel { .. } | AttemptUpdate::RunAgain => {
                if let Some(seconds) = row.try_get::<_, Option<f64>>(0)? {
                    self.metrics().run_ended(RunState::Cancelled.as_str(), Some(seconds));
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// Executes the one statement of a record; `None` when it changed nothing.
async fn write(
    client: &impl GenericClient,
    session: SessionKey,
    record: &AttemptRecord,
    retention: Duration,
) -> Result<Option<Row>, Error> {
    let run_id = record.run_id.uuid();
    let attempt = i32::try_from(record.attempt).unwrap_or(i32::MAX);
    let (device_id, epoch) = (session.device_id.uuid(), session.epoch_column());
    let fence: AttemptFence<'_> = [&run_id, &attempt, &device_id, &epoch];
    match &record.what {
        AttemptUpdate::Start => starts::start(client, &fence).await,
        AttemptUpdate::Return => one(client, starts::RETURN_SQL, &fence, &[]).await,
        AttemptUpdate::Events { first, events } => events::store(client, &fence, *first, events).await,
        AttemptUpdate::Approval { seq, approval } => approvals::store(client, &fence, *seq, approval).await,
        AttemptUpdate::End { seq, outcome, receipt } => {
            ends::end(client, &fence, Some(*seq), outcome, receipt.as_deref(), retention).await
        }
        AttemptUpdate::Mismatch => ends::mismatch(client, &fence, retention).await,
        AttemptUpdate::Reconcile => reconnects::reconcile(client, &fence).await,
        AttemptUpdate::Lose => reconnects::lose(client, &fence).await,
        AttemptUpdate::Cancel { .. } => reconnects::cancel(client, &fence, retention).await,
        AttemptUpdate::Restart => reconnects::restart(client, &fence).await,
        AttemptUpdate::Unknown => reconnects::unknown(client, &fence).await,
        AttemptUpdate::RunAgain => reconnects::run_again(client, &fence, retention).await,
    }
}

fn words(states: impl IntoIterator<Item = RunState>) -> Vec<&'static str> {
    states.into_iter().map(RunState::as_str).collect()
}

async fn one(
    client: &impl GenericClient,
    sql: &str,
    fence: &AttemptFence<'_>,
    rest: &[&(dyn ToSql + Sync)],
) -> Result<Option<Row>, Error> {
    let statement = client.prepare_cached(sql).await?;
    let params: Vec<&(dyn ToSql + Sync)> = fence.iter().chain(rest).copied().collect();
    Ok(client.query(&statement, &params).await?.into_iter().next())
}
