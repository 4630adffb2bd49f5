//! Resolves a path one name at a time, by handle.
//!
//! Each step opens one name in the directory that the previous step opened, and never follows a link: a symbolic link
//! is read from its own handle, and its target is resolved in the same way. `..` returns to the previous handle, and
//! stops at the working directory. Every directory on the way is identified by device and inode, so the agent's own
//! files are recognised under any name.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, OFlags, fstat, readlinkat};
use rustix::io::Errno;

use super::access::{AccessError, FileKind};
use super::workspace::{LinkPolicy, Workspace, open_below, open_in};

/// How many symbolic links one path may go through, as in the kernel.
const MAX_SYMLINKS: usize = 40;
/// The size limit of a path, in bytes, as in the kernel.
const MAX_PATH_BYTES: usize = 4096;

/// A path in the working directory, resolved to handles, whether or not a file exists there.
#[derive(Debug)]
pub struct ResolvedPath<'a> {
    workspace: &'a Workspace,
    /// The directories on the way, each with its name in the previous one.
    way: Vec<(OsString, OwnedFd)>,
    end: PathEnd,
}

/// What exists at the end of the path.
#[derive(Debug)]
enum PathEnd {
    /// The last directory itself.
    Directory,
    /// Another file, by its name in the last directory.
    Other(OsString),
    /// A path that does not exist: these names are missing in the last directory, each inside the previous one.
    Nothing(Vec<OsString>),
}

impl<'a> ResolvedPath<'a> {
    pub(crate) fn find(workspace: &'a Workspace, relative: &Path, links: LinkPolicy) -> Result<Self, AccessError> {
        if relative.as_os_str().len() >= MAX_PATH_BYTES {
            return Err(AccessError::TooLong);
        }
        let mut resolved = Self { workspace, way: Vec::new(), end: PathEnd::Directory };
        let mut ahead: VecDeque<OsString> = names(relative.as_os_str()).collect();
        let mut followed = 0;
        while let Some(name) = ahead.pop_front() {
            match name.as_bytes() {
                b"." => continue,
                b".." => {
                    resolved.way.pop().ok_or(AccessError::Outside)?;
                    continue;
                }
                _ => {}
            }
            // NOFOLLOW with PATH opens a link itself instead of refusing it.
            let here = match open_below(resolved.directory(), Path::new(&name), OFlags::PATH | OFlags::NOFOLLOW) {
                Ok(handle) => handle,
                Err(Errno::NOENT) => {
                    resolved.end = resolved.nothing(name, ahead)?;
                    return Ok(resolved);
                }
                Err(errno) => return Err(AccessError::reading(errno)),
            };
            let stat = fstat(&here).map_err(AccessError::reading)?;
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory if workspace.guard().is_own_directory(&stat) => return Err(AccessError::Own),
                FileType::Directory => resolved.way.push((name, here)),
                FileType::Symlink => {
                    followed += 1;
                    if links == LinkPolicy::Refused || followed > MAX_SYMLINKS {
                        return Err(AccessError::Link);
                    }
                    let target = readlinkat(&here, "", Vec::new()).map_err(AccessError::reading)?;
                    if target.to_bytes().starts_with(b"/") {
                        return Err(AccessError::Outside);
                    }
                    let target: Vec<_> = names(OsStr::from_bytes(target.to_bytes())).collect();
                    target.into_iter().rev().for_each(|name| ahead.push_front(name));
                }
                _ if !ahead.is_empty() => return Err(AccessError::NotADirectory),
                _ => resolved.end = PathEnd::Other(name),
            }
        }
        Ok(resolved)
    }

    fn nothing(&self, name: OsString, ahead: VecDeque<OsString>) -> Result<PathEnd, AccessError> {
        if self.workspace.is_gone() {
            return Err(AccessError::Gone);
        }
        let plain = ahead.iter().all(|name| !matches!(name.as_bytes(), b"." | b".."));
        if plain {
            Ok(PathEnd::Nothing(std::iter::once(name).chain(ahead).collect()))
        } else {
            Err(AccessError::Missing)
        }
    }

    /// The path from the working directory, without links, `.` and `..`; empty for the directory itself.
    pub fn path(&self) -> PathBuf {
        let mut path: PathBuf = self.way.iter().map(|(name, _)| name).collect();
        match &self.end {
            PathEnd::Directory => {}
            PathEnd::Other(name) => path.push(name),
            PathEnd::Nothing(names) => path.extend(names),
        }
        path
    }

    /// The working directory.
    pub(crate) fn root(&self) -> BorrowedFd<'_> {
        self.workspace.root()
    }

    /// The last existing directory on the way.
    pub(crate) fn directory(&self) -> BorrowedFd<'_> {
        self.way.last().map_or(self.root(), |(_, handle)| handle.as_fd())
    }

    /// The directories on the way, from the working directory on: each with its name in the previous one.
    pub(crate) fn way(&self) -> impl Iterator<Item = (BorrowedFd<'_>, &OsStr, BorrowedFd<'_>)> {
        let befores = std::iter::once(self.root()).chain(self.way.iter().map(|(_, handle)| handle.as_fd()));
        befores.zip(&self.way).map(|(before, (name, handle))| (before, name.as_os_str(), handle.as_fd()))
    }

    /// The missing names: directories, and the file's at the end.
    pub(crate) fn missing(&self) -> &[OsString] {
        match &self.end {
            PathEnd::Nothing(names) => names,
            PathEnd::Directory | PathEnd::Other(_) => &[],
        }
    }

    /// The file's name in the last directory; `None` for a directory, and for a missing file.
    pub(crate) fn name(&self) -> Option<&OsStr> {
        match &self.end {
            PathEnd::Other(name) => Some(name),
            PathEnd::Directory | PathEnd::Nothing(_) => None,
        }
    }

    /// Opens the regular file at the path for reading.
    pub(crate) fn open_file(&self) -> Result<(File, Metadata), AccessError> {
        match &self.end {
            PathEnd::Directory if self.workspace.is_gone() => Err(AccessError::Gone),
            PathEnd::Directory => Err(AccessError::NotAFile(FileKind::Directory)),
            PathEnd::Other(name) => open_in(self.workspace, self.directory(), Path::new(name)),
            PathEnd::Nothing(_) => Err(AccessError::Missing),
        }
    }

    /// Opens the directory at the path for listing.
    pub(crate) fn open_directory(&self) -> Result<OwnedFd, AccessError> {
        match &self.end {
            PathEnd::Directory => open_below(self.directory(), Path::new("."), OFlags::RDONLY | OFlags::DIRECTORY)
                .map_err(AccessError::reading),
            PathEnd::Other(_) => Err(AccessError::NotADirectory),
            PathEnd::Nothing(_) => Err(AccessError::Missing),
        }
    }
}

/// The names in a path. An empty one, as at the end of `a/`, means a directory like `.` does.
fn names(path: &OsStr) -> impl DoubleEndedIterator<Item = OsString> + '_ {
    let name = |name: &[u8]| OsStr::from_bytes(if name.is_empty() { b"." } else { name }).to_owned();
    path.as_bytes().split(|byte| *byte == b'/').map(name)
}
