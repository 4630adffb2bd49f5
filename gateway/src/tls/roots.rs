//! The authorities that are trusted for the gateway's own requests.

use std::path::Path;
use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

/// The authorities in the settings cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {problem}")]
pub struct RootsError {
    path: String,
    problem: String,
}

/// Trusts the system's authorities, and those in `ca_file` (PEM) beside them, and speaks HTTP/1.1.
///
/// # Errors
/// `ca_file` cannot be read or holds no certificate.
pub fn client(ca_file: Option<&Path>) -> Result<ClientConfig, RootsError> {
    let mut roots = RootCertStore::empty();
    // An unreadable one is not trusted; the others are.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(path) = ca_file {
        let wrong = |problem: String| RootsError { path: path.display().to_string(), problem };
        let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let own = read.map_err(|error| wrong(error.to_string()))?;
        if own.is_empty() {
            return Err(wrong("it holds no certificate in PEM".to_owned()));
        }
        for certificate in own {
            roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring offers the default protocol versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}
