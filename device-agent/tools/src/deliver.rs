//! Deliver: hands a file of the working directory out, as a part of the answer.
//!
//! What leaves is a copy that is taken when the call runs, through the handle of the file that was opened then, and whose digest
//! is the one that the plan showed. What becomes of the file later does not matter.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use deskgate_definition::ToolName;
use deskgate_definition::tool::{Plan, PlanPreview, Tool, ToolFailure, ToolOutput, ToolResult, ToolSpec};
use deskgate_protocol::ArtifactId;
use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::control::ToolKind;
use deskgate_protocol::file::{MAX_FILE_BYTES, check_file_name, usual_media_type};
use deskgate_protocol::service::MAX_DESCRIPTION_CHARS;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;

use crate::engine::access::AccessError;
use crate::engine::change::ChangeError;
use crate::engine::journal_room::JournalRoom;
use crate::engine::seen_files::{PlannedFrom, SeenBy, SeenFiles, call_key};
use crate::engine::workspace::{LinkPolicy, Workspace};

/// How many bytes of a text a person is shown before deciding.
const MAX_SHOWN_BYTES: usize = 4 * 1024;
const BUFFER_BYTES: usize = 256 * 1024;
/// The result for the model where the copy would take the room that the agent itself needs.
const NO_ROOM_TEXT: &str = "Nothing was handed out: the disk is nearly full, and the owner's agent needs what is left for its journal. The \
                            owner has to free some space first.";

/// Where copies go that leave this computer.
pub trait Outbox: Send + Sync {
    /// The folder for copies, which is there. A copy has the name of its artifact.
    fn folder(&self) -> PathBuf;

    /// Takes a copy. Returns the name by which the application gets it, or why it cannot be handed out, for the model.
    fn take(&self, copy: TakenCopy) -> BoxFuture<'static, Result<String, String>>;
}

/// A copy in an outbox's folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakenCopy {
    /// The name of the copy.
    pub artifact_id: ArtifactId,
    /// The name that it is to have for the application.
    pub name: String,
    /// What it is, as its name says.
    pub media_type: &'static str,
    /// What the assistant says it is.
    pub description: Option<String>,
    /// Bytes.
    pub size: u64,
    /// Their digest.
    pub sha256: Sha256Digest,
}

pub(super) struct DeliverTool {
    workspace: Arc<Workspace>,
    known: Arc<SeenFiles>,
    journal_room: Arc<JournalRoom>,
    /// None where a tool is only looked at.
    outbox: Option<Arc<dyn Outbox>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DeliverArguments {
    file_path: String,
    name: Option<String>,
    description: Option<String>,
}

impl DeliverTool {
    pub(super) fn new(
        workspace: Arc<Workspace>,
        known: Arc<SeenFiles>,
        journal_room: Arc<JournalRoom>,
        outbox: Option<Arc<dyn Outbox>>,
    ) -> Self {
        Self { workspace, known, journal_room, outbox }
    }

    fn plan_of(&self, arguments: &Value, seen_by: SeenBy) -> BoxFuture<'static, Result<Plan, ToolOutput>> {
        let (workspace, known) = (Arc::clone(&self.workspace), Arc::clone(&self.known));
        let call = call_key(ToolName::Deliver, arguments);
        let work = move |arguments: DeliverArguments| {
            let name = arguments.name()?;
            let (mut file, place) = open(&workspace, &arguments.file_path)?;
            let mut beginning = Beginning::default();
            let (size, sha256) = copy(&mut file, &mut beginning)?;
            known.record_plan(&call, PlannedFrom { content: Some(sha256), seen_by });
            let (media_type, text) = (usual_media_type(&name).to_owned(), beginning.text());
            Ok(Plan { place: Some(place), shown: PlanPreview::Delivery { name, media_type, size, sha256, text } })
        };
        crate::blocking::plan_on_blocking_thread(ToolName::Deliver, arguments.clone(), work)
    }
}

impl Tool for DeliverTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: ToolName::Deliver.to_string(),
            description: format!(
                "Hands a file of the working directory out to the application that sent the request, as a part of the answer. The file is \
                 copied as it is now. It leaves this computer, so its owner may be asked first. At most {} MiB.",
                MAX_FILE_BYTES / (1024 * 1024)
            ),
            parameters: json!({
                "type": "object",
                "properties": {
                    "file_path": {
                        "type": "string",
                        "description": "The file, relative to the working directory or absolute within it."
                    },
                    "name": { "type": "string", "description": "The name that the application gets it by. Default: its own." },
                    "description": { "type": "string", "description": "What it is, in a sentence for the application." }
                },
                "required": ["file_path"],
                "additionalProperties": false
            }),
        }
    }

    fn kind(&self) -> ToolKind {
        ToolKind::Write
    }

    fn plan(&self, arguments: &Value) -> BoxFuture<'static, Result<Plan, ToolOutput>> {
        self.plan_of(arguments, SeenBy::Run)
    }

    fn plan_again(&self, arguments: &Value) -> BoxFuture<'static, Result<Plan, ToolOutput>> {
        self.plan_of(arguments, SeenBy::Person)
    }

    fn run(&self, arguments: Value, stop: CancellationToken) -> BoxFuture<'static, ToolResult> {
        let (workspace, known, outbox) = (Arc::clone(&self.workspace), Arc::clone(&self.known), self.outbox.clone());
        let journal_room = Arc::clone(&self.journal_room);
        async move {
            let Some(outbox) = outbox else {
                return Ok(ToolOutput::error("Nothing can be handed out here."));
            };
            let planned = known.take_plan(&call_key(ToolName::Deliver, &arguments)).and_then(|planned| planned.content);
            let folder = outbox.folder();
            let taken = crate::blocking::on_thread(&stop, move |stop| {
                let arguments =
                    crate::blocking::parse(ToolName::Deliver.as_str(), arguments).map_err(ChangeError::Rule)?;
                take(&workspace, (&folder, &journal_room), &arguments, planned, stop)
            });
            match taken.await {
                None => Ok(ToolOutput::error("The file was not handed out because the agent is stopping.")),
                Some(Err(ChangeError::Access(AccessError::Gone))) => Err(ToolFailure::WorkspaceGone),
                Some(Err(ChangeError::Access(error))) => Ok(ToolOutput::error(error.to_string())),
                Some(Err(ChangeError::Rule(text))) => Ok(ToolOutput::error(text)),
                Some(Err(ChangeError::Outdated(text))) => Ok(ToolOutput::outdated(text)),
                Some(Ok(copy)) => {
                    let (size, kept) = (copy.size, outbox.folder().join(copy.artifact_id.to_string()));
                    Ok(match outbox.take(copy).await {
                        Ok(name) => ToolOutput::ok(format!("{name} ({size} bytes) was handed out to the application.")),
                        Err(why) => {
                            // Nobody asks for it any more.
                            let _ = tokio::fs::remove_file(kept).await;
                            ToolOutput::error(why)
                        }
                    })
                }
            }
        }
        .boxed()
    }
}

impl DeliverArguments {
    /// The name that the file is to have.
    fn name(&self) -> Result<String, ChangeError> {
        let own = || Path::new(&self.file_path).file_name().map(|name| name.to_string_lossy().into_owned());
        let name = self.name.clone().or_else(own).unwrap_or_default();
        check_file_name(&name).map_err(|why| ChangeError::rule(format!("The name cannot be used: {why}.")))?;
        let is_long = |text: &String| text.chars().count() > MAX_DESCRIPTION_CHARS || text.contains('\0');
        match self.description.as_ref().is_some_and(is_long) {
            true => Err(ChangeError::rule(format!("The description has at most {MAX_DESCRIPTION_CHARS} characters."))),
            false => Ok(name),
        }
    }
}

/// Opens the file as Read does, and tells where it is.
fn open(workspace: &Workspace, file_path: &str) -> Result<(File, String), ChangeError> {
    let resolved = workspace.find(&workspace.relative(file_path)?, LinkPolicy::Inside)?;
    let (file, metadata) = resolved.open_file()?;
    if metadata.len() > MAX_FILE_BYTES {
        return Err(too_large());
    }
    Ok((file, resolved.path().to_string_lossy().into_owned()))
}

fn too_large() -> ChangeError {
    ChangeError::rule(format!(
        "The file is larger than {MAX_FILE_BYTES} bytes, which is the most that can be handed out."
    ))
}

/// Takes the copy.
fn take(
    workspace: &Workspace,
    (folder, journal_room): (&Path, &JournalRoom),
    arguments: &DeliverArguments,
    planned: Option<Sha256Digest>,
    stop: &CancellationToken,
) -> Result<TakenCopy, ChangeError> {
    let name = arguments.name()?;
    let (mut file, _) = open(workspace, &arguments.file_path)?;
    let size = file.metadata().map_err(AccessError::from)?.len();
    if !journal_room.is_left_beside(size) {
        return Err(ChangeError::rule(NO_ROOM_TEXT));
    }
    let artifact_id = ArtifactId::new();
    let target = folder.join(artifact_id.to_string());
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&target);
    let kept = made.map_err(AccessError::from)?;
    let copied = copy(&mut file, &mut &kept).and_then(|copied| {
        kept.sync_all().map_err(AccessError::from)?;
        if stop.is_cancelled() {
            return Err(AccessError::Stopped.into());
        }
        match planned {
            Some(planned) if planned != copied.1 => Err(ChangeError::Outdated(
                "The file has changed since this call was looked at. Nothing was handed out.".to_owned(),
            )),
            _ => Ok(copied),
        }
    });
    match copied {
        Ok((size, sha256)) => {
            let (media_type, description) = (usual_media_type(&name), arguments.description.clone());
            Ok(TakenCopy { artifact_id, name, media_type, description, size, sha256 })
        }
        Err(error) => {
            let _ = std::fs::remove_file(&target);
            Err(error)
        }
    }
}

/// Copies a file that may grow meanwhile. Returns how many bytes, and their digest.
fn copy(source: &mut File, target: &mut impl Write) -> Result<(u64, Sha256Digest), ChangeError> {
    let (mut hash, mut size, mut buffer) = (Sha256::new(), 0_u64, vec![0; BUFFER_BYTES]);
    loop {
        let length = match source.read(&mut buffer) {
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(AccessError::from(error).into()),
        };
        if length == 0 {
            return Ok((size, Sha256Digest(hash.finalize().into())));
        }
        size += length as u64;
        if size > MAX_FILE_BYTES {
            return Err(too_large());
        }
        hash.update(&buffer[..length]);
        target.write_all(&buffer[..length]).map_err(AccessError::from)?;
    }
}

/// The beginning of a file, for a person.
#[derive(Default)]
struct Beginning {
    bytes: Vec<u8>,
    goes_on: bool,
}

impl Beginning {
    /// The beginning as text; `None`: it is none.
    fn text(&self) -> Option<String> {
        let text = match std::str::from_utf8(&self.bytes) {
            Ok(text) => text,
            // A character may be cut at the end.
            Err(error) if self.goes_on && error.error_len().is_none() => {
                std::str::from_utf8(&self.bytes[..error.valid_up_to()]).ok()?
            }
            Err(_) => return None,
        };
        let is_text = !text.is_empty() && !text.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\r' | '\t'));
        let more = if self.goes_on { "\n[The file goes on.]" } else { "" };
        is_text.then(|| format!("{text}{more}"))
    }
}

impl Write for Beginning {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = MAX_SHOWN_BYTES.saturating_sub(self.bytes.len());
        self.goes_on |= bytes.len() > room;
        self.bytes.extend_from_slice(&bytes[..room.min(bytes.len())]);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
