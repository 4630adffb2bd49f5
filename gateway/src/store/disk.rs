//! Whether there is room on the disks: the gateway's own, and the database's as far as its answers tell.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::{Error, Store};

/// With less room a disk counts as full: PostgreSQL extends files by up to this much at once.
const FULL_BYTES: u64 = 16 * 1024 * 1024;
/// With less room somebody should look.
const LOW_BYTES: u64 = 512 * 1024 * 1024;
/// For how long a refused statement tells of a full disk: the next one may find room again.
const REFUSAL_WINDOW: Duration = Duration::from_secs(60);

/// The room on the disk of a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskRoom {
    /// Bytes that an account without privileges can write.
    pub free_bytes: u64,
}

impl DiskRoom {
    /// The room on the disk of this folder.
    ///
    /// # Errors
    /// The folder cannot be looked at.
    pub fn of(folder: &Path) -> std::io::Result<Self> {
        let disk = rustix::fs::statvfs(folder)?;
        Ok(Self { free_bytes: disk.f_bavail.saturating_mul(disk.f_frsize) })
    }

    /// Whether nothing of use can be written.
    pub fn is_full(self) -> bool {
        self.free_bytes < FULL_BYTES
    }

    /// Whether it will soon be full.
    pub fn is_low(self) -> bool {
        self.free_bytes < LOW_BYTES
    }

    /// The room in whole mebibytes.
    pub fn free_mib(self) -> u64 {
        self.free_bytes / (1024 * 1024)
    }
}

/// Watches the disks of a gateway and its database. Clones share what was seen.
#[derive(Clone, Debug, Default)]
pub(super) struct DiskWatch {
    state_dir: Option<PathBuf>,
    holds_database: bool,
    refused: Arc<Mutex<Option<(Instant, String)>>>,
}

/// What is known of the disks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskState {
    /// Why the database could not write, if that was within the last minute.
    pub refused: Option<String>,
    /// The gateway's own folder and the room there, if it can be looked at.
    pub own: Option<(PathBuf, DiskRoom)>,
    /// Whether the gateway's own PostgreSQL is in that folder.
    pub holds_database: bool,
}

impl DiskState {
    /// Why nothing can be accepted, if a disk is full.
    pub fn hinders(&self) -> Option<String> {
        let refused = self.refused.as_ref().map(|why| format!("the database's disk is full: {why}"));
        let full = self.own.as_ref().filter(|(_, room)| self.holds_database && room.is_full());
        refused.or_else(|| full.map(|(folder, room)| room_in(folder, *room)))
    }
}

fn room_in(folder: &Path, room: DiskRoom) -> String {
    format!("{} MiB are left on the disk of {}", room.free_mib(), folder.display())
}

impl Store {
    /// The same with the gateway's own folder; `holds_database`: its own PostgreSQL is there too.
    #[must_use]
    pub fn with_state_dir(mut self, state_dir: PathBuf, holds_database: bool) -> Self {
        self.disk = DiskWatch { state_dir: Some(state_dir), holds_database, ..self.disk };
        self
    }

    /// What is known of the disks. Blocks for no longer than the file system does.
    pub fn disk(&self) -> DiskState {
        let DiskWatch { state_dir, holds_database, refused } = &self.disk;
        let refused = refused.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let own = state_dir.as_ref().and_then(|folder| Some((folder.clone(), DiskRoom::of(folder).ok()?)));
        DiskState {
            refused: refused.filter(|(at, _)| at.elapsed() < REFUSAL_WINDOW).map(|(_, why)| why),
            own,
            holds_database: *holds_database,
        }
    }

    /// Notes a statement that the database refused because its disk is full.
    pub(super) fn note<T>(&self, result: Result<T, Error>) -> Result<T, Error> {
        if let Err(Error::DiskFull(why)) = &result {
            let seen = Some((Instant::now(), why.clone()));
            *self.disk.refused.lock().unwrap_or_else(PoisonError::into_inner) = seen;
        }
        result
    }
}
