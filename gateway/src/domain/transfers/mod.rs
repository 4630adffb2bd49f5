//! Transfers: which bytes a device may have and bring, by a ticket for one attempt of one run, or for its owner.
//!
//! A ticket says who a device is and what it executes; whether that still holds is read from the database each time. So a
//! ticket of another run, of an attempt that is over, or of a device that was removed opens nothing. [`owner`] has the owner's.

pub mod owner;

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use deskgate_protocol::file::{
    Artifact, ArtifactState, MAX_FILE_BYTES, MAX_RUN_ARTIFACT_BYTES, MAX_RUN_ARTIFACTS, check_file_name, is_media_type,
};
use deskgate_protocol::service::MAX_DESCRIPTION_CHARS;
use deskgate_protocol::transfer::{TICKET_TTL, TransferRefusalCode, TransferTicket};
use deskgate_protocol::{ArtifactId, DeviceId, FileId, RunId};
use futures_util::stream::BoxStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use uuid::Uuid;

use super::files::FileService;
use super::quota::{Quota, QuotaPermit};
use crate::encryption::DataCipher;
use crate::storage::{CHUNK_BYTES, ObjectDigest, ObjectStorage, ObjectWriter, StorageError, WriteError};
use crate::store::artifacts::{ArtifactPlace, HeldAttempt};
use crate::store::objects::{NewObject, StorageQuotas};
use crate::store::{self, Store};

/// The encryption context of tickets, so that no other encrypted value is accepted as one.
const TICKET_CONTEXT: &str = "a transfer";
/// Transfers of one device that may be under way at once on one gateway.
const MAX_TRANSFERS_PER_DEVICE: usize = 8;

/// Transfers that may be under way at once on one gateway: each that comes takes the memory of two chunks.
const MAX_TRANSFERS: usize = 64;

/// Why a transfer is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct TransferRefusal {
    /// For the device.
    pub code: TransferRefusalCode,
    /// For its log.
    pub message: String,
}

fn refused(code: TransferRefusalCode, message: impl Into<String>) -> TransferRefusal {
    TransferRefusal { code, message: message.into() }
}

fn invalid_ticket() -> TransferRefusal {
    refused(TransferRefusalCode::TicketInvalid, "the ticket is not valid, or not any more")
}

/// A ticket that holds this, valid until then.
fn seal(cipher: &DataCipher, context: &str, held: Vec<u8>, until: Duration) -> TransferTicket {
    let plain = [until.as_secs().to_be_bytes().to_vec(), held].concat();
    TransferTicket::new(&URL_SAFE_NO_PAD.encode(cipher.encrypt(&plain, context)))
}

fn stale() -> TransferRefusal {
    refused(TransferRefusalCode::Stale, "this attempt is not the run's any more, or the run has ended")
}

impl From<store::Error> for TransferRefusal {
    fn from(error: store::Error) -> Self {
        tracing::warn!(%error, "a transfer waits for the database");
        refused(TransferRefusalCode::Busy, "the gateway cannot use its database at the moment")
    }
}

impl From<StorageError> for TransferRefusal {
    fn from(error: StorageError) -> Self {
        tracing::error!(%error, "the bytes of a transfer cannot be kept or read");
        match error {
            StorageError::Missing(_) => refused(TransferRefusalCode::Gone, "the gateway lost the bytes of this file"),
            _ => refused(TransferRefusalCode::Busy, "the gateway cannot keep or read files at the moment"),
        }
    }
}

/// Gives and takes the bytes of runs.
#[derive(Clone)]
pub struct TransferService {
    store: Store,
    storage: ObjectStorage,
    files: FileService,
    cipher: DataCipher,
    quotas: StorageQuotas,
    under_way: Quota<DeviceId>,
    places: Arc<Semaphore>,
    uploads: Quota<ArtifactId>,
}

/// A place among the transfers that are under way.
struct TransferPermit {
    _of_device: QuotaPermit<DeviceId>,
    _place: OwnedSemaphorePermit,
}

/// The bytes of a file that are to be sent.
pub struct FileBytes {
    /// How many.
    pub length: u64,
    /// The bytes.
    pub bytes: BoxStream<'static, Result<Bytes, StorageError>>,
    _permit: TransferPermit,
}

/// What becomes of an artifact that is announced.
pub enum AnnouncedArtifact {
    /// Its bytes are to come.
    Upload(Box<ArtifactUpload>),
    /// The run lists it already.
    Stored,
}

impl TransferService {
    /// Keeps bytes in `storage`; tickets are valid on every replica with the same key.
    pub fn new(store: Store, storage: ObjectStorage, cipher: DataCipher, quotas: StorageQuotas) -> Self {
        let (under_way, uploads) = (Quota::new(MAX_TRANSFERS_PER_DEVICE), Quota::new(1));
        let places = Arc::new(Semaphore::new(MAX_TRANSFERS));
        let files = FileService::new(store.clone(), storage.clone(), quotas, MAX_TRANSFERS_PER_DEVICE);
        Self { store, storage, files, cipher, quotas, under_way, places, uploads }
    }

    /// A ticket for what the device says that it executes.
    pub fn ticket(&self, held: &HeldAttempt) -> TransferTicket {
        self.ticket_until(held, now() + TICKET_TTL)
    }

    fn ticket_until(&self, held: &HeldAttempt, until: Duration) -> TransferTicket {
        let mut plain = Vec::with_capacity(36);
        plain.extend_from_slice(held.device_id.uuid().as_bytes());
        plain.extend_from_slice(held.run_id.uuid().as_bytes());
        plain.extend_from_slice(&held.attempt.to_be_bytes());
        seal(&self.cipher, TICKET_CONTEXT, plain, until)
    }

    /// What a ticket stands for, while it is valid.
    fn held(&self, ticket: &TransferTicket) -> Result<HeldAttempt, TransferRefusal> {
        let plain = self.unseal(TICKET_CONTEXT, ticket)?;
        let (device, rest) = plain.split_first_chunk::<16>().ok_or_else(invalid_ticket)?;
        let (run, attempt) = rest.split_first_chunk::<16>().ok_or_else(invalid_ticket)?;
        let attempt = <[u8; 4]>::try_from(attempt).map_err(|_| invalid_ticket())?;
        Ok(HeldAttempt {
            device_id: DeviceId::from(Uuid::from_bytes(*device)),
            run_id: RunId::from(Uuid::from_bytes(*run)),
            attempt: u32::from_be_bytes(attempt),
        })
    }

    /// What a ticket of this kind holds, while it is valid.
    fn unseal(&self, context: &str, ticket: &TransferTicket) -> Result<Vec<u8>, TransferRefusal> {
        let sealed = URL_SAFE_NO_PAD.decode(ticket.reveal()).map_err(|_| invalid_ticket())?;
        let plain = self.cipher.decrypt(&sealed, context).map_err(|_| invalid_ticket())?;
        let (until, held) = plain.split_first_chunk::<8>().ok_or_else(invalid_ticket)?;
        if now().as_secs() > u64::from_be_bytes(*until) {
            return Err(invalid_ticket());
        }
        Ok(held.to_vec())
    }

    fn permit(&self, device_id: DeviceId) -> Result<TransferPermit, TransferRefusal> {
        match (self.under_way.acquire(device_id), Arc::clone(&self.places).try_acquire_owned()) {
            (Some(of_device), Ok(place)) => Ok(TransferPermit { _of_device: of_device, _place: place }),
            _ => Err(refused(TransferRefusalCode::Busy, "too many transfers are under way")),
        }
    }

    /// The bytes of a file of the run, from `offset` on.
    ///
    /// # Errors
    /// Why not.
    pub async fn get(
        &self,
        ticket: &TransferTicket,
        file_id: FileId,
        offset: u64,
    ) -> Result<FileBytes, TransferRefusal> {
        let held = self.held(ticket)?;
        let permit = self.permit(held.device_id)?;
        let found = self.store.file_of_run(&held, file_id).await?.ok_or_else(stale)?;
        if offset > found.size {
            return Err(refused(TransferRefusalCode::Invalid, "the file is shorter than that"));
        }
        let bytes = self.storage.open(found.object_id, found.size, offset).await?;
        Ok(FileBytes { length: found.size - offset, bytes, _permit: permit })
    }

    /// Takes an artifact of the run, or goes on with it.
    ///
    /// # Errors
    /// Why not.
    pub async fn put(&self, ticket: &TransferTicket, artifact: Artifact) -> Result<AnnouncedArtifact, TransferRefusal> {
        let held = self.held(ticket)?;
        let permit = self.permit(held.device_id)?;
        let busy = || refused(TransferRefusalCode::Busy, "this artifact is on its way already");
        let upload = self.uploads.acquire(artifact.artifact_id).ok_or_else(busy)?;
        let Some(place) = self.place(&held, &artifact).await? else { return Ok(AnnouncedArtifact::Stored) };
        let object_id = artifact.artifact_id.uuid();
        let writer = match place.begun {
            Some(size) if size != artifact.size => {
                return Err(refused(TransferRefusalCode::Invalid, "it was announced with another size"));
            }
            Some(_) => {
                let chunks = self.storage.stored_chunks(object_id).await?.min(artifact.size / CHUNK_BYTES as u64);
                self.storage.resume(object_id, chunks).await?
            }
            None => {
                let from = Some((held.device_id, held.run_id));
                let object = NewObject { object_id, app_id: place.app_id, from, size: artifact.size };
                let full =
                    |_| refused(TransferRefusalCode::StorageFull, "there is no room for more files and artifacts");
                self.store.begin_object(&object, &self.quotas).await?.map_err(full)?;
                self.storage.write(object_id)
            }
        };
        let writer = writer.with_limit(artifact.size);
        let (service, _permits) = (self.clone(), (permit, upload));
        Ok(AnnouncedArtifact::Upload(Box::new(ArtifactUpload { service, held, artifact, writer, _permits })))
    }

    /// Lists an artifact whose bytes cannot be brought.
    ///
    /// # Errors
    /// Why not.
    pub async fn note_missing(&self, ticket: &TransferTicket, artifact: Artifact) -> Result<(), TransferRefusal> {
        let held = self.held(ticket)?;
        let _permit = self.permit(held.device_id)?;
        if self.place(&held, &artifact).await?.is_some() {
            let artifact = Artifact { state: ArtifactState::Missing, ..artifact };
            self.store.add_artifact(&held, &artifact).await?;
            // What was begun of it.
            self.store.release_object(artifact.artifact_id.uuid(), Some(held.run_id)).await?;
        }
        Ok(())
    }

    /// The place for an artifact; `None`: the run lists it.
    async fn place(&self, held: &HeldAttempt, artifact: &Artifact) -> Result<Option<ArtifactPlace>, TransferRefusal> {
        let place = self.store.artifact_place(held, artifact.artifact_id).await?.ok_or_else(stale)?;
        if place.artifacts.iter().any(|listed| listed.artifact_id == artifact.artifact_id) {
            return Ok(None);
        }
        check(artifact)?;
        let stored = place.artifacts.iter().filter(|listed| listed.state == ArtifactState::Stored);
        let bytes = stored.map(|listed| listed.size).sum::<u64>() + place.arriving_bytes + artifact.size;
        if place.artifacts.len() >= MAX_RUN_ARTIFACTS || bytes > MAX_RUN_ARTIFACT_BYTES {
            let message =
                format!("a run has at most {MAX_RUN_ARTIFACTS} artifacts with {MAX_RUN_ARTIFACT_BYTES} bytes");
            return Err(refused(TransferRefusalCode::TooMany, message));
        }
        Ok(Some(place))
    }
}

/// What a device says of an artifact is data from a device.
fn check(artifact: &Artifact) -> Result<(), TransferRefusal> {
    let invalid = |why: String| refused(TransferRefusalCode::Invalid, why);
    check_file_name(&artifact.name).map_err(invalid)?;
    if !is_media_type(&artifact.media_type) {
        return Err(invalid("the media type is none".to_owned()));
    }
    if artifact.size > MAX_FILE_BYTES {
        return Err(invalid(format!("an artifact has at most {MAX_FILE_BYTES} bytes")));
    }
    let is_long = |text: &String| text.chars().count() > MAX_DESCRIPTION_CHARS || text.contains('\0');
    if artifact.description.as_ref().is_some_and(is_long) {
        return Err(invalid(format!("a description has at most {MAX_DESCRIPTION_CHARS} characters")));
    }
    Ok(())
}

/// An artifact whose bytes come.
pub struct ArtifactUpload {
    service: TransferService,
    held: HeldAttempt,
    artifact: Artifact,
    writer: ObjectWriter,
    _permits: (TransferPermit, QuotaPermit<ArtifactId>),
}

impl ArtifactUpload {
    /// Bytes that are there.
    pub fn offset(&self) -> u64 {
        self.writer.size()
    }

    /// Bytes that are still to come.
    pub fn missing(&self) -> u64 {
        self.artifact.size.saturating_sub(self.writer.size())
    }

    /// Takes more bytes.
    ///
    /// # Errors
    /// They are too many, or cannot be stored now.
    pub async fn write(&mut self, bytes: Bytes) -> Result<(), TransferRefusal> {
        self.writer.write(bytes).await.map_err(|error| match error {
            WriteError::TooMany(_) => refused(TransferRefusalCode::Invalid, "more bytes than were announced"),
            WriteError::Storage(error) => error.into(),
        })
    }

    /// Lists the artifact in its run's record.
    ///
    /// # Errors
    /// Its bytes are others than were announced, or the device does not execute the attempt any more.
    pub async fn finish(self) -> Result<(), TransferRefusal> {
        let Self { service, held, artifact, writer, _permits } = self;
        let object_id = artifact.artifact_id.uuid();
        let ObjectDigest { size, sha256 } = writer.finish().await?;
        if size != artifact.size || sha256 != artifact.sha256 {
            service.store.release_object(object_id, Some(held.run_id)).await?;
            return Err(refused(TransferRefusalCode::DigestMismatch, "other bytes came than the digest names"));
        }
        let artifact = Artifact { state: ArtifactState::Stored, ..artifact };
        if service.store.add_artifact(&held, &artifact).await? {
            tracing::info!(run_id = %held.run_id, artifact_id = %artifact.artifact_id, size, "artifact stored");
            return Ok(());
        }
        // Another stream may have listed it meanwhile.
        match service.place(&held, &artifact).await? {
            None => Ok(()),
            Some(_) => Err(refused(TransferRefusalCode::Busy, "its bytes took too long and were dropped")),
        }
    }

    /// Leaves it as it is, so that it goes on later.
    pub async fn leave(self) {
        self.writer.leave().await;
    }
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
