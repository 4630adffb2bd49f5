//! Code shared by the tools that change files: a call is planned, and made from its plan.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use deskgate_definition::ToolName;
use deskgate_definition::tool::{Plan, ToolOutput, ToolResult};
use futures_util::future::BoxFuture;
use rustix::fs::{Mode, OFlags};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::engine::access::AccessError;
use crate::engine::change::{ChangeError, FileChange};
use crate::engine::display;
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

/// The room that the agent needs for its own journal, on the disk of its own folder.
pub(super) struct JournalRoom(Option<OwnedFd>);

impl JournalRoom {
    /// Of the agent whose folder this is. Without one nothing is kept free.
    pub(super) fn of(own_folder: &Path) -> Self {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Self(rustix::fs::open(own_folder, flags, Mode::empty()).ok())
    }

    /// Whether there is too little of it on this folder's disk.
    fn is_short(&self, folder: BorrowedFd<'_>) -> bool {
        let Some(own) = &self.0 else { return false };
        let device = |of: BorrowedFd<'_>| rustix::fs::fstat(of).map(|stat| stat.st_dev);
        let same_disk = device(own.as_fd()).is_ok_and(|own| device(folder) == Ok(own));
        let free = rustix::fs::fstatvfs(own).map(|stat| stat.f_bavail.saturating_mul(stat.f_frsize));
        same_disk && free.is_ok_and(|free| free < MIN_JOURNAL_ROOM_BYTES)
    }
}

/// Files are written only while the agent's own disk has this much more than a file may have.
const MIN_JOURNAL_ROOM_BYTES: u64 = 64 << 20;

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
