//! TLS of the public listener: certificate and key, read, checked, and exchanged while it serves.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use rustls::ServerConfig;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

/// Where certificate and key are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
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
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// Others can read the key.
    #[error("{path} has mode {mode:04o}: others can read the key. Run: chmod 600 {path}")]
    Loose {
        /// Which file.
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
        /// Why not.
        problem: rustls::Error,
    },
}

/// The certificate that new connections are served with. Clones share it.
#[derive(Clone)]
pub struct Tls {
    files: Files,
    current: Arc<RwLock<Arc<ServerConfig>>>,
}

impl Tls {
    /// Reads the files for the first time.
    pub fn load(files: Files) -> Result<Self, TlsError> {
        let current = Arc::new(RwLock::new(Arc::new(read(&files)?)));
        Ok(Self { files, current })
    }

    /// Reads the files again. After an error everything is as it was.
    pub fn reload(&self) -> Result<(), TlsError> {
        let fresh = Arc::new(read(&self.files)?);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(())
    }

    /// For the next connection.
    pub fn config(&self) -> Arc<ServerConfig> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Reads the certificate again, if there is one, and says what was done. After an error everything
/// is as it was.
pub fn reload(tls: Option<&Tls>) -> Result<&'static str, TlsError> {
    let Some(tls) = tls else { return Ok("nothing to read again: this gateway does no TLS") };
    match tls.reload() {
        Ok(()) => {
            tracing::info!("certificate read again");
            Ok("the certificate is read again; new connections are served with it")
        }
        Err(error) => {
            tracing::error!(%error, "the certificate could not be read again; the old one goes on");
            Err(error)
        }
    }
}

/// Reads and checks certificate and key.
pub fn read(files: &Files) -> Result<ServerConfig, TlsError> {
    let chain = certificates(&files.certificate)?;
    let key = key(&files.key)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring offers the default protocol versions")
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|problem| {
            let Files { certificate, key } = files.clone();
            TlsError::Pair { key, certificate, problem }
        })?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
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
    // A group may: distributions keep keys for one.
    if mode & 0o007 != 0 {
        return Err(TlsError::Loose { path: path.to_owned(), mode });
    }
    PrivateKeyDer::from_pem_file(path).map_err(|error| match error {
        rustls_pki_types::pem::Error::NoItemsFound => wrong("it holds no private key in PEM".to_owned()),
        other => wrong(other.to_string()),
    })
}
