//! The owner's own transfers: files for runs that the owner requests, and artifacts to where the owner wants them.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};

use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::file::{self, Artifact};
use deskgate_protocol::ids::{ApplicationId, RunId};
use deskgate_protocol::transfer::{TransferReply, TransferRequest, TransferTicket};
use sha2::{Digest, Sha256};

use super::send::send_bytes;
use super::{Retries, Transfers, blocking};
use crate::link::LinkError;

/// How often a transfer is tried that gets nowhere.
const MAX_TRIES: u32 = 4;

/// Why a try of an owner's transfer failed.
#[derive(Debug, thiserror::Error)]
pub enum OwnTransferError {
    /// The line broke. Another try, with another ticket, may do better.
    #[error("the line to the gateway broke: {0}")]
    Line(#[from] LinkError),
    /// The gateway cannot do it now. Another try may do better.
    #[error("the gateway cannot do it now: {0}")]
    NotNow(String),
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

/// The tries of one transfer.
#[derive(Debug, Default)]
pub struct Tries {
    retries: Retries,
    fruitless: u32,
    reached: u64,
}

impl Tries {
    /// Waits before another try; `reached` are the bytes that are there by now. False: enough tries got nowhere.
    pub async fn may_go_on(&mut self, reached: u64) -> bool {
        self.fruitless += 1;
        if reached > self.reached {
            (self.reached, self.fruitless) = (reached, 0);
            self.retries.reset();
        }
        if self.fruitless == MAX_TRIES {
            return false;
        }
        self.retries.wait().await;
        true
    }
}

/// A file of the owner's that is to be uploaded.
#[derive(Debug)]
pub struct OwnFile {
    name: String,
    source: File,
    size: u64,
    sha256: Sha256Digest,
}

impl OwnFile {
    /// Reads a regular file for its digest.
    ///
    /// # Errors
    /// It cannot be read.
    pub async fn new(name: String, mut source: File) -> io::Result<Self> {
        blocking(move || {
            let (size, sha256) = (source.metadata()?.len(), digest(&mut source)?);
            Ok(Self { name, source, size, sha256 })
        })
        .await
    }
}

impl Transfers {
    /// Uploads a file for runs of an application that the owner requests, in one try.
    ///
    /// # Errors
    /// The file cannot be read, the gateway refused it, or the line broke.
    pub async fn upload(
        &self,
        ticket: TransferTicket,
        app_id: ApplicationId,
        file: &OwnFile,
    ) -> Result<file::File, OwnTransferError> {
        let OwnFile { name, source, size, sha256 } = file;
        let (name, media_type) = (name.clone(), file::usual_media_type(name).to_owned());
        let request = TransferRequest::Upload { ticket, app_id, name, media_type, size: *size, sha256: *sha256 };
        let mut stream = self.link.open_transfers().await?;
        let reply = match stream.ask(&request).await? {
            TransferReply::SendFrom { offset: 0 } => {
                match send_bytes(&mut stream, source.try_clone()?, 0, *size).await? {
                    true => stream.reply().await?,
                    false => return Err(io::Error::other("it became shorter while it was sent").into()),
                }
            }
            reply => reply,
        };
        match reply {
            TransferReply::Stored { file } if file.sha256 == *sha256 && file.size == *size => Ok(file),
            reply => Err(refusal(reply)),
        }
    }

    /// Gets what is missing of an artifact of one of the device's runs into a file, in one try.
    ///
    /// # Errors
    /// The file cannot be written, the gateway refused it, the line broke, or other bytes came than the run's record names.
    pub async fn download(
        &self,
        ticket: TransferTicket,
        run_id: RunId,
        artifact: &Artifact,
        target: &File,
    ) -> Result<(), OwnTransferError> {
        let mut target = target.try_clone()?;
        let offset = target.seek(SeekFrom::End(0))?;
        let request = TransferRequest::GetArtifact { ticket, run_id, artifact_id: artifact.artifact_id, offset };
        let mut stream = self.link.open_transfers().await?;
        let mut left = match stream.ask(&request).await? {
            TransferReply::Sending { bytes } if offset.checked_add(bytes) == Some(artifact.size) => bytes,
            TransferReply::Sending { .. } => return Err(OwnTransferError::OtherBytes),
            reply => return Err(refusal(reply)),
        };
        while left > 0 {
            let bytes = stream.bytes().await?;
            left = left.checked_sub(bytes.len() as u64).ok_or(OwnTransferError::OtherBytes)?;
            let writing = blocking(move || {
                target.write_all(&bytes)?;
                Ok(target)
            });
            target = writing.await?;
        }
        match blocking(move || digest(&mut target)).await? == artifact.sha256 {
            true => Ok(()),
            false => Err(OwnTransferError::OtherBytes),
        }
    }
}

fn refusal(reply: TransferReply) -> OwnTransferError {
    match reply {
        TransferReply::Refused { code, message } if code.is_passing() => OwnTransferError::NotNow(message),
        TransferReply::Refused { message, .. } => OwnTransferError::Refused(message),
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
