//! Opens the folder that a service was checked with, and no other that bears its path by now.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use deskgate_definition::FolderIdentity;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, fstat, openat2};
use rustix::io::Errno;

use super::workspace::WorkspaceError;

/// Where Linux says which start of the computer this is.
const BOOT_ID_PATH: &str = "/proc/sys/kernel/random/boot_id";

/// The identity of the folder at a path, whose links are followed. Blocks.
///
/// # Errors
/// There is no folder, or it cannot be opened.
pub fn identity_of(path: &Path) -> Result<FolderIdentity, WorkspaceError> {
    let real_path = path.canonicalize().map_err(WorkspaceError::Io)?;
    identity(&open_without_links(&real_path)?, &real_path)
}

/// Opens a folder by its real path, through no link, and verifies that it is the one.
pub(super) fn open(expected: &FolderIdentity) -> Result<OwnedFd, WorkspaceError> {
    let path = &expected.real_path;
    let folder = open_without_links(path).map_err(|errno| match errno {
        Errno::LOOP => WorkspaceError::Replaced(path.clone()),
        Errno::NOTDIR if path.symlink_metadata().is_ok() => WorkspaceError::Replaced(path.clone()),
        other => other.into(),
    })?;
    match expected.is_same(&identity(&folder, path)?) {
        true => Ok(folder),
        false => Err(WorkspaceError::Replaced(path.clone())),
    }
}

fn identity(folder: &OwnedFd, real_path: &Path) -> Result<FolderIdentity, WorkspaceError> {
    let stat = fstat(folder.as_fd())?;
    let boot_id = std::fs::read_to_string(BOOT_ID_PATH).ok().map(|id| id.trim().to_owned());
    Ok(FolderIdentity { real_path: real_path.to_owned(), device: stat.st_dev, inode: stat.st_ino, boot_id })
}

fn open_without_links(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS)
}
