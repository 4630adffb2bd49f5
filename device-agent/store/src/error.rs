//! Why the device's database could not do what was asked.

use std::path::PathBuf;

use deskgate_protocol::ids::{ApprovalId, RunId};

/// A failure of the store. The messages are for the person at the desktop.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// SQLite failed: full disk, I/O error, damage.
    #[error("the device's database failed ({0}); check that its disk has free space and works")]
    Sqlite(#[from] rusqlite::Error),
    /// The file or its directory cannot be used.
    #[error("cannot use the device's database {}: {source}", path.display())]
    File {
        /// Which file or directory.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Others on this machine can read it.
    #[error("{} is open to other users (mode {mode:04o}); run: chmod {wanted:o} '{}'", path.display(), path.display())]
    OpenToOthers {
        /// Which file or directory.
        path: PathBuf,
        /// The mode found.
        mode: u32,
        /// The mode it should have.
        wanted: u32,
    },
    /// Another process has it open.
    #[error("another deskgate process uses the database {}; stop it first: deskgate stop", path.display())]
    InUse {
        /// Which file.
        path: PathBuf,
    },
    /// A later version of the program wrote it.
    #[error(
        "the database was written by a newer version of deskgate (schema {found}, this one knows {known}); upgrade deskgate"
    )]
    NewerSchema {
        /// The schema in the file.
        found: u32,
        /// The newest one this program knows.
        known: u32,
    },
    /// An earlier version of the program wrote it, and it was opened for reading only.
    #[error(
        "the database was written by an earlier version of deskgate; the agent brings it up to date when it starts"
    )]
    OlderSchema,
    /// A row holds what this program never writes.
    #[error("the device's database is damaged: {what} cannot be read; restore it or move the file away")]
    Damaged {
        /// What could not be read.
        what: String,
    },
    /// The journal has no such entry, or it is not in the state that the step needs.
    #[error("the journal has no entry of {run_id} attempt {attempt} that could become {wanted}")]
    NoSuchEntry {
        /// Which run.
        run_id: RunId,
        /// Which attempt.
        attempt: u32,
        /// What it was to become.
        wanted: &'static str,
    },
    /// A call was to begin by a request that was not approved for exactly this call.
    #[error("{approval_id} was not approved for this call")]
    NotApproved {
        /// Which request.
        approval_id: ApprovalId,
    },
    /// A call was to begin without a question, and the same one asked before, or began and nobody knows what came of it.
    #[error("the same call asked before, or may have happened; only a person lets it begin")]
    AsksFirst,
    /// The database thread has ended.
    #[error("the device's database is closed")]
    Closed,
}

impl Error {
    /// For reading a column that should hold JSON or an identifier.
    pub(super) fn damaged(what: &str) -> impl FnOnce(String) -> Self {
        move |detail| Self::Damaged { what: format!("{what} ({detail})") }
    }
}
