//! What a device reports, written in its order and acknowledged when it is durable.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use deskgate_protocol::control::{GatewayFrame, RevokeCode};
use deskgate_protocol::operation::OutcomeCode;
use deskgate_protocol::{OperationId, RunId};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::door::Door;
use crate::store::attempts::{Record, Recorded, What};
use crate::store::devices::SessionKey;

/// Records in one commit.
const BATCH: usize = 64;
/// How often a commit is tried before the session ends. Records say what was written already, so
/// trying again never writes twice.
const TRIES: u32 = 3;
const PAUSE: Duration = Duration::from_millis(250);

/// What is to be written down.
#[derive(Debug)]
pub(super) enum Report {
    /// About a run.
    Run(Record),
    /// About anything else.
    Word(Word),
}

/// What a device says beside its runs.
#[derive(Clone, Copy, Debug)]
pub(super) enum Word {
    /// A control operation was carried out.
    Done(OperationId, OutcomeCode),
    /// The computer is about to sleep.
    Asleep,
    /// It is awake again.
    Awake,
}

/// Why the recorder gave up.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Stopped {
    /// The session ended.
    SessionEnded,
    /// A newer session of the device took over.
    Replaced,
    /// The device left out numbers.
    Gap(RunId),
    /// The database does not work; the device will report again after it dialled again.
    StoreUnavailable,
}

/// Writes what comes through the queue until it ends.
pub(super) async fn record(
    door: Door,
    session: SessionKey,
    mut queue: mpsc::Receiver<Report>,
    frames: mpsc::Sender<GatewayFrame>,
) -> Stopped {
    let mut batch = Vec::with_capacity(BATCH);
    let mut kept = Kept::default();
    loop {
        let answers = tokio::select! {
            received = queue.recv_many(&mut batch, BATCH) => match received {
                0 => return Stopped::SessionEnded,
                _ => write_all(&door, session, batch.drain(..), &mut kept).await,
            },
            run_id = kept.due() => offer_again(&door, session, run_id).await,
        };
        match answers {
            Ok(answers) => {
                for frame in newest_acks(answers) {
                    if frames.send(frame).await.is_err() {
                        return Stopped::SessionEnded;
                    }
                }
            }
            Err(stopped) => return stopped,
        }
    }
}

/// Runs that the device was offered again and had no room for. Nobody else may execute them, so
/// they are offered once more after a while.
#[derive(Default)]
struct Kept(VecDeque<(Instant, RunId)>);

impl Kept {
    /// The next run whose while is over. Cancel-safe: it is taken only when it is returned.
    async fn due(&mut self) -> RunId {
        match self.0.front() {
            Some((at, _)) => tokio::time::sleep_until(*at).await,
            None => std::future::pending().await,
        }
        self.0.pop_front().map_or_else(|| unreachable!("the front was looked at two lines above"), |(_, run_id)| run_id)
    }
}

/// Other words come after the runs: the end of a run completes its stop, and says more than the device's word for it.
async fn write_all(
    door: &Door,
    session: SessionKey,
    reports: impl Iterator<Item = Report>,
    kept: &mut Kept,
) -> Result<Vec<GatewayFrame>, Stopped> {
    let (mut records, mut words) = (Vec::new(), Vec::new());
    for report in reports {
        match report {
            Report::Run(record) => records.push(record),
            Report::Word(word) => words.push(word),
        }
    }
    let answers = write(door, session, gather(records.into_iter()), kept).await?;
    for word in words {
        take_down(door, session, word).await?;
    }
    Ok(answers)
}

async fn take_down(door: &Door, session: SessionKey, word: Word) -> Result<(), Stopped> {
    let device_id = session.device_id;
    for left in (0..TRIES).rev() {
        let written = match word {
            Word::Done(operation_id, outcome) => {
                door.store.operation_done(session, operation_id, outcome, door.limits.retention).await
            }
            Word::Asleep => door.store.fall_asleep(session).await,
            Word::Awake => door.store.awake(session, door.clocks.lease).await,
        };
        match written {
            Ok(()) => {
                tracing::info!(%device_id, ?word, "the device's word is written");
                return Ok(());
            }
            Err(error) => {
                tracing::warn!(%device_id, ?word, %error, left, "the device's word could not be written");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    Err(Stopped::StoreUnavailable)
}

async fn write(
    door: &Door,
    session: SessionKey,
    records: Vec<Record>,
    kept: &mut Kept,
) -> Result<Vec<GatewayFrame>, Stopped> {
    let mut answers = Vec::new();
    for (record, result) in records.iter().zip(commit(door, session, &records).await?) {
        match result {
            Recorded::Replaced => return Err(Stopped::Replaced),
            Recorded::Gap => return Err(Stopped::Gap(record.run_id)),
            Recorded::Kept => kept.0.push_back((Instant::now() + door.clocks.offer, record.run_id)),
            Recorded::Revoked(code) => answers.push(revoke(record, code)),
            Recorded::Done => {
                log(session, record);
                answers.extend(answer(door, session, record).await?);
            }
        }
    }
    Ok(answers)
}

async fn commit(door: &Door, session: SessionKey, records: &[Record]) -> Result<Vec<Recorded>, Stopped> {
    if records.is_empty() {
        return Ok(Vec::new());
    }
    for left in (0..TRIES).rev() {
        match door.store.record(session, records, door.limits.retention).await {
            Ok(results) => return Ok(results),
            Err(error) => {
                tracing::warn!(device_id = %session.device_id, %error, left, "reports of the device could not be written");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    Err(Stopped::StoreUnavailable)
}

async fn offer_again(door: &Door, session: SessionKey, run_id: RunId) -> Result<Vec<GatewayFrame>, Stopped> {
    match door.store.offer(session, run_id).await {
        Ok(offer) => Ok(offer.map(GatewayFrame::Offer).into_iter().collect()),
        Err(error) => {
            tracing::warn!(device_id = %session.device_id, %run_id, %error, "an offer could not be read");
            Err(Stopped::StoreUnavailable)
        }
    }
}

/// Consecutive events of one attempt become one record.
fn gather(batch: impl Iterator<Item = Record>) -> Vec<Record> {
    let mut records: Vec<Record> = Vec::new();
    for record in batch {
        if let (What::Events { first, events }, Some(last)) = (&record.what, records.last_mut())
            && (last.run_id, last.attempt) == (record.run_id, record.attempt)
            && let What::Events { first: begin, events: gathered } = &mut last.what
            && begin.checked_add(gathered.len() as u64) == Some(*first)
        {
            gathered.extend_from_slice(events);
        } else {
            records.push(record);
        }
    }
    records
}

async fn answer(door: &Door, session: SessionKey, record: &Record) -> Result<Vec<GatewayFrame>, Stopped> {
    let (run_id, attempt) = (record.run_id, record.attempt);
    Ok(match &record.what {
        What::Start => vec![GatewayFrame::Start { run_id, attempt }],
        What::Events { first, events } => {
            vec![GatewayFrame::Ack { run_id, attempt, through: first + events.len() as u64 - 1 }]
        }
        What::Approval { seq, .. } | What::End { seq, .. } => {
            vec![GatewayFrame::Ack { run_id, attempt, through: *seq }]
        }
        What::Restart => offer_again(door, session, run_id).await?,
        What::RunAgain => {
            let offers = offer_again(door, session, run_id).await?;
            let revoked = GatewayFrame::Revoke { run_id, attempt, code: RevokeCode::AlreadyFinal };
            if offers.is_empty() { vec![revoked] } else { offers }
        }
        What::Cancel { held } => vec![GatewayFrame::Revoke { run_id, attempt: *held, code: RevokeCode::AlreadyFinal }],
        What::Return | What::Mismatch | What::Reconcile | What::Unknown | What::Lose => Vec::new(),
    })
}

/// Of several acknowledgements for one attempt the newest says it all.
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

fn revoke(record: &Record, code: RevokeCode) -> GatewayFrame {
    tracing::info!(run_id = %record.run_id, attempt = record.attempt, ?code, "attempt revoked");
    GatewayFrame::Revoke { run_id: record.run_id, attempt: record.attempt, code }
}

fn log(session: SessionKey, record: &Record) {
    let (run_id, attempt, device_id) = (record.run_id, record.attempt, session.device_id);
    match &record.what {
        What::Start => tracing::info!(%run_id, attempt, %device_id, "run started"),
        What::End { outcome, .. } => {
            tracing::info!(%run_id, attempt, %device_id, state = %outcome.state(), "run ended")
        }
        What::Restart => tracing::info!(%run_id, attempt, %device_id, "run restarted"),
        What::Unknown => tracing::warn!(%run_id, attempt, %device_id, "the device does not know what the run changed"),
        What::RunAgain => tracing::info!(%run_id, attempt, %device_id, "the desktop user has the run begin again"),
        What::Reconcile => tracing::info!(%run_id, attempt, %device_id, "run reconciled"),
        What::Cancel { .. } => tracing::info!(%run_id, attempt, %device_id, "run cancelled before it did anything"),
        What::Lose => tracing::warn!(%run_id, attempt, %device_id, "the device no longer knows this run"),
        What::Mismatch => tracing::warn!(%run_id, attempt, %device_id, "the device does not hold the run's definition"),
        What::Approval { approval, .. } => {
            let (approval_id, open) = (approval.approval_id, approval.open_until.is_some());
            tracing::info!(%run_id, attempt, %device_id, %approval_id, open, "request for approval");
        }
        What::Return | What::Events { .. } => {}
    }
}

#[cfg(test)]
mod tests {
    use deskgate_protocol::run::EventType;
    use serde_json::Value;

    use super::*;

    fn events(run_id: RunId, first: u64, count: usize) -> Record {
        let events = vec![(EventType::UsageUpdated, Value::Null); count];
        Record { run_id, attempt: 1, what: What::Events { first, events } }
    }

    #[test]
    fn only_dense_neighbours_of_one_attempt_are_gathered() {
        let (one, other) = (RunId::new(), RunId::new());
        let batch = [events(one, 1, 1), events(one, 2, 2), events(other, 1, 1), events(one, 4, 1), events(one, 9, 1)];
        assert_eq!(
            gather(batch.into_iter()),
            [events(one, 1, 3), events(other, 1, 1), events(one, 4, 1), events(one, 9, 1)]
        );
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
