//! Why a path was refused, in words for a model.

use rustix::io::Errno;

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
    NotAFile(FileKind),
    /// The agent's account may not.
    #[error("The file or directory is not readable for the account that the agent runs as.")]
    Denied,
    /// The agent's account may not change it.
    #[error("The file or its directory is read-only for the account that the agent runs as. Nothing was changed.")]
    ReadOnly,
    /// A symbolic link where none is followed, too many of them, or a `/proc` link.
    #[error("The path goes through a symbolic link that is not followed. Give the real path.")]
    Link,
    /// The file has a second name, which may be anywhere.
    #[error("The file has other names (hard links), perhaps outside the working directory, so it is not changed.")]
    HardLink,
    /// A rule of the owner's denies it.
    #[error("The owner's rules for this service do not allow this place. Go on without it.")]
    Hidden,
    /// It belongs to this agent: its keys, its journal, its settings.
    #[error("This belongs to the agent itself. No tool reads or changes it.")]
    Own,
    /// It belongs to a version control system.
    #[error("This is kept by version control. It may be read and is not changed.")]
    VersionControl,
    /// With this name its directory would be a Git repository's inside.
    #[error(
        "With this name its directory would become a Git repository, whose settings and hooks Git obeys: one of HEAD, \
         objects and refs (or commondir) has to be missing. Use another name or directory. Nothing was changed."
    )]
    Repository,
    /// The owner of the service protects it.
    #[error("The owner of this service protects this file. It may be read and is not changed.")]
    Protected,
    /// Longer than the kernel takes.
    #[error("The path is too long.")]
    TooLong,
    /// NUL, which no file name contains.
    #[error("The path contains a NUL character, which no file name can contain.")]
    Nul,
    /// Names changed under every attempt.
    #[error("The files are being renamed at this moment. Try again.")]
    Busy,
    /// Somebody else changed the file while it was being changed.
    #[error("The file was changed by somebody else at this moment. Nothing was changed. Read it again.")]
    Changed,
    /// It has an attribute that a new file here cannot be given.
    #[error("The file has an access control list or an attribute that cannot be kept. Nothing was changed.")]
    Attribute,
    /// No room, or none left for this account.
    #[error("The disk is full, or this account's share of it. Nothing was changed.")]
    Full,
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

impl AccessError {
    /// What the kernel's refusal means for somebody who wanted to read.
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

    /// What it means for somebody who wanted to change something.
    pub(crate) fn writing(errno: Errno) -> Self {
        match errno {
            Errno::ACCESS | Errno::PERM | Errno::ROFS => Self::ReadOnly,
            Errno::NOSPC | Errno::DQUOT | Errno::FBIG => Self::Full,
            // A name that was free a moment ago, or that was a file.
            Errno::EXIST | Errno::ISDIR => Self::Changed,
            other => Self::reading(other),
        }
    }

    /// The same for an error of the standard library's.
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
    /// A socket, a device, or something newer than this code.
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
