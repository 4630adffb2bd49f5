//! The device's reports, written in their order and acknowledged when durable.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use deskgate_protocol::control::{GatewayFrame, RevokeCode};
use deskgate_protocol::operation::OutcomeCode;
use deskgate_protocol::run::Outcome;
use deskgate_protocol::{OperationId, RunId};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::service::ControlService;
use crate::domain::typed_data;
use crate::store::attempts::{AttemptRecord, AttemptUpdate, RecordOutcome};
use crate::store::leases::SessionKey;

/// Records of a session that are written together.
const MAX_BATCH_RECORDS: usize = 64;
/// How often a commit is tried before the session ends. Repeats are safe: records that are stored already are
/// recognised.
const MAX_COMMIT_ATTEMPTS: u32 = 3;
const RETRY_INTERVAL: Duration = Duration::from_millis(250);

/// A report to be written.
#[derive(Debug)]
pub(super) enum DeviceReport {
    /// About a run.
    Run(AttemptRecord),
    /// About something else.
    Word(DeviceNotice),
}

/// A device's notice that is not about one of its runs.
#[derive(Clone, Debug)]
pub(super) enum DeviceNotice {
    /// A control operation was carried out.
    Done(OperationId, OutcomeCode),
    /// The device's journal never had these runs.
    NeverHad(Vec<RunId>),
    /// The computer is about to sleep.
    Asleep,
    /// It is awake again.
    Awake,
}

impl DeviceNotice {
    fn name(&self) -> &'static str {
        match self {
            Self::Done(..) => "operation done",
            Self::NeverHad(_) => "runs never had",
            Self::Asleep => "asleep",
            Self::Awake => "awake",
        }
    }
}

/// Why the recorder stopped.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RecorderError {
    /// The session ended.
    SessionEnded,
    /// A newer session of the device took over.
    Replaced,
    /// The device skipped event numbers.
    Gap(RunId),
    /// The database does not work; the device reports again after it has reconnected.
    StoreUnavailable,
}

/// Writes reports from the queue until it ends.
pub(super) async fn record(
    service: ControlService,
    session: SessionKey,
    mut queue: mpsc::Receiver<DeviceReport>,
    frames: mpsc::Sender<GatewayFrame>,
) -> RecorderError {
    let mut batch = Vec::with_capacity(MAX_BATCH_RECORDS);
    let mut kept = ReofferQueue::default();
    loop {
        let answers = tokio::select! {
            received = queue.recv_many(&mut batch, MAX_BATCH_RECORDS) => match received {
                0 => return RecorderError::SessionEnded,
                _ => write_all(&service, session, batch.drain(..), &mut kept).await,
            },
            run_id = kept.due() => offer_again(&service, session, run_id).await,
        };
        match answers {
            Ok(answers) => {
                for frame in newest_acks(answers) {
                    if frames.send(frame).await.is_err() {
                        return RecorderError::SessionEnded;
                    }
                }
            }
            Err(stopped) => return stopped,
        }
    }
}

/// Runs that were offered to the device again while it had no capacity. No other device may execute them, so they are
/// offered once more after a pause.
#[derive(Default)]
struct ReofferQueue(VecDeque<(Instant, RunId)>);

impl ReofferQueue {
    /// The next run whose pause is over. Cancel-safe: it is taken only when it is returned.
    async fn due(&mut self) -> RunId {
        match self.0.front() {
            Some((at, _)) => tokio::time::sleep_until(*at).await,
            None => std::future::pending().await,
        }
        self.0.pop_front().map_or_else(|| unreachable!("the front was looked at two lines above"), |(_, run_id)| run_id)
    }
}

/// Notices come after the runs: the end of a run completes its stop, and says more than the device's notice.
async fn write_all(
    service: &ControlService,
    session: SessionKey,
    reports: impl Iterator<Item = DeviceReport>,
    kept: &mut ReofferQueue,
) -> Result<Vec<GatewayFrame>, RecorderError> {
    let (mut records, mut words) = (Vec::new(), Vec::new());
    for report in reports {
        match report {
            DeviceReport::Run(record) => records.push(record),
            DeviceReport::Word(word) => words.push(word),
        }
    }
    let answers = write(service, session, gather(records.into_iter()), kept).await?;
    for word in words {
        take_down(service, session, &word).await?;
    }
    Ok(answers)
}

async fn take_down(service: &ControlService, session: SessionKey, word: &DeviceNotice) -> Result<(), RecorderError> {
    let device_id = session.device_id;
    for left in (0..MAX_COMMIT_ATTEMPTS).rev() {
        let written = match word {
            DeviceNotice::Done(operation_id, outcome) => {
                service.store.operation_done(session, *operation_id, *outcome, service.limits.retention).await
            }
            DeviceNotice::NeverHad(runs) => service.store.requeue(session, runs).await.map(|requeued| {
                tracing::info!(%device_id, requeued, asked = runs.len(), "the device never had these runs; they wait again");
            }),
            DeviceNotice::Asleep => service.store.fall_asleep(session).await,
            DeviceNotice::Awake => service.store.awake(session, service.clocks.lease).await,
        };
        match written {
            Ok(()) => {
                tracing::info!(%device_id, word = word.name(), "the device's word is written");
                return Ok(());
            }
            Err(error) => {
                tracing::warn!(%device_id, word = word.name(), %error, left, "the device's word could not be written");
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
        }
    }
    Err(RecorderError::StoreUnavailable)
}

async fn write(
    service: &ControlService,
    session: SessionKey,
    records: Vec<AttemptRecord>,
    kept: &mut ReofferQueue,
) -> Result<Vec<GatewayFrame>, RecorderError> {
    let mut checked = Vec::with_capacity(records.len());
    for record in records {
        checked.push(match has_data(&record) {
            true => check_data(service, session, record).await?,
            false => record,
        });
    }
    let records: Arc<[_]> = checked.into();
    let mut answers = Vec::new();
    for (record, result) in records.iter().zip(commit(service, session, &records).await?) {
        match result {
            // It has an output, and the device says nothing of data.
            RecordOutcome::Unchecked => {
                let record = check_data(service, session, record.clone()).await?;
                answers.extend(Box::pin(write(service, session, vec![record], kept)).await?);
            }
            RecordOutcome::Replaced => return Err(RecorderError::Replaced),
            RecordOutcome::Gap => return Err(RecorderError::Gap(record.run_id)),
            RecordOutcome::Kept => kept.0.push_back((Instant::now() + service.clocks.offer, record.run_id)),
            RecordOutcome::Revoked(code) => answers.push(revoke(record, code)),
            RecordOutcome::Done => {
                log(session, record);
                answers.extend(answer(service, session, record).await?);
            }
        }
    }
    Ok(answers)
}

fn has_data(record: &AttemptRecord) -> bool {
    matches!(&record.what, AttemptUpdate::End { outcome: Outcome::Succeeded { result, .. }, .. } if result.data.is_some())
}

/// Checks the data of a result. What does not fit ends its run in a failure, which the device signed nothing of.
async fn check_data(
    service: &ControlService,
    session: SessionKey,
    record: AttemptRecord,
) -> Result<AttemptRecord, RecorderError> {
    let AttemptRecord { run_id, attempt, what } = record;
    let AttemptUpdate::End { seq, outcome, receipt, .. } = what else {
        return Ok(AttemptRecord { run_id, attempt, what });
    };
    let state = outcome.state();
    let outcome = typed_data::check_outcome(&service.store, session.device_id, run_id, outcome).await;
    let outcome = outcome.map_err(|_| RecorderError::StoreUnavailable)?;
    let receipt = receipt.filter(|_| outcome.state() == state);
    Ok(AttemptRecord { run_id, attempt, what: AttemptUpdate::End { seq, outcome, is_checked: true, receipt } })
}

async fn commit(
    service: &ControlService,
    session: SessionKey,
    records: &Arc<[AttemptRecord]>,
) -> Result<Vec<RecordOutcome>, RecorderError> {
    if records.is_empty() {
        return Ok(Vec::new());
    }
    for left in (0..MAX_COMMIT_ATTEMPTS).rev() {
        match service.reports.record(session, records.clone()).await {
            Ok(results) => return Ok(results),
            Err(error) => {
                tracing::warn!(device_id = %session.device_id, %error, left, "reports of the device could not be written");
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
        }
    }
    Err(RecorderError::StoreUnavailable)
}

async fn offer_again(
    service: &ControlService,
    session: SessionKey,
    run_id: RunId,
) -> Result<Vec<GatewayFrame>, RecorderError> {
    match service.store.offer(session, run_id).await {
        Ok(offer) => Ok(offer.map(GatewayFrame::Offer).into_iter().collect()),
        Err(error) => {
            tracing::warn!(device_id = %session.device_id, %run_id, %error, "an offer could not be read");
            Err(RecorderError::StoreUnavailable)
        }
    }
}

/// Consecutive events of one attempt become one record, whatever of other runs came between them.
fn gather(batch: impl Iterator<Item = AttemptRecord>) -> Vec<AttemptRecord> {
    let mut records: Vec<AttemptRecord> = Vec::new();
    let mut last_of_run: HashMap<RunId, usize> = HashMap::new();
    for mut record in batch {
        let last = last_of_run.get(&record.run_id).map(|place| &mut records[*place]);
        if let (AttemptUpdate::Events { first, events }, Some(last)) = (&mut record.what, last)
            && last.attempt == record.attempt
            && let AttemptUpdate::Events { first: begin, events: gathered } = &mut last.what
            && begin.checked_add(gathered.len() as u64) == Some(*first)
        {
            gathered.append(events);
        } else {
            last_of_run.insert(record.run_id, records.len());
            records.push(record);
        }
    }
    records
}

async fn answer(
    service: &ControlService,
    session: SessionKey,
    record: &AttemptRecord,
) -> Result<Vec<GatewayFrame>, RecorderError> {
    let (run_id, attempt) = (record.run_id, record.attempt);
    Ok(match &record.what {
        AttemptUpdate::Start => vec![GatewayFrame::Start { run_id, attempt }],
        AttemptUpdate::Events { first, events } => {
            vec![GatewayFrame::Ack { run_id, attempt, through: first + events.len() as u64 - 1 }]
        }
        AttemptUpdate::Approval { seq, .. } | AttemptUpdate::End { seq, .. } => {
            vec![GatewayFrame::Ack { run_id, attempt, through: *seq }]
        }
        AttemptUpdate::Restart => offer_again(service, session, run_id).await?,
        AttemptUpdate::RunAgain => {
            let offers = offer_again(service, session, run_id).await?;
            let revoked = GatewayFrame::Revoke { run_id, attempt, code: RevokeCode::AlreadyFinal };
            if offers.is_empty() { vec![revoked] } else { offers }
        }
        AttemptUpdate::Cancel { held } => {
            vec![GatewayFrame::Revoke { run_id, attempt: *held, code: RevokeCode::AlreadyFinal }]
        }
        AttemptUpdate::Return
        | AttemptUpdate::Mismatch
        | AttemptUpdate::Reconcile
        | AttemptUpdate::Unknown
        | AttemptUpdate::Lose => Vec::new(),
    })
}

/// Of several acknowledgements for one attempt the newest is enough.
fn newest_acks(frames: Vec<GatewayFrame>) -> Vec<GatewayFrame> {
    let mut newest: HashMap<(RunId, u32), u64> = HashMap::new();
    for frame in &frames {
        if let GatewayFrame::Ack { run_id, attempt, through } = frame {
            newest.insert((*run_id, *attempt), *through);
        }
    }
    let keep = |frame: &GatewayFrame| match frame {
        GatewayFrame::Ack { run_id, attempt, through } => newest.get(&(*run_id, *attempt)) == Some(through),
        _ => true,
    };
    frames.into_iter().filter(keep).collect()
}

fn revoke(record: &AttemptRecord, code: RevokeCode) -> GatewayFrame {
    tracing::info!(run_id = %record.run_id, attempt = record.attempt, ?code, "attempt revoked");
    GatewayFrame::Revoke { run_id: record.run_id, attempt: record.attempt, code }
}

fn log(session: SessionKey, record: &AttemptRecord) {
    let (run_id, attempt, device_id) = (record.run_id, record.attempt, session.device_id);
    match &record.what {
        AttemptUpdate::Start => tracing::info!(%run_id, attempt, %device_id, "run started"),
        AttemptUpdate::End { outcome, .. } => {
            tracing::info!(%run_id, attempt, %device_id, state = %outcome.state(), "run ended")
        }
        AttemptUpdate::Restart => tracing::info!(%run_id, attempt, %device_id, "run restarted"),
        AttemptUpdate::Unknown => {
            tracing::warn!(%run_id, attempt, %device_id, "the device does not know what the run changed")
        }
        AttemptUpdate::RunAgain => {
            tracing::info!(%run_id, attempt, %device_id, "the desktop user has the run begin again")
        }
        AttemptUpdate::Reconcile => tracing::info!(%run_id, attempt, %device_id, "run reconciled"),
        AttemptUpdate::Cancel { .. } => {
            tracing::info!(%run_id, attempt, %device_id, "run cancelled before it did anything")
        }
        AttemptUpdate::Lose => tracing::warn!(%run_id, attempt, %device_id, "the device no longer knows this run"),
        AttemptUpdate::Mismatch => {
            tracing::warn!(%run_id, attempt, %device_id, "the device does not hold the run's definition")
        }
        AttemptUpdate::Approval { approval, .. } => {
            let (approval_id, open) = (approval.approval_id, approval.open_until.is_some());
            tracing::info!(%run_id, attempt, %device_id, %approval_id, open, "request for approval");
        }
        AttemptUpdate::Return | AttemptUpdate::Events { .. } => {}
    }
}

#[cfg(test)]
mod tests {
    use deskgate_protocol::run::EventType;
    use serde_json::Value;

    use super::*;

    fn events(run_id: RunId, first: u64, count: usize) -> AttemptRecord {
        let events = vec![(EventType::UsageUpdated, Value::Null); count];
        AttemptRecord { run_id, attempt: 1, what: AttemptUpdate::Events { first, events } }
    }

    #[test]
    fn dense_events_of_one_attempt_are_gathered_unless_something_of_it_is_between_them() {
        let (one, other) = (RunId::new(), RunId::new());
        let batch = [events(one, 1, 1), events(one, 2, 2), events(other, 1, 1), events(one, 4, 1), events(one, 9, 1)];
        assert_eq!(gather(batch.into_iter()), [events(one, 1, 4), events(other, 1, 1), events(one, 9, 1)]);
        let between = AttemptRecord { run_id: one, attempt: 1, what: AttemptUpdate::Reconcile };
        let batch = [events(one, 1, 1), between, events(one, 2, 1)];
        assert_eq!(gather(batch.clone().into_iter()), batch);
    }

    #[test]
    fn the_newest_acknowledgement_stands_for_the_older_ones() {
        let run_id = RunId::new();
        let ack = |through| GatewayFrame::Ack { run_id, attempt: 1, through };
        let start = GatewayFrame::Start { run_id, attempt: 1 };
        assert_eq!(
            newest_acks(vec![start.clone(), ack(1), ack(3), GatewayFrame::Ping]),
            [start, ack(3), GatewayFrame::Ping]
        );
    }
}
