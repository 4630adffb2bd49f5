//! The entrance for what devices report: what comes while a commit is under way waits for the next one and shares it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::batches::{ReportedRecord, count_rounds};
use super::{AttemptRecord, Change, RecordOutcome};
use crate::store::commit_limit::CommitLimit;
use crate::store::leases::SessionKey;
use crate::store::{Error, Store};
use deskgate_program::tasks::Tasks;

/// Tasks that commit, whatever the disk: a run whose row somebody holds delays what shares its commit, and not all others.
const MIN_COMMITTERS: usize = 2;
/// At most so many, so that connections to the database are left for everything else.
const MAX_COMMITTERS: usize = 4;
/// Reports that may wait for a committer; beyond that their sessions wait.
const MAX_WAITING_REPORTS: usize = 1024;

/// What shares a commit, so that it takes a moment and nobody's report delays the others by much. Records, ...
const MAX_SHARED_RECORDS: usize = 256;
/// ... about so many bytes of content, ...
const MAX_SHARED_BYTES: usize = 1024 * 1024;
/// ... and steps of one run. A report with more is committed by itself.
const MAX_SHARED_ROUNDS: usize = 4;

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

/// Whether a session's records may share a commit with those of others.
fn may_share(records: &[AttemptRecord]) -> bool {
    records.len() <= MAX_SHARED_RECORDS
        && content_bytes(records) <= MAX_SHARED_BYTES / 4
        && count_rounds(records) <= MAX_SHARED_ROUNDS
}

/// About how many bytes of content records have.
fn content_bytes(records: &[AttemptRecord]) -> usize {
    records.iter().map(|record| record.what.content_bytes()).sum()
}

/// The entrance to the shared commits.
#[derive(Clone)]
pub struct Reports {
    store: Store,
    retention: Duration,
    queue: mpsc::Sender<Report>,
}

impl Reports {
    /// Starts the tasks that commit, as many at the same time as `limit` says, but two at least and four at most. They end with
    /// their group, or when every clone of the entrance is gone. Ended runs are kept for `retention`.
    pub fn start(store: &Store, tasks: &Tasks, limit: &CommitLimit, retention: Duration) -> Self {
        let (queue, receiver) = mpsc::channel(MAX_WAITING_REPORTS);
        let committer = Committer { store: store.clone(), receiver: Arc::new(Mutex::new(receiver)), retention };
        for number in 0..MAX_COMMITTERS {
            tasks.spawn("reports", committer.clone().work(number, limit.clone(), tasks.stopping()));
        }
        Self { store: store.clone(), retention, queue }
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
        if !may_share(&records) {
            return self.store.record(session, &records, self.retention).await;
        }
        let stopped = || Error::Unavailable("the gateway stops".to_owned());
        let (reply, answer) = oneshot::channel();
        self.queue.send(Report { session, records: records.clone(), reply }).await.map_err(|_| stopped())?;
        let changes = answer.await.map_err(|_| stopped())??;
        // What changed nothing is explained here, where it delays nobody else.
        self.store.outcomes(session, &records, &changes).await
    }
}

/// One of the tasks that commit.
#[derive(Clone)]
struct Committer {
    store: Store,
    receiver: Arc<Mutex<mpsc::Receiver<Report>>>,
    retention: Duration,
}

impl Committer {
    /// Commits batch after batch while `limit` admits the committer of this number.
    async fn work(self, number: usize, mut limit: CommitLimit, stop: CancellationToken) {
        // Whoever waits for its turn when the group stops leaves the rest to those that have it.
        while number < MIN_COMMITTERS || stop.run_until_cancelled(limit.admits(number)).await == Some(true) {
            let batch = next_batch(&mut *self.receiver.lock().await, &stop).await;
            if batch.is_empty() {
                return;
            }
            commit(&self.store, batch, self.retention).await;
        }
    }
}

/// What is there, as far as it may share a commit; empty when the group stops and nothing waits any more.
async fn next_batch(waiting: &mut mpsc::Receiver<Report>, stop: &CancellationToken) -> Vec<Report> {
    let first = stop.run_until_cancelled(waiting.recv()).await.unwrap_or_else(|| waiting.try_recv().ok());
    let mut batch: Vec<_> = first.into_iter().collect();
    let (mut records, mut bytes) = (0, 0);
    while let Some(last) = batch.last() {
        records += last.records.len();
        bytes += content_bytes(&last.records);
        if records >= MAX_SHARED_RECORDS || bytes >= MAX_SHARED_BYTES {
            break;
        }
        let Ok(next) = waiting.try_recv() else { break };
        batch.push(next);
    }
    batch
}

/// Commits reports together. If that fails, each is committed by itself, so that only a session whose report is the reason
/// fails. To repeat one that may be stored is safe: records that are stored already are recognised.
async fn commit(store: &Store, batch: Vec<Report>, retention: Duration) {
    let records: Vec<_> = batch.iter().flat_map(Report::records).collect();
    if count_rounds(records.iter().map(|reported| reported.record)) > MAX_SHARED_ROUNDS {
        return commit_each(store, batch, retention).await;
    }
    match store.write(&records, retention).await {
        Ok(changes) => {
            let mut changes = changes.into_iter();
            for Report { records, reply, .. } in batch {
                // A session that is over needs no answer.
                let _ = reply.send(Ok(changes.by_ref().take(records.len()).collect()));
            }
        }
        Err(error) => {
            tracing::warn!(%error, sessions = batch.len(), records = records.len(), "reports could not be committed together");
            commit_each(store, batch, retention).await;
        }
    }
}

async fn commit_each(store: &Store, batch: Vec<Report>, retention: Duration) {
    let commits = batch.into_iter().map(async |report| {
        let records: Vec<_> = report.records().collect();
        let written = store.write(&records, retention).await;
        let _ = report.reply.send(written);
    });
    join_all(commits).await;
}
