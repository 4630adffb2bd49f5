//! Answers an authority's challenge for a domain, with a certificate made for nothing else (RFC 8737).

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{CertificateParams, CustomExtension, KeyPair};
use rustls::ServerConfig;
use rustls_pki_types::PrivateKeyDer;

use super::single_flight::SingleFlight;
use crate::store::Store;
use crate::tls::{self, ChallengeSource};

/// The time for which a look-up is cached, also one that found no order: anybody may ask, without a key. An order waits
/// this long before it lets the authority look.
pub(super) const LOOKUP_TTL: Duration = Duration::from_secs(1);

type ChallengeConfig = Option<Arc<ServerConfig>>;

/// Shows the challenge that any replica of this gateway has stored.
pub(super) struct ChallengeResponder {
    store: Store,
    /// The challenge of each configured domain; other names have no entry.
    proofs: HashMap<String, SingleFlight<ChallengeConfig>>,
}

impl ChallengeResponder {
    pub(super) fn new(store: Store, domains: &[String]) -> Self {
        let proofs = domains.iter().map(|domain| (domain.clone(), SingleFlight::new(LOOKUP_TTL))).collect();
        Self { store, proofs }
    }

    async fn look(&self, domain: &str) -> ChallengeConfig {
        let digest = match self.store.challenge(domain).await {
            Ok(digest) => digest?,
            Err(error) => {
                tracing::warn!(%error, domain, "a certificate authority could not be answered");
                return None;
            }
        };
        certificate(domain, &digest).inspect_err(|error| tracing::error!(error, "no proof could be made")).ok()
    }
}

impl ChallengeSource for ChallengeResponder {
    fn answer(&self, domain: String) -> Pin<Box<dyn Future<Output = ChallengeConfig> + Send + '_>> {
        Box::pin(async move { self.proofs.get(&domain)?.get(self.look(&domain)).await })
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
