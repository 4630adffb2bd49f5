//! Keeps the bytes of files and artifacts: in a folder of the gateway, or in a bucket. It knows nothing of who they are for.
//!
//! | file | what it does |
//! |---|---|
//! | [`place`] | where the bytes lie: a folder, or a bucket by its URL |
//! | [`precedence`] | who goes first: submissions, and then bytes |
//! | [`writer`] | stores bytes as they come, and hashes them |
//!
//! An object is stored in chunks of [`CHUNK_BYTES`], each an object of the store by itself: `<object>/<number>`. So a chunk is there
//! whole or not at all, whatever the store is; what broke off goes on behind the last chunk, on any replica; and a transfer takes
//! the memory of two chunks. Objects are never changed and their numbers never used again, so reading, writing and deleting need
//! no agreement between replicas.

use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::ready;
use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    GetOptions, GetRange, GetResult, GetResultPayload, ObjectMeta, ObjectStore, ObjectStoreExt, PutPayload,
};
use tokio::time::timeout;
use uuid::Uuid;

pub mod place;
pub mod precedence;
pub mod writer;

pub use place::{InvalidPlace, StoragePlace};
pub use precedence::Precedence;
pub use writer::{ObjectDigest, ObjectWriter, WriteError};

/// Bytes of a chunk; the last one of an object has fewer.
pub const CHUNK_BYTES: usize = 4 * 1024 * 1024;
/// Bytes that are read from a folder at once.
const PIECE_BYTES: usize = 256 * 1024;
/// How long a try may take.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

/// What is wrong with the place where bytes are kept.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// Bytes that were stored are not there.
    #[error("stored bytes are missing: {0}")]
    Missing(String),
    /// The disk or the bucket is full.
    #[error("there is no room for files: {0}")]
    Full(String),
    /// The place does not answer, or refuses.
    #[error("files cannot be kept or read: {0}")]
    Unavailable(String),
}

impl From<object_store::Error> for StorageError {
    fn from(error: object_store::Error) -> Self {
        let text = chain(&error);
        match &error {
            object_store::Error::NotFound { .. } => Self::Missing(text),
            _ if is_full(&error) => Self::Full(text),
            _ => Self::Unavailable(text),
        }
    }
}

/// An error with what caused it. The library's own words for one often have the address, and never a secret.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut deeper = error.source();
    while let Some(error) = deeper {
        let more = error.to_string();
        if !text.contains(&more) {
            text += &format!(": {more}");
        }
        deeper = error.source();
    }
    text
}

fn is_full(error: &object_store::Error) -> bool {
    let mut deeper: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = deeper {
        if let Some(error) = error.downcast_ref::<std::io::Error>() {
            return matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded);
        }
        deeper = error.source();
    }
    false
}

/// A chunk that is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredChunk {
    /// The object that it is of.
    pub object_id: Uuid,
    /// Which of the object's chunks, from 0 on.
    pub number: u64,
    /// Bytes.
    pub size: u64,
    /// When it was stored, in seconds since 1970.
    pub stored_at: i64,
}

/// The place where bytes are kept. Clones are the same place.
#[derive(Clone, Debug)]
pub struct ObjectStorage {
    store: Arc<dyn ObjectStore>,
    root: Path,
    /// For people.
    place: String,
    /// The folder, if it is one.
    folder: Option<PathBuf>,
    precedence: Precedence,
    /// What the last tries whether bytes can be kept have shown.
    trouble: Arc<Mutex<Trouble>>,
    /// The name of the object of tries: one for each opened place, so that at most one is left by a program that is killed.
    probe_name: Arc<str>,
}

/// Tries in a row that failed, and why the last one did.
#[derive(Debug, Default)]
struct Trouble {
    tries: u32,
    why: String,
}

impl ObjectStorage {
    fn new(store: Arc<dyn ObjectStore>, root: Path, place: String, folder: Option<PathBuf>) -> Self {
        let probe_name = format!("probe-{}", Uuid::now_v7().simple()).into();
        let (precedence, trouble) = (Precedence::default(), Arc::default());
        Self { store, root, place, folder, precedence, trouble, probe_name }
    }

    /// For people: the folder, or the bucket.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// What goes before its bytes.
    pub fn precedence(&self) -> &Precedence {
        &self.precedence
    }

    fn key(&self, object_id: Uuid, number: u64) -> Path {
        let object = object_id.simple().to_string();
        Path::from_iter(self.root.parts().chain([object.into(), number.to_string().into()]))
    }

    /// Every chunk that is stored.
    pub fn chunks(&self) -> BoxStream<'static, Result<StoredChunk, StorageError>> {
        let depth = self.root.parts().count();
        let chunk = move |found: ObjectMeta| {
            let mut parts = found.location.parts().skip(depth);
            let object_id = Uuid::try_parse(parts.next()?.as_ref()).ok()?;
            let number = parts.next()?.as_ref().parse().ok()?;
            let stored_at = found.last_modified.timestamp();
            Some(StoredChunk { object_id, number, size: found.size, stored_at })
        };
        let listed = self.store.list(Some(&self.root)).map_err(StorageError::from);
        listed.try_filter_map(move |found| ready(Ok(chunk(found)))).boxed()
    }

    /// Begins to store an object.
    pub fn write(&self, object_id: Uuid) -> ObjectWriter {
        ObjectWriter::new(self.clone(), object_id)
    }

    /// Goes on with an object whose first chunks are stored, and reads them for that. Nothing else may write it meanwhile.
    ///
    /// # Errors
    /// A chunk is missing, or the place does not answer.
    pub async fn resume(&self, object_id: Uuid, chunks: u64) -> Result<ObjectWriter, StorageError> {
        let mut writer = self.write(object_id);
        // Without pauses: the device waits for it.
        let mut stored = self.read_at_once(object_id, chunks * CHUNK_BYTES as u64, 0);
        while let Some(bytes) = stored.try_next().await? {
            writer.note_stored(&bytes);
        }
        Ok(writer)
    }

    /// How many chunks of an object are stored without a gap, counted from the first.
    ///
    /// # Errors
    /// The place does not answer.
    pub async fn stored_chunks(&self, object_id: Uuid) -> Result<u64, StorageError> {
        let mut chunks = 0;
        loop {
            match self.store.head(&self.key(object_id, chunks)).await {
                Ok(found) if found.size == CHUNK_BYTES as u64 => chunks += 1,
                // A shorter one was the last of an object that was never completed: it is written again.
                Ok(_) | Err(object_store::Error::NotFound { .. }) => return Ok(chunks),
                Err(error) => return Err(error.into()),
            }
        }
    }

    async fn put(&self, object_id: Uuid, number: u64, chunk: PutPayload) -> Result<(), StorageError> {
        self.store.put(&self.key(object_id, number), chunk).await?;
        Ok(())
    }

    /// The bytes of an object of `size` bytes, from a place on. They pause while a submission is under way.
    pub fn read(&self, object_id: Uuid, size: u64, from: u64) -> BoxStream<'static, Result<Bytes, StorageError>> {
        let precedence = self.precedence.clone();
        let paced = self.read_at_once(object_id, size, from).and_then(move |piece| {
            let precedence = precedence.clone();
            async move {
                precedence.pass(piece.len()).await;
                Ok(piece)
            }
        });
        paced.boxed()
    }

    fn read_at_once(&self, object_id: Uuid, size: u64, from: u64) -> BoxStream<'static, Result<Bytes, StorageError>> {
        const CHUNK: u64 = CHUNK_BYTES as u64;
        let storage = self.clone();
        let first = from / CHUNK;
        let chunks = first..if from < size { size.div_ceil(CHUNK) } else { first };
        let read = stream::iter(chunks).then(move |number| {
            let (storage, first) = (storage.clone(), from.saturating_sub(number * CHUNK));
            let length = size.saturating_sub(number * CHUNK).min(CHUNK);
            async move {
                let range = Some(GetRange::Bounded(first..length));
                let options = GetOptions { range, ..GetOptions::default() };
                let found = storage.store.get_opts(&storage.key(object_id, number), options).await?;
                if found.meta.size != length {
                    let (place, has) = (&storage.place, found.meta.size);
                    return Err(StorageError::Missing(format!(
                        "chunk {number} in {place} has {has} bytes, not {length}"
                    )));
                }
                Ok(pieces(found))
            }
        });
        read.try_flatten().boxed()
    }

    /// The same once its beginning is read: so what is not there shows before anything is said of it.
    ///
    /// # Errors
    /// Its beginning is missing, or the place does not answer.
    pub async fn open(
        &self,
        object_id: Uuid,
        size: u64,
        from: u64,
    ) -> Result<BoxStream<'static, Result<Bytes, StorageError>>, StorageError> {
        let mut bytes = self.read(object_id, size, from);
        let beginning = bytes.try_next().await?;
        Ok(stream::iter(beginning.map(Ok)).chain(bytes).boxed())
    }

    /// Deletes an object of at most `size` bytes, whole or in part; again, it changes nothing.
    ///
    /// # Errors
    /// The place does not answer. Some of it may be deleted.
    pub async fn delete(&self, object_id: Uuid, size: u64) -> Result<(), StorageError> {
        // From the last one on: what is left is then still an object's beginning.
        for number in (0..size.div_ceil(CHUNK_BYTES as u64)).rev() {
            match self.store.delete(&self.key(object_id, number)).await {
                Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if let Some(folder) = &self.folder {
            // With a chunk that was being written when the program was killed.
            match tokio::fs::remove_dir_all(folder.join(object_id.simple().to_string())).await {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(StorageError::Unavailable(error.to_string()));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Why bytes cannot be kept, once two tries in a row have failed: one may have met a slow moment.
    pub fn trouble(&self) -> Option<String> {
        let trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        (trouble.tries > 1).then(|| trouble.why.clone())
    }

    /// Tries whether bytes can be kept, read and deleted, with an object of its own. The result is what [`Self::trouble`] tells.
    ///
    /// # Errors
    /// They cannot.
    pub async fn probe(&self) -> Result<(), StorageError> {
        let tried = match timeout(PROBE_TIMEOUT, self.try_out()).await {
            Ok(tried) => tried,
            Err(_) => Err(StorageError::Unavailable(format!("no answer for {} s", PROBE_TIMEOUT.as_secs()))),
        };
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        *trouble = match &tried {
            Ok(()) => Trouble::default(),
            Err(error) => Trouble { tries: trouble.tries + 1, why: error.to_string() },
        };
        tried
    }

    async fn try_out(&self) -> Result<(), StorageError> {
        // No object of a file, so nobody takes it for one.
        let key = Path::from_iter(self.root.parts().chain([self.probe_name.as_ref().into()]));
        let bytes = Bytes::from_static(b"deskgate");
        self.store.put(&key, bytes.clone().into()).await?;
        let read = async { self.store.get(&key).await?.bytes().await }.await;
        self.store.delete(&key).await?;
        if read? != bytes {
            return Err(StorageError::Unavailable("what was read is not what was written".to_owned()));
        }
        Ok(())
    }
}

/// The bytes of a chunk, in pieces. Of a file the library's own pieces have 8 KiB, each with a change of threads.
fn pieces(found: GetResult) -> BoxStream<'static, Result<Bytes, StorageError>> {
    let (file, range) = match found.payload {
        GetResultPayload::File(file, _) => (file, found.range),
        GetResultPayload::Stream(bytes) => return bytes.map_err(StorageError::from).boxed(),
    };
    let pieces = stream::try_unfold((Arc::new(file), range), |(file, range)| async move {
        let length = usize::try_from(range.end - range.start).unwrap_or(usize::MAX).min(PIECE_BYTES);
        if length == 0 {
            return Ok(None);
        }
        let (source, from) = (Arc::clone(&file), range.start);
        let reading = tokio::task::spawn_blocking(move || {
            let mut piece = vec![0; length];
            source.read_exact_at(&mut piece, from).map(|()| piece)
        });
        let read = reading.await.map_err(std::io::Error::other).flatten();
        let piece = read.map_err(|error| StorageError::Unavailable(error.to_string()))?;
        Ok(Some((Bytes::from(piece), (file, from + length as u64..range.end))))
    });
    pieces.boxed()
}

#[cfg(test)]
mod tests;
