//! The owner's own transfers: files for runs that the owner requests, and artifacts to where the owner wants them.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};

use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::file::{self, Artifact};
use deskgate_protocol::ids::{ApplicationId, RunId};
use deskgate_protocol::transfer::{TransferRefusalCode, TransferReply, TransferRequest, TransferTicket};
use sha2::{Digest, Sha256};

use super::send::send_bytes;
use super::{Retries, Transfers, blocking};
use crate::link::LinkError;

/// How often a transfer is tried whose line breaks before anything came of it.
const MAX_TRIES: u32 = 4;

/// Why a transfer of the owner's failed.
#[derive(Debug, thiserror::Error)]
pub enum OwnTransferError {
    /// The line broke again and again.
    #[error("the line to the gateway broke: {0}")]
    Line(#[from] LinkError),
    /// The gateway refused it.
    #[error("the gateway refused it: {0}")]
    Refused(String),
    /// The file cannot be read or written.
    #[error("the file cannot be read or written: {0}")]
    File(#[from] io::Error),
    /// Other bytes came than the run's record names.
    #[error("other bytes came than the run's record names")]
    OtherBytes,
}

/// Why one try failed.
enum Failure {
    Passing(LinkError),
    Lasting(OwnTransferError),
}

impl From<LinkError> for Failure {
    fn from(error: LinkError) -> Self {
        Self::Passing(error)
    }
}

impl<E: Into<OwnTransferError>> From<Lasting<E>> for Failure {
    fn from(Lasting(error): Lasting<E>) -> Self {
        Self::Lasting(error.into())
    }
}

/// An error that another try does not mend.
struct Lasting<E>(E);

fn of_file(error: io::Error) -> Lasting<io::Error> {
    Lasting(error)
}

impl Transfers {
    /// Uploads a regular file for runs of an application that the owner requests.
    ///
    /// # Errors
    /// The file cannot be read, the gateway refused it, or the line broke again and again.
    pub async fn upload(
        &self,
        ticket: &TransferTicket,
        app_id: ApplicationId,
        name: &str,
        mut source: File,
    ) -> Result<file::File, OwnTransferError> {
        let (size, sha256, source) = blocking(move || {
            let (size, sha256) = (source.metadata()?.len(), digest(&mut source)?);
            Ok((size, sha256, source))
        })
        .await?;
        let media_type = file::usual_media_type(name).to_owned();
        let (ticket, name) = (ticket.clone(), name.to_owned());
        let request = TransferRequest::Upload { ticket, app_id, name, media_type, size, sha256 };
        let mut retries = Retries::default();
        for tried in 1.. {
            match self.upload_once(&request, source.try_clone()?, size).await {
                Err(Failure::Passing(error)) if tried == MAX_TRIES => return Err(error.into()),
                Err(Failure::Passing(_)) => retries.wait().await,
                Err(Failure::Lasting(error)) => return Err(error),
                Ok(file) if file.sha256 == sha256 && file.size == size => return Ok(file),
                Ok(_) => return Err(OwnTransferError::OtherBytes),
            }
        }
        unreachable!("the last try returns")
    }

    async fn upload_once(&self, request: &TransferRequest, source: File, size: u64) -> Result<file::File, Failure> {
        let mut stream = self.link.open_transfers().await?;
        let reply = match stream.ask(request).await? {
            TransferReply::SendFrom { offset: 0 } => match send_bytes(&mut stream, source, 0, size).await? {
                true => stream.reply().await?,
                false => return Err(of_file(io::Error::other("it became shorter while it was sent")).into()),
            },
            reply => reply,
        };
        match reply {
            TransferReply::Stored { file } => Ok(file),
            reply => Err(refusal(reply)),
        }
    }

    /// Gets an artifact of one of the device's runs into an empty file.
    ///
    /// # Errors
    /// The file cannot be written, the gateway refused it, the line broke again and again, or other bytes came than the run's record
    /// names.
    pub async fn download(
        &self,
        ticket: &TransferTicket,
        run_id: RunId,
        artifact: &Artifact,
        target: &File,
    ) -> Result<(), OwnTransferError> {
        let (mut retries, mut tries, mut reached) = (Retries::default(), 0, 0);
        loop {
            let mut target = target.try_clone()?;
            let offset = target.seek(SeekFrom::End(0))?;
            if offset > reached {
                (reached, tries) = (offset, 0);
                retries.reset();
            }
            let (ticket, artifact_id) = (ticket.clone(), artifact.artifact_id);
            let request = TransferRequest::GetArtifact { ticket, run_id, artifact_id, offset };
            tries += 1;
            match self.download_once(&request, artifact.size - offset, target).await {
                Ok(()) => break,
                Err(Failure::Passing(error)) if tries == MAX_TRIES => return Err(error.into()),
                Err(Failure::Passing(_)) => retries.wait().await,
                Err(Failure::Lasting(error)) => return Err(error),
            }
        }
        let mut whole = target.try_clone()?;
        match blocking(move || digest(&mut whole)).await? == artifact.sha256 {
            true => Ok(()),
            false => Err(OwnTransferError::OtherBytes),
        }
    }

    async fn download_once(&self, request: &TransferRequest, missing: u64, mut target: File) -> Result<(), Failure> {
        let mut stream = self.link.open_transfers().await?;
        let mut left = match stream.ask(request).await? {
            TransferReply::Sending { bytes } if bytes == missing => bytes,
            TransferReply::Sending { .. } => return Err(Lasting(OwnTransferError::OtherBytes).into()),
            reply => return Err(refusal(reply)),
        };
        while left > 0 {
            let bytes = stream.bytes().await?;
            left = left.checked_sub(bytes.len() as u64).ok_or(Lasting(OwnTransferError::OtherBytes))?;
            let writing = blocking(move || {
                target.write_all(&bytes)?;
                Ok(target)
            });
            target = writing.await.map_err(of_file)?;
        }
        Ok(())
    }
}

fn refusal(reply: TransferReply) -> Failure {
    match reply {
        TransferReply::Refused { code: TransferRefusalCode::Busy, message } => LinkError::Lost(message).into(),
        TransferReply::Refused { message, .. } => Lasting(OwnTransferError::Refused(message)).into(),
        _ => LinkError::NotAGateway("it answered something else than was asked".to_owned()).into(),
    }
}

/// The digest of a whole file.
fn digest(source: &mut File) -> io::Result<Sha256Digest> {
    source.rewind()?;
    let (mut hash, mut buffer) = (Sha256::new(), vec![0; 256 * 1024]);
    loop {
        match source.read(&mut buffer)? {
            0 => return Ok(Sha256Digest(hash.finalize().into())),
            length => hash.update(&buffer[..length]),
        }
    }
}
