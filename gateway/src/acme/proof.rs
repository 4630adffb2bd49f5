//! What an authority that asks about a domain is shown: a certificate for nothing else (RFC 8737).

use std::pin::Pin;
use std::sync::Arc;

use rcgen::{CertificateParams, CustomExtension, KeyPair};
use rustls::ServerConfig;
use rustls_pki_types::PrivateKeyDer;
use tokio::sync::Semaphore;

use crate::store::Store;
use crate::tls::{self, Challenges};

/// Authorities look from a few places at once. Whoever else pretends to be one costs no more than this.
const AT_ONCE: usize = 8;

/// Shows what some replica of this gateway was asked to show.
pub(super) struct Proofs {
    store: Store,
    domains: Vec<String>,
    places: Semaphore,
}

impl Proofs {
    pub(super) fn new(store: Store, domains: Vec<String>) -> Self {
        Self { store, domains, places: Semaphore::new(AT_ONCE) }
    }
}

impl Challenges for Proofs {
    fn answer(&self, domain: String) -> Pin<Box<dyn Future<Output = Option<Arc<ServerConfig>>> + Send + '_>> {
        Box::pin(async move {
            // Nobody looks into the database for a name that is not ours.
            if !self.domains.contains(&domain) {
                return None;
            }
            let _place = self.places.try_acquire().ok()?;
            let digest = match self.store.challenge(&domain).await {
                Ok(digest) => digest?,
                Err(error) => {
                    tracing::warn!(%error, domain, "a certificate authority could not be answered");
                    return None;
                }
            };
            certificate(&domain, &digest).inspect_err(|error| tracing::error!(error, "no proof could be made")).ok()
        })
    }
}

fn certificate(domain: &str, digest: &[u8]) -> Result<Arc<ServerConfig>, String> {
    if digest.len() != 32 {
        return Err("what is to be shown is no SHA-256 digest".to_owned());
    }
    let made = || -> Result<_, rcgen::Error> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(vec![domain.to_owned()])?;
        params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
        Ok((params.self_signed(&key)?.der().clone(), key))
    };
    let (certificate, key) = made().map_err(|error| error.to_string())?;
    let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
    tls::proving(certificate, &key).map(Arc::new).map_err(|error| error.to_string())
}
