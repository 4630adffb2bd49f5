//! Write: creates a file, or replaces the whole of one that the run has read.

use std::sync::Arc;

use deskgate_protocol::control::ToolKind;
use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::change::{Change, Not, Target};
use super::known::Known;
use super::text::Text;
use super::workspace::{AccessError, Workspace};
use super::{Plan, Tool, ToolOutput, ToolResult, ToolSpec, display};
use crate::services::ToolName;

pub(super) struct Write {
    workspace: Arc<Workspace>,
    known: Arc<Known>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    file_path: String,
    content: String,
}

impl Write {
    pub(super) fn new(workspace: Arc<Workspace>, known: Arc<Known>) -> Self {
        Self { workspace, known }
    }
}

impl Tool for Write {
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
        let (workspace, known) = (Arc::clone(&self.workspace), Arc::clone(&self.known));
        let call = super::call(ToolName::Write, arguments);
        super::plan_on_blocking_thread(ToolName::Write, arguments.clone(), move |arguments: Arguments| {
            let change = prepare(&workspace, &known, &arguments)?;
            known.planned(&call, change.before());
            Ok(change.plan())
        })
    }

    fn run(&self, arguments: Value, stop: CancellationToken) -> BoxFuture<'static, ToolResult> {
        let (workspace, known) = (Arc::clone(&self.workspace), Arc::clone(&self.known));
        let call = super::call(ToolName::Write, &arguments);
        super::on_blocking_thread(ToolName::Write, arguments, &stop, move |arguments: Arguments, stop| {
            let planned = known.take_plan(&call);
            let made = prepare(&workspace, &known, &arguments).and_then(|change| {
                if stop.is_cancelled() {
                    return Err(AccessError::Stopped.into());
                }
                let done = if change.before().is_some() { "replaced" } else { "created" };
                let path = change.make(&known, planned)?;
                Ok(ToolOutput::ok(format!("{} was {done}.", display::name(&path))))
            });
            made.or_else(Not::answer)
        })
    }
}

fn prepare<'a>(workspace: &'a Workspace, known: &Known, arguments: &Arguments) -> Result<Change<'a>, Not> {
    let target = Target::find(workspace, known, &arguments.file_path)?;
    let after = match target.text() {
        Some(before) => Text::new(before).exchange(&arguments.content),
        None => arguments.content.clone(),
    };
    target.becomes(after)
}
