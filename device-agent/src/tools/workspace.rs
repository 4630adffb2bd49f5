//! Confinement: every access starts at one directory handle and is resolved by the kernel.
//!
//! The working directory is opened once for a run. Each path after that goes to `openat2` with
//! `RESOLVE_BENEATH` and `RESOLVE_NO_MAGICLINKS`, so the kernel itself refuses `..`, symbolic links
//! that leave, `/proc` links, and any swap between check and use: there is no check, only the use.
//! Strings are compared for one thing only, to turn an absolute path that a model sent into a
//! relative one; what that path may reach is still the kernel's decision.
//!
//! What this does not promise:
//! - An absolute symbolic link is refused even if it points inside: the kernel starts such a link at
//!   `/`, which is outside.
//! - A hard link to a file elsewhere cannot be told from the file itself and is readable. Whoever
//!   could make it had that file already. Tools that change a file look at its link count first.

use std::fs::{File, Metadata};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;

/// How often an access is tried again when the kernel saw a rename in the middle of it.
const ATTEMPTS: usize = 64;

/// Why a working directory cannot be used at all.
#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    /// Nothing is there.
    #[error("the working directory does not exist")]
    Missing,
    /// A file or something else is there.
    #[error("the working directory is not a directory")]
    NotADirectory,
    /// The agent's account may not list it.
    #[error("the working directory is not readable for the account that the agent runs as")]
    NotReadable,
    /// The kernel cannot confine accesses; we never work unconfined.
    #[error(
        "this kernel cannot confine file access: `openat2` is needed (Linux 5.6 or newer, not blocked by a sandbox)"
    )]
    Unsupported,
    /// Anything else.
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

/// Why one access was refused or failed. The texts are for a model, and name no path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// The path leaves the working directory, wherever it would have led.
    #[error(
        "The path leads outside the working directory, which is not allowed. Absolute symbolic links count as outside."
    )]
    Outside,
    /// Nothing is there.
    #[error("There is no such file or directory.")]
    Missing,
    /// A part of the path that must be a directory is none.
    #[error("The path, or a part of it that should be a directory, is not a directory.")]
    NotADirectory,
    /// Something other than a regular file.
    #[error("The path names {0}, not a regular file.")]
    NotAFile(Kind),
    /// The agent's account may not.
    #[error("The file or directory is not readable for the account that the agent runs as.")]
    Denied,
    /// A symbolic link where none is followed, too many of them, or a `/proc` link.
    #[error("The path goes through a symbolic link that is not followed. Give the real path.")]
    Link,
    /// Longer than the kernel takes.
    #[error("The path is too long.")]
    TooLong,
    /// NUL, which no file name contains.
    #[error("The path contains a NUL character, which no file name can contain.")]
    Nul,
    /// Names changed under every attempt.
    #[error("The files are being renamed at this moment. Try again.")]
    Busy,
    /// The working directory itself was removed: no access can work any more.
    #[error("The working directory was removed.")]
    Gone,
    /// The call was stopped.
    #[error("The call was stopped.")]
    Stopped,
    /// Anything else, in the system's words.
    #[error("The file system reports an error: {0}.")]
    Io(String),
}

impl From<std::io::Error> for AccessError {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error.to_string())
    }
}

/// What a path can name instead of a regular file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A directory.
    Directory,
    /// A named pipe.
    Pipe,
    /// A socket, a device, or something newer than this code.
    Device,
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Directory => "a directory",
            Self::Pipe => "a named pipe",
            Self::Device => "a socket or a device",
        })
    }
}

/// Whether symbolic links are followed as long as they stay inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    /// Relative links that stay inside are followed.
    Inside,
    /// None is followed.
    Refused,
}

/// An open working directory.
#[derive(Debug)]
pub struct Workspace {
    root: OwnedFd,
    path: PathBuf,
}

impl Workspace {
    /// Opens a working directory and proves that it can be listed and that the kernel confines.
    pub fn open(path: &Path) -> Result<Self, WorkspaceError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(path, flags, Mode::empty())?;
        let workspace = Self { root, path: path.to_owned() };
        workspace.resolve(Path::new("."), OFlags::RDONLY | OFlags::DIRECTORY, Links::Refused)?;
        Ok(workspace)
    }

    /// The path that the directory was opened by. For display only.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Turns a path that a model sent into one to resolve from the working directory. This decides
    /// nothing about where the path may lead, except that an absolute path elsewhere is outside.
    pub fn relative(&self, given: &str) -> Result<PathBuf, AccessError> {
        if given.contains('\0') {
            return Err(AccessError::Nul);
        }
        let given = Path::new(given);
        let relative =
            if given.is_absolute() { given.strip_prefix(&self.path).map_err(|_| AccessError::Outside)? } else { given };
        Ok(if relative.as_os_str().is_empty() { PathBuf::from(".") } else { relative.to_owned() })
    }

    /// Like [`Self::relative`], for a directory to walk from: `.` and `..` are resolved in the text.
    /// That is exact because a walk follows no symbolic link.
    pub fn relative_for_walk(&self, given: &str) -> Result<PathBuf, AccessError> {
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

    /// Opens a regular file for reading. A pipe, a device or a socket is refused without waiting
    /// for its other end.
    pub fn open_file(&self, relative: &Path, links: Links) -> Result<(File, Metadata), AccessError> {
        // NONBLOCK: opening a pipe would wait for a writer. It means nothing for regular files.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = File::from(self.access(relative, flags, links)?);
        let metadata = file.metadata()?;
        match not_a_file(&metadata) {
            Some(what) => Err(AccessError::NotAFile(what)),
            None => Ok((file, metadata)),
        }
    }

    /// What is at a path, without opening it for anything.
    pub fn look(&self, relative: &Path, links: Links) -> Result<Metadata, AccessError> {
        Ok(File::from(self.access(relative, OFlags::PATH, links)?).metadata()?)
    }

    /// Opens a directory for listing.
    pub fn open_directory(&self, relative: &Path, links: Links) -> Result<OwnedFd, AccessError> {
        self.access(relative, OFlags::RDONLY | OFlags::DIRECTORY, links)
    }

    fn access(&self, relative: &Path, flags: OFlags, links: Links) -> Result<OwnedFd, AccessError> {
        let relative = if relative.as_os_str().is_empty() { Path::new(".") } else { relative };
        self.resolve(relative, flags, links).map_err(|errno| match errno {
            Errno::XDEV => AccessError::Outside,
            Errno::NOENT if self.is_gone() => AccessError::Gone,
            Errno::NOENT => AccessError::Missing,
            Errno::NOTDIR => AccessError::NotADirectory,
            Errno::ISDIR => AccessError::NotAFile(Kind::Directory),
            Errno::ACCESS | Errno::PERM => AccessError::Denied,
            Errno::LOOP => AccessError::Link,
            Errno::NAMETOOLONG => AccessError::TooLong,
            Errno::AGAIN => AccessError::Busy,
            Errno::NXIO | Errno::NODEV => AccessError::NotAFile(Kind::Device),
            other => AccessError::Io(std::io::Error::from(other).to_string()),
        })
    }

    /// The one place where a path meets the kernel.
    fn resolve(&self, relative: &Path, flags: OFlags, links: Links) -> Result<OwnedFd, Errno> {
        let mut how = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        if links == Links::Refused {
            how |= ResolveFlags::NO_SYMLINKS;
        }
        let mut attempt = 1;
        loop {
            // AGAIN: a rename somewhere on the system while `..` was being resolved.
            match openat2(&self.root, relative, flags | OFlags::CLOEXEC, Mode::empty(), how) {
                Err(Errno::AGAIN | Errno::INTR) if attempt < ATTEMPTS => attempt += 1,
                result => return result,
            }
        }
    }

    /// Whether the working directory was removed.
    pub fn is_gone(&self) -> bool {
        // A removed directory has no name left; its handle still works and finds nothing.
        rustix::fs::fstat(&self.root).is_ok_and(|stat| stat.st_nlink == 0)
    }
}

fn not_a_file(metadata: &Metadata) -> Option<Kind> {
    let kind = metadata.file_type();
    match () {
        () if kind.is_file() => None,
        () if kind.is_dir() => Some(Kind::Directory),
        () if kind.is_fifo() => Some(Kind::Pipe),
        () => Some(Kind::Device),
    }
}
