//! Room on the disk that the agent holds back, and gives when the disk has run full: for its journal, its log and the
//! built-in gateway. It is taken again once there is space.
//!
//! While the agent works, a file of [`RESERVE_BYTES`] stands in its folder. An empty one says that the room was given.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::FallocateFlags;

/// How much is held back.
pub const RESERVE_BYTES: u64 = 64 << 20;
/// It is given when less than this is free ...
const GIVEN_BELOW_BYTES: u64 = 16 << 20;
/// ... and taken only when this much stays free beside it, which is also what commands must leave.
const TAKEN_ABOVE_BYTES: u64 = 512 << 20;

/// The reserve of the agent whose folder this is.
#[derive(Clone, Debug)]
pub struct Reserve {
    home: PathBuf,
    file: PathBuf,
}

impl Reserve {
    /// For the agent with this folder.
    pub fn of(home: &Path) -> Self {
        Self { home: home.to_owned(), file: home.join("reserve") }
    }

    /// Whether it was given, because the disk ran full, and could not be taken again yet.
    pub fn is_given(&self) -> bool {
        self.file.metadata().is_ok_and(|file| !is_whole(&file))
    }

    /// Gives it or takes it, as the disk asks for.
    ///
    /// # Errors
    /// The disk cannot be asked, or the file system holds no room.
    pub fn keep(&self) -> io::Result<()> {
        let disk = rustix::fs::statvfs(&self.home)?;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        match self.file.metadata().is_ok_and(|file| is_whole(&file)) {
            true if free < GIVEN_BELOW_BYTES => {
                OpenOptions::new().write(true).open(&self.file)?.set_len(0)?;
                tracing::warn!(free_mb = free >> 20, "the disk is full: the room that was held back is given");
                Ok(())
            }
            false if free >= TAKEN_ABOVE_BYTES + RESERVE_BYTES => self.take(),
            _ => Ok(()),
        }
    }

    fn take(&self) -> io::Result<()> {
        let file: File = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&self.file)?;
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, RESERVE_BYTES).map_err(|errno| {
            // Without the file nothing was promised.
            let _ = std::fs::remove_file(&self.file);
            errno.into()
        })
    }

    /// Gives it for good: the agent ends.
    pub fn end(&self) {
        let _ = std::fs::remove_file(&self.file);
    }
}

/// Whether a file has all of its blocks. A copy of one may have none.
fn is_whole(file: &std::fs::Metadata) -> bool {
    file.blocks() * 512 >= RESERVE_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_held_only_where_it_leaves_enough_and_its_loss_is_seen() {
        let home = tempfile::tempdir().expect("a folder");
        let reserve = Reserve::of(home.path());
        assert!(!reserve.is_given(), "nothing was promised yet");
        reserve.keep().expect("this disk has room for tests");
        let file = home.path().join("reserve");
        assert!(is_whole(&file.metadata().expect("held")) && !reserve.is_given());
        // As when the disk ran full.
        OpenOptions::new().write(true).open(&file).and_then(|file| file.set_len(0)).expect("ours");
        assert!(reserve.is_given());
        reserve.keep().expect("there is space again");
        assert!(!reserve.is_given());
        reserve.end();
        assert!(!file.exists());
    }
}
