//! What a run knows of files: the content it has read, and the content a person was shown a change of.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use deskgate_definition::ToolName;
use deskgate_protocol::canonical::Sha256Digest;
use serde_json::{Value, json};

/// Bytes that a file may have to be changed by a tool.
pub(crate) const MAX_CHANGED_FILE_BYTES: usize = 8 * 1024 * 1024;

/// The digest of a file's content; `None`: there is no such file.
pub(crate) type ContentDigest = Option<Sha256Digest>;

/// One for each run; the tools of the run share it.
#[derive(Debug, Default)]
pub(crate) struct SeenFiles {
    read: Mutex<HashMap<PathBuf, Sha256Digest>>,
    planned: Mutex<HashMap<Sha256Digest, ContentDigest>>,
}

impl SeenFiles {
    /// The run has seen this content at this path, whole or in part, or has written it.
    pub(crate) fn record_seen(&self, path: PathBuf, content: Sha256Digest) {
        lock(&self.read).insert(path, content);
    }

    /// What the run last saw at this path.
    pub(crate) fn of(&self, path: &Path) -> ContentDigest {
        lock(&self.read).get(path).copied()
    }

    /// A plan was made of exactly this call, from this content.
    pub(crate) fn record_plan(&self, call: &Value, from: ContentDigest) {
        if let Ok(call) = Sha256Digest::of_json(call) {
            lock(&self.planned).insert(call, from);
        }
    }

    /// What the newest plan of exactly this call was made from, once.
    pub(crate) fn take_plan(&self, call: &Value) -> Option<ContentDigest> {
        lock(&self.planned).remove(&Sha256Digest::of_json(call).ok()?)
    }
}

/// What two equal calls have in common.
pub(crate) fn call_key(tool: ToolName, arguments: &Value) -> Value {
    json!([tool, arguments])
}

/// Each change of these maps is one step, so none can be left half done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
