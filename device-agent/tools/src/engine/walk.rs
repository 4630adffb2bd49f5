//! Walks the working directory by handle, as ripgrep would: hidden and ignored names are skipped.
//!
//! Every directory and every ignore file is opened from the working directory's own handle, every file from its
//! directory's, and no symbolic link is followed. A directory that becomes a link during the walk is therefore skipped.
//! One thread for each processor shares the work, so files come in no order; callers that need one sort the results.

use std::collections::VecDeque;
use std::ffi::{CStr, OsStr, OsString};
use std::fs::{File, Metadata};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use rustix::fs::{AtFlags, Dir, FileType, OFlags, fstat, statat};
use tokio_util::sync::CancellationToken;

use super::ignore_rules::IgnoreRules;
use super::workspace::{LinkPolicy, Workspace, open_below, open_in};
use crate::engine::access::AccessError;

/// At most this many names are visited in one walk: a bound on time and memory in folders of any size.
const MAX_ENTRIES: usize = 1_000_000;
/// How many files of one directory one thread visits in a row; the rest is queued for others.
const FILES_PER_TASK: usize = 256;
/// More threads would only wait for each other.
const MAX_WALK_THREADS: usize = 8;

/// What a walk had to leave out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WalkSummary {
    /// How many directories could not be listed.
    pub(crate) unreadable: usize,
    /// Whether it ended at its limit of names.
    pub(crate) cut: bool,
}

impl WalkSummary {
    /// The notices about the walk, for the model.
    pub(crate) fn notices(self) -> Vec<String> {
        let mut notices = Vec::new();
        if self.unreadable > 0 {
            notices.push(format!("{} directories could not be read", self.unreadable));
        }
        if self.cut {
            notices.push(format!("stopped after {MAX_ENTRIES} names: give a narrower path"));
        }
        notices
    }
}

/// A regular file that a walk found.
pub(crate) struct FoundFile<'a> {
    workspace: &'a Workspace,
    directory: BorrowedFd<'a>,
    name: &'a OsStr,
    /// Relative to the working directory.
    pub(crate) path: &'a Path,
}

impl FoundFile<'_> {
    /// Opens the file. It may have become something else since it was listed.
    pub(crate) fn open(&self) -> Result<(File, Metadata), AccessError> {
        open_in(self.workspace, self.directory, Path::new(self.name))
    }

    /// When it was last changed, in seconds and nanoseconds; `None` if it is no regular file any more.
    pub(crate) fn modified(&self) -> Option<(i64, i64)> {
        let stat = statat(self.directory, self.name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        is_file.then_some((stat.st_mtime, stat.st_mtime_nsec as i64))
    }
}

/// What one thread of a walk does with the files.
pub(crate) trait FileVisitor: Send {
    /// Whether this path, of a directory or a file, is still of interest.
    fn wants(&self, _path: &Path) -> bool {
        true
    }

    /// Visits a file. An error ends the whole walk.
    fn visit(&mut self, found: &FoundFile<'_>) -> Result<(), AccessError>;
}

/// Visits every regular file under `base`, which is relative to the working directory and free of `.` and `..`.
/// `hidden` includes names with a leading dot, but never `.git`. Each thread has its own visitor; all visitors are
/// returned.
pub(crate) fn walk<V: FileVisitor>(
    workspace: &Workspace,
    base: &Path,
    hidden: bool,
    stop: &CancellationToken,
    visitor: impl Fn() -> V,
) -> Result<(WalkSummary, Vec<V>), AccessError> {
    let handle = workspace.open_directory(base, LinkPolicy::Refused)?;
    let walk =
        Walk { workspace, hidden, stop, names: AtomicUsize::new(0), shared: Mutex::default(), more: Condvar::new() };
    let above = IgnoreRules::above(workspace, base);
    walk.lock().pending.push_back(WalkTask::Directory { path: base.to_owned(), handle: Some(handle), above });
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MAX_WALK_THREADS);
    let mut visitors: Vec<V> = (0..threads).map(|_| visitor()).collect();
    std::thread::scope(|scope| {
        let (ours, others) = visitors.split_at_mut(1);
        let walk = &walk;
        for other in others {
            // If no more threads can be started, the existing ones do the work.
            let _ = std::thread::Builder::new().spawn_scoped(scope, move || walk.work(other));
        }
        ours.iter_mut().for_each(|visitor| walk.work(visitor));
    });
    let names = walk.names.into_inner();
    let shared = walk.shared.into_inner().unwrap_or_else(PoisonError::into_inner);
    match shared.error {
        Some(error) => Err(error),
        // A removed directory lists like an empty one.
        None if names == 0 && workspace.is_gone() => Err(AccessError::Gone),
        None => Ok((WalkSummary { cut: names > MAX_ENTRIES, ..shared.walked }, visitors)),
    }
}

struct Walk<'a> {
    workspace: &'a Workspace,
    hidden: bool,
    stop: &'a CancellationToken,
    names: AtomicUsize,
    shared: Mutex<WalkQueue>,
    more: Condvar,
}

/// The state that the threads share. The newest task is done first, so few directories wait.
#[derive(Default)]
struct WalkQueue {
    pending: VecDeque<WalkTask>,
    busy: usize,
    error: Option<AccessError>,
    walked: WalkSummary,
}

enum WalkTask {
    Directory {
        path: PathBuf,
        /// Opened already, for the first one only: handles are scarce.
        handle: Option<OwnedFd>,
        above: Option<Arc<IgnoreRules>>,
    },
    /// Files of a directory that has many.
    Files { handle: Arc<OwnedFd>, paths: Vec<PathBuf> },
}

impl Walk<'_> {
    fn lock(&self) -> std::sync::MutexGuard<'_, WalkQueue> {
        // The scope passes on the panic of a thread; the others may end normally.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self, visitor: &mut impl FileVisitor) {
        while let Some(work) = self.next() {
            let _busy = BusyGuard(self);
            let done = match work {
                WalkTask::Directory { path, handle, above } => self.directory(path, handle, above, visitor),
                WalkTask::Files { handle, paths } => self.files(&handle, &paths, visitor),
            };
            if let Err(error) = done {
                self.lock().error.get_or_insert(error);
            }
        }
    }

    /// Waits for a task; `None` when the walk is done.
    fn next(&self) -> Option<WalkTask> {
        let mut shared = self.lock();
        loop {
            if shared.error.is_some() {
                return None;
            }
            match shared.pending.pop_back() {
                Some(work) => {
                    shared.busy += 1;
                    return Some(work);
                }
                None if shared.busy == 0 => return None,
                None => shared = self.more.wait(shared).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    fn directory(
        &self,
        path: PathBuf,
        handle: Option<OwnedFd>,
        above: Option<Arc<IgnoreRules>>,
        visitor: &mut impl FileVisitor,
    ) -> Result<(), AccessError> {
        if !visitor.wants(&path) {
            return Ok(());
        }
        let opened = match handle {
            Some(handle) => Ok(handle),
            None => self.open(&path),
        };
        let handle = match opened {
            Ok(handle) => handle,
            Err(AccessError::Denied) => {
                self.lock().walked.unreadable += 1;
                return Ok(());
            }
            // The directory was removed, became a link since it was listed, or is the agent's own.
            Err(_) if !self.workspace.is_gone() => return Ok(()),
            Err(_) => return Err(AccessError::Gone),
        };
        let listed = self.list(&handle)?;
        let ignores = IgnoreRules::of(self.workspace, handle.as_fd(), &path, &listed.ignore_files, above);
        let keep = |names: Vec<OsString>, is_directory| -> Vec<PathBuf> {
            let paths = names.into_iter().map(|name| path.join(name));
            let seen = paths.filter(|path| !self.workspace.hides(path));
            seen.filter(|path| !IgnoreRules::skip(ignores.as_ref(), path, is_directory)).collect()
        };
        let mut directories = keep(listed.directories, true);
        directories.sort_by(|a, b| b.cmp(a));
        let files = keep(listed.files, false);
        let handle = Arc::new(handle);
        let mut portions = files.chunks(FILES_PER_TASK);
        let first = portions.next().unwrap_or_default();
        let others = portions.map(|paths| WalkTask::Files { handle: Arc::clone(&handle), paths: paths.to_vec() });
        let below =
            directories.into_iter().map(|path| WalkTask::Directory { path, handle: None, above: ignores.clone() });
        let more: Vec<WalkTask> = below.chain(others).collect();
        if !more.is_empty() {
            self.lock().pending.extend(more);
            self.more.notify_all();
        }
        self.files(&handle, first, visitor)
    }

    /// Opened from the working directory's handle, through no link. The directories on the way were checked before.
    fn open(&self, path: &Path) -> Result<OwnedFd, AccessError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let handle = open_below(self.workspace.root(), path, flags).map_err(AccessError::reading)?;
        let stat = fstat(&handle).map_err(AccessError::reading)?;
        if self.workspace.guard().is_own_directory(&stat) { Err(AccessError::Own) } else { Ok(handle) }
    }

    fn files(&self, handle: &OwnedFd, paths: &[PathBuf], visitor: &mut impl FileVisitor) -> Result<(), AccessError> {
        for path in paths {
            if self.stop.is_cancelled() {
                return Err(AccessError::Stopped);
            }
            if let Some(name) = path.file_name().filter(|_| visitor.wants(path)) {
                visitor.visit(&FoundFile { workspace: self.workspace, directory: handle.as_fd(), name, path })?;
            }
        }
        Ok(())
    }

    fn list(&self, handle: &OwnedFd) -> Result<DirectoryListing, AccessError> {
        let mut listed = DirectoryListing::default();
        let mut directory = Dir::read_from(handle).map_err(AccessError::reading)?;
        while let Some(entry) = directory.read() {
            let Ok(entry) = entry else {
                self.lock().walked.unreadable += 1;
                break;
            };
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            if self.stop.is_cancelled() {
                return Err(AccessError::Stopped);
            }
            if self.names.fetch_add(1, Ordering::Relaxed) >= MAX_ENTRIES {
                break;
            }
            if matches!(name, b".gitignore" | b".ignore") {
                listed.ignore_files.push(OsStr::from_bytes(name).to_owned());
            }
            if name == b".git" || (!self.hidden && name.starts_with(b".")) {
                continue;
            }
            match kind_of(handle, entry.file_name(), entry.file_type()) {
                FileType::Directory => listed.directories.push(OsStr::from_bytes(name).to_owned()),
                FileType::RegularFile => listed.files.push(OsStr::from_bytes(name).to_owned()),
                _ => {}
            }
        }
        Ok(listed)
    }
}

/// A busy thread; others wait for the tasks it may add.
struct BusyGuard<'a, 'b>(&'a Walk<'b>);

impl Drop for BusyGuard<'_, '_> {
    fn drop(&mut self) {
        let mut shared = self.0.lock();
        shared.busy -= 1;
        if shared.busy == 0 || shared.error.is_some() {
            self.0.more.notify_all();
        }
    }
}

#[derive(Default)]
struct DirectoryListing {
    directories: Vec<OsString>,
    files: Vec<OsString>,
    ignore_files: Vec<OsString>,
}

/// The names in a directory, without `.` and `..`.
pub(crate) fn list(handle: OwnedFd) -> Result<impl Iterator<Item = OsString>, AccessError> {
    let directory = Dir::new(handle).map_err(AccessError::reading)?;
    let names = directory.filter_map(|entry| Some(OsStr::from_bytes(entry.ok()?.file_name().to_bytes()).to_owned()));
    Ok(names.filter(|name| name != "." && name != ".."))
}

/// Some file systems do not give an entry's type in the listing.
fn kind_of(directory: &OwnedFd, name: &CStr, listed: FileType) -> FileType {
    if listed != FileType::Unknown {
        return listed;
    }
    let stat = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
    stat.map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode))
}
