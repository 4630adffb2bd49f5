//! Database errors, classified: is the database unavailable, or is the statement wrong?

use std::error::Error as _;

use tokio_postgres::error::SqlState;

/// A failed statement.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database cannot be reached or cannot work now. The same call may succeed later.
    #[error("the database is not available: {0}")]
    Unavailable(String),
    /// A disk of the database is full. The same call may succeed once there is room.
    #[error("the database's disk is full: {0}")]
    DiskFull(String),
    /// Other rows refer to the one that was to be deleted.
    #[error("other rows refer to it: {0}")]
    StillReferenced(String),
    /// The database refused a statement, which is a fault of this program.
    #[error("a statement failed: {0}")]
    Statement(String),
    /// The stored data has a shape that this program does not know.
    #[error("stored data cannot be read: {0}")]
    Data(String),
}

impl From<tokio_postgres::Error> for Error {
    fn from(error: tokio_postgres::Error) -> Self {
        let text = describe(&error);
        match error.code() {
            Some(&SqlState::DISK_FULL) => Self::DiskFull(text),
            Some(&SqlState::FOREIGN_KEY_VIOLATION) => Self::StillReferenced(text),
            Some(code) if is_passing(code) => Self::Unavailable(text),
            Some(_) => Self::Statement(text),
            // An error without a code is one of the connection: closed, reset, never made.
            None if error.is_closed() || error.source().is_some_and(|cause| cause.is::<std::io::Error>()) => {
                Self::Unavailable(text)
            }
            None => Self::Statement(text),
        }
    }
}

impl From<deadpool_postgres::PoolError> for Error {
    fn from(error: deadpool_postgres::PoolError) -> Self {
        match error {
            deadpool_postgres::PoolError::Backend(error) => Self::Unavailable(describe(&error)),
            other => Self::Unavailable(other.to_string()),
        }
    }
}

impl From<serde_json::Error> for Error {
    fn from(error: serde_json::Error) -> Self {
        Self::Data(error.to_string())
    }
}

/// Whether the server's own answer means "not now": shutting down, out of resources, a lost race.
fn is_passing(code: &SqlState) -> bool {
    let class = code.code().get(..2).unwrap_or_default();
    matches!(class, "08" | "53" | "57" | "58")
        || [SqlState::T_R_SERIALIZATION_FAILURE, SqlState::T_R_DEADLOCK_DETECTED, SqlState::READ_ONLY_SQL_TRANSACTION]
            .contains(code)
}

/// The server's message and code, without the statement or its values.
pub(crate) fn describe(error: &tokio_postgres::Error) -> String {
    match (error.as_db_error(), error.source()) {
        (Some(answer), _) => format!("{} ({})", answer.message(), answer.code().code()),
        (None, Some(cause)) => format!("{error}: {cause}"),
        (None, None) => error.to_string(),
    }
}
