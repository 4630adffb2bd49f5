//! Paths in the working directory that commands may read but not change: files that other programs execute or trust.
//!
//! The folders of version control hold hooks and settings that run programs as the owner, outside of any sandbox, the
//! next time the owner works there. They are mounted read-only: at the top of the working directory also when they are
//! missing (an empty folder stands in for them while commands run), below it where they exist when the run begins. The
//! same holds for existing paths that the service's owner protects. If a path cannot be protected, no command runs.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{AtFlags, Dir, DirEntry, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::SandboxError;
use crate::engine::guard::VCS_DIRECTORIES;
use crate::engine::workspace::{Workspace, open_below};

/// The limit of protected paths with the folders above them: each needs a descriptor and a mount in every call.
const MAX_PLACES: usize = 512;

/// A path that is mounted read-only, and its handle.
pub(super) type ProtectedPlace = (PathBuf, OwnedFd);

/// The working directory's device and inode, and a name in it.
type StandInKey = (u64, u64, &'static str);

/// The empty folders that stand in for missing ones, and how many calls need each: the last call removes it.
static STAND_INS: Mutex<BTreeMap<StandInKey, usize>> = Mutex::new(BTreeMap::new());

/// The protected paths at the top of the working directory. Stand-ins exist as long as this is held.
pub(super) struct TopPlaces {
    workspace: Arc<Workspace>,
    stand_ins: Vec<StandInKey>,
    pub(super) places: Vec<ProtectedPlace>,
}

impl TopPlaces {
    /// Opens the existing paths, and creates an empty folder for each missing one.
    pub(super) fn hold(workspace: &Arc<Workspace>) -> Result<Self, SandboxError> {
        let mut top = Self { workspace: Arc::clone(workspace), stand_ins: Vec::new(), places: Vec::new() };
        let stat = rustix::fs::fstat(workspace.root()).map_err(std::io::Error::from)?;
        let mut held = STAND_INS.lock().unwrap_or_else(PoisonError::into_inner);
        for name in VCS_DIRECTORIES {
            let key = (stat.st_dev, stat.st_ino, name);
            match rustix::fs::mkdirat(workspace.root(), name, Mode::RWXU) {
                Ok(()) => *held.entry(key).or_default() = 1,
                Err(Errno::EXIST) => match held.get_mut(&key) {
                    Some(count) => *count += 1,
                    None => continue,
                },
                // Where the agent's user may not create anything, a command may not either; but the owner of a folder
                // could change its mode.
                Err(Errno::ROFS) => continue,
                Err(Errno::ACCESS | Errno::PERM) if stat.st_uid != rustix::process::geteuid().as_raw() => continue,
                Err(Errno::ACCESS | Errno::PERM) => {
                    let why = "it is not there, and the agent's account may not make it".to_owned();
                    return Err(SandboxError::Protected(name.into(), why));
                }
                Err(errno) => return Err(std::io::Error::from(errno).into()),
            }
            top.stand_ins.push(key);
        }
        for name in VCS_DIRECTORIES {
            match open(workspace, Path::new(name)) {
                Ok(place) => top.places.push((name.into(), place)),
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(SandboxError::Protected(name.into(), why(errno))),
            }
        }
        drop(held);
        Ok(top)
    }
}

impl Drop for TopPlaces {
    fn drop(&mut self) {
        let mut held = STAND_INS.lock().unwrap_or_else(PoisonError::into_inner);
        for key in &self.stand_ins {
            let left = held.get(key).map_or(0, |count| count - 1);
            if left > 0 {
                held.insert(*key, left);
                continue;
            }
            held.remove(key);
            // It was read-only for commands. If the owner has put something into it, it is not empty and stays.
            let _ = rustix::fs::unlinkat(self.workspace.root(), key.2, AtFlags::REMOVEDIR);
        }
    }
}

/// The protected paths below the top, and those at the top that the service's owner protects. Symbolic links are
/// skipped.
pub(super) fn below_top(workspace: &Workspace) -> Result<Vec<PathBuf>, SandboxError> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::from(".")];
    while let Some(folder) = folders.pop() {
        for entry in entries(workspace, &folder)? {
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." || entry.file_type() == FileType::Symlink {
                continue;
            }
            let path = folder.strip_prefix(".").unwrap_or(&folder).join(name);
            let is_folder = entry.file_type() != FileType::RegularFile;
            let is_internal = VCS_DIRECTORIES.iter().any(|internal| name == *internal);
            if is_internal || workspace.guard().is_protected(&path, is_folder) {
                if is_internal && folder.as_os_str() == "." {
                    continue;
                }
                found.push(path);
                if found.len() > MAX_PLACES {
                    return Err(SandboxError::ManyPlaces(MAX_PLACES));
                }
            } else if is_folder {
                folders.push(path);
            }
        }
    }
    if found.len() + above(found.iter().map(PathBuf::as_path)).len() > MAX_PLACES {
        return Err(SandboxError::ManyPlaces(MAX_PLACES));
    }
    Ok(found)
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
    /// The folders above the paths, outer ones first. Commands may write in them, but cannot move them.
    pub(super) folders: Vec<ProtectedPlace>,
}

impl NestedPlaces {
    /// Opens these paths as they are now. A path that was removed, or is a link by now, needs no protection; any other
    /// error counts, because the path might.
    pub(super) fn hold(workspace: &Workspace, paths: &[PathBuf]) -> Result<Self, SandboxError> {
        let mut held = Self::default();
        for path in paths {
            match open(workspace, path) {
                Ok(place) => held.places.push((path.clone(), place)),
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                Err(errno) => return Err(SandboxError::Protected(path.clone(), why(errno))),
            }
        }
        for path in above(held.places.iter().map(|(path, _)| path.as_path())) {
            let folder = open_below(workspace.root(), path, OFlags::PATH | OFlags::DIRECTORY)
                .map_err(|errno| SandboxError::Protected(path.to_owned(), why(errno)))?;
            held.folders.push((path.to_owned(), folder));
        }
        Ok(held)
    }
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
    use deskgate_definition::Network;

    fn workspace(place: &Path, protected: &[String]) -> Arc<Workspace> {
        let own = Path::new("/nonexistent");
        let options = WorkspaceOptions { directory: place, own_folder: own, protected, network: Network::None };
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
        let all = [".git", ".hg", ".jj", ".svn"];
        assert_eq!((paths(&one.places), paths(&other.places)), (all.to_vec(), all.to_vec()));
        drop(one);
        assert!(place.path().join(".git").exists(), "another call needs it");
        drop(other);
        let left = std::fs::read_dir(place.path()).expect("stands").map(|entry| entry.expect("stands").file_name());
        assert_eq!(left.collect::<Vec<_>>(), [".hg"]);
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
        assert_eq!(paths(&held().places), [".env", "keys", "sub/.git", "vendor/lib/.git"]);
        assert_eq!(paths(&held().folders), ["sub", "vendor", "vendor/lib"]);
        std::fs::remove_dir_all(place.path().join("vendor")).expect("removes");
        assert_eq!((paths(&held().places), paths(&held().folders)), (vec![".env", "keys", "sub/.git"], vec!["sub"]));
    }
}
