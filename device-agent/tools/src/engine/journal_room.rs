//! Room for the agent's own journal, which no tool may take.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use deskgate_definition::tool::MIN_JOURNAL_ROOM_BYTES;
use rustix::fs::{Mode, OFlags};

/// The room that the agent needs for its own journal, on the disk of its own folder.
pub(crate) struct JournalRoom(Option<OwnedFd>);

impl JournalRoom {
    /// Of the agent whose folder this is. Without one nothing is kept free.
    pub(crate) fn of(own_folder: &Path) -> Self {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Self(rustix::fs::open(own_folder, flags, Mode::empty()).ok())
    }

    /// Whether there is too little of it on this folder's disk.
    pub(crate) fn is_short(&self, folder: BorrowedFd<'_>) -> bool {
        let device = |of: BorrowedFd<'_>| rustix::fs::fstat(of).map(|stat| stat.st_dev);
        let on_same_disk = |own: &OwnedFd| device(own.as_fd()).is_ok_and(|own| device(folder) == Ok(own));
        self.0.as_ref().is_some_and(on_same_disk) && !self.is_left_beside(0)
    }

    /// Whether it is left when so many bytes are written into the agent's own folder.
    pub(crate) fn is_left_beside(&self, bytes: u64) -> bool {
        let free =
            |own: &OwnedFd| rustix::fs::fstatvfs(own).ok().map(|stat| stat.f_bavail.saturating_mul(stat.f_frsize));
        self.0.as_ref().and_then(free).is_none_or(|free| free >= MIN_JOURNAL_ROOM_BYTES.saturating_add(bytes))
    }
}
