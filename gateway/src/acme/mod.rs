//! The public listener's certificate from a certificate authority (ACME, RFC 8555).
//!
//! | file | what it does |
//! |---|---|
//! | `keeper` | shows the newest certificate, and orders another in time |
//! | `order` | one order at the authority; the only file that names its client |
//! | `proof` | what the authority is shown when it asks about a domain |
//! | `lately` | an answer that anybody may ask for, looked up once for many |

mod challenge;
mod order;
mod renewer;
mod single_flight;

pub use renewer::CertificateRenewer;

/// Why a certificate cannot be kept or shown.
#[derive(Debug, thiserror::Error)]
enum RenewalError {
    /// The database.
    #[error(transparent)]
    Store(#[from] crate::store::Error),
    /// The private key cannot be opened.
    #[error(transparent)]
    Seal(#[from] crate::encryption::EncryptionError),
    /// What was issued is no certificate in PEM.
    #[error("what was issued cannot be read: {0}")]
    Pem(#[from] rustls_pki_types::pem::Error),
    /// What was issued is no certificate.
    #[error("what was issued cannot be read: {0}")]
    Certificate(#[from] x509_cert::der::Error),
    /// It cannot be served with.
    #[error("what was issued cannot be used: {0}")]
    Tls(#[from] rustls::Error),
}
