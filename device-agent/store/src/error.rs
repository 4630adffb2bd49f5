//! Errors of the device's database.

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
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// Others on this machine can read it.
    #[error("{} is open to other users (mode {mode:04o}); run: chmod {wanted:o} '{}'", path.display(), path.display())]
    OpenToOthers {
        /// The file or directory.
        path: PathBuf,
        /// The mode found.
        mode: u32,
        /// The mode it should have.
        wanted: u32,
    },
    /// Another process has it open.
    #[error("another deskgate process uses the database {}; stop it first: deskgate stop", path.display())]
    InUse {
        /// The database file.
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
    /// An earlier version of the program wrote it, and it was opened read-only.
    #[error(
        "the database was written by an earlier version of deskgate; the agent brings it up to date when it starts"
    )]
    OlderSchema,
    /// A row holds a value that this program never writes.
    #[error("the device's database is damaged: {what} cannot be read; restore it or move the file away")]
    Damaged {
        /// The value that could not be read.
        what: String,
    },
    /// The journal has no such entry, or it is not in the state that the step needs.
    #[error("the journal has no entry of {run_id} attempt {attempt} that could become {wanted}")]
    NoSuchEntry {
        /// The run.
        run_id: RunId,
        /// The attempt.
        attempt: u32,
        /// The state that was requested.
        wanted: &'static str,
    },
    /// A call was to begin by a request that was not approved for exactly this call.
    #[error("{approval_id} was not approved for this call")]
    NotApproved {
        /// The approval request.
        approval_id: ApprovalId,
    },
    /// A call was to begin without a request, but an equal call asked before, or began and its effect is unknown.
    #[error("the same call asked before, or may have happened; only a person lets it begin")]
    AsksFirst,
    /// The store was opened without the device's key, so nothing can be signed.
    #[error("the device's database was opened without the device's key, and so takes no runs; restart the agent")]
    NoKey,
    /// The database thread has ended.
    #[error("the device's database is closed")]
    Closed,
}

impl Error {
    /// For a column that should hold JSON or an identifier.
    pub(super) fn damaged(what: &str) -> impl FnOnce(String) -> Self {
        move |detail| Self::Damaged { what: format!("{what} ({detail})") }
    }
}
