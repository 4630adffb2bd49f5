//! The private temporary folder of a run, which its commands share and see as `/tmp`.
//!
//! It is in the agent's own folder, on a disk: files of commands use disk, not memory. Commands could build a deep tree
//! in it, so it is removed without recursion.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};

use super::protected::ProtectedPlace;

/// A folder that is removed with its content on drop.
#[derive(Debug)]
pub(super) struct ScratchFolder {
    /// Never visible to a command; only `tmp` in it is.
    folder: PathBuf,
    tmp: OwnedFd,
    way: Vec<ProtectedPlace>,
}

impl ScratchFolder {
    /// A fresh folder below `all`, which is created if needed, with a mount point at `inner`.
    pub(super) fn make(all: &Path, inner: Option<&Path>) -> io::Result<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let make =
            |folder: &Path, recursive| std::fs::DirBuilder::new().mode(0o700).recursive(recursive).create(folder);
        make(all, true)?;
        let folder = all.join(format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed)));
        make(&folder, false)?;
        let tmp = folder.join("tmp");
        make(&tmp, false)?;
        let tmp = rustix::fs::open(&tmp, OFlags::RDONLY | OPEN_FOLDER_FLAGS, Mode::empty())?;
        let mut scratch = Self { folder, tmp, way: Vec::new() };
        if let Some(inner) = inner {
            scratch.way = way(scratch.handle(), inner)?;
        }
        Ok(scratch)
    }

    /// The folders above the mount point, outer ones first.
    pub(super) fn way(&self) -> &[ProtectedPlace] {
        &self.way
    }

    /// The folder that commands see.
    pub(super) fn handle(&self) -> BorrowedFd<'_> {
        self.tmp.as_fd()
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.folder) {
            tracing::warn!(%error, "the temporary files of a run cannot be removed");
        }
    }
}

/// Creates a folder with all those above it, and opens them.
fn way(tmp: BorrowedFd<'_>, inner: &Path) -> io::Result<Vec<ProtectedPlace>> {
    let mut way: Vec<ProtectedPlace> = Vec::new();
    for path in inner.ancestors().collect::<Vec<_>>().into_iter().rev().skip(1) {
        let above = way.last().map_or(tmp, |(_, folder)| folder.as_fd());
        let name = path.file_name().unwrap_or_default();
        rustix::fs::mkdirat(above, name, Mode::RWXU)?;
        let folder = rustix::fs::openat(above, name, OFlags::RDONLY | OPEN_FOLDER_FLAGS, Mode::empty())?;
        way.push((path.to_owned(), folder));
    }
    way.pop();
    Ok(way)
}

/// Removes what the runs of killed agents have left below `all`.
///
/// # Errors
/// The folder cannot be listed, or something in it cannot be removed. What comes after that in the listing stays.
pub fn remove_left(all: &Path) -> io::Result<()> {
    match std::fs::read_dir(all) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(entries) => entries.into_iter().try_for_each(|entry| remove(&entry?.path())),
    }
}

const OPEN_FOLDER_FLAGS: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Flattens the folder from the top: the folders in each of its folders are moved up, so that none is deeper than two.
fn remove(folder: &Path) -> io::Result<()> {
    let top = rustix::fs::open(folder, OFlags::RDONLY | OPEN_FOLDER_FLAGS, Mode::empty())?;
    let mut moved = 0_u64;
    loop {
        let entries = entries(top.as_fd())?;
        if entries.is_empty() {
            return std::fs::remove_dir(folder);
        }
        for (name, kind) in entries {
            if kind != FileType::Directory {
                rustix::fs::unlinkat(&top, &name, AtFlags::empty())?;
                continue;
            }
            let inner = open(top.as_fd(), &name)?;
            for (child, kind) in self::entries(inner.as_fd())? {
                if kind == FileType::Directory {
                    // A folder that its owner may not write cannot be moved.
                    open(inner.as_fd(), &child)?;
                    rustix::fs::renameat(&inner, &child, &top, format!("moved-{moved}"))?;
                    moved += 1;
                } else {
                    rustix::fs::unlinkat(&inner, &child, AtFlags::empty())?;
                }
            }
            rustix::fs::unlinkat(&top, &name, AtFlags::REMOVEDIR)?;
        }
    }
}

/// Opens a folder, even if its mode forbids that to its owner. No other process works here any more.
fn open(parent: BorrowedFd<'_>, name: &std::ffi::CStr) -> io::Result<OwnedFd> {
    rustix::fs::chmodat(parent, name, Mode::RWXU, AtFlags::empty())?;
    Ok(rustix::fs::openat(parent, name, OFlags::RDONLY | OPEN_FOLDER_FLAGS, Mode::empty())?)
}

fn entries(folder: BorrowedFd<'_>) -> io::Result<Vec<(std::ffi::CString, FileType)>> {
    let mut found = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if name != c"." && name != c".." {
            // Not every file system gives the type in the listing.
            let kind = match entry.file_type() {
                FileType::Unknown => {
                    let stat = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
                    FileType::from_raw_mode(stat.st_mode)
                }
                known => known,
            };
            found.push((name.to_owned(), kind));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_deep_tree_a_closed_folder_and_a_link_to_elsewhere_are_removed_and_elsewhere_stays() {
        let place = tempfile::tempdir().expect("a folder");
        let canary = place.path().join("canary");
        std::fs::write(&canary, "stays").expect("writes");
        let all = place.path().join("scratch");
        let scratch = ScratchFolder::make(&all, None).expect("makes");
        let tmp = scratch.folder.join("tmp");
        std::os::unix::fs::symlink(&canary, tmp.join("link")).expect("links");
        std::os::unix::fs::symlink(place.path(), tmp.join("folder")).expect("links");
        std::fs::create_dir_all(tmp.join("closed/inner/most")).expect("creates");
        for closed in ["closed/inner", "closed"] {
            std::fs::set_permissions(tmp.join(closed), std::fs::Permissions::from_mode(0o000)).expect("closes");
        }
        // Deeper than any path may be long.
        let mut deep = scratch.tmp.try_clone().expect("descriptors are left");
        for _ in 0..2100 {
            rustix::fs::mkdirat(&deep, "d", Mode::RWXU).expect("creates");
            deep = rustix::fs::openat(&deep, "d", OFlags::RDONLY | OPEN_FOLDER_FLAGS, Mode::empty()).expect("opens");
        }
        drop(scratch);
        assert_eq!(std::fs::read_dir(&all).expect("stands").count(), 0);
        assert_eq!(std::fs::read_to_string(&canary).expect("stands"), "stays");
    }

    #[test]
    fn what_a_killed_agent_left_is_removed_at_the_next_start() {
        let place = tempfile::tempdir().expect("a folder");
        let all = place.path().join("scratch");
        remove_left(&all).expect("there is nothing");
        std::mem::forget(ScratchFolder::make(&all, None).expect("makes"));
        remove_left(&all).expect("removes");
        assert_eq!(std::fs::read_dir(&all).expect("stands").count(), 0);
    }
}
