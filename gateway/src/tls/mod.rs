//! TLS of the public listener: the certificate that is shown, exchanged while it serves.
//!
//! It comes from files, or from whoever fetches it from a certificate authority. What the authority
//! is shown when it asks whether this gateway speaks for a domain is kept apart: nobody else is ever
//! shown that, and the authority is shown nothing else (RFC 8737).

mod files;
mod roots;
mod validity;

use std::pin::Pin;
use std::sync::{Arc, PoisonError, RwLock};

pub use files::{CertificateFiles, TlsError, read, root};
pub use roots::{RootsError, client};
use rustls::crypto::ring::default_provider;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::server::{ClientHello, WantsServerCert};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ConfigBuilder, ServerConfig};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::sync::Notify;
pub use validity::not_after;

/// The one protocol that an authority offers when it asks about a domain (RFC 8737, section 3).
pub const ACME_ALPN: &[u8] = b"acme-tls/1";

/// What an authority that asks about a domain is shown; nothing if nobody asked it to.
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
    standing: String,
}

/// What a client is after, from the first thing that it says.
pub enum ClientIntent {
    /// To be served, with the certificate that is shown at the moment, if there is one.
    Served(Option<Arc<ServerConfig>>),
    /// To see that this gateway speaks for a domain.
    Proof(String),
}

impl ServerTls {
    /// Reads the files for the first time.
    pub fn load(files: CertificateFiles) -> Result<Self, TlsError> {
        let config = Some(Arc::new(read(&files)?));
        let standing = format!("from {}", files.certificate.display());
        Ok(Self {
            source: CertificateSource::Files(files),
            shown: Arc::new(RwLock::new(ServedConfig { config, standing })),
        })
    }

    /// Shows what an authority issued, once there is something.
    pub fn issued(challenges: Arc<dyn ChallengeSource>) -> Self {
        let shown = ServedConfig { config: None, standing: "none was issued yet".to_owned() };
        Self {
            source: CertificateSource::Authority { challenges, reload: Arc::default() },
            shown: Arc::new(RwLock::new(shown)),
        }
    }

    /// Reads the files again, or has whoever asks the authority ask again. After an error everything
    /// is as it was.
    pub fn reload(&self) -> Result<&'static str, TlsError> {
        match &self.source {
            CertificateSource::Files(files) => {
                self.show(read(files)?);
                Ok("the certificate is read again; new connections are served with it")
            }
            CertificateSource::Authority { reload, .. } => {
                reload.notify_one();
                Ok("the certificate comes from an authority; if the last order failed, another is made now")
            }
        }
    }

    /// Waits until somebody wants a failed order to be made again; for ever with files.
    pub async fn reload_requested(&self) {
        match &self.source {
            CertificateSource::Files(_) => std::future::pending().await,
            CertificateSource::Authority { reload, .. } => reload.notified().await,
        }
    }

    /// Shows another certificate to whoever connects from now on.
    pub fn show(&self, config: ServerConfig) {
        self.shown.write().unwrap_or_else(PoisonError::into_inner).config = Some(Arc::new(config));
    }

    /// Says in words how it stands with the certificate.
    pub fn set_status(&self, standing: String) {
        self.shown.write().unwrap_or_else(PoisonError::into_inner).standing = standing;
    }

    /// How it stands with the certificate, in words.
    pub fn status(&self) -> String {
        self.shown.read().unwrap_or_else(PoisonError::into_inner).standing.clone()
    }

    /// What a client is after.
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

    /// What an authority that asks about a domain is shown.
    pub async fn proof(&self, domain: String) -> Option<Arc<ServerConfig>> {
        match &self.source {
            CertificateSource::Authority { challenges, .. } => challenges.answer(domain).await,
            CertificateSource::Files(_) => None,
        }
    }
}

/// Reads the certificate again, if there is one, and says what was done. After an error everything
/// is as it was.
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
pub fn serving(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<ServerConfig, rustls::Error> {
    let mut config = server().with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// Shows a proof to an authority.
pub fn proving(proof: CertificateDer<'static>, key: &PrivateKeyDer<'static>) -> Result<ServerConfig, rustls::Error> {
    // Nothing compares the two: what makes it a proof is a critical extension that rustls does not know.
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
