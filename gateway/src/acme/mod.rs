//! The public listener's certificate from a certificate authority (ACME, RFC 8555).
//!
//! | file | what it does |
//! |---|---|
//! | `renewer` | shows the newest certificate, and orders another in time |
//! | `order` | one order at the authority; the only file that names its client |
//! | `challenge` | the answer to the authority's challenge for a domain |
//! | `single_flight` | a result that anybody may ask for, looked up once for many callers |

mod challenge;
mod order;
mod renewer;
mod single_flight;

pub use renewer::CertificateRenewer;

/// Why a certificate cannot be stored or shown.
#[derive(Debug, thiserror::Error)]
enum RenewalError {
    /// The database failed.
    #[error(transparent)]
    Store(#[from] crate::store::Error),
    /// The private key cannot be decrypted.
    #[error(transparent)]
    Seal(#[from] crate::encryption::EncryptionError),
    /// The issued text is not a certificate in PEM.
    #[error("what was issued cannot be read: {0}")]
    Pem(#[from] rustls_pki_types::pem::Error),
    /// The issued data is not a certificate.
    #[error("what was issued cannot be read: {0}")]
    Certificate(#[from] x509_cert::der::Error),
    /// The certificate cannot be used to serve.
    #[error("what was issued cannot be used: {0}")]
    Tls(#[from] rustls::Error),
}
