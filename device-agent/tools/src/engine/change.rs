//! A change of one file for Edit or Write: prepared first, then made or dropped.

use std::ffi::OsString;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use deskgate_definition::tool::{Plan, PlanPreview, ToolOutput};
use deskgate_protocol::canonical::Sha256Digest;
use rustix::fs::{Access, AtFlags, Mode, OFlags};

use super::access::{AccessError, FileKind};
use super::attributes::OriginalFile;
use super::resolved_path::ResolvedPath;
use super::seen_files::{ContentDigest, MAX_CHANGED_FILE_BYTES, PlannedFrom, SeenBy, SeenFiles};
use super::workspace::{LinkPolicy, Workspace, open_below};
use super::{diff, guard, replace};
use crate::engine::places::is_of_files;

/// Why a change was not prepared.
pub(crate) enum ChangeError {
    /// Refused by the file system, or because the path is protected.
    Access(AccessError),
    /// Refused by a rule of the tool, in words for the model.
    Rule(String),
    /// What the change was planned from has changed since. Nothing was done.
    Outdated(String),
}

impl From<AccessError> for ChangeError {
    fn from(error: AccessError) -> Self {
        Self::Access(error)
    }
}

impl ChangeError {
    pub(crate) fn rule(text: impl Into<String>) -> Self {
        Self::Rule(text.into())
    }

    /// A rule's refusal as a result for the model. The file system's stays an error, which `blocking.rs` puts into
    /// words.
    pub(crate) fn into_output(self) -> Result<ToolOutput, AccessError> {
        match self {
            Self::Access(error) => Err(error),
            Self::Rule(text) => Ok(ToolOutput::error(text)),
            Self::Outdated(text) => Ok(ToolOutput::outdated(text)),
        }
    }

    /// The same error of a call that could be planned a moment ago: the disk has changed since.
    pub(crate) fn after_its_plan(self) -> Self {
        match self {
            Self::Rule(text) => Self::Outdated(text),
            Self::Access(error) if !matches!(error, AccessError::Gone | AccessError::Stopped) => {
                Self::Outdated(error.to_string())
            }
            other => other,
        }
    }
}

/// A file that may be changed, with its text; or a path where one may be created.
pub(crate) struct ChangeTarget<'a> {
    resolved: ResolvedPath<'a>,
    original: Option<OriginalFile>,
}

impl<'a> ChangeTarget<'a> {
    /// Resolves the path and applies every rule for changing a file.
    pub(crate) fn find(
        workspace: &'a Workspace,
        known: &SeenFiles,
        seen_by: SeenBy,
        file_path: &str,
    ) -> Result<Self, ChangeError> {
        if workspace.has_files() && is_of_files(file_path) {
            return Err(ChangeError::rule(
                "Files that came with the request cannot be changed. Write to a file of your own.",
            ));
        }
        let plain = workspace.relative_without_links(file_path)?;
        // Such an ending names a directory.
        let asks_for_directory = matches!(file_path.rsplit('/').next(), Some("" | "." | ".."));
        if asks_for_directory || plain.as_os_str().is_empty() {
            return Err(AccessError::NotAFile(FileKind::Directory).into());
        }
        let resolved = workspace.find(&plain, LinkPolicy::Refused)?;
        workspace.guard().check_change(&resolved)?;
        if !resolved.missing().is_empty() {
            return Ok(Self { resolved, original: None });
        }
        let original = read(&resolved)?;
        match known.of(&resolved.path()) {
            _ if seen_by == SeenBy::Person => {}
            Some(seen) if seen == Sha256Digest::of(original.text.as_bytes()) => {}
            Some(_) => {
                return Err(ChangeError::rule("The file changed since it was read in this run. Read it again first."));
            }
            None => return Err(ChangeError::rule("The file has not been read in this run. Read it first.")),
        }
        Ok(Self { resolved, original: Some(original) })
    }

    /// The file's current text; `None`: there is no file.
    pub(crate) fn text(&self) -> Option<&str> {
        self.original.as_ref().map(|original| original.text.as_str())
    }

    /// The change to this content. `done`: what happened to the file, in a few words.
    pub(crate) fn with_content(self, after: String, done: impl Into<String>) -> Result<FileChange<'a>, ChangeError> {
        if after.len() > MAX_CHANGED_FILE_BYTES {
            let limit = MAX_CHANGED_FILE_BYTES / (1024 * 1024);
            return Err(ChangeError::rule(format!("The file would have more than {limit} MiB, which no tool writes.")));
        }
        if after.contains('\0') {
            return Err(ChangeError::rule("The file would have a NUL character. Only text is written."));
        }
        Ok(FileChange { target: self, after, done: done.into() })
    }
}

/// The content of a file that may be changed: text of a bounded size, with one name, in one place.
fn read(resolved: &ResolvedPath<'_>) -> Result<OriginalFile, ChangeError> {
    let (file, metadata) = resolved.open_file()?;
    if metadata.nlink() > 1 {
        return Err(AccessError::HardLink.into());
    }
    let name = resolved.name().unwrap_or_default();
    rustix::fs::accessat(resolved.directory(), name, Access::WRITE_OK, AtFlags::EACCESS)
        .map_err(AccessError::writing)?;
    let mut bytes = Vec::new();
    (&file).take(MAX_CHANGED_FILE_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(AccessError::from)?;
    if bytes.len() > MAX_CHANGED_FILE_BYTES {
        let limit = MAX_CHANGED_FILE_BYTES / (1024 * 1024);
        return Err(ChangeError::rule(format!("The file has more than {limit} MiB, which no tool changes.")));
    }
    match String::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => Ok(OriginalFile { file, metadata, text }),
        _ => Err(ChangeError::rule("The file is binary, or not UTF-8. Only UTF-8 text is changed.")),
    }
}

/// A change that can be previewed and made.
pub(crate) struct FileChange<'a> {
    target: ChangeTarget<'a>,
    after: String,
    done: String,
}

impl FileChange<'_> {
    /// The file's content before the change.
    pub(crate) fn before(&self) -> ContentDigest {
        self.target.original.as_ref().map(|original| Sha256Digest::of(original.text.as_bytes()))
    }

    /// What happened to the file, in a few words, once the change is made.
    pub(crate) fn done(&self) -> &str {
        &self.done
    }

    /// The preview for a person.
    pub(crate) fn plan(&self) -> Plan {
        let path = self.target.resolved.path();
        let diff = diff::unified(&path, self.target.text(), &self.after);
        let after = Sha256Digest::of(self.after.as_bytes());
        let place = Some(path.to_string_lossy().into_owned());
        Plan { place, shown: PlanPreview::Change { before: self.before(), after, diff } }
    }

    /// Makes the change. `planned`: what the previewed change was based on, if there was a preview.
    pub(crate) fn make(self, known: &SeenFiles, planned: Option<PlannedFrom>) -> Result<PathBuf, ChangeError> {
        const CHANGED_TEXT: &str = "The file changed after this call was prepared. Read it again, and call again.";
        if planned.is_some_and(|planned| planned.content != self.before()) {
            return Err(ChangeError::Outdated(CHANGED_TEXT.to_owned()));
        }
        let Self { target: ChangeTarget { resolved, original }, after, .. } = self;
        let path = resolved.path();
        match original {
            Some(mut original) => {
                let name = resolved.name().unwrap_or_default();
                replace::replace(resolved.directory(), name, &mut original, after.as_bytes())
            }
            None => create(&resolved, after.as_bytes()),
        }
        .map_err(|error| match error {
            AccessError::Changed => ChangeError::Outdated(CHANGED_TEXT.to_owned()),
            error => ChangeError::Access(error),
        })?;
        known.record_seen(path.clone(), Sha256Digest::of(after.as_bytes()));
        Ok(path)
    }
}

/// Creates a file and the directories that it needs. If creating the file fails, they are removed again.
fn create(resolved: &ResolvedPath<'_>, bytes: &[u8]) -> Result<(), AccessError> {
    let Some((name, directories)) = resolved.missing().split_last() else { return Err(AccessError::Changed) };
    let mut made = CreatedDirectories { first: resolved, below: Vec::new() };
    directories.iter().try_for_each(|directory| made.directory(directory))?;
    replace::create(made.last(), name, bytes)?;
    // Two concurrent calls may each have been allowed to add one of the last two parts.
    if guard::completed_repository(resolved) {
        let _ = rustix::fs::unlinkat(made.last(), name, AtFlags::empty());
        return Err(AccessError::Repository);
    }
    made.below.iter_mut().for_each(|made| made.kept = true);
    Ok(())
}

/// Directories created for a new file.
struct CreatedDirectories<'a> {
    first: &'a ResolvedPath<'a>,
    below: Vec<CreatedDirectory>,
}

struct CreatedDirectory {
    name: OsString,
    handle: OwnedFd,
    kept: bool,
}

impl CreatedDirectories<'_> {
    fn last(&self) -> BorrowedFd<'_> {
        self.below.last().map_or(self.first.directory(), |made| made.handle.as_fd())
    }

    fn directory(&mut self, name: &OsString) -> Result<(), AccessError> {
        rustix::fs::mkdirat(self.last(), name, Mode::from_raw_mode(0o777)).map_err(AccessError::writing)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW;
        let handle = open_below(self.last(), Path::new(name), flags).map_err(AccessError::writing)?;
        self.below.push(CreatedDirectory { name: name.clone(), handle, kept: false });
        Ok(())
    }
}

impl Drop for CreatedDirectories<'_> {
    fn drop(&mut self) {
        // Only empty directories can be removed like this: files that others put there stay.
        while let Some(made) = self.below.pop().filter(|made| !made.kept) {
            let _ = rustix::fs::unlinkat(self.last(), &made.name, AtFlags::REMOVEDIR);
        }
    }
}
