//! A new file on its way to its name: written whole and synced, and never left behind.
//!
//! It is written without any name where the file system has such files, and gets a temporary one, beside the name that
//! it shall have, only when it is complete. Elsewhere it has its temporary name from the beginning. In both ways it is
//! locked as long as it has that name, so what is not locked was left by a kill: the next change in the same directory
//! removes it. Only plain files whose names are exactly of this form are removed, and nothing behind them is.

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
/// Hexadecimal digits between the two.
const NAME_DIGITS: usize = 16;
/// Names looked at for what was left behind: a bound for the time that one change takes in a folder of any size.
const MAX_NAMES_SCANNED: usize = 50_000;
/// How often another temporary file is made when somebody holds or takes away the one that was made.
const MAX_CREATE_ATTEMPTS: usize = 8;

/// A whole file under a temporary name; it is removed again unless it gets another one.
#[derive(Debug)]
pub(crate) struct TemporaryFile<'a> {
    directory: BorrowedFd<'a>,
    name: String,
    /// Keeps the lock.
    file: File,
    placed: bool,
}

impl<'a> TemporaryFile<'a> {
    /// A file that `fill` made complete. It may be called a second time, for a second file.
    pub(crate) fn filled(
        directory: BorrowedFd<'a>,
        mode: Mode,
        fill: impl Fn(&File) -> Result<(), AccessError>,
    ) -> Result<Self, AccessError> {
        sweep(directory);
        // Whatever it was that kept the first way from being gone to its end: the second shows whether it matters.
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
        // By the link in /proc anybody may name their own file; by its handle only newer kernels allow it.
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
            // Before it was locked it looked like one that was left behind.
            if lock(&temporary.file) && temporary.file.metadata()?.nlink() > 0 {
                fill(&temporary.file)?;
                return Ok(temporary);
            }
        }
        Err(AccessError::Busy)
    }

    /// Gives it the name of a file, which is lost.
    pub(crate) fn replace(mut self, name: &OsStr) -> Result<(), Errno> {
        renameat(self.directory, &self.name, self.directory, name)?;
        self.placed = true;
        self.sync_directory();
        Ok(())
    }

    /// Gives it a name that nothing has; whoever was faster keeps it.
    pub(crate) fn create(mut self, name: &OsStr) -> Result<(), Errno> {
        match rustix::fs::renameat_with(self.directory, &self.name, self.directory, name, RenameFlags::NOREPLACE) {
            Ok(()) => self.placed = true,
            Err(errno) if is_unsupported(errno) => {
                match linkat(self.directory, &self.name, self.directory, name, AtFlags::empty()) {
                    // A second name for the same file was as strict, and the first one goes.
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

    /// For file systems with neither: takes the name with an empty file, which nobody has touched when it is replaced.
    /// Others may see it empty for a moment.
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

/// `false`: somebody else holds it. Where there are no locks, nobody finds a file unlocked either.
fn lock(file: &File) -> bool {
    flock(file, FlockOperation::NonBlockingLockExclusive) != Err(Errno::WOULDBLOCK)
}

/// Removes what a kill left in a directory. A failure leaves it for the next time.
fn sweep(directory: BorrowedFd<'_>) {
    let names = open_below(directory, Path::new("."), OFlags::RDONLY | OFlags::DIRECTORY)
        .map_err(AccessError::reading)
        .and_then(walk::list);
    let Ok(names) = names else { return };
    for name in names.take(MAX_NAMES_SCANNED).filter(|name| is_ours(name)) {
        // The lock is held until the name is gone: whoever made the file a moment ago sees one or the other.
        if let Some(_locked) = left_behind(directory, &name) {
            let _ = rustix::fs::unlinkat(directory, &name, AtFlags::empty());
        }
    }
}

/// A plain file that nobody has locked, locked now.
fn left_behind(directory: BorrowedFd<'_>, name: &OsStr) -> Option<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW;
    let file = File::from(open_below(directory, Path::new(name), flags).ok()?);
    let is_plain = file.metadata().is_ok_and(|metadata| metadata.is_file());
    (is_plain && flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()).then_some(file)
}

/// Whether a file system has no such operation. PERM is the kernel's word for one without hard links.
fn is_unsupported(errno: Errno) -> bool {
    matches!(errno, Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP | Errno::PERM)
}
