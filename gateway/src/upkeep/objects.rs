//! Deletes the bytes of files and artifacts that nothing needs any more.
//!
//! It has rounds of its own: a bucket that answers slowly must not keep the other passes waiting. [`watch`] tries now and then
//! whether bytes can be kept at all.

use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::storage::{ObjectStorage, StorageError};
use crate::store::objects::MAX_UPLOAD_DURATION;
use crate::store::{Error, Store};

/// The pause between two rounds. Every replica runs them; they do not disturb each other.
const ROUND_INTERVAL: Duration = Duration::from_secs(2);
/// After how long an upload that has not ended counts as abandoned: longer than any may take.
const ABANDONED_AFTER: Duration = Duration::from_secs(2 * MAX_UPLOAD_DURATION.as_secs());

/// After how long no chunk of an upload that broke off is on its way any more: a request to a bucket takes a minute at most.
const SETTLED_AFTER: Duration = Duration::from_secs(300);

/// Why a round did not come to its end. The next one goes on.
#[derive(Debug, thiserror::Error)]
pub enum ObjectPassError {
    /// The database does not answer.
    #[error(transparent)]
    Store(#[from] Error),
    /// The folder or the bucket does not.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// The result of one round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObjectCounts {
    /// Files that no run has and whose time was over.
    pub files_deleted: usize,
    /// Uploads that were never completed.
    pub uploads_abandoned: usize,
    /// Objects whose bytes were deleted.
    pub objects_deleted: usize,
}

/// The pause between two tries whether bytes can be kept: each asks a bucket three times.
const PROBE_INTERVAL: Duration = Duration::from_secs(30);
/// The same while they cannot.
const TROUBLE_PROBE_INTERVAL: Duration = Duration::from_secs(5);

/// Tries again and again whether bytes can be kept, until `stop`.
pub async fn watch(storage: ObjectStorage, stop: CancellationToken) {
    let watching = async {
        loop {
            let (before, tried) = (storage.trouble(), storage.probe().await);
            match (before, &tried) {
                (None, Err(error)) => tracing::warn!(%error, place = storage.place(), "files cannot be kept"),
                (Some(_), Ok(())) => tracing::info!(place = storage.place(), "files can be kept again"),
                _ => {}
            }
            tokio::time::sleep(if tried.is_ok() { PROBE_INTERVAL } else { TROUBLE_PROBE_INTERVAL }).await;
        }
    };
    stop.run_until_cancelled(watching).await;
}

/// Runs rounds until `stop`.
pub async fn run(store: Store, storage: ObjectStorage, stop: CancellationToken) {
    let mut rounds = interval(ROUND_INTERVAL);
    rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut failing = false;
    while stop.run_until_cancelled(rounds.tick()).await.is_some() {
        match stop.run_until_cancelled(run_once(&store, &storage, ABANDONED_AFTER)).await {
            None => return,
            Some(Ok(counts)) => {
                failing = false;
                if counts != ObjectCounts::default() {
                    tracing::info!(?counts, "upkeep of files");
                }
            }
            Some(Err(error)) => {
                if !failing {
                    tracing::warn!(%error, "upkeep of files waits");
                }
                failing = true;
            }
        }
    }
}

/// One round. `abandoned_after`: how long an upload may be under way.
///
/// # Errors
/// The database or the place of the bytes does not answer.
pub async fn run_once(
    store: &Store,
    storage: &ObjectStorage,
    abandoned_after: Duration,
) -> Result<ObjectCounts, ObjectPassError> {
    let files_deleted = store.delete_due_files().await?;
    let uploads_abandoned = store.release_abandoned_objects(abandoned_after).await?;
    let mut deleted = Vec::new();
    let mut failed = Ok(());
    for object in store.due_objects(abandoned_after.min(SETTLED_AFTER)).await? {
        match storage.delete(object.object_id, object.size).await {
            Ok(()) => deleted.push(object.object_id),
            // The others are deleted all the same.
            Err(error) => failed = Err(error),
        }
    }
    let objects_deleted = match deleted.is_empty() {
        true => 0,
        false => store.forget_objects(&deleted).await?,
    };
    failed?;
    Ok(ObjectCounts { files_deleted, uploads_abandoned, objects_deleted })
}
