//! Stores bytes as they come, and hashes them.

use bytes::Bytes;
use deskgate_protocol::canonical::Sha256Digest;
use object_store::PutPayload;
use ring::digest::{Context, SHA256};
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::{CHUNK_BYTES, ObjectStorage, StorageError};

/// What was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectDigest {
    /// Bytes.
    pub size: u64,
    /// Their digest.
    pub sha256: Sha256Digest,
}

/// Why bytes were not taken.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The place does not take them.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// There are more than the limit.
    #[error("more bytes than {0}")]
    TooMany(u64),
}

/// How much of the next chunk is gathered while one is on its way to the store. What comes meanwhile waits where it comes from.
const MAX_AHEAD_BYTES: usize = CHUNK_BYTES / 4;

/// An object that is being stored. One chunk is on its way to the store while the next one begins to be gathered.
///
/// Dropped before [`Self::finish`], it leaves chunks behind, which [`ObjectStorage::delete`] deletes.
pub struct ObjectWriter {
    storage: ObjectStorage,
    object_id: Uuid,
    hash: Context,
    limit: u64,
    size: u64,
    /// The next chunk, in copies of the pieces in which it came: a piece keeps the whole buffer in memory that it came in.
    pieces: Vec<Bytes>,
    gathered: usize,
    /// The number of the next chunk.
    number: u64,
    under_way: Option<JoinHandle<Result<(), StorageError>>>,
}

impl ObjectWriter {
    pub(super) fn new(storage: ObjectStorage, object_id: Uuid) -> Self {
        let (hash, pieces) = (Context::new(&SHA256), Vec::new());
        Self { storage, object_id, hash, limit: u64::MAX, size: 0, pieces, gathered: 0, number: 0, under_way: None }
    }

    /// Takes at most so many bytes in all.
    #[must_use]
    pub fn with_limit(self, limit: u64) -> Self {
        Self { limit, ..self }
    }

    /// Bytes that were taken.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Notes bytes that the store has already.
    pub(super) fn note_stored(&mut self, bytes: &[u8]) {
        self.hash.update(bytes);
        self.size += bytes.len() as u64;
        self.number = self.size / CHUNK_BYTES as u64;
    }

    /// Takes more bytes. They may not be stored when this returns.
    ///
    /// # Errors
    /// They are too many, or the place does not take bytes that came before.
    pub async fn write(&mut self, mut bytes: Bytes) -> Result<(), WriteError> {
        let size = self.size + bytes.len() as u64;
        if size > self.limit {
            return Err(WriteError::TooMany(self.limit));
        }
        self.size = size;
        self.storage.precedence.pass(bytes.len()).await;
        self.hash.update(&bytes);
        while self.gathered + bytes.len() >= CHUNK_BYTES {
            let piece = bytes.split_to(CHUNK_BYTES - self.gathered);
            self.gather(&piece);
            self.send().await?;
        }
        if !bytes.is_empty() {
            self.gather(&bytes);
        }
        if self.gathered > MAX_AHEAD_BYTES {
            self.settle().await?;
        }
        Ok(())
    }

    fn gather(&mut self, piece: &[u8]) {
        self.gathered += piece.len();
        self.pieces.push(Bytes::copy_from_slice(piece));
    }

    /// Waits until the last chunk is stored, and begins to store the gathered one.
    async fn send(&mut self) -> Result<(), StorageError> {
        self.settle().await?;
        let chunk = PutPayload::from_iter(self.pieces.drain(..));
        let (storage, object_id, number) = (self.storage.clone(), self.object_id, self.number);
        (self.gathered, self.number) = (0, self.number + 1);
        self.under_way = Some(tokio::spawn(async move { storage.put(object_id, number, chunk).await }));
        Ok(())
    }

    async fn settle(&mut self) -> Result<(), StorageError> {
        match self.under_way.take() {
            None => Ok(()),
            Some(task) => task.await.map_err(|error| StorageError::Unavailable(error.to_string()))?,
        }
    }

    /// Returns when every byte is stored.
    ///
    /// # Errors
    /// The place does not take them.
    pub async fn finish(mut self) -> Result<ObjectDigest, StorageError> {
        if self.gathered > 0 {
            self.send().await?;
        }
        self.settle().await?;
        let digest = self.hash.finish();
        let sha256 = Sha256Digest(digest.as_ref().try_into().expect("SHA-256 has 32 bytes"));
        Ok(ObjectDigest { size: self.size, sha256 })
    }

    /// Returns when what is on its way is stored or given up. How much is stored then is told by
    /// [`ObjectStorage::stored_chunks`].
    pub async fn leave(mut self) {
        if let Err(error) = self.settle().await {
            tracing::debug!(%error, "a chunk was not stored");
        }
    }
}
