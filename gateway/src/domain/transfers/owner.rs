//! The owner's own transfers: files for runs that the owner requests, and artifacts of the owner's applications.

use bytes::Bytes;
use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::file::{ArtifactState, File};
use deskgate_protocol::management::ApplicationState;
use deskgate_protocol::transfer::{TICKET_TTL, TransferRefusalCode, TransferTicket};
use deskgate_protocol::{ApplicationId, ArtifactId, DeviceId, RunId};
use uuid::Uuid;

use super::{FileBytes, TransferPermit, TransferRefusal, TransferService, invalid_ticket, now, refused, seal, stale};
use crate::domain::files::{Upload, UploadRequest};
use crate::domain::refusal::Refusal;
use crate::encryption::DataCipher;

/// The encryption context of owners' tickets, so that none of an attempt is accepted as one.
const TICKET_CONTEXT: &str = "an owner's transfer";

/// A ticket for the owner of this device.
pub(in crate::domain) fn ticket(cipher: &DataCipher, device_id: DeviceId) -> TransferTicket {
    seal(cipher, TICKET_CONTEXT, device_id.uuid().as_bytes().to_vec(), now() + TICKET_TTL)
}

/// A file of the owner's, as it is announced.
#[derive(Clone, Debug)]
pub struct OwnFile {
    /// Its name.
    pub name: String,
    /// What it is.
    pub media_type: String,
    /// Bytes.
    pub size: u64,
    /// Their digest.
    pub sha256: Sha256Digest,
}

impl TransferService {
    /// The device that a ticket is for, while its owner may use it.
    async fn owner(&self, ticket: &TransferTicket) -> Result<(DeviceId, TransferPermit), TransferRefusal> {
        let held = <[u8; 16]>::try_from(self.unseal(TICKET_CONTEXT, ticket)?).map_err(|_| invalid_ticket())?;
        let device_id = Uuid::from_bytes(held).into();
        let permit = self.permit(device_id)?;
        match self.store.device(device_id).await? {
            Some(device) if device.revoked_at.is_none() => Ok((device_id, permit)),
            _ => Err(refused(TransferRefusalCode::Stale, "the device was removed")),
        }
    }

    /// Takes a file of the owner's for an application.
    ///
    /// # Errors
    /// Why not.
    pub async fn upload(
        &self,
        ticket: &TransferTicket,
        app_id: ApplicationId,
        file: OwnFile,
    ) -> Result<OwnUpload, TransferRefusal> {
        let (device_id, permit) = self.owner(ticket).await?;
        let application = self.store.application(device_id, app_id).await?;
        if !application.is_some_and(|application| application.state == ApplicationState::Active) {
            return Err(refused(TransferRefusalCode::Stale, "the application is not active"));
        }
        let OwnFile { name, media_type, size, sha256 } = file;
        let (size_said, sha256) = (Some(size), Some(sha256));
        let request = UploadRequest { name, media_type, size: size_said, sha256, idempotency_key: None };
        let upload = self.files.begin_own(app_id, request).await?;
        Ok(OwnUpload { upload, missing: size, _permit: permit })
    }

    /// The bytes of an artifact of one of the owner's runs, from `offset` on.
    ///
    /// # Errors
    /// Why not.
    pub async fn get_artifact(
        &self,
        ticket: &TransferTicket,
        run_id: RunId,
        artifact_id: ArtifactId,
        offset: u64,
    ) -> Result<FileBytes, TransferRefusal> {
        let (device_id, permit) = self.owner(ticket).await?;
        let (stored, _) = self.store.run_of_device(device_id, run_id).await?.ok_or_else(stale)?;
        let mut artifacts = stored.run.artifacts.into_iter();
        let unknown = || refused(TransferRefusalCode::Invalid, "the run has no such artifact");
        let artifact = artifacts.find(|artifact| artifact.artifact_id == artifact_id).ok_or_else(unknown)?;
        if artifact.state != ArtifactState::Stored {
            return Err(refused(TransferRefusalCode::Gone, "the bytes of this artifact never came"));
        }
        let left = artifact.size.checked_sub(offset);
        let length = left.ok_or_else(|| refused(TransferRefusalCode::Invalid, "the artifact is shorter than that"))?;
        let bytes = self.storage.open(artifact_id.uuid(), artifact.size, offset).await?;
        Ok(FileBytes { length, bytes, _permit: permit })
    }
}

/// A file of the owner's whose bytes come. Dropped before [`Self::finish`], nothing is left of it.
pub struct OwnUpload {
    upload: Upload,
    missing: u64,
    _permit: TransferPermit,
}

impl OwnUpload {
    /// Bytes that are still to come.
    pub fn missing(&self) -> u64 {
        self.missing
    }

    /// Takes more bytes.
    ///
    /// # Errors
    /// They are too many, or cannot be stored now.
    pub async fn write(&mut self, bytes: Bytes) -> Result<(), TransferRefusal> {
        self.missing = self.missing.saturating_sub(bytes.len() as u64);
        Ok(self.upload.write(bytes).await?)
    }

    /// Makes a file of them.
    ///
    /// # Errors
    /// They are others than were announced, or cannot be stored now.
    pub async fn finish(self) -> Result<File, TransferRefusal> {
        Ok(self.upload.finish_own().await?)
    }
}

impl From<Refusal> for TransferRefusal {
    fn from(refusal: Refusal) -> Self {
        let code = match refusal {
            Refusal::InvalidFileName { .. } | Refusal::InvalidMediaType | Refusal::FileTooLarge => {
                TransferRefusalCode::Invalid
            }
            Refusal::DigestMismatch => TransferRefusalCode::DigestMismatch,
            Refusal::StorageFull { .. } => TransferRefusalCode::StorageFull,
            _ => TransferRefusalCode::Busy,
        };
        refused(code, refusal.to_string())
    }
}
