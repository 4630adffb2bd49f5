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
use crate::engine::journal_room::JournalRoom;
use crate::engine::seen_files::{PlannedFrom, SeenBy, SeenFiles, call_key};
use crate::engine::workspace::Workspace;

/// One tool that changes files, in one run.
pub(super) struct FileChanger {
    tool: ToolName,
    journal_room: Arc<JournalRoom>,
    workspace: Arc<Workspace>,
    known: Arc<SeenFiles>,
}

/// The result for the model where the agent itself would have no room left.
const NO_ROOM_TEXT: &str = "Nothing was written: the disk is nearly full, and the owner's agent needs what is left for its journal. The owner has \
                            to free some space first.";

/// Prepares a change from a tool's arguments.
type PrepareFn<A> = for<'a> fn(&'a Workspace, &SeenFiles, SeenBy, &A) -> Result<FileChange<'a>, ChangeError>;

impl FileChanger {
    pub(super) fn new(
        tool: ToolName,
        workspace: Arc<Workspace>,
        known: Arc<SeenFiles>,
        journal_room: Arc<JournalRoom>,
    ) -> Self {
        Self { tool, workspace, known, journal_room }
    }

    pub(super) fn plan<A: DeserializeOwned + 'static>(
        &self,
        arguments: &Value,
        seen_by: SeenBy,
        prepare: PrepareFn<A>,
    ) -> BoxFuture<'static, Result<Plan, ToolOutput>> {
        let (workspace, known) = (Arc::clone(&self.workspace), Arc::clone(&self.known));
        let call = call_key(self.tool, arguments);
        crate::blocking::plan_on_blocking_thread(self.tool, arguments.clone(), move |arguments: A| {
            let change = prepare(&workspace, &known, seen_by, &arguments)?;
            known.record_plan(&call, PlannedFrom { content: change.before(), seen_by });
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
        let (call, journal_room) = (call_key(self.tool, &arguments), Arc::clone(&self.journal_room));
        crate::blocking::on_blocking_thread(self.tool, arguments, stop, move |arguments: A, stop| {
            let planned = known.take_plan(&call);
            let seen_by = planned.map_or(SeenBy::Run, |planned| planned.seen_by);
            let prepared = prepare(&workspace, &known, seen_by, &arguments).map_err(|error| match planned {
                Some(_) => error.after_its_plan(),
                None => error,
            });
            let made = prepared.and_then(|change| {
                if stop.is_cancelled() {
                    return Err(AccessError::Stopped.into());
                }
                if journal_room.is_short(workspace.root()) {
                    return Err(ChangeError::rule(NO_ROOM_TEXT));
                }
                let done = change.done().to_owned();
                let path = change.make(&known, planned)?;
                Ok(ToolOutput::ok(format!("{} was {done}.", display::name(&path))))
            });
            made.or_else(ChangeError::into_output)
        })
    }
}
