//! Whether the stored bytes and the database agree: what is needed and not there, and what is there and not known.
//!
//! They agree by themselves, for an object is announced before its first byte and forgotten after its last. After a backup was
//! restored they need not: what was stored since is not known, and what was deleted since is not there.

use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use deskgate_protocol::file::MAX_FILE_BYTES;
use futures_util::TryStreamExt;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::storage::{CHUNK_BYTES, ObjectStorage, StorageError};
use crate::store::{self, Store};

/// How old unknown bytes must be to be deleted: two gateways that share a bucket by mistake should notice before.
const MIN_UNKNOWN_AGE: Duration = Duration::from_secs(24 * 3600);

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorageReport {
    /// Where the bytes lie, for people.
    pub place: String,
    /// Files and artifacts whose bytes are all there.
    pub whole: u64,
    /// Their bytes.
    pub whole_bytes: u64,
    /// Files and artifacts of which bytes are missing.
    pub missing: u64,
    /// Objects that no file, artifact or upload knows.
    pub unknown: u64,
    /// Their bytes.
    pub unknown_bytes: u64,
    /// How many of them were deleted.
    pub deleted: u64,
}

/// Why it could not be found out.
#[derive(Debug, thiserror::Error)]
pub enum StorageCheckError {
    /// The place does not answer.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The database does not answer, or refuses the statement.
    #[error(transparent)]
    Store(#[from] store::Error),
}

/// What is stored of one object.
#[derive(Clone, Copy, Default)]
struct Found {
    bytes: u64,
    /// One more than the number of its last chunk.
    chunks: u64,
    newest: i64,
}

/// Compares them. With `delete_unknown`, unknown objects that are at least a day old are deleted.
///
/// # Errors
/// The place or the database does not answer. Some unknown objects may be deleted.
pub async fn check(
    store: &Store,
    storage: &ObjectStorage,
    delete_unknown: bool,
) -> Result<StorageReport, StorageCheckError> {
    let mut report = StorageReport { place: storage.place().to_owned(), ..StorageReport::default() };
    // Read twice: an object that is not listed may have been stored after the list, or deleted since.
    let before = known(store).await?;
    let mut found = HashMap::<Uuid, Found>::new();
    let mut chunks = storage.chunks();
    while let Some(chunk) = chunks.try_next().await? {
        // No object of ours has so many.
        if chunk.number >= MAX_FILE_BYTES.div_ceil(CHUNK_BYTES as u64) {
            continue;
        }
        let of = found.entry(chunk.object_id).or_default();
        of.bytes += chunk.size;
        of.chunks = of.chunks.max(chunk.number + 1);
        of.newest = of.newest.max(chunk.stored_at);
    }
    let after = known(store).await?;
    for (object_id, size) in &after {
        let stored = found.remove(object_id);
        let (Some(size), Some(Some(_))) = (size, before.get(object_id)) else { continue };
        if stored.is_some_and(|stored| stored.bytes == *size) || *size == 0 {
            report.whole += 1;
            report.whole_bytes += size;
        } else {
            report.missing += 1;
        }
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let newest = i64::try_from(now.saturating_sub(MIN_UNKNOWN_AGE.as_secs())).unwrap_or(i64::MAX);
    for (object_id, stored) in found.into_iter().filter(|(object_id, _)| !before.contains_key(object_id)) {
        report.unknown += 1;
        report.unknown_bytes += stored.bytes;
        if delete_unknown && stored.newest <= newest {
            storage.delete(object_id, stored.chunks * CHUNK_BYTES as u64).await?;
            report.deleted += 1;
        }
    }
    Ok(report)
}

/// The objects that the database knows, with the bytes that must be there.
async fn known(store: &Store) -> Result<HashMap<Uuid, Option<u64>>, store::Error> {
    let (mut known, mut last) = (HashMap::new(), Uuid::nil());
    loop {
        let page = store.known_objects(last).await?;
        let Some(end) = page.last() else { return Ok(known) };
        last = end.object_id;
        known.extend(page.into_iter().map(|object| (object.object_id, object.is_needed.then_some(object.size))));
    }
}
