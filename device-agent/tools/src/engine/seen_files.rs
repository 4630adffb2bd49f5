//! The file contents that a run has seen: content it has read, and content behind a previewed change.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use deskgate_definition::ToolName;
use deskgate_protocol::canonical::Sha256Digest;
use serde_json::{Value, json};

/// The size limit of a file that tools may change, in bytes.
pub(crate) const MAX_CHANGED_FILE_BYTES: usize = 8 * 1024 * 1024;

/// The digest of a file's content; `None`: there is no such file.
pub(crate) type ContentDigest = Option<Sha256Digest>;

/// One for each run, shared by its tools.
#[derive(Debug, Default)]
pub(crate) struct SeenFiles {
    read: Mutex<HashMap<PathBuf, Sha256Digest>>,
    planned: Mutex<HashMap<Sha256Digest, PlannedFrom>>,
}

/// What the newest plan of a call was made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlannedFrom {
    pub(crate) content: ContentDigest,
    pub(crate) seen_by: SeenBy,
}

/// Who has to have seen a file before a call changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SeenBy {
    /// The run, which has read it.
    Run,
    /// A person, who is shown what would change.
    Person,
}

impl SeenFiles {
    /// Records that the run has read this content at this path, whole or in part, or has written it.
    pub(crate) fn record_seen(&self, path: PathBuf, content: Sha256Digest) {
        lock(&self.read).insert(path, content);
    }

    /// The content that the run last saw at this path.
    pub(crate) fn of(&self, path: &Path) -> ContentDigest {
        lock(&self.read).get(path).copied()
    }

    /// Records what a plan of exactly this call was made from.
    pub(crate) fn record_plan(&self, call: &Value, from: PlannedFrom) {
        if let Ok(call) = Sha256Digest::of_json(call) {
            lock(&self.planned).insert(call, from);
        }
    }

    /// What the newest plan of exactly this call was made from; it is returned once.
    pub(crate) fn take_plan(&self, call: &Value) -> Option<PlannedFrom> {
        lock(&self.planned).remove(&Sha256Digest::of_json(call).ok()?)
    }
}

/// The key that equal calls share.
pub(crate) fn call_key(tool: ToolName, arguments: &Value) -> Value {
    json!([tool, arguments])
}

/// Each change of these maps is one step, so a panic leaves none half done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
