//! Backups: a dump by the system's own `pg_dump`, whose rows alone are put back.
//!
//! Nothing of a dump is executed: the schema is made by this program's migrations, `pg_restore` only unpacks, and what it
//! writes is read for rows of tables that are ours. An account that can do nothing but own tables puts them in.
//!
//! Passwords go to those programs in a file that only this account can read, never in arguments or their environment.
//!
//! | file | what it does |
//! |---|---|
//! | `programs` | finds the programs, and runs them |
//! | `dump` | a dump, and the counts of its tables |
//! | `restore` | restores a dump into a database, and fences its open runs |
//! | `limited` | the account that puts the data back |
//! | `load` | the schema, and the rows of a dump in it |
//! | `script` | reads rows, and no SQL, from what `pg_restore` writes |
//! | `scratch` | a temporary database beside the gateway's |

mod dump;
mod limited;
mod load;
mod programs;
mod restore;
mod scratch;
mod script;

use std::collections::BTreeMap;
use std::path::PathBuf;

pub use dump::{BackupContents, count, take};
use restore::in_use;
pub use restore::{RestoreReport, is_empty, restore, still_in_use};
pub use scratch::ScratchDatabase;

use super::Error;
use super::migrate::MigrateError;

/// Rows by table.
pub type TableCounts = BTreeMap<String, i64>;

/// Why a backup was not created or restored.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// A program is missing.
    #[error(
        "{program} of PostgreSQL {needed} or newer is needed for this server; {}. Install it: sudo apt-get install \
         postgresql-client-{needed}, if need be from PostgreSQL's own packages (https://wiki.postgresql.org/wiki/Apt)",
        there_is(.installed)
    )]
    NoProgram {
        /// The program.
        program: &'static str,
        /// The server's major version.
        needed: u32,
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
    /// The dump holds something that does not belong into a backup of this program.
    #[error("the backup holds what does not belong there: {0}. It was not made by this program, or was altered")]
    Foreign(String),
    /// The dump breaks off.
    #[error("the backup breaks off in the middle of {0}: it was damaged")]
    CutOff(&'static str),
    /// The dump's rows are not those of the schema.
    #[error("the backup's rows do not fit the schema: {0}. It was altered, or damaged before it was made")]
    Rows(String),
    /// No limited account can be used.
    #[error(
        "the account {account} in database.url can do more on its server than own tables, and an account that cannot was \
         not to be had for this restore: {why}. Use an account that only owns the database (ALTER ROLE {account} \
         NOSUPERUSER NOCREATEROLE NOREPLICATION NOBYPASSRLS, without pg_execute_server_program, pg_read_server_files and \
         pg_write_server_files), or let {account} make one for the time of the restore (CREATEROLE) and connect by a \
         password (pg_hba.conf)"
    )]
    Privileged {
        /// The gateway's account.
        account: String,
        /// What failed.
        why: String,
    },
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

fn there_is(installed: &[u32]) -> String {
    match installed {
        [] => "none is installed".to_owned(),
        some => format!("installed is {}", some.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")),
    }
}
