//! The cluster's paths in the state directory, and the lock that gives them to one process at a time.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::account;
use super::error::ClusterError;

/// The paths of one cluster; holds the lock on them until it is dropped.
#[derive(Debug)]
pub(super) struct ClusterPaths {
    pub(super) state_dir: PathBuf,
    /// The complete data directory. It is renamed into place, so it is whole or absent.
    pub(super) data_dir: PathBuf,
    /// The path at which a new data directory is built.
    pub(super) partial_dir: PathBuf,
    pub(super) log: PathBuf,
    lock: File,
}

/// The name of the data directory, in the state directory.
pub(super) const DATA_DIR_NAME: &str = "postgres";

impl ClusterPaths {
    /// Creates the state directory if there is none and takes its lock.
    ///
    /// # Errors
    /// [`ClusterError::InUse`] when another process holds it; it does not wait. [`ClusterError::NotForRoot`] when root
    /// asks for another account's.
    pub(super) fn claim(state_dir: &Path) -> Result<Self, ClusterError> {
        account::not_roots_in_anothers(state_dir)?;
        let io = |what| ClusterError::io(what, state_dir);
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(state_dir).map_err(io("creating"))?;
        let state_dir = state_dir.canonicalize().map_err(io("finding"))?;
        let path = state_dir.join("postgres.lock");
        let mut options = OpenOptions::new();
        let mut lock = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(ClusterError::io("opening", &path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                let owner = lock.read_to_string(&mut text).ok().and_then(|_| text.trim().parse().ok());
                return Err(ClusterError::InUse { state_dir, owner });
            }
            Err(TryLockError::Error(error)) => return Err(ClusterError::io("locking", &path)(error)),
        }
        let owner = format!("{}\n", std::process::id());
        lock.set_len(0).and_then(|()| lock.write_all(owner.as_bytes())).map_err(ClusterError::io("writing", &path))?;
        Ok(Self {
            data_dir: state_dir.join(DATA_DIR_NAME),
            partial_dir: state_dir.join("postgres.partial"),
            log: state_dir.join("postgres.log"),
            state_dir,
            lock,
        })
    }

    /// The major version of existing data.
    ///
    /// # Errors
    /// [`ClusterError::NotData`] when its path holds something else.
    pub(super) fn existing_major(&self) -> Result<Option<u32>, ClusterError> {
        major_of(&self.data_dir)
    }
}

/// The major version of the data in a directory.
///
/// # Errors
/// [`ClusterError::NotData`] when the directory holds something else.
pub(super) fn major_of(data_dir: &Path) -> Result<Option<u32>, ClusterError> {
    if std::fs::symlink_metadata(data_dir).is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
        return Ok(None);
    }
    let version = std::fs::read_to_string(data_dir.join("PG_VERSION")).ok();
    match version.and_then(|text| text.trim().parse().ok()) {
        Some(major) => Ok(Some(major)),
        None => Err(ClusterError::NotData { data_dir: data_dir.to_owned() }),
    }
}

impl Drop for ClusterPaths {
    fn drop(&mut self) {
        // Closing would not suffice: a process that is being started elsewhere holds a copy of every
        // descriptor until it becomes its program, and with the copy the lock. If unlocking fails,
        // closing still follows.
        let _ = self.lock.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_has_one_owner_and_the_second_is_told_who() {
        let dir = tempfile::tempdir().expect("new");
        let first = ClusterPaths::claim(dir.path()).expect("free");
        let error = ClusterPaths::claim(dir.path()).expect_err("taken").to_string();
        assert!(error.contains(&format!("pid {}", std::process::id())), "{error}");
        drop(first);
        ClusterPaths::claim(dir.path()).expect("free again");
    }

    #[test]
    fn the_place_is_free_at_once_although_a_process_being_started_holds_a_copy_of_the_lock() {
        let dir = tempfile::tempdir().expect("new");
        let place = ClusterPaths::claim(dir.path()).expect("free");
        let copy = place.lock.try_clone().expect("copied, as fork does");
        drop(place);
        ClusterPaths::claim(dir.path()).expect("free again");
        drop(copy);
    }

    #[test]
    fn something_else_in_the_place_of_the_data_is_not_touched() {
        let dir = tempfile::tempdir().expect("new");
        let place = ClusterPaths::claim(dir.path()).expect("free");
        assert_eq!(place.existing_major().expect("nothing there"), None);
        std::fs::create_dir(&place.data_dir).expect("new");
        assert!(matches!(place.existing_major(), Err(ClusterError::NotData { .. })));
        std::fs::write(place.data_dir.join("PG_VERSION"), "15\n").expect("written");
        assert_eq!(place.existing_major().expect("data"), Some(15));
    }
}
