//! Files for runs that the owner requests, artifacts that the owner gets, and how both are shown.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use deskgate_program::visible;
use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::file::{self, Artifact, ArtifactState, MAX_FILE_BYTES, check_file_name};
use deskgate_protocol::management::{GrantTransfer, ShowRun, TransferGrant};
use deskgate_protocol::run::Run;
use deskgate_protocol::transfer::TransferTicket;
use deskgate_protocol::{ApplicationId, RunId};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

use super::error_reply::{failed, invalid, not_found, refused};
use super::handler::{ActiveConnection, RequestHandler};
use super::reply::{ErrorReply, ErrorReplyCode, Requester};
use super::request::TypedRequest;
use crate::services::GatewayClient;
use crate::transfers::Transfers;
use crate::transfers::owner::{OwnFile, OwnTransferError, Tries};

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
        let file = OwnFile::new(name.clone(), source).await.map_err(|error| reply(&name, error.into()))?;
        let mut tries = Tries::default();
        loop {
            let tried = async {
                let (transfers, ticket) = granted(handler, asker).await?;
                transfers.upload(ticket, app_id, &file).await.map_err(|error| reply(&name, error))
            };
            match tried.await {
                // It is sent again from its beginning.
                Err(no) if no.code == ErrorReplyCode::CannotReach && tries.may_go_on(0).await => {}
                done => return done,
            }
        }
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
    /// Which of its artifacts: its name or identifier.
    pub artifact: String,
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
        let Self { run_id, artifact, target } = self;
        let dispatcher = handler.active()?.dispatcher.asked_by(asker.into());
        let run = dispatcher.call(ShowRun::without_events(run_id)).await?.run;
        let artifact = chosen(run.artifacts, run_id, &artifact)?;
        if artifact.state == ArtifactState::Missing {
            return Err(refused(format!("the bytes of {:?} never came to the gateway", artifact.name)));
        }
        // What the gateway says of it is data from a gateway.
        if artifact.size > MAX_FILE_BYTES {
            return Err(failed(format!("{:?} is larger than any artifact may be", artifact.name)));
        }
        check_file_name(&artifact.name).map_err(failed)?;
        let path = if target.is_dir() { target.join(&artifact.name) } else { target };
        let unwritable = |error: io::Error| invalid(format!("{} cannot be written: {error}", path.display()));
        if path.symlink_metadata().is_ok() {
            return Err(unwritable(io::ErrorKind::AlreadyExists.into()));
        }
        let folder = path.parent().unwrap_or(Path::new("/"));
        let new = NamedTempFile::with_prefix_in(".deskgate-", folder).map_err(unwritable)?;
        let mut tries = Tries::default();
        loop {
            let tried = async {
                let (transfers, ticket) = granted(handler, asker).await?;
                let got = transfers.download(ticket, run_id, &artifact, new.as_file()).await;
                got.map_err(|error| reply(&artifact.name, error))
            };
            match tried.await {
                Err(no) if no.code == ErrorReplyCode::CannotReach => {
                    let reached = new.as_file().metadata().map_err(unwritable)?.len();
                    if !tries.may_go_on(reached).await {
                        return Err(no);
                    }
                }
                done => break done?,
            }
        }
        new.as_file().sync_all().map_err(unwritable)?;
        new.persist_noclobber(&path).map_err(|error| unwritable(error.error))?;
        Ok(SavedArtifact { artifact, path })
    }
}

/// The artifact of a run with this name or identifier.
fn chosen(artifacts: Vec<Artifact>, run_id: RunId, wanted: &str) -> Result<Artifact, ErrorReply> {
    let is_wanted = |artifact: &Artifact| artifact.name == wanted || artifact.artifact_id.to_string() == wanted;
    let mut found: Vec<_> = artifacts.into_iter().filter(is_wanted).collect();
    let list = format!("deskgate run artifacts list {run_id}");
    match (found.pop(), found.is_empty()) {
        (Some(artifact), true) => Ok(artifact),
        (None, _) => Err(not_found(format!("{run_id} has no artifact {wanted:?}; see: {list}"))),
        (Some(_), false) => Err(invalid(format!(
            "{run_id} has several artifacts {wanted:?}; name one by its identifier, as in: {list}"
        ))),
    }
}

/// The line in force, and a ticket for it.
async fn granted(handler: &RequestHandler, asker: Requester) -> Result<(Transfers, TransferTicket), ErrorReply> {
    let ActiveConnection { dispatcher, transfers, .. } = handler.active()?;
    let TransferGrant { ticket } = dispatcher.asked_by(asker.into()).call(GrantTransfer {}).await?;
    Ok((transfers, ticket))
}

fn reply(name: &str, error: OwnTransferError) -> ErrorReply {
    let message = format!("{name:?}: {error}");
    match error {
        OwnTransferError::Line(_) | OwnTransferError::NotNow(_) => {
            ErrorReply { code: ErrorReplyCode::CannotReach, message }
        }
        OwnTransferError::Refused(_) => refused(message),
        OwnTransferError::File(_) | OwnTransferError::OtherBytes => failed(message),
    }
}

/// A file of a run, as people see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownFile {
    /// Its name, with what a terminal or a page would hide made visible.
    pub name: String,
    /// Its size and digest, and whether its bytes are missing.
    pub facts: String,
}

impl ShownFile {
    fn new(name: &str, size: u64, sha256: Sha256Digest, state: ArtifactState) -> Self {
        let missing = if state == ArtifactState::Missing { ", its bytes are missing" } else { "" };
        Self { name: visible::line(name), facts: format!("{size} bytes, sha256 {sha256}{missing}") }
    }

    /// The files that a run was given.
    pub fn given(run: &Run) -> Vec<Self> {
        let files = run.input.as_ref().and_then(|input| input.files().ok()).unwrap_or_default();
        files.iter().map(|file| Self::new(&file.name, file.size, file.sha256, ArtifactState::Stored)).collect()
    }

    /// The files that a run handed out.
    pub fn handed_out(run: &Run) -> Vec<Self> {
        let shown = |artifact: &Artifact| Self::new(&artifact.name, artifact.size, artifact.sha256, artifact.state);
        run.artifacts.iter().map(shown).collect()
    }
}
