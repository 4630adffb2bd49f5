//! Where the tools that read look: in the working directory, and in the files that the run was given.
//!
//! The files stand in a folder of their own, which has one entry: `@files`. So the path `@files/NAME` leads to them by the same
//! resolution as any path leads into the working directory, and results name it as it was asked for.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use deskgate_definition::tool::FILES_NAME;

use super::workspace::{Workspace, WorkspaceError, WorkspaceOptions};

/// Where commands find them.
pub(crate) const FILES_PATH: &str = "/files";

/// The places of a tool.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    working: Arc<Workspace>,
    files: Option<Arc<Workspace>>,
}

impl Places {
    pub(crate) fn new(working: Arc<Workspace>, files: Option<Arc<Workspace>>) -> Self {
        Self { working, files }
    }

    /// The place that a path leads to, and the path in it.
    pub(crate) fn of<'p>(&self, path: &'p str) -> (Arc<Workspace>, Cow<'p, str>) {
        match &self.files {
            Some(files) if is_of_files(path) => (Arc::clone(files), Cow::Borrowed(path)),
            // As commands know it, unless the working directory is there.
            Some(files) if is_below(path, FILES_PATH) && !self.working.path().starts_with(FILES_PATH) => {
                let below = path[FILES_PATH.len()..].trim_start_matches('/');
                (Arc::clone(files), Cow::Owned(format!("{FILES_NAME}/{below}")))
            }
            _ => (Arc::clone(&self.working), Cow::Borrowed(path)),
        }
    }
}

/// Whether a path leads to the files of a run that has some.
pub(crate) fn is_of_files(path: &str) -> bool {
    is_below(path.trim_start_matches("./"), FILES_NAME)
}

fn is_below(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Opens the folder of a run's files. It is the agent's own, so nothing of the agent is closed in it.
pub(crate) fn open_files(folder: &Path) -> Result<Arc<Workspace>, WorkspaceError> {
    Workspace::open(WorkspaceOptions::of(folder, Path::new(""))).map(Arc::new)
}
