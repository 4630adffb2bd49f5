//! Accounts: verifies the access tokens of devices at a hosted gateway.
//!
//! | file | what it does |
//! |---|---|
//! | here | the verifier |
//! | `token` | a token's claims, and whether they are good here |
//! | `key` | an issuer's public key, and signature checks with it |
//! | `keys` | the issuer's keys: found, cached, fetched again |
//! | `fetch` | one document of the issuer's |
//!
//! **Trust.** A token's claims are used only after its signature was verified by a key that the issuer itself publishes
//! over TLS, at an address that the administrator's rules allow. The gateway, never the token, chooses the accepted algorithms (RFC 8725).
//!
//! **Failure.** While the issuer is away its keys stay valid for a day, so that neither connections nor new tokens
//! notice. A token by an unknown key makes the gateway ask the issuer, but seldom: made-up keys cannot cause load.

mod fetch;
mod key;
mod keys;
mod token;

use std::sync::Arc;

use deskgate_protocol::Timestamp;
use tokio_rustls::TlsConnector;

pub use keys::JwksTimings;
pub use token::InvalidToken;

use crate::config::HostedSettings;
use crate::domain::accounts::Grant;
use crate::tls::{self, RootsError};
use fetch::DocumentClient;
use keys::IssuerKeys;
use token::{ParsedToken, TokenRequirements};

/// Why a token was not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GrantError {
    /// The token is not good here, and never will be.
    #[error(transparent)]
    Unfit(#[from] InvalidToken),
    /// Its key is unknown, and the issuer was asked too recently to be asked again.
    #[error("the issuer's keys were looked for just before this")]
    TooSoon,
    /// The issuer's keys are not known now.
    #[error("the issuer's keys cannot be had: {0}")]
    Unavailable(String),
}

/// Verifies access tokens. Clones share the issuer's cached keys.
#[derive(Clone)]
pub struct TokenVerifier(Arc<VerifierState>);

struct VerifierState {
    expected: TokenRequirements,
    keys: IssuerKeys,
    hosted: HostedSettings,
}

impl TokenVerifier {
    /// Creates a verifier for the issuer of these settings. The issuer is first asked when a token arrives.
    ///
    /// # Errors
    /// The authorities in the settings cannot be read.
    pub fn new(hosted: HostedSettings, public_url: &str, clocks: JwksTimings) -> Result<Self, RootsError> {
        let tls = TlsConnector::from(Arc::new(tls::client(hosted.ca_file.as_deref())?));
        let audience = if hosted.audience.is_empty() { public_url } else { &hosted.audience };
        let hosted = HostedSettings { audience: audience.to_owned(), ..hosted };
        let expected = TokenRequirements {
            issuer: hosted.issuer_text.clone(),
            audience: hosted.audience.clone(),
            client_id: hosted.client_id.clone(),
            algorithms: hosted.algorithms.clone(),
            plain_tokens: hosted.plain_tokens,
        };
        let client = DocumentClient::new(tls, hosted.addresses.clone(), hosted.issuer.clone());
        let keys = IssuerKeys::new(hosted.issuer.clone(), hosted.issuer_text.clone(), client, clocks);
        Ok(Self(Arc::new(VerifierState { expected, keys, hosted })))
    }

    /// The issuer and the rules for its tokens; the audience is filled in.
    pub fn hosted(&self) -> &HostedSettings {
        &self.0.hosted
    }

    /// The account that a token stands for, and until when.
    ///
    /// # Errors
    /// The token is not good, or the issuer's keys cannot be fetched.
    pub async fn grant(&self, text: &str) -> Result<Grant, GrantError> {
        let VerifierState { expected, keys, .. } = &*self.0;
        let token = ParsedToken::read(text, expected)?;
        // A check of the unverified claims, so that a foreign token does not cause a request to the issuer.
        token.judge(expected, Timestamp::now())?;
        keys.verify(&token).await?;
        Ok(token.judge(expected, Timestamp::now())?)
    }
}
