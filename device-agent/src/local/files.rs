//! Files for runs that the owner requests, and artifacts that the owner gets.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use deskgate_protocol::file::{self, Artifact, ArtifactState, MAX_FILE_BYTES, check_file_name};
use deskgate_protocol::management::{GrantTransfer, ShowRun};
use deskgate_protocol::transfer::TransferTicket;
use deskgate_protocol::{ApplicationId, ArtifactId, RunId};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

use super::error_reply::{failed, invalid, not_found, refused};
use super::handler::RequestHandler;
use super::reply::{ErrorReply, ErrorReplyCode, Requester};
use super::request::TypedRequest;
use crate::services::GatewayClient;
use crate::transfers::owner::OwnTransferError;

/// Uploads a file of this computer for runs that the owner requests.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UploadFile {
    /// The application that the runs are of.
    pub app_id: ApplicationId,
    /// Where it is: an absolute path.
    pub path: PathBuf,
    /// The name that the assistant sees; absent: the path's own.
    #[serde(default)]
    pub name: Option<String>,
}

impl TypedRequest for UploadFile {
    type Response = file::File;

    async fn answer(self, handler: &RequestHandler, asker: Requester) -> Result<file::File, ErrorReply> {
        let Self { app_id, path, name } = self;
        let own = || path.file_name().and_then(|name| name.to_str()).map(str::to_owned);
        let name = name.or_else(own).ok_or_else(|| invalid(format!("{} has no name that is text", path.display())))?;
        check_file_name(&name).map_err(|why| invalid(format!("{name:?} cannot be given: {why}")))?;
        let shown = path.display().to_string();
        let opened =
            tokio::task::spawn_blocking(move || open(&path)).await.map_err(|error| failed(error.to_string()))?;
        let source = opened.map_err(|error| invalid(format!("{shown} cannot be given: {error}")))?;
        let (ticket, transfers) = (ticket(handler, asker).await?, handler.active()?.transfers);
        transfers.upload(&ticket, app_id, &name, source).await.map_err(|error| reply(&name, error))
    }
}

/// Opens a regular file that is not too large. One that cannot be read at once, as a pipe, is not waited for.
fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    let about = file.metadata()?;
    if !about.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    if about.len() > MAX_FILE_BYTES {
        return Err(io::Error::other(format!("a file has at most {MAX_FILE_BYTES} bytes; it has {}", about.len())));
    }
    Ok(file)
}

/// Gets an artifact of one of the device's runs into a new file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GetArtifact {
    /// The run.
    pub run_id: RunId,
    /// Which of its artifacts.
    pub artifact_id: ArtifactId,
    /// Where it goes: an absolute path where nothing is, or an existing folder, where it gets its own name.
    pub target: PathBuf,
}

/// An artifact that lies where the owner wants it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SavedArtifact {
    /// The artifact.
    pub artifact: Artifact,
    /// Where it lies.
    pub path: PathBuf,
}

impl TypedRequest for GetArtifact {
    type Response = SavedArtifact;

    async fn answer(self, handler: &RequestHandler, asker: Requester) -> Result<SavedArtifact, ErrorReply> {
        let Self { run_id, artifact_id, target } = self;
        // No event of it is asked for.
        let asked = ShowRun { run_id, after: i64::MAX.unsigned_abs(), wait_s: 0 };
        let dispatcher = handler.active()?.dispatcher.asked_by(asker.into());
        let mut artifacts = dispatcher.call(asked).await?.run.artifacts.into_iter();
        let artifact = artifacts.find(|artifact| artifact.artifact_id == artifact_id);
        let artifact = artifact.ok_or_else(|| not_found(format!("{run_id} has no artifact {artifact_id}")))?;
        if artifact.state == ArtifactState::Missing {
            return Err(refused(format!("the bytes of {:?} never came to the gateway", artifact.name)));
        }
        check_file_name(&artifact.name).map_err(failed)?;
        let path = if target.is_dir() { target.join(&artifact.name) } else { target };
        let unwritable = |error: io::Error| invalid(format!("{} cannot be written: {error}", path.display()));
        if path.symlink_metadata().is_ok() {
            return Err(unwritable(io::ErrorKind::AlreadyExists.into()));
        }
        let folder = path.parent().unwrap_or(Path::new("/"));
        let new = NamedTempFile::with_prefix_in(".deskgate-", folder).map_err(unwritable)?;
        let (ticket, transfers) = (ticket(handler, asker).await?, handler.active()?.transfers);
        let got = transfers.download(&ticket, run_id, &artifact, new.as_file()).await;
        got.map_err(|error| reply(&artifact.name, error))?;
        new.as_file().sync_all().map_err(unwritable)?;
        new.persist_noclobber(&path).map_err(|error| unwritable(error.error))?;
        Ok(SavedArtifact { artifact, path })
    }
}

async fn ticket(handler: &RequestHandler, asker: Requester) -> Result<TransferTicket, ErrorReply> {
    Ok(handler.active()?.dispatcher.asked_by(asker.into()).call(GrantTransfer {}).await?.ticket)
}

fn reply(name: &str, error: OwnTransferError) -> ErrorReply {
    let message = format!("{name:?}: {error}");
    match error {
        OwnTransferError::Line(_) => ErrorReply { code: ErrorReplyCode::CannotReach, message },
        OwnTransferError::Refused(_) => refused(message),
        OwnTransferError::File(_) | OwnTransferError::OtherBytes => failed(message),
    }
}
