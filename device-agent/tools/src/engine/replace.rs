//! Replaces a file in one step: other processes see the old content or the new one, never half of either.
//!
//! The new content is written to a temporary file in the same directory and synced; only then it gets its name. A full
//! disk is therefore noticed before anything changed. See `temporary.rs`.
//!
//! An existing file is compared, content and identity, just before it is replaced. A write by another program in the
//! few microseconds until the rename is lost. A file that appears where there was none is not lost, except in as short
//! a moment on file systems that know neither an exclusive rename nor hard links.

use std::ffi::OsStr;
use std::io::{Read, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;

use rustix::fs::{AtFlags, Mode};

use super::access::AccessError;
use super::attributes::{self, OriginalFile};
use super::temporary::TemporaryFile;

/// Replaces a file. The new one keeps its mode and the attributes that `attributes.rs` names.
pub(crate) fn replace(
    directory: BorrowedFd<'_>,
    name: &OsStr,
    original: &mut OriginalFile,
    bytes: &[u8],
) -> Result<(), AccessError> {
    let temporary = TemporaryFile::filled(directory, Mode::RUSR | Mode::WUSR, |mut file| {
        file.write_all(bytes).map_err(AccessError::from_writing)?;
        attributes::copy(original, file)?;
        file.sync_all().map_err(AccessError::from_writing)
    })?;
    if !is_unchanged(directory, name, original)? {
        return Err(AccessError::Changed);
    }
    temporary.replace(name).map_err(AccessError::writing)
}

/// Creates a file where there is none; a file that another process created first stays.
pub(crate) fn create(directory: BorrowedFd<'_>, name: &OsStr, bytes: &[u8]) -> Result<(), AccessError> {
    // The umask decides, as for every new file.
    let temporary = TemporaryFile::filled(directory, Mode::from_raw_mode(0o666), |mut file| {
        file.write_all(bytes).map_err(AccessError::from_writing)?;
        file.sync_all().map_err(AccessError::from_writing)
    })?;
    temporary.create(name).map_err(AccessError::writing)
}

/// Whether the name still leads to this file, and its content is unchanged.
fn is_unchanged(directory: BorrowedFd<'_>, name: &OsStr, original: &mut OriginalFile) -> Result<bool, AccessError> {
    original.file.rewind()?;
    let mut now = Vec::with_capacity(original.text.len() + 1);
    (&original.file).take(original.text.len() as u64 + 1).read_to_end(&mut now)?;
    let stat = rustix::fs::statat(directory.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW).map_err(AccessError::writing)?;
    let same = (stat.st_dev, stat.st_ino, stat.st_nlink) == (original.metadata.dev(), original.metadata.ino(), 1);
    Ok(same && now == original.text.as_bytes())
}
