//! TLS of the public listener: its certificate, which can be exchanged while it serves.
//!
//! It comes from files, or from the renewer that orders it from a certificate authority. The certificate that answers
//! an authority's challenge is kept apart: only the authority is shown that one, and it is shown no other (RFC 8737).

mod files;
mod roots;
mod validity;

use std::pin::Pin;
use std::sync::{Arc, PoisonError, RwLock};

pub use files::{CertificateFiles, TlsError, leaf, read, root};
use jiff::Timestamp;
pub use roots::{RootsError, client};
use rustls::crypto::ring::default_provider;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::server::{ClientHello, WantsServerCert};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ConfigBuilder, ServerConfig};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::sync::Notify;
pub use validity::{is_for, is_self_issued, not_after};

/// The one protocol that an authority offers in its challenge (RFC 8737, section 3).
pub const ACME_ALPN: &[u8] = b"acme-tls/1";

/// Answers an authority's challenges; without an order there is no answer.
pub trait ChallengeSource: Send + Sync {
    /// The answer for a domain.
    fn answer(&self, domain: String) -> Pin<Box<dyn Future<Output = Option<Arc<ServerConfig>>> + Send + '_>>;
}

/// The certificate that new connections are served with. Clones share it.
#[derive(Clone)]
pub struct ServerTls {
    source: CertificateSource,
    shown: Arc<RwLock<ServedConfig>>,
}

#[derive(Clone)]
enum CertificateSource {
    Files(CertificateFiles),
    Authority { challenges: Arc<dyn ChallengeSource>, reload: Arc<Notify> },
}

struct ServedConfig {
    config: Option<Arc<ServerConfig>>,
    expires_at: Option<Timestamp>,
    standing: String,
}

/// A client's intent, from its first message.
pub enum ClientIntent {
    /// To be served, with the current certificate, if there is one.
    Served(Option<Arc<ServerConfig>>),
    /// To verify that this gateway controls a domain.
    Proof(String),
}

impl ServerTls {
    /// Reads the files for the first time.
    ///
    /// # Errors
    /// See [`TlsError`].
    pub fn load(files: CertificateFiles) -> Result<Self, TlsError> {
        let config = Some(Arc::new(read(&files)?));
        let expires_at = files::expires_at(&files.certificate);
        let standing = format!("from {}", files.certificate.display());
        Ok(Self {
            source: CertificateSource::Files(files),
            shown: Arc::new(RwLock::new(ServedConfig { config, expires_at, standing })),
        })
    }

    /// Serves the certificate that an authority issues, once there is one.
    pub fn issued(challenges: Arc<dyn ChallengeSource>) -> Self {
        let shown = ServedConfig { config: None, expires_at: None, standing: "none was issued yet".to_owned() };
        Self {
            source: CertificateSource::Authority { challenges, reload: Arc::default() },
            shown: Arc::new(RwLock::new(shown)),
        }
    }

    /// Reads the files again, or makes the renewer order again. After an error the old state stays.
    ///
    /// # Errors
    /// See [`TlsError`]: a file cannot be read, other users can read the key, or the two cannot be used together. With
    /// an authority it never fails.
    pub fn reload(&self) -> Result<&'static str, TlsError> {
        match &self.source {
            CertificateSource::Files(files) => {
                self.show(read(files)?, files::expires_at(&files.certificate));
                Ok("the certificate is read again; new connections are served with it")
            }
            CertificateSource::Authority { reload, .. } => {
                reload.notify_one();
                Ok("the certificate comes from an authority; if the last order failed, another is made now")
            }
        }
    }

    /// Waits for a request to repeat a failed order; for ever with files.
    pub async fn reload_requested(&self) {
        match &self.source {
            CertificateSource::Files(_) => std::future::pending().await,
            CertificateSource::Authority { reload, .. } => reload.notified().await,
        }
    }

    /// Uses another certificate for new connections, which ends at `expires_at`.
    pub fn show(&self, config: ServerConfig, expires_at: Option<Timestamp>) {
        let mut shown = self.shown.write().unwrap_or_else(PoisonError::into_inner);
        shown.config = Some(Arc::new(config));
        shown.expires_at = expires_at;
    }

    /// When the certificate ends. `None`: there is none, or it cannot be read.
    pub fn expires_at(&self) -> Option<Timestamp> {
        self.shown.read().unwrap_or_else(PoisonError::into_inner).expires_at
    }

    /// Sets the certificate's status, in words.
    pub fn set_status(&self, standing: String) {
        self.shown.write().unwrap_or_else(PoisonError::into_inner).standing = standing;
    }

    /// The certificate's status, in words.
    pub fn status(&self) -> String {
        self.shown.read().unwrap_or_else(PoisonError::into_inner).standing.clone()
    }

    /// A client's intent.
    pub fn client_intent(&self, hello: &ClientHello<'_>) -> ClientIntent {
        let mut offered = hello.alpn().into_iter().flatten();
        let asks_for_proof = offered.next() == Some(ACME_ALPN) && offered.next().is_none();
        match (&self.source, hello.server_name()) {
            (CertificateSource::Authority { .. }, Some(domain)) if asks_for_proof => {
                ClientIntent::Proof(domain.to_lowercase())
            }
            _ => ClientIntent::Served(self.shown.read().unwrap_or_else(PoisonError::into_inner).config.clone()),
        }
    }

    /// The answer to an authority's challenge.
    pub async fn proof(&self, domain: String) -> Option<Arc<ServerConfig>> {
        match &self.source {
            CertificateSource::Authority { challenges, .. } => challenges.answer(domain).await,
            CertificateSource::Files(_) => None,
        }
    }
}

/// Reads the certificate again, if there is one, and returns what was done. After an error the old state stays.
///
/// # Errors
/// See [`TlsError`]: a file cannot be read, other users can read the key, or the two cannot be used together. With an
/// authority, or without TLS, it never fails.
pub fn reload(tls: Option<&ServerTls>) -> Result<&'static str, TlsError> {
    let Some(tls) = tls else { return Ok("nothing to read again: this gateway does no TLS") };
    match tls.reload() {
        Ok(what) => {
            tracing::info!("{what}");
            Ok(what)
        }
        Err(error) => {
            tracing::error!(%error, "the certificate could not be read again; the old one goes on");
            Err(error)
        }
    }
}

/// Serves HTTP with a certificate.
///
/// # Errors
/// The key cannot be used, or is not the certificate's.
pub fn serving(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<ServerConfig, rustls::Error> {
    let mut config = server().with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// Shows the answer to an authority's challenge.
///
/// # Errors
/// The key is of a kind that cannot sign.
pub fn proving(proof: CertificateDer<'static>, key: &PrivateKeyDer<'static>) -> Result<ServerConfig, rustls::Error> {
    // rustls does not compare the two: the proof is a critical extension that it does not know.
    let proof = CertifiedKey::new(vec![proof], any_supported_type(key)?);
    let mut config = server().with_cert_resolver(Arc::new(SingleCertAndKey::from(proof)));
    config.alpn_protocols = vec![ACME_ALPN.to_vec()];
    Ok(config)
}

fn server() -> ConfigBuilder<ServerConfig, WantsServerCert> {
    ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring offers the default protocol versions")
        .with_no_client_auth()
}
