//! Backups: a dump by the system's own `pg_dump`, restored by `pg_restore`.
//!
//! Passwords go to those programs in a file that only this account can read, never in arguments or their environment.
//!
//! | file | what it does |
//! |---|---|
//! | `programs` | finds the programs, and runs them |
//! | `dump` | a dump, and the counts of its tables |
//! | `restore` | restores a dump into a database |
//! | `scratch` | a temporary database beside the gateway's |

mod dump;
mod programs;
mod restore;
mod scratch;

use std::collections::BTreeMap;
use std::path::PathBuf;

pub use dump::{BackupContents, count, take};
pub use restore::{RestoreReport, in_use, is_empty, restore};
pub use scratch::ScratchDatabase;

use super::Error;
use super::migrate::MigrateError;

/// Rows by table.
pub type TableCounts = BTreeMap<String, i64>;

/// Why a backup was not created or restored.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// A program is missing.
    #[error("{program} was not found{}. Install it: sudo apt-get install postgresql-client", too_old(.installed))]
    NoProgram {
        /// The program.
        program: &'static str,
        /// The installed versions, which are too old for the server.
        installed: Vec<u32>,
    },
    /// A program failed.
    #[error("{program}: {said}")]
    Program {
        /// The program.
        program: &'static str,
        /// Its output.
        said: String,
    },
    /// A file or process failed.
    #[error("{path}: {source}")]
    Io {
        /// The file or program.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The address contains something that a service file cannot hold.
    #[error("the database's address cannot be handed to pg_dump: {0}")]
    Address(&'static str),
    /// The gateway's account may not create a database.
    #[error(
        "the account in database.url may not create databases. Allow it (ALTER ROLE … CREATEDB), or verify where a \
         PostgreSQL server is installed, without --on-database-server"
    )]
    MayNotCreate,
    /// The database failed.
    #[error(transparent)]
    Store(#[from] Error),
    /// Its schema cannot be used.
    #[error(transparent)]
    Schema(#[from] MigrateError),
}

impl From<tokio_postgres::Error> for BackupError {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Store(error.into())
    }
}

fn too_old(installed: &[u32]) -> String {
    match installed {
        [] => String::new(),
        some => {
            format!(" for this server (there is {})", some.iter().map(u32::to_string).collect::<Vec<_>>().join(", "))
        }
    }
}
