//! Write: creates a file, or replaces the whole content of one that the run has read.

use std::sync::Arc;

use deskgate_definition::ToolName;
use deskgate_definition::tool::{Plan, Tool, ToolOutput, ToolResult, ToolSpec};
use deskgate_protocol::control::ToolKind;
use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::writer::FileChanger;
use crate::engine::change::{ChangeError, ChangeTarget, FileChange};
use crate::engine::journal_room::JournalRoom;
use crate::engine::seen_files::{SeenBy, SeenFiles};
use crate::engine::text::FileText;
use crate::engine::workspace::Workspace;

pub(super) struct WriteTool(FileChanger);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WriteArguments {
    file_path: String,
    content: String,
}

impl WriteTool {
    pub(super) fn new(workspace: Arc<Workspace>, known: Arc<SeenFiles>, room: Arc<JournalRoom>) -> Self {
        Self(FileChanger::new(ToolName::Write, workspace, known, room))
    }
}

impl Tool for WriteTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: ToolName::Write.to_string(),
            description: "Creates a text file in the working directory, with the directories it needs, or replaces \
                          the whole content of one. An existing file must have been read first; prefer Edit for \
                          changes of a part."
                .to_owned(),
            parameters: json!({
                "type": "object",
                "properties": {
                    "file_path": {
                        "type": "string",
                        "description": "The file, relative to the working directory or absolute within it."
                    },
                    "content": { "type": "string", "description": "The whole content." }
                },
                "required": ["file_path", "content"],
                "additionalProperties": false
            }),
        }
    }

    fn kind(&self) -> ToolKind {
        ToolKind::Write
    }

    fn plan(&self, arguments: &Value) -> BoxFuture<'static, Result<Plan, ToolOutput>> {
        self.0.plan(arguments, SeenBy::Run, prepare)
    }

    fn plan_again(&self, arguments: &Value) -> BoxFuture<'static, Result<Plan, ToolOutput>> {
        self.0.plan(arguments, SeenBy::Person, prepare)
    }

    fn run(&self, arguments: Value, stop: CancellationToken) -> BoxFuture<'static, ToolResult> {
        self.0.run(arguments, &stop, prepare)
    }
}

fn prepare<'a>(
    workspace: &'a Workspace,
    known: &SeenFiles,
    seen_by: SeenBy,
    arguments: &WriteArguments,
) -> Result<FileChange<'a>, ChangeError> {
    let target = ChangeTarget::find(workspace, known, seen_by, &arguments.file_path)?;
    let (after, done) = match target.text() {
        Some(before) => (FileText::new(before).exchange(&arguments.content), "replaced"),
        None => (arguments.content.clone(), "created"),
    };
    target.with_content(after, done)
}
