//! Confinement: every access starts at one directory handle and is resolved by the kernel.
//!
//! The working directory is opened once for a run. Each path is resolved from this handle, one name at a time, by
//! `openat2` with `RESOLVE_BENEATH` and `RESOLVE_NO_SYMLINKS`: see `resolved_path.rs`. So the kernel itself refuses to
//! leave the directory, and a swap between check and use has no effect: the checked handle is the one that is used.
//! Strings are compared for one purpose only: to turn an absolute path from a model into a relative one. What that path
//! may reach is still decided by handle.
//!
//! Limits of this:
//! - An absolute symbolic link is refused even if it points inside: it starts at `/`, which is outside.
//! - A hard link to a file elsewhere cannot be distinguished from the file itself and is readable. The user who made it
//!   had that file already. Tools that change a file check its link count first.
//! - A directory that another process moves out of the working directory at the moment in which a file in it is
//!   replaced takes the new file along. That process could write there anyway.

use std::fs::{File, Metadata};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::{Component, Path, PathBuf};

use deskgate_definition::approvals::HiddenPaths;
use deskgate_definition::{FolderIdentity, Network};
use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;

pub use super::access::{AccessError, FileKind};
use super::guard::WorkspaceGuard;
use super::resolved_path::ResolvedPath;
use super::{display, identity};

/// How often an access is tried again after a signal interrupted it.
const MAX_OPEN_ATTEMPTS: usize = 64;

/// Why a working directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    /// The path does not exist.
    #[error("the working directory does not exist")]
    Missing,
    /// The path is not a directory.
    #[error("the working directory is not a directory")]
    NotADirectory,
    /// The agent's user may not list it.
    #[error("the working directory is not readable for the account that the agent runs as")]
    NotReadable,
    /// It is another folder than the one that the service was published with, or is reached through a link by now.
    #[error("{} is another folder than the one that was checked", display::name(.0))]
    Replaced(PathBuf),
    /// It is the folder in which the agent keeps its keys.
    #[error("the working directory is the agent's own folder, or lies in it")]
    Own,
    /// The service's protected patterns are not valid.
    #[error("the protected places: {0}")]
    Protected(String),
    /// The kernel cannot confine accesses; tools never work unconfined.
    #[error(
        "this kernel cannot confine file access: `openat2` is needed (Linux 5.6 or newer, not blocked by a sandbox)"
    )]
    Unsupported,
    /// Any other error of the system.
    #[error("the working directory cannot be opened: {0}")]
    Io(std::io::Error),
}

impl From<Errno> for WorkspaceError {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::NOENT => Self::Missing,
            Errno::NOTDIR => Self::NotADirectory,
            Errno::ACCESS => Self::NotReadable,
            // Sandboxes that do not know the call answer PERM instead of NOSYS.
            Errno::NOSYS | Errno::PERM => Self::Unsupported,
            other => Self::Io(other.into()),
        }
    }
}

/// Whether symbolic links are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkPolicy {
    /// Relative links that stay inside are followed.
    Inside,
    /// No link is followed.
    Refused,
}

/// The working directory of a run's tools, and what they must not touch there.
#[derive(Clone, Copy, Debug)]
pub struct WorkspaceOptions<'a> {
    /// The working directory.
    pub directory: &'a Path,
    /// The agent's own folder: neither read nor changed, wherever it is and by whatever path it is reached.
    pub own_folder: &'a Path,
    /// The folder that the service was published with: opened by its real path, and no other one. `None`: whatever folder
    /// is there.
    pub expected: Option<&'a FolderIdentity>,
    /// The real paths of other services' folders: commands cannot move or replace those that lie inside.
    pub others: &'a [PathBuf],
    /// What the service's owner protects from change; see [`deskgate_definition::ProtectedPaths`].
    pub protected: &'a [String],
    /// The network that commands have.
    pub network: Network,
    /// The folder with the files that the run was given.
    pub files: Option<&'a Path>,
}

impl<'a> WorkspaceOptions<'a> {
    /// Whatever folder is at a path now, with nothing protected beyond what always is, and no network.
    pub fn of(directory: &'a Path, own_folder: &'a Path) -> Self {
        Self { directory, own_folder, expected: None, others: &[], protected: &[], network: Network::None, files: None }
    }
}

/// An open working directory.
#[derive(Debug)]
pub struct Workspace {
    root: OwnedFd,
    path: PathBuf,
    guard: WorkspaceGuard,
    hidden: HiddenPaths,
    /// The folders of other services inside, by their paths below this one.
    inner: Vec<PathBuf>,
    /// Whether the run was given files, which have a name here that nothing else may have.
    has_files: bool,
}

impl Workspace {
    /// Opens a working directory, and verifies that it can be listed and that the kernel confines accesses.
    ///
    /// # Errors
    /// Why the directory cannot be used.
    pub fn open(options: WorkspaceOptions<'_>) -> Result<Self, WorkspaceError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = match options.expected {
            Some(expected) => identity::open(expected)?,
            None => rustix::fs::open(options.directory, flags, Mode::empty())?,
        };
        open_below(&root, Path::new("."), OFlags::RDONLY | OFlags::DIRECTORY)?;
        let guard = WorkspaceGuard::new(&root, options)?;
        let real = match options.expected {
            Some(expected) => expected.real_path.clone(),
            None => options.directory.canonicalize().map_err(WorkspaceError::Io)?,
        };
        let below = |other: &PathBuf| Some(other.strip_prefix(&real).ok()?.to_owned());
        let inner = options.others.iter().filter_map(below).filter(|inner| !inner.as_os_str().is_empty()).collect();
        let (path, hidden, has_files) = (options.directory.to_owned(), HiddenPaths::default(), options.files.is_some());
        Ok(Self { root, path, guard, hidden, inner, has_files })
    }

    /// The folders of other services inside this one, by their paths below it.
    pub(crate) fn inner(&self) -> &[PathBuf] {
        &self.inner
    }

    /// The same directory for a tool from which some paths are hidden, however they are reached.
    ///
    /// # Errors
    /// [`WorkspaceError::Io`]: the handle of the directory cannot be duplicated.
    pub fn with_hidden(&self, hidden: HiddenPaths) -> Result<Self, WorkspaceError> {
        let root = self.root.try_clone().map_err(WorkspaceError::Io)?;
        let (path, guard, inner) = (self.path.clone(), self.guard.clone(), self.inner.clone());
        Ok(Self { root, path, guard, hidden, inner, has_files: self.has_files })
    }

    /// Whether the run was given files.
    pub(crate) fn has_files(&self) -> bool {
        self.has_files
    }

    /// Whether a path, relative to the directory and free of links, is hidden.
    pub(crate) fn hides(&self, place: &Path) -> bool {
        self.hidden.covers(place)
    }

    /// The path by which the directory was opened. For display only.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The handle of the directory.
    pub fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    pub(crate) fn guard(&self) -> &WorkspaceGuard {
        &self.guard
    }

    /// Turns a model's path into one relative to the working directory. This does not decide where the path may lead,
    /// except that an absolute path elsewhere is refused.
    ///
    /// # Errors
    /// [`AccessError::Nul`]: the path contains a NUL character. [`AccessError::Outside`]: it is absolute and not below
    /// [`Self::path`].
    pub fn relative(&self, given: &str) -> Result<PathBuf, AccessError> {
        if given.contains('\0') {
            return Err(AccessError::Nul);
        }
        let path = Path::new(given);
        let below = if path.is_absolute() {
            let below = path.strip_prefix(&self.path).map_err(|_| AccessError::Outside)?;
            // A path that names a directory must still name one.
            if given.ends_with('/') { below.join(".") } else { below.to_owned() }
        } else {
            path.to_owned()
        };
        Ok(if below.as_os_str().is_empty() { PathBuf::from(".") } else { below })
    }

    /// Like [`Self::relative`], for a path without any symbolic link: `.` and `..` are resolved in the text, which is
    /// exact then.
    ///
    /// # Errors
    /// As [`Self::relative`]; or [`AccessError::Outside`]: a `..` leads above the working directory.
    pub fn relative_without_links(&self, given: &str) -> Result<PathBuf, AccessError> {
        let mut plain = PathBuf::new();
        for component in self.relative(given)?.components() {
            match component {
                Component::Normal(name) => plain.push(name),
                Component::CurDir => {}
                Component::ParentDir if plain.pop() => {}
                Component::ParentDir | Component::RootDir | Component::Prefix(_) => return Err(AccessError::Outside),
            }
        }
        Ok(plain)
    }

    /// Resolves a path as it is now.
    ///
    /// # Errors
    /// Why the path was refused.
    pub fn find(&self, relative: &Path, links: LinkPolicy) -> Result<ResolvedPath<'_>, AccessError> {
        let resolved = ResolvedPath::find(self, relative, links)?;
        if !self.hidden.is_empty() && self.hides(&resolved.path()) { Err(AccessError::Hidden) } else { Ok(resolved) }
    }

    /// Opens a regular file for reading. A pipe, a device or a socket is refused without waiting for its other end.
    ///
    /// # Errors
    /// Why the access was refused or failed.
    pub fn open_file(&self, relative: &Path, links: LinkPolicy) -> Result<(File, Metadata), AccessError> {
        self.find(relative, links)?.open_file()
    }

    /// Opens a directory for listing.
    ///
    /// # Errors
    /// Why the access was refused or failed.
    pub fn open_directory(&self, relative: &Path, links: LinkPolicy) -> Result<OwnedFd, AccessError> {
        self.find(relative, links)?.open_directory()
    }

    /// Whether the working directory was removed.
    pub fn is_gone(&self) -> bool {
        // A removed directory has no name left; its handle still works and finds no files.
        rustix::fs::fstat(&self.root).is_ok_and(|stat| stat.st_nlink == 0)
    }
}

/// The only place where a path below the working directory is opened: resolved beneath a directory, through no link of
/// any kind. All other calls get one name in an open directory.
pub(crate) fn open_below(directory: impl AsFd, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let how = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS;
    let mut attempt = 1;
    loop {
        match openat2(&directory, path, flags | OFlags::CLOEXEC, Mode::empty(), how) {
            Err(Errno::AGAIN | Errno::INTR) if attempt < MAX_OPEN_ATTEMPTS => attempt += 1,
            result => return result,
        }
    }
}

/// Opens a regular file by its name in an open directory.
pub(crate) fn open_in(
    workspace: &Workspace,
    directory: impl AsFd,
    name: &Path,
) -> Result<(File, Metadata), AccessError> {
    // NONBLOCK: opening a pipe would wait for a writer. It has no effect on regular files.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = File::from(open_below(directory, name, flags).map_err(AccessError::reading)?);
    let metadata = file.metadata()?;
    match not_a_file(&metadata) {
        Some(what) => Err(AccessError::NotAFile(what)),
        None if workspace.guard.is_own_file(&metadata) => Err(AccessError::Own),
        None => Ok((file, metadata)),
    }
}

fn not_a_file(metadata: &Metadata) -> Option<FileKind> {
    let kind = metadata.file_type();
    match () {
        () if kind.is_file() => None,
        () if kind.is_dir() => Some(FileKind::Directory),
        () if kind.is_fifo() => Some(FileKind::Pipe),
        () => Some(FileKind::Device),
    }
}
