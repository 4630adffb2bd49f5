//! What a device reports, written in its order and acknowledged when it is durable.

use std::collections::HashMap;

use deskgate_protocol::RunId;
use deskgate_protocol::control::{DeviceEvent, GatewayFrame, Offer, RevokeCode};
use deskgate_protocol::run::EventType;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::door::Door;
use crate::store::attempts::{Record, Recorded, What};
use crate::store::devices::SessionKey;

/// Records in one commit.
const BATCH: usize = 256;

/// Why the recorder gave up.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Stopped {
    /// The session ended.
    SessionEnded,
    /// The device left out numbers.
    Gap(RunId),
    /// The device gave back a run that it started before. It is settled again in the next session.
    GivenBack(RunId),
    /// The database does not work; the device will report again after it dialled again.
    StoreUnavailable,
}

/// Writes what comes through the queue until it ends.
pub(super) async fn record(
    door: Door,
    session: SessionKey,
    mut queue: mpsc::Receiver<Record>,
    frames: mpsc::Sender<GatewayFrame>,
) -> Stopped {
    let mut batch = Vec::with_capacity(BATCH);
    while queue.recv_many(&mut batch, BATCH).await > 0 {
        let records = gather(batch.drain(..));
        let results = match door.store.record(session, &records, door.limits.retention).await {
            Ok(results) => results,
            Err(error) => {
                tracing::warn!(device_id = %session.device_id, %error, "reports of the device could not be written");
                return Stopped::StoreUnavailable;
            }
        };
        let mut answers = Vec::new();
        for (record, result) in records.into_iter().zip(results) {
            match result {
                Recorded::Gap => return Stopped::Gap(record.run_id),
                Recorded::Kept => return Stopped::GivenBack(record.run_id),
                Recorded::Revoked(code) => answers.push(revoke(&record, code)),
                Recorded::Done => {
                    log(session, &record);
                    answers.extend(answer(&door, session, record).await);
                }
            }
        }
        for frame in newest_acks(answers) {
            if frames.send(frame).await.is_err() {
                return Stopped::SessionEnded;
            }
        }
    }
    Stopped::SessionEnded
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

async fn answer(door: &Door, session: SessionKey, record: Record) -> Option<GatewayFrame> {
    let Record { run_id, attempt, what } = record;
    match what {
        What::Start => Some(GatewayFrame::Start { run_id, attempt }),
        What::Events { first, events } => Some(GatewayFrame::Ack {
            run_id,
            attempt,
            through: first.saturating_add(events.len() as u64).saturating_sub(1),
        }),
        What::End { seq, .. } => Some(GatewayFrame::Ack { run_id, attempt, through: seq }),
        What::Restart => match door.store.offer(session, run_id).await {
            Ok(Some(offer)) => Some(offer_again(offer)),
            // The run is settled again when the device dials again.
            _ => None,
        },
        What::Return | What::Reconcile | What::Lose => None,
    }
}

fn offer_again(offer: Offer) -> GatewayFrame {
    GatewayFrame::Offer(offer)
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
        What::Reconcile => tracing::info!(%run_id, attempt, %device_id, "run reconciled"),
        What::Lose => tracing::warn!(%run_id, attempt, %device_id, "the device no longer knows this run"),
        What::Return | What::Events { .. } => {}
    }
}

/// An event as it is stored.
pub(super) fn stored(event: DeviceEvent) -> (EventType, Value) {
    match event {
        DeviceEvent::ToolStarted { call_id, tool, kind } => {
            (EventType::ToolStarted, json!({ "call_id": call_id, "tool": tool, "kind": kind }))
        }
        DeviceEvent::ToolCompleted { call_id, tool, kind, status } => {
            (EventType::ToolCompleted, json!({ "call_id": call_id, "tool": tool, "kind": kind, "status": status }))
        }
        DeviceEvent::MessageCompleted { message_id, text } => {
            (EventType::MessageCompleted, json!({ "message_id": message_id, "text": text }))
        }
        DeviceEvent::UsageUpdated { usage } => (EventType::UsageUpdated, json!({ "usage": usage })),
    }
}

#[cfg(test)]
mod tests {
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
