//! Records the events that webhooks received, after the senders were answered: senders do not wait for that, and the
//! time of an answer does not show whether a record was written.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use deskgate_protocol::HookId;
use tokio::sync::mpsc;

use crate::store::Store;
use crate::store::webhook_receipts::NewReceipt;

/// Receipts that may wait to be written. More are dropped: only the last twenty of each webhook are kept, anyway.
const RECEIPT_CAPACITY: usize = 1024;
/// Receipts in one statement.
const MAX_BATCH_RECEIPTS: usize = 64;
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
    let mut batch = Vec::with_capacity(MAX_BATCH_RECEIPTS);
    while receiver.recv_many(&mut batch, MAX_BATCH_RECEIPTS).await > 0 {
        if let Err(error) = store.note_receipts(&batch).await {
            tracing::debug!(%error, receipts = batch.len(), "what webhooks received was not noted");
        }
        batch.clear();
    }
}
