//! Paths in the working directory that commands may read but not change: files that other programs execute or trust.
//!
//! The folders of version control hold hooks and settings that run programs as the owner, outside of any sandbox, the
//! next time the owner works there; so do the names of [`deskgate_definition::PROTECTED_NAMES`]. They are mounted
//! read-only: at the top of the working directory also when they are missing (an empty folder or file stands in for them
//! while commands run), below it where they exist when the run begins. The same holds for what the service's owner
//! protects; `set_aside` deals with that where it is missing below the top. If a path cannot be protected, no command
//! runs.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use deskgate_definition::{ProtectedName, ProtectedPaths};
use rustix::fs::{AtFlags, Dir, DirEntry, FileType, MemfdFlags, Mode, OFlags};
use rustix::io::Errno;

use super::SandboxError;
use crate::engine::guard::VCS_DIRECTORIES;
use crate::engine::workspace::{Workspace, open_below};

/// The limit of protected paths with the folders above them: each needs a descriptor and a mount in every call.
const MAX_PLACES: usize = 512;

/// A path that is mounted read-only, and its handle.
pub(super) type ProtectedPlace = (PathBuf, OwnedFd);

/// The working directory's device and inode, and a name in it.
type StandInKey = (u64, u64, ProtectedName);

/// The modes of stand-ins. Nobody else makes an empty folder or file sticky, so one that was left behind is known by it.
const FOLDER_MODE: Mode = Mode::RWXU.union(Mode::SVTX);
const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR).union(Mode::SVTX);

/// The empty folders and files that stand in for missing ones, and how many calls need each: the last call removes it.
static STAND_INS: Mutex<BTreeMap<StandInKey, usize>> = Mutex::new(BTreeMap::new());

/// The names that are protected at the top of a working directory, also while they are missing.
fn top_names(protected: &ProtectedPaths) -> impl Iterator<Item = ProtectedName> {
    let folder = |name: &str| ProtectedName { name: name.to_owned(), is_folder: true };
    let others = protected.names().iter().filter(|known| !VCS_DIRECTORIES.contains(&known.name.as_str()));
    VCS_DIRECTORIES.into_iter().map(folder).chain(others.cloned())
}

/// The protected paths at the top of the working directory. Stand-ins exist as long as this is held.
pub(super) struct TopPlaces {
    workspace: Arc<Workspace>,
    stand_ins: Vec<StandInKey>,
    pub(super) places: Vec<ProtectedPlace>,
}

impl TopPlaces {
    /// Opens the existing paths, and creates an empty folder or file for each missing one.
    pub(super) fn hold(workspace: &Arc<Workspace>) -> Result<Self, SandboxError> {
        let mut top = Self { workspace: Arc::clone(workspace), stand_ins: Vec::new(), places: Vec::new() };
        let stat = rustix::fs::fstat(workspace.root()).map_err(std::io::Error::from)?;
        let mut held = STAND_INS.lock().unwrap_or_else(PoisonError::into_inner);
        for name in top_names(workspace.guard().protected()) {
            let key = (stat.st_dev, stat.st_ino, name);
            match make_stand_in(workspace.root(), &key.2) {
                Ok(()) => *held.entry(key.clone()).or_default() = 1,
                Err(Errno::EXIST) => match held.get_mut(&key) {
                    Some(count) => *count += 1,
                    None if is_stand_in(workspace.root(), &key.2) => *held.entry(key.clone()).or_default() = 1,
                    None => continue,
                },
                // Where the agent's user may not create anything, a command may not either; but the owner of a folder
                // could change its mode.
                Err(Errno::ROFS) => continue,
                Err(Errno::ACCESS | Errno::PERM) if stat.st_uid != rustix::process::geteuid().as_raw() => continue,
                Err(Errno::ACCESS | Errno::PERM) => {
                    let why = "it is not there, and the agent's account may not make it".to_owned();
                    return Err(SandboxError::Protected(key.2.name.into(), why));
                }
                Err(errno) => return Err(std::io::Error::from(errno).into()),
            }
            top.stand_ins.push(key);
        }
        for ProtectedName { name, .. } in top_names(workspace.guard().protected()) {
            match open(workspace, Path::new(&name)) {
                Ok(place) => top.places.push((name.into(), place)),
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(SandboxError::Protected(name.into(), why(errno))),
            }
        }
        drop(held);
        Ok(top)
    }

    /// The files that stand in for missing ones, as patterns for Git, which would list them as new. In memory.
    pub(super) fn ignored(&self) -> std::io::Result<OwnedFd> {
        let files = self.stand_ins.iter().filter(|(_, _, name)| !name.is_folder);
        let lines: String = files.map(|(_, _, name)| format!("/{}\n", name.name)).collect();
        in_memory(&lines)
    }
}

/// A file in memory with this text.
pub(super) fn in_memory(text: &str) -> std::io::Result<OwnedFd> {
    let mut file = std::fs::File::from(rustix::fs::memfd_create("deskgate", MemfdFlags::CLOEXEC)?);
    file.write_all(text.as_bytes())?;
    Ok(file.into())
}

fn make_stand_in(directory: impl AsFd, name: &ProtectedName) -> Result<(), Errno> {
    if name.is_folder {
        return rustix::fs::mkdirat(directory, &name.name, FOLDER_MODE);
    }
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(directory, &name.name, flags, FILE_MODE)?;
    // Some file systems leave the sticky bit out when a file is made.
    rustix::fs::fchmod(file, FILE_MODE)
}

/// Removes a stand-in. One that the owner has put something into stays.
fn remove_stand_in(directory: impl AsFd, name: &ProtectedName) {
    if name.is_folder {
        // What is not empty stays.
        let _ = rustix::fs::unlinkat(directory, &name.name, AtFlags::REMOVEDIR);
    } else if is_stand_in(&directory, name) {
        let _ = rustix::fs::unlinkat(directory, &name.name, AtFlags::empty());
    }
}

impl Drop for TopPlaces {
    fn drop(&mut self) {
        let mut held = STAND_INS.lock().unwrap_or_else(PoisonError::into_inner);
        for key in &self.stand_ins {
            let left = held.get(key).map_or(0, |count| count - 1);
            if left > 0 {
                held.insert(key.clone(), left);
                continue;
            }
            held.remove(key);
            remove_stand_in(self.workspace.root(), &key.2);
        }
    }
}

/// Removes the stand-ins that a killed agent left in the working directory of a service with these protected patterns. No
/// command may run in it.
pub fn remove_left_stand_ins(directory: &Path, protected: &[String]) {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(directory) = rustix::fs::open(directory, flags, Mode::empty()) else { return };
    let Ok(protected) = ProtectedPaths::new(protected) else { return };
    for name in top_names(&protected).filter(|name| is_stand_in(&directory, name)) {
        remove_stand_in(&directory, &name);
    }
}

/// Whether an entry has what only a stand-in has. A folder may hold something all the same.
fn is_stand_in(directory: impl AsFd, name: &ProtectedName) -> bool {
    let stat = rustix::fs::statat(directory, &name.name, AtFlags::SYMLINK_NOFOLLOW);
    stat.is_ok_and(|stat| {
        let (kind, mode) = (FileType::from_raw_mode(stat.st_mode), Mode::from_raw_mode(stat.st_mode));
        let is_ours = stat.st_uid == rustix::process::geteuid().as_raw();
        let is_like_one = match name.is_folder {
            true => kind == FileType::Directory && mode == FOLDER_MODE,
            false => kind == FileType::RegularFile && mode == FILE_MODE && stat.st_size == 0,
        };
        is_ours && is_like_one
    })
}

/// The protected paths below the top, and those at the top that the service's owner protects. Symbolic links are
/// skipped.
pub(super) fn below_top(workspace: &Workspace) -> Result<Vec<PathBuf>, SandboxError> {
    let protected = workspace.guard().protected();
    let at_top: BTreeSet<_> = top_names(protected).map(|name| PathBuf::from(name.name)).collect();
    let visit = |path: &Path, kind| match kind != FileType::Symlink && is_protected(protected, path, kind) {
        true if at_top.contains(path) => Visit::Skip,
        true => Visit::Take,
        false => Visit::LookInside,
    };
    let found = walk(workspace, visit)?;
    if found.len() + above(found.iter().map(PathBuf::as_path)).len() > MAX_PLACES {
        return Err(SandboxError::ManyPlaces(MAX_PLACES));
    }
    Ok(found)
}

fn is_internal(path: &Path) -> bool {
    path.file_name().is_some_and(|name| VCS_DIRECTORIES.iter().any(|internal| name == *internal))
}

fn is_protected(protected: &ProtectedPaths, path: &Path, kind: FileType) -> bool {
    is_internal(path) || protected.covers_all_of(path, kind != FileType::RegularFile)
}

/// What a walk does with an entry.
enum Visit {
    Take,
    Skip,
    /// If it is a folder.
    LookInside,
}

/// The entries that are taken, at most [`MAX_PLACES`]. No link is followed.
fn walk(workspace: &Workspace, visit: impl Fn(&Path, FileType) -> Visit) -> Result<Vec<PathBuf>, SandboxError> {
    let (mut found, mut folders) = (Vec::new(), vec![PathBuf::from(".")]);
    while let Some(folder) = folders.pop() {
        for entry in entries(workspace, &folder)? {
            let (name, kind) = (OsStr::from_bytes(entry.file_name().to_bytes()), entry.file_type());
            if name == "." || name == ".." {
                continue;
            }
            let path = folder.strip_prefix(".").unwrap_or(&folder).join(name);
            match visit(&path, kind) {
                Visit::Take if found.len() == MAX_PLACES => return Err(SandboxError::ManyPlaces(MAX_PLACES)),
                Visit::Take => found.push(path),
                Visit::LookInside if !matches!(kind, FileType::RegularFile | FileType::Symlink) => folders.push(path),
                Visit::LookInside | Visit::Skip => {}
            }
        }
    }
    Ok(found)
}

/// What the owner's own patterns protect, as it is now.
pub(super) fn covered_by_own(workspace: &Workspace) -> Result<BTreeSet<PathBuf>, SandboxError> {
    let protected = workspace.guard().protected();
    if !protected.has_own() {
        return Ok(BTreeSet::new());
    }
    let visit = |path: &Path, kind| match protected.is_covered_by_own(path, kind == FileType::Directory) {
        true => Visit::Take,
        false if is_internal(path) => Visit::Skip,
        false => Visit::LookInside,
    };
    Ok(walk(workspace, visit)?.into_iter().collect())
}

/// Renames what a command has made under protected names, so that no program takes it for what it is called. It is not
/// deleted: the owner may have made it meanwhile. Returns the old and the new paths.
pub(super) fn set_aside(
    workspace: &Workspace,
    before: &BTreeSet<PathBuf>,
) -> Result<Vec<(PathBuf, PathBuf)>, SandboxError> {
    let mut moved = Vec::new();
    for path in covered_by_own(workspace)?.difference(before) {
        let aside = rename_aside(workspace, path).map_err(|errno| {
            SandboxError::Protected(path.clone(), format!("it was made by a command; {}", why(errno)))
        })?;
        moved.push((path.clone(), aside));
    }
    Ok(moved)
}

/// At most this many names are tried for what is set aside.
const MAX_ASIDE_NAMES: usize = 1000;

fn rename_aside(workspace: &Workspace, path: &Path) -> Result<PathBuf, Errno> {
    let protected = workspace.guard().protected();
    let (folder, name) = (path.parent().unwrap_or(Path::new("")), path.file_name().ok_or(Errno::INVAL)?);
    let parent = match folder.as_os_str().is_empty() {
        true => Path::new("."),
        false => folder,
    };
    let from = open_below(workspace.root(), parent, OFlags::PATH | OFlags::DIRECTORY)?;
    for number in 1..=MAX_ASIDE_NAMES {
        let mut beside = name.to_owned();
        beside.push(format!(".by-command-{number}"));
        // A pattern may cover every name in this folder.
        let beside = [folder.join(beside), PathBuf::from(format!("by-command-{number}"))];
        let Some(to) = beside.into_iter().find(|to| !protected.covers_all_of(to, true) && !protected.covers(to)) else {
            continue;
        };
        let flags = rustix::fs::RenameFlags::NOREPLACE;
        let renamed = match to.parent() == Some(folder) {
            true => rustix::fs::renameat_with(&from, name, &from, to.file_name().ok_or(Errno::INVAL)?, flags),
            false => rustix::fs::renameat_with(&from, name, workspace.root(), &to, flags),
        };
        match renamed {
            Ok(()) => return Ok(to),
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
    }
    Err(Errno::EXIST)
}

/// The entries of a folder. A folder of the agent's user that cannot be listed is an error: a command could open it.
fn entries(workspace: &Workspace, folder: &Path) -> Result<Vec<DirEntry>, SandboxError> {
    let listed = open_below(workspace.root(), folder, OFlags::RDONLY | OFlags::DIRECTORY);
    match listed.and_then(Dir::new).and_then(|entries| entries.collect()) {
        Ok(entries) => Ok(entries),
        // It is no folder, or has been removed.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(Vec::new()),
        Err(Errno::ACCESS | Errno::PERM) if is_somebody_elses(workspace, folder) => Ok(Vec::new()),
        Err(errno) => Err(SandboxError::Unlisted(folder.to_owned(), why(errno))),
    }
}

fn is_somebody_elses(workspace: &Workspace, folder: &Path) -> bool {
    let stat = open_below(workspace.root(), folder, OFlags::PATH).and_then(rustix::fs::fstat);
    stat.is_ok_and(|stat| stat.st_uid != rustix::process::geteuid().as_raw())
}

/// Opens a path for bubblewrap, for reading. Only folders and files can be mounted read-only; others give
/// [`Errno::NXIO`], which a socket gives by itself.
fn open(workspace: &Workspace, place: &Path) -> Result<OwnedFd, Errno> {
    // NONBLOCK: opening a pipe would wait for a writer.
    let handle = open_below(workspace.root(), place, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?;
    match FileType::from_raw_mode(rustix::fs::fstat(&handle)?.st_mode) {
        FileType::Directory | FileType::RegularFile => Ok(handle),
        _ => Err(Errno::NXIO),
    }
}

/// The reason as the end of a sentence.
fn why(errno: Errno) -> String {
    match errno {
        Errno::LOOP => "it is a symbolic link".to_owned(),
        Errno::NXIO => "it is neither a folder nor a file".to_owned(),
        Errno::ACCESS | Errno::PERM => "the agent's account may not read it".to_owned(),
        other => std::io::Error::from(other).to_string(),
    }
}

/// The protected paths below the top, held for one call.
#[derive(Default)]
pub(super) struct NestedPlaces {
    pub(super) places: Vec<ProtectedPlace>,
    /// The folders above the paths, and those of other services, outer ones first. Commands may write in them, but cannot
    /// move them.
    pub(super) folders: Vec<ProtectedPlace>,
}

impl NestedPlaces {
    /// Opens these paths, and the folders of other services inside, as they are now. A path that was removed, or is a link
    /// by now, needs no protection; any other error counts, because the path might.
    pub(super) fn hold(workspace: &Workspace, paths: &[PathBuf]) -> Result<Self, SandboxError> {
        let mut held = Self::default();
        for path in paths {
            match open(workspace, path) {
                Ok(place) => held.places.push((path.clone(), place)),
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                Err(errno) => return Err(SandboxError::Protected(path.clone(), why(errno))),
            }
        }
        let fixed: BTreeSet<_> = {
            let inner = workspace.inner().iter().map(PathBuf::as_path).filter(|inner| is_folder(workspace, inner));
            let inner: Vec<_> = inner.collect();
            let ways = above(held.places.iter().map(|(path, _)| path.as_path()).chain(inner.iter().copied()));
            ways.into_iter().chain(inner).map(Path::to_owned).collect()
        };
        for path in fixed {
            let folder = open_below(workspace.root(), &path, OFlags::PATH | OFlags::DIRECTORY)
                .map_err(|errno| SandboxError::Protected(path.clone(), why(errno)))?;
            held.folders.push((path, folder));
        }
        Ok(held)
    }
}

fn is_folder(workspace: &Workspace, path: &Path) -> bool {
    open_below(workspace.root(), path, OFlags::PATH | OFlags::DIRECTORY).is_ok()
}

/// The folders above these paths, without the top, outer ones first.
fn above<'a>(places: impl Iterator<Item = &'a Path>) -> BTreeSet<&'a Path> {
    let folders = places.flat_map(|place| place.ancestors().skip(1));
    folders.filter(|folder| !folder.as_os_str().is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::workspace::WorkspaceOptions;
    use deskgate_definition::PROTECTED_NAMES;

    fn workspace(place: &Path, protected: &[String]) -> Arc<Workspace> {
        let own = Path::new("/nonexistent");
        let options = WorkspaceOptions { protected, ..WorkspaceOptions::of(place, own) };
        Arc::new(Workspace::open(options).expect("opens"))
    }

    fn paths(places: &[ProtectedPlace]) -> Vec<&str> {
        let mut paths: Vec<_> = places.iter().map(|(path, _)| path.to_str().expect("plain names")).collect();
        paths.sort_unstable();
        paths
    }

    #[test]
    fn what_is_missing_has_a_stand_in_until_the_last_call_ends_and_what_is_there_stays() {
        let place = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(place.path().join(".hg")).expect("creates");
        let workspace = workspace(place.path(), &[]);
        let one = TopPlaces::hold(&workspace).expect("holds");
        let other = TopPlaces::hold(&workspace).expect("holds");
        let mut all: Vec<_> = VCS_DIRECTORIES.to_vec();
        all.extend(PROTECTED_NAMES.map(|name| name.trim_end_matches('/')));
        all.sort_unstable();
        assert_eq!((paths(&one.places), paths(&other.places)), (all.clone(), all));
        drop(one);
        assert!(place.path().join(".git").exists(), "another call needs it");
        drop(other);
        let left = std::fs::read_dir(place.path()).expect("stands").map(|entry| entry.expect("stands").file_name());
        assert_eq!(left.collect::<Vec<_>>(), [".hg"]);
    }

    #[test]
    fn stand_ins_of_an_agent_that_was_killed_are_removed_and_what_is_the_owners_stays() {
        use std::os::unix::fs::PermissionsExt;
        let place = tempfile::tempdir().expect("a folder");
        let at = |name: &str| place.path().join(name);
        let leave = |name: &str| {
            std::fs::create_dir(at(name)).expect("creates");
            std::fs::set_permissions(at(name), PermissionsExt::from_mode(0o1700)).expect("ours");
        };
        let left = || VCS_DIRECTORIES.into_iter().filter(|name| at(name).exists()).collect::<Vec<_>>();
        // As they are made, they are known.
        std::mem::forget(TopPlaces::hold(&workspace(place.path(), &[])).expect("holds"));
        assert_eq!(left().len(), 4);
        assert_eq!(std::fs::read_dir(place.path()).expect("there").count(), 4 + PROTECTED_NAMES.len());
        std::fs::write(at(".envrc"), "mine").expect("writable");
        remove_left_stand_ins(place.path(), &[]);
        assert_eq!(left(), [""; 0]);
        assert_eq!(std::fs::read_dir(place.path()).expect("there").count(), 1, "what its owner wrote stays");
        leave(".git");
        std::fs::write(at(".git").join("HEAD"), "ref: x").expect("writable");
        std::fs::create_dir(at(".hg")).expect("creates");
        leave(".jj");
        remove_left_stand_ins(place.path(), &[]);
        assert_eq!(left(), [".git", ".hg"]);
        // A command that comes before the next start takes them over.
        let place = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(place.path().join(".svn")).expect("creates");
        std::fs::set_permissions(place.path().join(".svn"), PermissionsExt::from_mode(0o1700)).expect("ours");
        drop(TopPlaces::hold(&workspace(place.path(), &[])).expect("holds"));
        assert_eq!(std::fs::read_dir(place.path()).expect("there").count(), 0);
    }

    /// The error for a path at which `make` puts an obstacle.
    fn refused(at: &str, make: impl Fn(&Path)) -> String {
        let place = tempfile::tempdir().expect("a folder");
        let inner = place.path().join(at);
        std::fs::create_dir_all(inner.parent().expect("has one")).expect("creates");
        make(&inner);
        let workspace = workspace(place.path(), &[]);
        let top = TopPlaces::hold(&workspace).err();
        let below = || below_top(&workspace).and_then(|found| NestedPlaces::hold(&workspace, &found)).err();
        let why = top.or_else(below).expect("it cannot be protected");
        assert_eq!(std::fs::read_dir(place.path()).expect("stands").count(), 1, "nothing is left behind");
        format!("{why}; {}", why.next())
    }

    #[test]
    fn what_must_be_protected_and_cannot_be_is_named_with_what_to_do() {
        let link = |at: &Path| std::os::unix::fs::symlink("/etc", at).expect("links");
        let pipe = |at: &Path| {
            rustix::fs::mknodat(rustix::fs::CWD, at, FileType::Fifo, Mode::RWXU, 0).expect("makes");
        };
        let socket = |at: &Path| drop(std::os::unix::net::UnixListener::bind(at).expect("binds"));
        let told = |place: &str, why: &str| {
            format!(
                "{place} in the working directory must be protected and cannot be: {why}; make {place} a plain folder \
                 or file that the agent's account may read, or take it away"
            )
        };
        assert_eq!(refused(".jj", link), told(".jj", "it is a symbolic link"));
        for place in [".svn", "sub/.git", "a\u{1b}[2J/.hg"] {
            let shown = place.replace('\u{1b}', "\\u{1b}");
            assert_eq!(refused(place, pipe), told(&shown, "it is neither a folder nor a file"));
            assert_eq!(refused(place, socket), told(&shown, "it is neither a folder nor a file"));
        }
    }

    #[test]
    fn an_own_folder_that_cannot_be_looked_through_is_a_reason_to_run_nothing() {
        use std::os::unix::fs::PermissionsExt;
        // Deeper than any path may be long: not even root lists the last of them by its path.
        let deep = |at: &Path| {
            std::fs::create_dir(at).expect("creates");
            let flags = OFlags::PATH | OFlags::DIRECTORY;
            let mut here = rustix::fs::open(at, flags, Mode::empty()).expect("opens");
            for _ in 0..20 {
                let name = "d".repeat(250);
                rustix::fs::mkdirat(&here, &name, Mode::RWXU).expect("creates");
                here = rustix::fs::openat(&here, &name, flags, Mode::empty()).expect("opens");
            }
        };
        assert!(refused("deep", deep).contains("cannot be looked through"));
        if !rustix::process::geteuid().is_root() {
            let closed = |at: &Path| {
                std::fs::create_dir(at).expect("creates");
                std::fs::set_permissions(at, std::fs::Permissions::from_mode(0o300)).expect("closes");
            };
            assert_eq!(
                refused("sub/closed", closed),
                "sub/closed in the working directory cannot be looked through for what must be protected: the agent's \
                 account may not read it; let the agent's account list sub/closed, or take it away"
            );
        }
    }

    #[test]
    fn repositories_below_and_what_the_owner_protects_are_found_and_not_looked_into() {
        let place = tempfile::tempdir().expect("a folder");
        std::fs::create_dir_all(place.path().join("vendor/lib/.git/modules/.git")).expect("creates");
        std::fs::create_dir_all(place.path().join(".git/modules/.git")).expect("creates");
        std::fs::create_dir_all(place.path().join("keys/more")).expect("creates");
        std::fs::write(place.path().join(".env"), "KEY=1").expect("writes");
        std::fs::create_dir(place.path().join("sub")).expect("creates");
        std::fs::write(place.path().join("sub/.git"), "gitdir: ../.git/modules/sub").expect("writes");
        let workspace = workspace(place.path(), &[".env".to_owned(), "/keys/".to_owned()]);
        let found = below_top(&workspace).expect("few");
        let held = || NestedPlaces::hold(&workspace, &found).expect("opened");
        // What stands at the top under a plain name is held with the top.
        assert_eq!(paths(&held().places), ["sub/.git", "vendor/lib/.git"]);
        assert_eq!(paths(&held().folders), ["sub", "vendor", "vendor/lib"]);
        std::fs::remove_dir_all(place.path().join("vendor")).expect("removes");
        assert_eq!((paths(&held().places), paths(&held().folders)), (vec!["sub/.git"], vec!["sub"]));
        let top = TopPlaces::hold(&workspace).expect("holds");
        assert!([".env", "keys"].iter().all(|name| paths(&top.places).contains(name)));
    }
}
