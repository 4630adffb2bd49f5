//! Reasons for refusing a path, in words for a model.

use rustix::io::Errno;

/// Why an access was refused or failed. The texts are for a model, and name no path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// The path leaves the working directory, wherever it would have led.
    #[error(
        "The path leads outside the working directory, which is not allowed. Absolute symbolic links count as outside."
    )]
    Outside,
    /// The path does not exist.
    #[error("There is no such file or directory.")]
    Missing,
    /// A part of the path that must be a directory is not one.
    #[error("The path, or a part of it that should be a directory, is not a directory.")]
    NotADirectory,
    /// The path names something other than a regular file.
    #[error("The path names {0}, not a regular file.")]
    NotAFile(FileKind),
    /// The agent's user lacks permission.
    #[error("The file or directory is not readable for the account that the agent runs as.")]
    Denied,
    /// The agent's user may not change it.
    #[error("The file or its directory is read-only for the account that the agent runs as. Nothing was changed.")]
    ReadOnly,
    /// A symbolic link where none may be followed, too many of them, or a `/proc` link.
    #[error("The path goes through a symbolic link that is not followed. Give the real path.")]
    Link,
    /// The file has a second name, which may be anywhere.
    #[error("The file has other names (hard links), perhaps outside the working directory, so it is not changed.")]
    HardLink,
    /// A rule of the owner's hides it.
    #[error("The owner's rules for this service do not allow this place. Go on without it.")]
    Hidden,
    /// It belongs to the agent: keys, journal, settings.
    #[error("This belongs to the agent itself. No tool reads or changes it.")]
    Own,
    /// It belongs to a version control system.
    #[error("This is kept by version control. It may be read and is not changed.")]
    VersionControl,
    /// With this name its directory would become a Git repository.
    #[error(
        "With this name its directory would become a Git repository, whose settings and hooks Git obeys: one of HEAD, \
         objects and refs (or commondir) has to be missing. Use another name or directory. Nothing was changed."
    )]
    Repository,
    /// The owner of the service protects it.
    #[error("The owner of this service protects this file. It may be read and is not changed.")]
    Protected,
    /// The path is longer than the kernel accepts.
    #[error("The path is too long.")]
    TooLong,
    /// The path contains NUL, which no file name does.
    #[error("The path contains a NUL character, which no file name can contain.")]
    Nul,
    /// Names changed during every attempt.
    #[error("The files are being renamed at this moment. Try again.")]
    Busy,
    /// Another process changed the file at the same time.
    #[error("The file was changed by somebody else at this moment. Nothing was changed. Read it again.")]
    Changed,
    /// It has an attribute that a new file here cannot be given.
    #[error("The file has an access control list or an attribute that cannot be kept. Nothing was changed.")]
    Attribute,
    /// The disk, or this user's quota, is full.
    #[error("The disk is full, or this account's share of it. Nothing was changed.")]
    Full,
    /// The working directory itself was removed: no access can work any more.
    #[error("The working directory was removed.")]
    Gone,
    /// The call was stopped.
    #[error("The call was stopped.")]
    Stopped,
    /// Any other error, in the system's words.
    #[error("The file system reports an error: {0}.")]
    Io(String),
}

impl AccessError {
    /// The meaning of a kernel error for a read.
    pub(crate) fn reading(errno: Errno) -> Self {
        match errno {
            Errno::XDEV => Self::Outside,
            Errno::NOENT => Self::Missing,
            Errno::NOTDIR => Self::NotADirectory,
            Errno::ISDIR => Self::NotAFile(FileKind::Directory),
            Errno::ACCESS | Errno::PERM => Self::Denied,
            Errno::LOOP => Self::Link,
            Errno::NAMETOOLONG => Self::TooLong,
            Errno::AGAIN => Self::Busy,
            Errno::NXIO | Errno::NODEV => Self::NotAFile(FileKind::Device),
            other => Self::Io(std::io::Error::from(other).to_string()),
        }
    }

    /// The meaning of a kernel error for a write.
    pub(crate) fn writing(errno: Errno) -> Self {
        match errno {
            Errno::ACCESS | Errno::PERM | Errno::ROFS => Self::ReadOnly,
            Errno::NOSPC | Errno::DQUOT | Errno::FBIG => Self::Full,
            // The name was free a moment ago, or was a file.
            Errno::EXIST | Errno::ISDIR => Self::Changed,
            other => Self::reading(other),
        }
    }

    /// The same for an error of the standard library.
    pub(crate) fn from_writing(error: std::io::Error) -> Self {
        match Errno::from_io_error(&error) {
            Some(errno) => Self::writing(errno),
            None => error.into(),
        }
    }
}

impl From<std::io::Error> for AccessError {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error.to_string())
    }
}

/// What a path can name instead of a regular file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A directory.
    Directory,
    /// A named pipe.
    Pipe,
    /// A socket, a device, or another special file.
    Device,
}

impl std::fmt::Display for FileKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Directory => "a directory",
            Self::Pipe => "a named pipe",
            Self::Device => "a socket or a device",
        })
    }
}
