//! Puts a file in its place in one step: others see the old content or the new one, and never half of either.
//!
//! The new content is written to a temporary file in the same directory and synced; only then it gets its
//! name. A full disk is therefore noticed before anything changed, and the temporary file is removed. A kill at the wrong
//! moment may leave one behind; its name begins with `.deskgate-` and ends with `.tmp`.
//!
//! A file that exists is compared, content and identity, just before it is replaced. What another program does in the
//! few microseconds between that and the rename is lost; a file that appears where there was none is never lost.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::access::AccessError;
use super::attributes;
use super::workspace::below;

/// A file as it was when it was read to be changed.
#[derive(Debug)]
pub(super) struct Original {
    pub(super) file: File,
    pub(super) metadata: std::fs::Metadata,
    pub(super) text: String,
}

/// Replaces a file, which keeps its mode and what else `attributes.rs` names.
pub(super) fn replace(
    directory: BorrowedFd<'_>,
    name: &OsStr,
    original: &mut Original,
    bytes: &[u8],
) -> Result<(), AccessError> {
    let mut temporary = Temporary::create(directory, Mode::RUSR | Mode::WUSR)?;
    temporary.write(bytes)?;
    attributes::copy(original, &temporary.file)?;
    temporary.file.sync_all().map_err(AccessError::from_writing)?;
    if !is_unchanged(directory, name, original)? {
        return Err(AccessError::Changed);
    }
    rustix::fs::renameat(directory, &temporary.name, directory, name).map_err(AccessError::writing)?;
    temporary.settled(directory);
    Ok(())
}

/// Creates a file where there is none; whoever was faster keeps what they made.
pub(super) fn create(directory: BorrowedFd<'_>, name: &OsStr, bytes: &[u8]) -> Result<(), AccessError> {
    // The account's umask decides, as for every new file.
    let mut temporary = Temporary::create(directory, Mode::from_raw_mode(0o666))?;
    temporary.write(bytes)?;
    temporary.file.sync_all().map_err(AccessError::from_writing)?;
    match rustix::fs::renameat_with(directory, &temporary.name, directory, name, RenameFlags::NOREPLACE) {
        Ok(()) => temporary.settled(directory),
        // A file system that cannot: a second name for the same file is as strict, and the first one goes.
        Err(Errno::INVAL | Errno::NOSYS) => {
            rustix::fs::linkat(directory, &temporary.name, directory, name, AtFlags::empty())
                .map_err(AccessError::writing)?;
        }
        Err(errno) => return Err(AccessError::writing(errno)),
    }
    Ok(())
}

struct Temporary<'a> {
    directory: BorrowedFd<'a>,
    name: String,
    file: File,
    placed: bool,
}

impl<'a> Temporary<'a> {
    fn create(directory: BorrowedFd<'a>, mode: Mode) -> Result<Self, AccessError> {
        let name = format!(".deskgate-{:016x}.tmp", rand::random::<u64>());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(directory, &name, flags, mode).map_err(AccessError::writing)?;
        Ok(Self { directory, name, file: file.into(), placed: false })
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), AccessError> {
        self.file.write_all(bytes).map_err(AccessError::from_writing)
    }

    /// It has its name; the directory's entry is synced too.
    fn settled(mut self, directory: BorrowedFd<'_>) {
        self.placed = true;
        let synced = below(directory, Path::new("."), OFlags::RDONLY | OFlags::DIRECTORY).and_then(rustix::fs::fsync);
        if let Err(error) = synced {
            // The change is made and visible; some file systems cannot sync a directory.
            tracing::debug!(%error, "a directory could not be synced after a file was replaced");
        }
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        if !self.placed {
            let _ = rustix::fs::unlinkat(self.directory, &self.name, AtFlags::empty());
        }
    }
}

/// Whether the name still leads to this file, and the file says what it said.
fn is_unchanged(directory: BorrowedFd<'_>, name: &OsStr, original: &mut Original) -> Result<bool, AccessError> {
    original.file.rewind()?;
    let mut now = Vec::with_capacity(original.text.len() + 1);
    (&original.file).take(original.text.len() as u64 + 1).read_to_end(&mut now)?;
    let stat = rustix::fs::statat(directory.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW).map_err(AccessError::writing)?;
    let same = (stat.st_dev, stat.st_ino, stat.st_nlink) == (original.metadata.dev(), original.metadata.ino(), 1);
    Ok(same && now == original.text.as_bytes())
}
