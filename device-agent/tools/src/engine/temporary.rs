//! A new file before it gets its name: written completely and synced, and never left behind.
//!
//! Where the file system supports unnamed files, it is written without a name, and gets a temporary one, beside its
//! final name, only when it is complete. Elsewhere it has its temporary name from the start. In both cases it is locked
//! while it has that name. An unlocked one was left by a kill, and the next change in the same directory removes it.
//! Only plain files whose names have exactly this form are removed, and no link is followed.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags, RenameFlags, flock, fstat, linkat, renameat, statat};
use rustix::io::Errno;

use super::access::AccessError;
use super::walk;
use super::workspace::open_below;

const NAME_PREFIX: &str = ".deskgate-";
const NAME_SUFFIX: &str = ".tmp";
/// How many hexadecimal digits the name has between the two.
const NAME_DIGITS: usize = 16;
/// How many names are searched for leftovers: a bound on the time of one change in folders of any size.
const MAX_NAMES_SCANNED: usize = 50_000;
/// How often a new temporary file is tried when another process locks or removes it.
const MAX_CREATE_ATTEMPTS: usize = 8;

/// A complete file under a temporary name; it is removed again unless it gets another one.
#[derive(Debug)]
pub(crate) struct TemporaryFile<'a> {
    directory: BorrowedFd<'a>,
    name: String,
    /// Holds the lock.
    file: File,
    placed: bool,
}

impl<'a> TemporaryFile<'a> {
    /// A file that `fill` has written completely. `fill` may be called a second time, for a second file.
    pub(crate) fn filled(
        directory: BorrowedFd<'a>,
        mode: Mode,
        fill: impl Fn(&File) -> Result<(), AccessError>,
    ) -> Result<Self, AccessError> {
        sweep(directory);
        // The reason why the first way failed does not matter: the second way fails too if it does.
        Self::without_a_name(directory, mode, &fill).or_else(|_| Self::with_a_name(directory, mode, &fill))
    }

    fn without_a_name(
        directory: BorrowedFd<'a>,
        mode: Mode,
        fill: impl Fn(&File) -> Result<(), AccessError>,
    ) -> Result<Self, AccessError> {
        let flags = OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::openat(directory, ".", flags, mode).map_err(AccessError::writing)?);
        lock(&file);
        fill(&file)?;
        let name = random_name();
        // Any user may link their own file through /proc; by its handle only newer kernels allow it.
        let handle = format!("/proc/self/fd/{}", file.as_raw_fd());
        linkat(CWD, handle, directory, &name, AtFlags::SYMLINK_FOLLOW).map_err(AccessError::writing)?;
        Ok(Self { directory, name, file, placed: false })
    }

    fn with_a_name(
        directory: BorrowedFd<'a>,
        mode: Mode,
        fill: impl Fn(&File) -> Result<(), AccessError>,
    ) -> Result<Self, AccessError> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        for _ in 0..MAX_CREATE_ATTEMPTS {
            let name = random_name();
            let file = rustix::fs::openat(directory, &name, flags, mode).map_err(AccessError::writing)?.into();
            let temporary = Self { directory, name, file, placed: false };
            // Before it was locked it looked like a leftover.
            if lock(&temporary.file) && temporary.file.metadata()?.nlink() > 0 {
                fill(&temporary.file)?;
                return Ok(temporary);
            }
        }
        Err(AccessError::Busy)
    }

    /// Gives it the name of an existing file, which it replaces.
    pub(crate) fn replace(mut self, name: &OsStr) -> Result<(), Errno> {
        renameat(self.directory, &self.name, self.directory, name)?;
        self.placed = true;
        self.sync_directory();
        Ok(())
    }

    /// Gives it an unused name; a file that another process created first stays.
    pub(crate) fn create(mut self, name: &OsStr) -> Result<(), Errno> {
        match rustix::fs::renameat_with(self.directory, &self.name, self.directory, name, RenameFlags::NOREPLACE) {
            Ok(()) => self.placed = true,
            Err(errno) if is_unsupported(errno) => {
                match linkat(self.directory, &self.name, self.directory, name, AtFlags::empty()) {
                    // The second name is as exclusive, and the first one is removed.
                    Ok(()) => {}
                    Err(errno) if is_unsupported(errno) => return self.create_by_reserving(name),
                    Err(errno) => return Err(errno),
                }
            }
            Err(errno) => return Err(errno),
        }
        self.sync_directory();
        Ok(())
    }

    /// For file systems without either operation: reserves the name with an empty file, and checks that it is untouched
    /// when it is replaced. Other processes may see it empty for a moment.
    fn create_by_reserving(self, name: &OsStr) -> Result<(), Errno> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = self.directory;
        let reserved = rustix::fs::openat(directory, name, flags, Mode::RUSR | Mode::WUSR)?;
        let ours = fstat(&reserved)?;
        let is_ours = || {
            statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
                .is_ok_and(|now| (now.st_dev, now.st_ino, now.st_size) == (ours.st_dev, ours.st_ino, 0))
        };
        if !is_ours() {
            return Err(Errno::EXIST);
        }
        let replaced = self.replace(name);
        if replaced.is_err() && is_ours() {
            let _ = rustix::fs::unlinkat(directory, name, AtFlags::empty());
        }
        replaced
    }

    fn sync_directory(&self) {
        let synced =
            open_below(self.directory, Path::new("."), OFlags::RDONLY | OFlags::DIRECTORY).and_then(rustix::fs::fsync);
        if let Err(error) = synced {
            // The change is made and visible; some file systems cannot sync a directory.
            tracing::debug!(%error, "a directory could not be synced after a file was replaced");
        }
    }
}

impl Drop for TemporaryFile<'_> {
    fn drop(&mut self) {
        if !self.placed {
            let _ = rustix::fs::unlinkat(self.directory, &self.name, AtFlags::empty());
        }
    }
}

fn random_name() -> String {
    format!("{NAME_PREFIX}{:0NAME_DIGITS$x}{NAME_SUFFIX}", rand::random::<u64>())
}

fn is_ours(name: &OsStr) -> bool {
    let digits = name.to_str().and_then(|name| name.strip_prefix(NAME_PREFIX)?.strip_suffix(NAME_SUFFIX));
    digits.is_some_and(|digits| {
        digits.len() == NAME_DIGITS && digits.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'a'..=b'f'))
    })
}

/// `false`: another process holds the lock. Without lock support, no process finds a file unlocked either.
fn lock(file: &File) -> bool {
    flock(file, FlockOperation::NonBlockingLockExclusive) != Err(Errno::WOULDBLOCK)
}

/// Removes what a kill left in a directory. After a failure it stays for the next time.
fn sweep(directory: BorrowedFd<'_>) {
    let names = open_below(directory, Path::new("."), OFlags::RDONLY | OFlags::DIRECTORY)
        .map_err(AccessError::reading)
        .and_then(walk::list);
    let Ok(names) = names else { return };
    for name in names.take(MAX_NAMES_SCANNED).filter(|name| is_ours(name)) {
        // The lock is held until the name is gone: the process that just created the file sees one or the other.
        if let Some(_locked) = left_behind(directory, &name) {
            let _ = rustix::fs::unlinkat(directory, &name, AtFlags::empty());
        }
    }
}

/// Locks a plain file that no process has locked.
fn left_behind(directory: BorrowedFd<'_>, name: &OsStr) -> Option<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW;
    let file = File::from(open_below(directory, Path::new(name), flags).ok()?);
    let is_plain = file.metadata().is_ok_and(|metadata| metadata.is_file());
    (is_plain && flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()).then_some(file)
}

/// Whether the file system lacks this operation. The kernel returns PERM for one without hard links.
fn is_unsupported(errno: Errno) -> bool {
    matches!(errno, Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP | Errno::PERM)
}
