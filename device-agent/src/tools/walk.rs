//! Walks the working directory by handle, as ripgrep would: hidden and ignored names are skipped.
//!
//! Every directory and every ignore file is opened from the working directory's own handle, and no
//! symbolic link is followed anywhere on the way. A directory that becomes a link during the walk
//! is therefore skipped, not entered.

use std::ffi::{CStr, OsStr};
use std::io::Read;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::{Dir, FileType};
use tokio_util::sync::CancellationToken;

use super::workspace::{AccessError, Links, Workspace};

/// Names looked at in one walk: a bound for time and memory in folders of any size.
const ENTRY_LIMIT: usize = 1_000_000;
/// Bytes read of one ignore file.
const IGNORE_FILE_LIMIT: u64 = 1024 * 1024;
/// Later lines win, so `.ignore` overrules `.gitignore`.
const IGNORE_FILES: [&str; 2] = [".gitignore", ".ignore"];

/// What a walk could not do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Walked {
    /// Directories that could not be listed.
    pub(super) unreadable: usize,
    /// Whether it ended at its limit of names.
    pub(super) cut: bool,
}

impl Walked {
    /// What the model has to know about the walk.
    pub(super) fn notices(self) -> Vec<String> {
        let mut notices = Vec::new();
        if self.unreadable > 0 {
            notices.push(format!("{} directories could not be read", self.unreadable));
        }
        if self.cut {
            notices.push(format!("stopped after {ENTRY_LIMIT} names: give a narrower path"));
        }
        notices
    }
}

/// Visits every regular file under `base`, which is relative to the working directory and free of
/// `.` and `..`. Files of a directory come first, by name, then its directories, by name. A visitor
/// that breaks ends the walk. `hidden` says whether names with a leading dot count; `.git` never does.
pub(super) fn walk(
    workspace: &Workspace,
    base: &Path,
    hidden: bool,
    stop: &CancellationToken,
    mut visit: impl FnMut(&Path) -> Result<ControlFlow<()>, AccessError>,
) -> Result<Walked, AccessError> {
    let mut walked = Walked::default();
    let mut names = 0;
    let mut pending = vec![(base.to_owned(), Ignores::above(workspace, base))];
    while let Some((directory, above)) = pending.pop() {
        let handle = match workspace.open_directory(&directory, Links::Refused) {
            Ok(handle) => handle,
            Err(error) if directory == base || error == AccessError::Gone => return Err(error),
            Err(AccessError::Denied) => {
                walked.unreadable += 1;
                continue;
            }
            // It was removed, or turned into a link, since it was listed.
            Err(_) => continue,
        };
        let ignores = Ignores::of(workspace, &directory, above);
        let mut directories = Vec::new();
        let mut files = Vec::new();
        for entry in list(handle)? {
            let Ok((name, kind)) = entry else {
                walked.unreadable += 1;
                break;
            };
            names += 1;
            if stop.is_cancelled() {
                return Err(AccessError::Stopped);
            }
            if names > ENTRY_LIMIT {
                walked.cut = true;
                break;
            }
            if name == ".git" || (!hidden && name.as_bytes().starts_with(b".")) {
                continue;
            }
            let path = directory.join(&name);
            match kind_of(workspace, &path, kind) {
                FileType::Directory if !Ignores::skip(ignores.as_ref(), &path, true) => directories.push(path),
                FileType::RegularFile if !Ignores::skip(ignores.as_ref(), &path, false) => files.push(path),
                _ => {}
            }
        }
        files.sort();
        for file in files {
            if stop.is_cancelled() {
                return Err(AccessError::Stopped);
            }
            if visit(&file)?.is_break() {
                return Ok(walked);
            }
        }
        if walked.cut {
            break;
        }
        directories.sort_by(|a, b| b.cmp(a));
        pending.extend(directories.into_iter().map(|path| (path, ignores.clone())));
    }
    // A removed directory lists like an empty one.
    if names == 0 && workspace.is_gone() { Err(AccessError::Gone) } else { Ok(walked) }
}

/// The names in a directory, without `.` and `..`.
pub(super) fn list(
    handle: OwnedFd,
) -> Result<impl Iterator<Item = std::io::Result<(std::ffi::OsString, FileType)>>, AccessError> {
    let directory = Dir::new(handle).map_err(std::io::Error::from)?;
    let dots = |name: &CStr| matches!(name.to_bytes(), b"." | b"..");
    Ok(directory.filter(move |entry| !entry.as_ref().is_ok_and(|entry| dots(entry.file_name()))).map(|entry| {
        Ok(entry.map(|entry| (OsStr::from_bytes(entry.file_name().to_bytes()).to_owned(), entry.file_type()))?)
    }))
}

/// Some file systems do not say in the listing what an entry is.
fn kind_of(workspace: &Workspace, path: &Path, listed: FileType) -> FileType {
    if listed != FileType::Unknown {
        return listed;
    }
    match workspace.look(path, Links::Refused) {
        Ok(metadata) if metadata.is_dir() => FileType::Directory,
        Ok(metadata) if metadata.is_file() => FileType::RegularFile,
        _ => FileType::Unknown,
    }
}

/// The ignore rules of one directory, and of those above it.
struct Ignores {
    directory: PathBuf,
    rules: Gitignore,
    above: Option<Rc<Ignores>>,
}

impl Ignores {
    /// The rules that hold in `base` because of the directories above it.
    fn above(workspace: &Workspace, base: &Path) -> Option<Rc<Self>> {
        let mut ancestors: Vec<_> = base.ancestors().skip(1).collect();
        ancestors.reverse();
        ancestors.into_iter().fold(None, |above, directory| Self::of(workspace, directory, above))
    }

    /// The rules that hold in `directory`.
    fn of(workspace: &Workspace, directory: &Path, above: Option<Rc<Self>>) -> Option<Rc<Self>> {
        let mut builder = GitignoreBuilder::new(".");
        for name in IGNORE_FILES {
            let Ok((file, _)) = workspace.open_file(&directory.join(name), Links::Refused) else { continue };
            let mut bytes = Vec::new();
            if file.take(IGNORE_FILE_LIMIT).read_to_end(&mut bytes).is_err() {
                continue;
            }
            for line in String::from_utf8_lossy(&bytes).trim_start_matches('\u{feff}').lines() {
                // A line that is no pattern is skipped and the others count, as git does it.
                let _ = builder.add_line(None, line);
            }
        }
        match builder.build() {
            Ok(rules) if !rules.is_empty() => Some(Rc::new(Self { directory: directory.to_owned(), rules, above })),
            _ => above,
        }
    }

    /// Whether the nearest rule that speaks of `path` says to ignore it.
    fn skip(nearest: Option<&Rc<Self>>, path: &Path, is_directory: bool) -> bool {
        let mut next = nearest;
        while let Some(ignores) = next {
            let below = path.strip_prefix(&ignores.directory).unwrap_or(path);
            match ignores.rules.matched(below, is_directory) {
                Match::Ignore(_) => return true,
                Match::Whitelist(_) => return false,
                Match::None => next = ignores.above.as_ref(),
            }
        }
        false
    }
}
