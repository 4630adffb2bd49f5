//! Places in the working directory that commands may read and not change: what other programs execute or trust.
//!
//! The folders of version control hold hooks and settings that run programs as the owner, outside of any
//! sandbox, the next time the owner works there. They are shown read-only: at the top of the working directory also
//! when they are missing (an empty folder stands in their place while commands run), below it where they exist
//! when the run begins. So is what the service's owner protects, where it exists.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::Unavailable;
use crate::tools::guard::INTERNALS;
use crate::tools::workspace::{AccessError, Workspace, below};

/// Those of version control's names under which programs to be run can stand, so that none may appear.
const NEVER_NEW: [&str; 2] = [".git", ".hg"];
/// The most protected places with the folders above them: each takes a descriptor and a mount in every call.
const PLACES: usize = 512;

/// A place that is shown read-only: its path in the working directory, and itself.
pub(super) type Place = (PathBuf, OwnedFd);

/// The working directory's device and inode, and a name in it.
type Key = (u64, u64, &'static str);

/// The empty folders in the place of missing ones, and how many calls need each: the last takes it away.
static STAND_INS: Mutex<BTreeMap<Key, usize>> = Mutex::new(BTreeMap::new());

/// The places at the top of the working directory. They stand as long as this is held.
pub(super) struct Top {
    workspace: Arc<Workspace>,
    stand_ins: Vec<Key>,
    pub(super) places: Vec<Place>,
}

impl Top {
    /// Opens what is there, and an empty folder where something is missing.
    pub(super) fn hold(workspace: &Arc<Workspace>) -> Result<Self, Unavailable> {
        let mut top = Self { workspace: Arc::clone(workspace), stand_ins: Vec::new(), places: Vec::new() };
        let stat = rustix::fs::fstat(workspace.root()).map_err(std::io::Error::from)?;
        let mut held = STAND_INS.lock().unwrap_or_else(PoisonError::into_inner);
        for name in NEVER_NEW {
            let key = (stat.st_dev, stat.st_ino, name);
            match rustix::fs::mkdirat(workspace.root(), name, Mode::RWXU) {
                Ok(()) => *held.entry(key).or_default() = 1,
                Err(Errno::EXIST) => match held.get_mut(&key) {
                    Some(count) => *count += 1,
                    None => continue,
                },
                // Where the agent's user may make nothing, a command may neither; the owner of a folder could let itself.
                Err(Errno::ROFS) => continue,
                Err(Errno::ACCESS | Errno::PERM) if stat.st_uid != rustix::process::geteuid().as_raw() => continue,
                Err(errno @ (Errno::ACCESS | Errno::PERM)) => {
                    return Err(Unavailable::Protected(name.into(), AccessError::reading(errno)));
                }
                Err(errno) => return Err(std::io::Error::from(errno).into()),
            }
            top.stand_ins.push(key);
        }
        for name in INTERNALS {
            match below(workspace.root(), Path::new(name), OFlags::PATH) {
                Ok(place) => top.places.push((name.into(), place)),
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(Unavailable::Protected(name.into(), AccessError::reading(errno))),
            }
        }
        drop(held);
        Ok(top)
    }
}

impl Drop for Top {
    fn drop(&mut self) {
        let mut held = STAND_INS.lock().unwrap_or_else(PoisonError::into_inner);
        for key in &self.stand_ins {
            let left = held.get(key).map_or(0, |count| count - 1);
            if left > 0 {
                held.insert(*key, left);
                continue;
            }
            held.remove(key);
            // It was read-only for commands. If the owner has made something of it, it is not empty and stays.
            let _ = rustix::fs::unlinkat(self.workspace.root(), key.2, AtFlags::REMOVEDIR);
        }
    }
}

/// The places below the top, and those at the top that the service's owner protects. A folder that cannot be listed is
/// passed over, as is a symbolic link.
pub(super) fn below_top(workspace: &Workspace) -> Result<Vec<PathBuf>, Unavailable> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::from(".")];
    while let Some(folder) = folders.pop() {
        let listed = below(workspace.root(), &folder, OFlags::RDONLY | OFlags::DIRECTORY).ok();
        for entry in listed.and_then(|folder| Dir::new(folder).ok()).into_iter().flatten().flatten() {
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." || entry.file_type() == FileType::Symlink {
                continue;
            }
            let path = folder.strip_prefix(".").unwrap_or(&folder).join(name);
            let is_folder = entry.file_type() != FileType::RegularFile;
            let is_internal = INTERNALS.iter().any(|internal| name == *internal);
            if is_internal || workspace.guard().is_protected(&path, is_folder) {
                if is_internal && folder.as_os_str() == "." {
                    continue;
                }
                found.push(path);
                if found.len() > PLACES {
                    return Err(Unavailable::ManyPlaces(PLACES));
                }
            } else if is_folder {
                folders.push(path);
            }
        }
    }
    if found.len() + above(found.iter().map(PathBuf::as_path)).len() > PLACES {
        return Err(Unavailable::ManyPlaces(PLACES));
    }
    Ok(found)
}

/// What is protected below the top, held for one call.
#[derive(Default)]
pub(super) struct Below {
    pub(super) places: Vec<Place>,
    /// The folders above the places, each before those in it. They are the command's, and stay where they are.
    pub(super) folders: Vec<Place>,
}

impl Below {
    /// Opens what stands at these paths now. What was taken away needs no protection; what cannot be opened, for whatever
    /// other reason, might.
    pub(super) fn hold(workspace: &Workspace, paths: &[PathBuf]) -> Result<Self, Unavailable> {
        let mut held = Self::default();
        for path in paths {
            match below(workspace.root(), path, OFlags::PATH) {
                Ok(place) => held.places.push((path.clone(), place)),
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                Err(errno) => return Err(Unavailable::Protected(path.clone(), AccessError::reading(errno))),
            }
        }
        for path in above(held.places.iter().map(|(path, _)| path.as_path())) {
            let folder = below(workspace.root(), path, OFlags::PATH | OFlags::DIRECTORY)
                .map_err(|errno| Unavailable::Protected(path.to_owned(), AccessError::reading(errno)))?;
            held.folders.push((path.to_owned(), folder));
        }
        Ok(held)
    }
}

/// The folders above these places, without the top, each before those in it.
fn above<'a>(places: impl Iterator<Item = &'a Path>) -> BTreeSet<&'a Path> {
    let folders = places.flat_map(|place| place.ancestors().skip(1));
    folders.filter(|folder| !folder.as_os_str().is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::services::Network;
    use crate::tools::workspace::Ground;

    fn open(place: &Path, protected: &[String]) -> Arc<Workspace> {
        let own = Path::new("/nonexistent");
        let ground = Ground { directory: place, own, protected, network: Network::None };
        Arc::new(Workspace::open(ground).expect("opens"))
    }

    fn paths(places: &[Place]) -> Vec<&str> {
        let mut paths: Vec<_> = places.iter().map(|(path, _)| path.to_str().expect("plain names")).collect();
        paths.sort_unstable();
        paths
    }

    #[test]
    fn what_is_missing_has_a_stand_in_until_the_last_call_ends_and_what_is_there_stays() {
        let place = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(place.path().join(".hg")).expect("creates");
        let workspace = open(place.path(), &[]);
        let one = Top::hold(&workspace).expect("holds");
        let other = Top::hold(&workspace).expect("holds");
        assert_eq!((paths(&one.places), paths(&other.places)), (vec![".git", ".hg"], vec![".git", ".hg"]));
        drop(one);
        assert!(place.path().join(".git").exists(), "another call needs it");
        drop(other);
        assert!(!place.path().join(".git").exists() && place.path().join(".hg").exists());
    }

    #[test]
    fn a_link_in_a_protected_place_is_a_reason_to_run_nothing() {
        let place = tempfile::tempdir().expect("a folder");
        std::os::unix::fs::symlink("/etc", place.path().join(".git")).expect("links");
        let workspace = open(place.path(), &[]);
        assert!(matches!(Top::hold(&workspace), Err(Unavailable::Protected(..))));
        assert!(!place.path().join(".hg").exists(), "nothing is left behind");
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
        let workspace = open(place.path(), &[".env".to_owned(), "/keys/".to_owned()]);
        let found = below_top(&workspace).expect("few");
        let held = || Below::hold(&workspace, &found).expect("opened");
        assert_eq!(paths(&held().places), [".env", "keys", "sub/.git", "vendor/lib/.git"]);
        assert_eq!(paths(&held().folders), ["sub", "vendor", "vendor/lib"]);
        std::fs::remove_dir_all(place.path().join("vendor")).expect("removes");
        assert_eq!((paths(&held().places), paths(&held().folders)), (vec![".env", "keys", "sub/.git"], vec!["sub"]));
    }
}
