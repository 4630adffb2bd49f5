//! The entrance for what devices report: what comes while a commit is under way waits for the next one and shares it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::batches::ReportedRecord;
use super::{AttemptRecord, Change, RecordOutcome};
use crate::store::leases::SessionKey;
use crate::store::{Error, Store};
use deskgate_program::tasks::Tasks;

/// Reports of sessions in one commit. Each has at most one on its way, so that its records keep their order.
const MAX_BATCH_REPORTS: usize = 64;
/// Reports that may wait for a committer; beyond that their sessions wait.
const REPORT_CAPACITY: usize = 1024;

/// The records that a session reports at one moment.
struct Report {
    session: SessionKey,
    records: Arc<[AttemptRecord]>,
    reply: oneshot::Sender<Result<Vec<Option<Change>>, Error>>,
}

impl Report {
    fn records(&self) -> impl Iterator<Item = ReportedRecord<'_>> {
        self.records.iter().map(|record| ReportedRecord { session: self.session, record })
    }
}

/// The entrance to the shared commits.
#[derive(Clone)]
pub struct Reports {
    store: Store,
    queue: mpsc::Sender<Report>,
}

impl Reports {
    /// Starts `committers` tasks. They end with their group, or when every clone of the entrance is gone. Ended runs are
    /// kept for `retention`.
    pub fn start(store: &Store, tasks: &Tasks, committers: usize, retention: Duration) -> Self {
        let (queue, receiver) = mpsc::channel(REPORT_CAPACITY);
        let receiver = Arc::new(Mutex::new(receiver));
        for _ in 0..committers.max(1) {
            tasks.spawn("reports", commit_for_ever(store.clone(), receiver.clone(), retention, tasks.stopping()));
        }
        Self { store: store.clone(), queue }
    }

    /// Stores a session's records in their order, and returns the outcome of each after the commit. The next report of
    /// the session may only follow then.
    ///
    /// # Errors
    /// The database failed, or the gateway stops; the records may or may not be stored.
    pub async fn record(
        &self,
        session: SessionKey,
        records: Arc<[AttemptRecord]>,
    ) -> Result<Vec<RecordOutcome>, Error> {
        let stopped = || Error::Unavailable("the gateway stops".to_owned());
        let (reply, answer) = oneshot::channel();
        self.queue.send(Report { session, records: records.clone(), reply }).await.map_err(|_| stopped())?;
        let changes = answer.await.map_err(|_| stopped())??;
        // What changed nothing is explained here, where it delays nobody else.
        self.store.outcomes(session, &records, changes).await
    }
}

async fn commit_for_ever(
    store: Store,
    receiver: Arc<Mutex<mpsc::Receiver<Report>>>,
    retention: Duration,
    stop: CancellationToken,
) {
    let mut batch = Vec::with_capacity(MAX_BATCH_REPORTS);
    loop {
        let next = async { receiver.lock().await.recv_many(&mut batch, MAX_BATCH_REPORTS).await };
        if stop.run_until_cancelled(next).await.is_none() {
            // What is there already is still written.
            let mut waiting = receiver.lock().await;
            batch.extend(std::iter::from_fn(|| waiting.try_recv().ok()));
        }
        if batch.is_empty() {
            return;
        }
        commit(&store, std::mem::take(&mut batch), retention).await;
    }
}

/// Commits reports together. If the database refuses what one of them says, each is committed by itself, so that only its
/// own session fails.
async fn commit(store: &Store, batch: Vec<Report>, retention: Duration) {
    let records: Vec<_> = batch.iter().flat_map(Report::records).collect();
    match store.write(&records, retention).await {
        Ok(changes) => {
            let mut changes = changes.into_iter();
            for Report { records, reply, .. } in batch {
                // A session that is over needs no answer.
                let _ = reply.send(Ok(changes.by_ref().take(records.len()).collect()));
            }
        }
        Err(Error::Statement(_) | Error::Data(_)) if batch.len() > 1 => {
            for report in batch {
                let own: Vec<_> = report.records().collect();
                let written = store.write(&own, retention).await;
                let _ = report.reply.send(written);
            }
        }
        Err(error) => {
            for Report { reply, .. } in batch {
                let _ = reply.send(Err(Error::Unavailable(error.to_string())));
            }
        }
    }
}
