//! Edit: replaces a text in a file that the run has read.

use std::sync::Arc;

use deskgate_definition::ToolName;
use deskgate_definition::tool::{Plan, Tool, ToolOutput, ToolResult, ToolSpec};
use deskgate_protocol::control::ToolKind;
use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::writer::FileChanger;
use crate::engine::access::AccessError;
use crate::engine::change::{ChangeError, ChangeTarget, FileChange};
use crate::engine::journal_room::JournalRoom;
use crate::engine::seen_files::{MAX_CHANGED_FILE_BYTES, SeenBy, SeenFiles};
use crate::engine::text::{FileText, ReplaceError};
use crate::engine::workspace::Workspace;

pub(super) struct EditTool(FileChanger);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EditArguments {
    file_path: String,
    old_string: String,
    new_string: String,
    #[serde(default)]
    replace_all: bool,
}

impl EditTool {
    pub(super) fn new(workspace: Arc<Workspace>, known: Arc<SeenFiles>, room: Arc<JournalRoom>) -> Self {
        Self(FileChanger::new(ToolName::Edit, workspace, known, room))
    }
}

impl Tool for EditTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: ToolName::Edit.to_string(),
            description: "Replaces a text in a file of the working directory. Read the file first. old_string is \
                          taken exactly, without the line numbers that Read shows, and must be there once only; \
                          give more of its surroundings, or replace_all. Line ends are kept as the file has them."
                .to_owned(),
            parameters: json!({
                "type": "object",
                "properties": {
                    "file_path": {
                        "type": "string",
                        "description": "The file, relative to the working directory or absolute within it."
                    },
                    "old_string": { "type": "string", "description": "The text to replace." },
                    "new_string": { "type": "string", "description": "The text to put in its place." },
                    "replace_all": { "type": "boolean", "description": "Replace it everywhere. Default false." }
                },
                "required": ["file_path", "old_string", "new_string"],
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
    arguments: &EditArguments,
) -> Result<FileChange<'a>, ChangeError> {
    let EditArguments { file_path, old_string, new_string, replace_all } = arguments;
    if old_string.is_empty() {
        return Err(ChangeError::rule("old_string is empty. Use Write to create a file."));
    }
    if old_string == new_string {
        return Err(ChangeError::rule("old_string and new_string are the same: nothing would change."));
    }
    let target = ChangeTarget::find(workspace, known, seen_by, file_path)?;
    let text = target.text().ok_or(AccessError::Missing)?;
    let replaced = FileText::new(text).replace(old_string, new_string, *replace_all, MAX_CHANGED_FILE_BYTES);
    let (after, places, line) = replaced.map_err(|error| match error {
        ReplaceError::Absent => {
            ChangeError::rule("old_string is not in the file. Read the file again and take it exactly.")
        }
        ReplaceError::TooLarge(limit) => ChangeError::rule(format!(
            "The file would have more than {} MiB, which no tool writes. Replace fewer places.",
            limit / (1024 * 1024)
        )),
        ReplaceError::Several(found) => ChangeError::rule(format!(
            "old_string is in the file {found} times. Give more of the text around the place, or set replace_all."
        )),
    })?;
    let done = match places {
        1 => format!("changed: one replacement in line {line}"),
        _ => format!("changed: {places} replacements, the first in line {line}"),
    };
    target.with_content(after, done)
}
