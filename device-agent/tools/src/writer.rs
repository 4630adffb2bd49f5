//! Code shared by the tools that change files: a call is planned, and made from its plan.

use std::sync::Arc;

use deskgate_definition::ToolName;
use deskgate_definition::tool::{Plan, ToolOutput, ToolResult};
use futures_util::future::BoxFuture;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::engine::access::AccessError;
use crate::engine::change::{ChangeError, FileChange};
use crate::engine::display;
use crate::engine::seen_files::SeenFiles;
use crate::engine::workspace::Workspace;

/// One tool that changes files, in one run.
pub(super) struct FileChanger {
    tool: ToolName,
    workspace: Arc<Workspace>,
    known: Arc<SeenFiles>,
}

/// Prepares a change from a tool's arguments.
type PrepareFn<A> = for<'a> fn(&'a Workspace, &SeenFiles, &A) -> Result<FileChange<'a>, ChangeError>;

impl FileChanger {
    pub(super) fn new(tool: ToolName, workspace: Arc<Workspace>, known: Arc<SeenFiles>) -> Self {
        Self { tool, workspace, known }
    }

    pub(super) fn plan<A: DeserializeOwned + 'static>(
        &self,
        arguments: &Value,
        prepare: PrepareFn<A>,
    ) -> BoxFuture<'static, Result<Plan, ToolOutput>> {
        let (workspace, known) = (Arc::clone(&self.workspace), Arc::clone(&self.known));
        let call = crate::engine::seen_files::call_key(self.tool, arguments);
        crate::blocking::plan_on_blocking_thread(self.tool, arguments.clone(), move |arguments: A| {
            let change = prepare(&workspace, &known, &arguments)?;
            known.record_plan(&call, change.before());
            Ok(change.plan())
        })
    }

    pub(super) fn run<A: DeserializeOwned + 'static>(
        &self,
        arguments: Value,
        stop: &CancellationToken,
        prepare: PrepareFn<A>,
    ) -> BoxFuture<'static, ToolResult> {
        let (workspace, known) = (Arc::clone(&self.workspace), Arc::clone(&self.known));
        let call = crate::engine::seen_files::call_key(self.tool, &arguments);
        crate::blocking::on_blocking_thread(self.tool, arguments, stop, move |arguments: A, stop| {
            let planned = known.take_plan(&call);
            let made = prepare(&workspace, &known, &arguments).and_then(|change| {
                if stop.is_cancelled() {
                    return Err(AccessError::Stopped.into());
                }
                let done = change.done().to_owned();
                let path = change.make(&known, planned)?;
                Ok(ToolOutput::ok(format!("{} was {done}.", display::name(&path))))
            });
            made.or_else(ChangeError::into_output)
        })
    }
}
