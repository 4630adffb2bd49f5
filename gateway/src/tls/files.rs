//! Certificate and key from files, read and checked.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustls::ServerConfig;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

/// The files of certificate and key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate and those between it and the root, PEM.
    pub certificate: PathBuf,
    /// Its private key, PEM.
    pub key: PathBuf,
}

/// What is wrong with a certificate or its key.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or holds something else.
    #[error("{path}: {problem}")]
    File {
        /// The file.
        path: PathBuf,
        /// The fault.
        problem: String,
    },
    /// Other users can read the key.
    #[error("{path} has mode {mode:04o}: others can read the key. Run: chmod 600 {path}")]
    Loose {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// They cannot be used together.
    #[error("{key} and {certificate} cannot be used together: {problem}")]
    Pair {
        /// The key's file.
        key: PathBuf,
        /// The certificate's file.
        certificate: PathBuf,
        /// The reason.
        problem: rustls::Error,
    },
}

/// Reads and checks certificate and key.
///
/// # Errors
/// See [`TlsError`].
pub fn read(files: &CertificateFiles) -> Result<ServerConfig, TlsError> {
    let (chain, key) = (certificates(&files.certificate)?, key(&files.key)?);
    super::serving(chain, key).map_err(|problem| {
        let CertificateFiles { certificate, key } = files.clone();
        TlsError::Pair { key, certificate, problem }
    })
}

/// Reads a root to trust.
///
/// # Errors
/// The file cannot be read or holds no certificate.
pub fn root(path: &Path) -> Result<CertificateDer<'static>, TlsError> {
    leaf(path)
}

/// The first certificate of a file, which names whom it is for.
///
/// # Errors
/// The file cannot be read or holds no certificate.
pub fn leaf(path: &Path) -> Result<CertificateDer<'static>, TlsError> {
    certificates(path).map(|mut chain| chain.swap_remove(0))
}

/// When the first certificate of a file ends.
pub(super) fn expires_at(path: &Path) -> Option<jiff::Timestamp> {
    super::not_after(&leaf(path).ok()?)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let wrong = |problem: String| TlsError::File { path: path.to_owned(), problem };
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read {
        Ok(chain) if chain.is_empty() => Err(wrong("it holds no certificate in PEM".to_owned())),
        Ok(chain) => Ok(chain),
        Err(error) => Err(wrong(error.to_string())),
    }
}

fn key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let wrong = |problem: String| TlsError::File { path: path.to_owned(), problem };
    let metadata = std::fs::metadata(path).map_err(|error| wrong(error.to_string()))?;
    let mode = metadata.permissions().mode() & 0o777;
    // The group may: distributions keep keys for one.
    if mode & 0o007 != 0 {
        return Err(TlsError::Loose { path: path.to_owned(), mode });
    }
    PrivateKeyDer::from_pem_file(path).map_err(|error| match error {
        rustls_pki_types::pem::Error::NoItemsFound => wrong("it holds no private key in PEM".to_owned()),
        other => wrong(other.to_string()),
    })
}
