//! Files that callers upload, and give to runs.
//!
//! An upload is announced in the database before its first byte is stored, and is a file only when all are: what breaks off is
//! deleted by upkeep, and nobody has ever seen it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::file::{
    File, InputFile, MAX_FILE_BYTES, MAX_RUN_FILE_BYTES, MAX_RUN_FILES, check_file_name, is_media_type,
};
use deskgate_protocol::{ApplicationId, FileId, KeyId};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use unicode_normalization::UnicodeNormalization;

use super::access::Caller;
use super::admission::{OWNER_SUBJECT, Principal, RunRequest, digest_of, under_key};
use super::quota::{Quota, QuotaPermit};
use super::refusal::{Flaw, PriorResult, Refusal};
use crate::storage::{ObjectDigest, ObjectStorage, ObjectWriter, StorageError, WriteError};
use crate::store::files::{FileCreation, FileDeletion, NewFile};
pub use crate::store::objects::MAX_UPLOAD_DURATION;
use crate::store::objects::{NewObject, StorageFull, StorageQuotas};
use crate::store::{Page, PagePosition, Store};

/// How long a file is kept that no run has.
pub const UNUSED_FILE_TTL: Duration = Duration::from_secs(24 * 3600);

/// Uploads that may be under way at once on one gateway, of all keys: each takes the memory of two chunks.
const MAX_UPLOADS: usize = 64;

/// Uploads, reads and deletes callers' files.
#[derive(Clone)]
pub struct FileService {
    store: Store,
    storage: ObjectStorage,
    quotas: StorageQuotas,
    uploads: Quota<KeyId>,
    places: Arc<Semaphore>,
}

/// A file that a caller is about to upload.
#[derive(Clone, Debug)]
pub struct UploadRequest {
    /// Its name, as the caller wrote it.
    pub name: String,
    /// What it is; `None`: the caller does not say.
    pub media_type: String,
    /// Bytes, if the caller says.
    pub size: Option<u64>,
    /// What the caller says the digest of its bytes is.
    pub sha256: Option<Sha256Digest>,
    /// The caller's own name for this request.
    pub idempotency_key: Option<String>,
}

/// A file that is there now; `replayed` when it was uploaded by an earlier request.
#[derive(Clone, Debug)]
pub struct UploadedFile {
    /// The file.
    pub file: File,
    /// Whether an earlier request made it.
    pub replayed: bool,
}

impl FileService {
    /// Keeps bytes in `storage`, and takes so many uploads of one key at once.
    pub fn new(store: Store, storage: ObjectStorage, quotas: StorageQuotas, uploads_per_key: usize) -> Self {
        Self {
            store,
            storage,
            quotas,
            uploads: Quota::new(uploads_per_key),
            places: Arc::new(Semaphore::new(MAX_UPLOADS)),
        }
    }

    /// Announces an upload of a caller with `files:write`.
    ///
    /// # Errors
    /// [`Refusal::InvalidFileName`], [`Refusal::InvalidMediaType`]: the name or the media type cannot be used.
    /// [`Refusal::FileTooLarge`]: so many bytes are too many. [`Refusal::TooManyUploads`]: too many of the key's are under
    /// way. [`Refusal::StorageFull`]: the application has no room left. [`Refusal::RateLimited`]: the key made too many
    /// requests. [`Refusal::StorageUnavailable`]: no bytes can be kept now. [`Refusal::StoreUnavailable`] or
    /// [`Refusal::Internal`]: the database does not answer, or refuses the statement.
    pub async fn begin(&self, caller: &Caller, request: UploadRequest) -> Result<Upload, Refusal> {
        let request = checked(request)?;
        if !caller.is_within_rate() {
            return Err(Refusal::RateLimited);
        }
        let too_many = Refusal::TooManyUploads { limit: self.uploads.limit() };
        let (permit, place) =
            match (self.uploads.acquire(caller.key_id()), Arc::clone(&self.places).try_acquire_owned()) {
                (Some(permit), Ok(place)) => (permit, place),
                _ => return Err(too_many),
            };
        self.announce(caller.app_id(), request, Some((permit, place))).await
    }

    /// Announces an upload of the owner, for a run that the owner requests. It counts in the application's quota of bytes alone.
    pub(super) async fn begin_own(&self, app_id: ApplicationId, request: UploadRequest) -> Result<Upload, Refusal> {
        self.announce(app_id, checked(request)?, None).await
    }

    async fn announce(
        &self,
        app_id: ApplicationId,
        request: UploadRequest,
        permits: Option<UploadPermits>,
    ) -> Result<Upload, Refusal> {
        // The bytes would come for nothing, and a bucket that is away lets its callers wait.
        if let Some(why) = self.storage.trouble() {
            tracing::info!(why, "a file was refused");
            return Err(Refusal::StorageUnavailable);
        }
        let file_id = FileId::new();
        let size = request.size.unwrap_or(MAX_FILE_BYTES);
        let object = NewObject { object_id: file_id.uuid(), app_id, from: None, size };
        // From here on the object is announced, or may be: whatever ends this, it is released.
        let reserved = ReservedObject::new(self.store.clone(), file_id);
        self.store.begin_object(&object, &self.quotas).await?.map_err(storage_full)?;
        let writer = self.storage.write(file_id.uuid()).with_limit(size);
        Ok(Upload { service: self.clone(), app_id, request, writer, reserved, _permits: permits })
    }

    /// A file of this caller.
    ///
    /// # Errors
    /// [`Refusal::NotFound`]: no such file, or another application's or subject's. [`Refusal::StoreUnavailable`] or
    /// [`Refusal::Internal`]: the database does not answer, or refuses the statement.
    pub async fn read(&self, caller: &Caller, file_id: FileId) -> Result<File, Refusal> {
        let found = self.store.files(caller.app_id(), caller.subject(), &[file_id]).await?;
        found.into_iter().next().ok_or(Refusal::NotFound)
    }

    /// A page of this caller's files, newest first.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn list(&self, caller: &Caller, before: Option<PagePosition>, limit: u32) -> Result<Page<File>, Refusal> {
        Ok(self.store.files_of_caller(caller.app_id(), caller.subject(), before, limit).await?)
    }

    /// Deletes a file of this caller that no run has.
    ///
    /// # Errors
    /// [`Refusal::FileInUse`]: a run has it. Otherwise as of [`Self::read`].
    pub async fn delete(&self, caller: &Caller, file_id: FileId) -> Result<(), Refusal> {
        match self.store.delete_file(caller.app_id(), caller.subject(), file_id).await? {
            FileDeletion::Deleted => Ok(()),
            FileDeletion::InUse => Err(Refusal::FileInUse),
            FileDeletion::NoFile => Err(Refusal::NotFound),
        }
    }
}

/// What is announced, with its name as it is kept.
fn checked(request: UploadRequest) -> Result<UploadRequest, Refusal> {
    let name: String = request.name.nfc().collect();
    check_file_name(&name).map_err(|reason| Refusal::InvalidFileName { reason })?;
    if !is_media_type(&request.media_type) {
        return Err(Refusal::InvalidMediaType);
    }
    if request.size.is_some_and(|size| size > MAX_FILE_BYTES) {
        return Err(Refusal::FileTooLarge);
    }
    Ok(UploadRequest { name, ..request })
}

/// A caller's place among the uploads that are under way.
type UploadPermits = (QuotaPermit<KeyId>, OwnedSemaphorePermit);

/// A file that is being uploaded. Dropped before [`Self::finish`], nothing is left of it.
pub struct Upload {
    service: FileService,
    app_id: ApplicationId,
    request: UploadRequest,
    writer: ObjectWriter,
    reserved: ReservedObject,
    _permits: Option<UploadPermits>,
}

impl Upload {
    /// Takes more of its bytes.
    ///
    /// # Errors
    /// [`Refusal::FileTooLarge`]: they are too many. [`Refusal::StorageUnavailable`]: they cannot be stored.
    pub async fn write(&mut self, bytes: Bytes) -> Result<(), Refusal> {
        self.writer.write(bytes).await.map_err(|error| match error {
            WriteError::TooMany(_) => Refusal::FileTooLarge,
            WriteError::Storage(error) => error.into(),
        })
    }

    /// Makes a file of the bytes that came, or finds the one that the same request made before.
    ///
    /// # Errors
    /// [`Refusal::DigestMismatch`]: other bytes came than the caller said. [`Refusal::IdempotencyKeyReused`]: the key belongs
    /// to another file. [`Refusal::StorageUnavailable`]: the bytes cannot be stored. [`Refusal::StoreUnavailable`] or
    /// [`Refusal::Internal`]: the database does not answer, or refuses the statement.
    pub async fn finish(self, caller: &Caller) -> Result<UploadedFile, Refusal> {
        let identity = self.request.idempotency_key.as_ref().map(|key| {
            let mut identity = digest_of(&["POST files", key]);
            identity.0[..16].copy_from_slice(&under_key(caller, key));
            identity
        });
        self.keep(caller.subject(), identity).await
    }

    /// Makes a file of the owner's of the bytes that came.
    pub(super) async fn finish_own(self) -> Result<File, Refusal> {
        Ok(self.keep(OWNER_SUBJECT, None).await?.file)
    }

    async fn keep(self, subject: &str, identity: Option<Sha256Digest>) -> Result<UploadedFile, Refusal> {
        let Self { service, app_id, request, writer, mut reserved, _permits } = self;
        let UploadRequest { name, media_type, sha256: announced, .. } = request;
        let ObjectDigest { size, sha256 } = writer.finish().await?;
        if announced.is_some_and(|announced| announced != sha256) {
            return Err(Refusal::DigestMismatch);
        }
        let fingerprint = digest_of(&[&name, &media_type, &sha256.to_string()]);
        let file = NewFile {
            file_id: reserved.file_id,
            app_id,
            subject: subject.to_owned(),
            name,
            media_type,
            size,
            sha256,
            identity,
            fingerprint,
            ttl: UNUSED_FILE_TTL,
        };
        // From here on it may be a file, whether this is told or cut off. If it is none, it is deleted as abandoned.
        reserved.is_kept = true;
        match service.store.create_file(&file).await {
            Ok(FileCreation::Created(file)) => {
                tracing::info!(file_id = %file.file_id, %app_id, size, "file uploaded");
                Ok(UploadedFile { file, replayed: false })
            }
            Ok(FileCreation::Known { file, fingerprint: known }) if known == fingerprint => {
                Ok(UploadedFile { file, replayed: true })
            }
            Ok(FileCreation::Known { file, .. }) => {
                Err(Refusal::IdempotencyKeyReused { existing: PriorResult::File(file.file_id) })
            }
            Ok(FileCreation::Abandoned) => Err(Refusal::StoreUnavailable),
            Err(error) => Err(error.into()),
        }
    }
}

/// An announced object that is released unless it is kept.
struct ReservedObject {
    store: Store,
    file_id: FileId,
    is_kept: bool,
}

impl ReservedObject {
    fn new(store: Store, file_id: FileId) -> Self {
        Self { store, file_id, is_kept: false }
    }
}

impl Drop for ReservedObject {
    fn drop(&mut self) {
        if self.is_kept {
            return;
        }
        let (store, file_id) = (self.store.clone(), self.file_id);
        // Outside of a runtime nothing is served. Upkeep finds what is left.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                if let Err(error) = store.release_object(file_id.uuid(), None).await {
                    tracing::debug!(%error, %file_id, "an upload that broke off is left to upkeep");
                }
            });
        }
    }
}

/// Puts what is known of its files into a run's input: names, sizes, digests. `Some`: the refusal that new work would get.
pub(super) async fn resolve(
    store: &Store,
    whose: Principal<'_>,
    request: &mut RunRequest,
) -> Result<Option<Refusal>, Refusal> {
    if request.files.is_empty() {
        return Ok(None);
    }
    let found = store.files(whose.app_id, whose.subject, &request.files).await?;
    let (mut files, mut flaws) = (Vec::with_capacity(request.files.len()), Vec::new());
    for (place, file_id) in request.files.iter().enumerate() {
        match found.iter().find(|file| file.file_id == *file_id) {
            Some(file) => files.push(file),
            None => flaws.push(gone(place)),
        }
    }
    if files.iter().map(|file| file.size).sum::<u64>() > MAX_RUN_FILE_BYTES {
        let detail = format!("files of at most {MAX_RUN_FILE_BYTES} bytes together");
        flaws.push(Flaw::new("/input/files", "out_of_range", detail));
    }
    if !flaws.is_empty() {
        return Ok(Some(Refusal::Invalid(flaws)));
    }
    let files = serde_json::to_value(InputFile::list(files)).map_err(|_| Refusal::Internal)?;
    request.input.more.insert("files".to_owned(), files);
    request.input_json = serde_json::to_string(&request.input).map_err(|_| Refusal::Internal)?;
    Ok(None)
}

/// What is said of a file that is not there.
fn gone(place: usize) -> Flaw {
    Flaw::new(
        format!("/input/files/{place}/file_id"),
        "unknown_file",
        "a file of this application and subject that is there",
    )
}

/// The refusal of files that were deleted while they were given to a run.
pub(super) fn deleted_meanwhile() -> Refusal {
    Refusal::Invalid(vec![Flaw::new(
        "/input/files",
        "unknown_file",
        "files of this application and subject that are there",
    )])
}

/// The refusal of files where a service takes none.
pub(super) fn not_taken() -> Refusal {
    let detail = "this service takes no files, as its `takes_files` says; leave `input.files` out";
    Refusal::Invalid(vec![Flaw::new("/input/files", "not_taken", detail)])
}

/// Why files that a caller names cannot be given to a run, whatever they are.
pub fn check_list(files: &[FileId]) -> Option<Flaw> {
    if files.len() > MAX_RUN_FILES {
        return Some(Flaw::new(
            "/input/files",
            "out_of_range",
            format!("at most {MAX_RUN_FILES} files; this has {}", files.len()),
        ));
    }
    let twice = files.iter().enumerate().find(|(place, file)| files[..*place].contains(file))?;
    Some(Flaw::new(
        format!("/input/files/{}/file_id", twice.0),
        "duplicate_file",
        "a file that is not in the list before",
    ))
}

fn storage_full(StorageFull { limit, .. }: StorageFull) -> Refusal {
    Refusal::StorageFull { limit }
}

impl From<StorageError> for Refusal {
    fn from(error: StorageError) -> Self {
        tracing::error!(%error, "files cannot be kept or read");
        Self::StorageUnavailable
    }
}
