//! Records the events that webhooks received, after the senders were answered: senders do not wait for that, and the
//! time of an answer does not show whether a record was written.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use deskgate_protocol::HookId;
use tokio::sync::mpsc;
use tokio::time::sleep_until;

use crate::store::Store;
use crate::store::webhook_receipts::{NewReceipt, kept_receipts};

/// Receipts that may wait to be written. More are dropped: only the last twenty of each webhook are kept, anyway.
const RECEIPT_CAPACITY: usize = 1024;
/// Receipts that are taken from there at once.
const MAX_BATCH_RECEIPTS: usize = 64;
/// The time between two writes. What comes in it and would be deleted by what comes behind it is never written.
const WRITE_INTERVAL: Duration = Duration::from_millis(250);
/// How often a webhook's wrong signatures are recorded: many of them must not cause many writes.
const UNSIGNED_NOTE_INTERVAL: Duration = Duration::from_secs(1);
/// The most webhooks that are tracked for that.
const MAX_TRACKED_WEBHOOKS: usize = 10_000;

/// Accepts receipts.
#[derive(Clone)]
pub(super) struct ReceiptWriter {
    queue: mpsc::Sender<NewReceipt>,
    unsigned: Arc<Mutex<HashMap<HookId, Instant>>>,
}

impl ReceiptWriter {
    /// The writer, and the task that writes, which ends when every clone of the writer is gone.
    pub(super) fn new(store: Store) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (queue, receiver) = mpsc::channel(RECEIPT_CAPACITY);
        (Self { queue, unsigned: Arc::default() }, write(store, receiver))
    }

    /// Records an event with a good signature.
    pub(super) fn note(&self, receipt: NewReceipt) {
        if self.queue.try_send(receipt).is_err() {
            tracing::debug!("something that a webhook received was not noted");
        }
    }

    /// Records an event without one, unless that was done a moment ago.
    pub(super) fn note_unsigned(&self, receipt: NewReceipt) {
        {
            // No code panics while it holds the lock.
            let mut unsigned = self.unsigned.lock().unwrap_or_else(PoisonError::into_inner);
            if unsigned.get(&receipt.hook_id).is_some_and(|at| at.elapsed() < UNSIGNED_NOTE_INTERVAL) {
                return;
            }
            if unsigned.len() >= MAX_TRACKED_WEBHOOKS {
                unsigned.retain(|_, at| at.elapsed() < UNSIGNED_NOTE_INTERVAL);
            }
            unsigned.insert(receipt.hook_id, Instant::now());
        }
        self.note(receipt);
    }
}

async fn write(store: Store, mut receiver: mpsc::Receiver<NewReceipt>) {
    let note = async |receipts: Vec<NewReceipt>| {
        if let Err(error) = store.note_receipts(&receipts).await {
            tracing::debug!(%error, receipts = receipts.len(), "what webhooks received was not noted");
        }
    };
    let (mut batch, mut latest) = (Vec::with_capacity(MAX_BATCH_RECEIPTS), LatestReceipts::default());
    let mut next_write = tokio::time::Instant::now();
    loop {
        tokio::select! {
            biased;
            () = sleep_until(next_write), if !latest.0.is_empty() => {
                note(latest.take()).await;
                next_write = tokio::time::Instant::now() + WRITE_INTERVAL;
            }
            received = receiver.recv_many(&mut batch, MAX_BATCH_RECEIPTS) => {
                if received == 0 {
                    return note(latest.take()).await;
                }
                batch.drain(..).for_each(|receipt| latest.add(receipt));
            }
        }
    }
}

/// The receipts that are to be written: of each webhook as many as are kept, signed and unsigned ones apart.
#[derive(Default)]
struct LatestReceipts(HashMap<(HookId, bool), VecDeque<NewReceipt>>);

impl LatestReceipts {
    fn add(&mut self, receipt: NewReceipt) {
        let genuine = receipt.genuine;
        let latest = self.0.entry((receipt.hook_id, genuine)).or_default();
        if latest.len() >= kept_receipts(genuine) {
            latest.pop_front();
        }
        latest.push_back(receipt);
    }

    fn take(&mut self) -> Vec<NewReceipt> {
        std::mem::take(&mut self.0).into_values().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use deskgate_protocol::ReceiptId;
    use deskgate_protocol::management::ReceiptOutcome;

    use super::*;

    #[test]
    fn of_each_webhook_only_as_many_are_written_as_are_kept_and_those_are_the_newest() {
        let (busy, calm) = (HookId::new(), HookId::new());
        let receipt = |hook_id, genuine| NewReceipt {
            receipt_id: ReceiptId::new(),
            hook_id,
            genuine,
            outcome: ReceiptOutcome::Accepted,
            reason: None,
            event_id: None,
            event_type: None,
            run_id: None,
            body: None,
        };
        let mut latest = LatestReceipts::default();
        let all: Vec<_> = (0..3 * kept_receipts(true)).map(|_| receipt(busy, true)).collect();
        all.iter().cloned().for_each(|receipt| latest.add(receipt));
        let others = [receipt(busy, false), receipt(calm, true)];
        others.iter().cloned().for_each(|receipt| latest.add(receipt));
        let ids = |receipts: &[NewReceipt]| {
            let mut ids: Vec<_> = receipts.iter().map(|receipt| receipt.receipt_id).collect();
            ids.sort();
            ids
        };
        let kept = [&all[2 * kept_receipts(true)..], &others].concat();
        assert_eq!(ids(&latest.take()), ids(&kept));
        assert!(latest.take().is_empty());
    }
}
