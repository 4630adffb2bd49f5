//! Why a gateway did not start, and the program's exit code for it.

use crate::encryption::EncryptionError;
use crate::storage::InvalidPlace;
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
    /// The private cluster failed.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// The database cannot be used.
    #[error(transparent)]
    Database(#[from] DatabaseOpenError),
    /// The SSH host key cannot be used.
    #[error(transparent)]
    HostKey(#[from] tunnel::KeyFileError),
    /// The control token cannot be used.
    #[error(transparent)]
    Token(#[from] token::TokenError),
    /// The certificate or its key cannot be used.
    #[error(transparent)]
    Tls(#[from] tls::TlsError),
    /// The key that encrypts private values in the database cannot be used.
    #[error(transparent)]
    Seal(#[from] EncryptionError),
    /// The place of files cannot be used.
    #[error("storage.url {0}")]
    Storage(#[from] InvalidPlace),
    /// The authorities for callbacks cannot be read.
    #[error("callbacks.ca_file {0}")]
    CallbackRoots(#[from] RootsError),
    /// The authorities for the issuer cannot be read.
    #[error("hosted.ca_file {0}")]
    IssuerRoots(#[source] RootsError),
    /// A listener cannot be bound.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Its address.
        address: String,
        /// The error of the operating system.
        source: std::io::Error,
    },
}

impl From<StartError> for Failure {
    /// A fault that only a person can resolve is "not set up", after which the service manager does not restart it.
    fn from(error: StartError) -> Self {
        let exit = match &error {
            StartError::Cluster(error) if error.needs_a_person() => Exit::NotSetUp,
            StartError::Cluster(_) => Exit::CannotReach,
            StartError::HostKey(_) | StartError::Token(_) | StartError::Tls(_) | StartError::Seal(_) => Exit::NotSetUp,
            StartError::CallbackRoots(_) | StartError::IssuerRoots(_) | StartError::Storage(_) => Exit::NotSetUp,
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
