//! Backups: a dump by the system's own `pg_dump`, put back by `pg_restore`.
//!
//! Passwords go to those programs in a file that only this account can read, never in arguments or their environment.
//!
//! | file | what it does |
//! |---|---|
//! | `programs` | finds the programs, and runs them |
//! | `take` | a dump, and what stood in the tables in that moment |
//! | `put_back` | a dump back into a database |
//! | `scratch` | a database beside the gateway's that is thrown away |

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

/// Why a backup was not made or put back.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// A program is missing.
    #[error("{program} was not found{}. Install it: sudo apt-get install postgresql-client", too_old(.installed))]
    NoProgram {
        /// Which one.
        program: &'static str,
        /// What is there, and is too old for the server.
        installed: Vec<u32>,
    },
    /// A program failed.
    #[error("{program}: {said}")]
    Program {
        /// Which one.
        program: &'static str,
        /// What it said.
        said: String,
    },
    /// A file or process.
    #[error("{path}: {source}")]
    Io {
        /// Where.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The address holds something that no file for those programs can.
    #[error("the database's address cannot be handed to pg_dump: {0}")]
    Address(&'static str),
    /// The gateway's account has no right to make a database.
    #[error(
        "the account in database.url may not create databases. Allow it (ALTER ROLE … CREATEDB), or verify where a \
         PostgreSQL server is installed, without --on-database-server"
    )]
    MayNotCreate,
    /// The database.
    #[error(transparent)]
    Store(#[from] Error),
    /// Its schema.
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
