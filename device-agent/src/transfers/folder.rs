//! Where the files of a run lie while it is executed: in the agent's own folder, outside of every working directory.
//!
//! ```text
//! files/                  all of them; emptied when the agent starts
//!   RUN-ATTEMPT/          one run's
//!     @files/             what its tools see under this name
//!       invoice.pdf       read-only
//! ```

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use deskgate_definition::tool::{FILES_NAME, MIN_JOURNAL_ROOM_BYTES};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use super::HeldAttempt;

/// The folder of all runs' files, in the agent's own folder.
const ALL_NAME: &str = "files";

/// The folder of one run's files. It is removed when this is dropped.
#[derive(Debug)]
pub struct RunFolder(PathBuf);

impl RunFolder {
    /// Makes one with room for these files on its disk, by their names and sizes.
    ///
    /// # Errors
    /// It cannot be made, or there is no room.
    pub fn make(own_folder: &Path, held: HeldAttempt, files: &[(String, u64)]) -> io::Result<Self> {
        /// Runs that begin together must not all count on the same room.
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = files.iter().map(|(_, size)| *size).fold(0, u64::saturating_add);
        let all = own_folder.join(ALL_NAME);
        let make = |folder: &Path, recursive| DirBuilder::new().mode(0o700).recursive(recursive).create(folder);
        make(&all, true)?;
        let stat = rustix::fs::statvfs(&all)?;
        if stat.f_bavail.saturating_mul(stat.f_frsize) < bytes.saturating_add(MIN_JOURNAL_ROOM_BYTES) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let folder = all.join(format!("{}-{}", held.run_id, held.attempt));
        match remove(&folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        make(&folder, false)?;
        let folder = Self(folder);
        make(&folder.files(), false)?;
        for (name, size) in files.iter().filter(|(_, size)| *size > 0) {
            match fallocate(folder.open(name)?, FallocateFlags::KEEP_SIZE, 0, *size) {
                // The file system cannot set room aside.
                Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(folder)
    }

    /// What the run's tools get.
    pub fn path(&self) -> &Path {
        &self.0
    }

    fn files(&self) -> PathBuf {
        self.0.join(FILES_NAME)
    }

    /// Opens a file of this name for more bytes.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn open(&self, name: &str) -> io::Result<File> {
        OpenOptions::new().create(true).truncate(false).read(true).write(true).mode(0o600).open(self.files().join(name))
    }

    /// Makes everything read-only, for its owner too.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn close(&self, names: &[&str]) -> io::Result<()> {
        for name in names {
            std::fs::set_permissions(self.files().join(name), Permissions::from_mode(0o400))?;
        }
        std::fs::set_permissions(self.files(), Permissions::from_mode(0o500))
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.0) {
            tracing::warn!(%error, "the files of a run cannot be removed");
        }
    }
}

fn remove(folder: &Path) -> io::Result<()> {
    match std::fs::set_permissions(folder.join(FILES_NAME), Permissions::from_mode(0o700)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    std::fs::remove_dir_all(folder)
}

/// Removes what the runs of killed agents have left.
///
/// # Errors
/// Something cannot be removed. What comes after that stays.
pub fn remove_left(own_folder: &Path) -> io::Result<()> {
    match std::fs::read_dir(own_folder.join(ALL_NAME)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(entries) => entries.into_iter().try_for_each(|entry| remove(&entry?.path())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use deskgate_protocol::ids::RunId;
    use std::io::Write;

    #[test]
    fn files_are_read_only_and_gone_with_their_run_or_at_the_next_start() {
        let own = tempfile::tempdir().expect("a folder");
        let held = HeldAttempt { run_id: RunId::new(), attempt: 1 };
        for is_killed in [false, true] {
            let folder = RunFolder::make(own.path(), held, &[("a".to_owned(), 5)]).expect("made");
            folder.open("a").expect("opened").write_all(b"bytes").expect("written");
            folder.close(&["a"]).expect("closed");
            let file = folder.path().join("@files/a");
            assert_eq!(std::fs::metadata(&file).expect("there").permissions().mode() & 0o777, 0o400);
            match is_killed {
                true => std::mem::forget(folder),
                false => drop(folder),
            }
            assert_eq!(file.exists(), is_killed);
        }
        remove_left(own.path()).expect("removed");
        assert_eq!(std::fs::read_dir(own.path().join("files")).expect("there").count(), 0);
        let full = RunFolder::make(own.path(), held, &[("a".to_owned(), u64::MAX / 2)]).expect_err("no disk has that");
        assert_eq!(full.kind(), io::ErrorKind::StorageFull);
    }

    /// Names that somebody chose to do harm, and whether they are taken.
    const NAMES: &[(&str, bool)] = &include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../protocol/tests/names/list.rs"));

    #[test]
    fn every_name_that_is_taken_is_that_of_one_file_in_the_folder() {
        let own = tempfile::tempdir().expect("a folder");
        let held = HeldAttempt { run_id: RunId::new(), attempt: 1 };
        let names: Vec<_> = NAMES.iter().filter(|(_, is_taken)| *is_taken).map(|(name, _)| *name).collect();
        let files: Vec<_> = names.iter().map(|name| ((*name).to_owned(), 1)).collect();
        let folder = RunFolder::make(own.path(), held, &files).expect("made");
        for name in &names {
            folder.open(name).expect("opened").write_all(name.as_bytes()).expect("written");
        }
        folder.close(&names).expect("closed");
        let entries = std::fs::read_dir(folder.path().join("@files")).expect("there");
        let mut found: Vec<_> = entries.map(|entry| entry.expect("there").file_name()).collect();
        let mut wanted = names.clone();
        found.sort();
        wanted.sort_unstable();
        assert_eq!(found, wanted, "nothing is elsewhere, and none is another one's");
        for name in &names {
            assert_eq!(std::fs::read(folder.path().join("@files").join(name)).expect("there"), name.as_bytes());
        }
        assert_eq!(std::fs::read_dir(folder.path()).expect("there").count(), 1);
    }
}
