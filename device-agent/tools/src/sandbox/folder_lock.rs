//! A lock that lets one command at a time work in a folder and in the folders above and below it.
//!
//! Bubblewrap follows links where it mounts. The new sandbox's own commands do not run yet, but one of another run in
//! the same files could replace a folder by a link at that moment.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use tokio_util::sync::CancellationToken;

use super::SandboxError;

/// How long a stop may go unnoticed.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A folder and all above it: the device and inode of each.
type FolderChain = Vec<(u64, u64)>;

/// The folders in which commands work now.
static LOCKED_FOLDERS: Mutex<Vec<FolderChain>> = Mutex::new(Vec::new());
static FOLDER_RELEASED: Condvar = Condvar::new();

/// The lock of one command. Dropping it releases it.
pub(super) struct FolderLock {
    way: FolderChain,
}

impl FolderLock {
    /// Waits until no command works in the folder, in one above or in one below. `None`: it was stopped first.
    pub(super) fn take(
        folder: BorrowedFd<'_>,
        time: Duration,
        stop: &CancellationToken,
    ) -> Result<Option<Self>, SandboxError> {
        let (way, until) = (way(folder)?, Instant::now() + time);
        let mut at_work = at_work();
        while at_work.iter().any(|other| lie_in_each_other(&way, other)) {
            if stop.is_cancelled() {
                return Ok(None);
            }
            if Instant::now() >= until {
                return Err(SandboxError::Busy);
            }
            at_work =
                FOLDER_RELEASED.wait_timeout(at_work, STOP_POLL_INTERVAL).unwrap_or_else(PoisonError::into_inner).0;
        }
        at_work.push(way.clone());
        Ok(Some(Self { way }))
    }
}

impl Drop for FolderLock {
    fn drop(&mut self) {
        at_work().retain(|way| *way != self.way);
        FOLDER_RELEASED.notify_all();
    }
}

fn at_work() -> MutexGuard<'static, Vec<FolderChain>> {
    LOCKED_FOLDERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether they are the same folder, or one is above the other.
fn lie_in_each_other(one: &FolderChain, other: &FolderChain) -> bool {
    let is_on = |folder: Option<&(u64, u64)>, way: &FolderChain| folder.is_some_and(|folder| way.contains(folder));
    is_on(one.first(), other) || is_on(other.first(), one)
}

fn way(folder: BorrowedFd<'_>) -> std::io::Result<FolderChain> {
    let mut way = FolderChain::new();
    let mut here: OwnedFd = folder.try_clone_to_owned()?;
    loop {
        let stat = rustix::fs::fstat(&here)?;
        let folder = (stat.st_dev, stat.st_ino);
        // The root's parent is the root.
        if way.last() == Some(&folder) {
            return Ok(way);
        }
        way.push(folder);
        here =
            rustix::fs::openat(here.as_fd(), "..", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_folders_that_lie_in_each_other_wait_for_each_other() {
        let place = tempfile::tempdir().expect("a folder");
        std::fs::create_dir_all(place.path().join("a/b")).expect("creates");
        std::fs::create_dir_all(place.path().join("ab")).expect("creates");
        let take = |name: &str| {
            let folder = std::fs::File::open(place.path().join(name)).expect("opens");
            FolderLock::take(folder.as_fd(), Duration::ZERO, &CancellationToken::new())
        };
        let inner = take("a/b").expect("free");
        for busy in ["", "a", "a/b", "a/b/../b"] {
            assert!(matches!(take(busy), Err(SandboxError::Busy)), "{busy:?}");
        }
        let beside = take("ab").expect("free");
        drop(inner);
        assert!(take("a").is_ok());
        assert!(take("").is_err(), "a command works in a folder below");
        drop(beside);
        assert!(take("").is_ok());
    }
}
