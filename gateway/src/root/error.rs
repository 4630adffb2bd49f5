//! Why a gateway did not start, and what the program's exit code says about it.

use crate::encryption::EncryptionError;
use crate::store::DatabaseOpenError;
use crate::store::cluster::ClusterError;
use crate::store::migrate::MigrateError;
use crate::tls::RootsError;
use crate::{tls, tunnel};
use deskgate_program::exit::{Exit, Failure};
use deskgate_program::token;

/// Why a gateway did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The private cluster.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// The database.
    #[error(transparent)]
    Database(#[from] DatabaseOpenError),
    /// The SSH host key.
    #[error(transparent)]
    HostKey(#[from] tunnel::KeyFileError),
    /// The control token.
    #[error(transparent)]
    Token(#[from] token::TokenError),
    /// The certificate or its key.
    #[error(transparent)]
    Tls(#[from] tls::TlsError),
    /// The key that seals what is private in the database.
    #[error(transparent)]
    Seal(#[from] EncryptionError),
    /// The authorities that callbacks' certificates may come from.
    #[error("callbacks.ca_file {0}")]
    CallbackRoots(#[from] RootsError),
    /// The authorities that the issuer's certificate may come from.
    #[error("hosted.ca_file {0}")]
    IssuerRoots(#[source] RootsError),
    /// A listener.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Where.
        address: String,
        /// Why.
        source: std::io::Error,
    },
}

impl From<StartError> for Failure {
    /// What only a person can mend is "not set up", after which nothing tries again by itself.
    fn from(error: StartError) -> Self {
        let exit = match &error {
            StartError::Cluster(error) if error.needs_a_person() => Exit::NotSetUp,
            StartError::Cluster(_) => Exit::CannotReach,
            StartError::HostKey(_) | StartError::Token(_) | StartError::Tls(_) | StartError::Seal(_) => Exit::NotSetUp,
            StartError::CallbackRoots(_) | StartError::IssuerRoots(_) => Exit::NotSetUp,
            StartError::Database(
                DatabaseOpenError::Migrate(MigrateError::Ahead { .. }) | DatabaseOpenError::Behind { .. },
            ) => Exit::VersionMismatch,
            StartError::Database(DatabaseOpenError::Migrate(MigrateError::Store(_))) => Exit::CannotReach,
            StartError::Database(_) => Exit::NotSetUp,
            StartError::Listen { .. } => Exit::Failed,
        };
        Self::new(exit, error.to_string())
    }
}
