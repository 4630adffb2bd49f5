//! Accounts: judges the access tokens that devices of a hosted gateway come with.
//!
//! | file | what it does |
//! |---|---|
//! | here | the judge |
//! | `token` | what a token says, and whether that is good here |
//! | `key` | an issuer's public key, and what it signed |
//! | `keys` | the issuer's keys: found, remembered, looked for anew |
//! | `fetch` | one document of the issuer's |
//!
//! **Trust.** Nothing that a token says is believed before its signature holds by a key that the issuer itself publishes
//! over TLS. What a token may be signed with is the gateway's choice and never the token's (RFC 8725).
//!
//! **Failure.** While the issuer is away its keys stay good for a day, so that neither lines nor new tokens notice. A
//! token by an unknown key has the issuer asked, seldom: nobody can make load with keys that he made up.

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
use keys::IssuerKeys;
use token::{ParsedToken, TokenRequirements};

/// Why nobody is let in with a token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GrantError {
    /// It is not good here, and never will be.
    #[error(transparent)]
    Unfit(#[from] InvalidToken),
    /// Its key is not known, and the issuer was asked too short a time ago to be asked again.
    #[error("the issuer's keys were looked for just before this")]
    TooSoon,
    /// Nobody can say now: the issuer's keys are not known.
    #[error("the issuer's keys cannot be had: {0}")]
    Unavailable(String),
}

/// Judges access tokens. Clones share what is known of the issuer.
#[derive(Clone)]
pub struct TokenVerifier(Arc<VerifierState>);

struct VerifierState {
    expected: TokenRequirements,
    keys: IssuerKeys,
    hosted: HostedSettings,
}

impl TokenVerifier {
    /// For the issuer of these settings. Nothing is asked of it before a token comes.
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
        let keys = IssuerKeys::new(hosted.issuer.clone(), hosted.issuer_text.clone(), tls, clocks);
        Ok(Self(Arc::new(VerifierState { expected, keys, hosted })))
    }

    /// Whose tokens are judged, and how; the audience is filled in.
    pub fn hosted(&self) -> &HostedSettings {
        &self.0.hosted
    }

    /// Whom a token stands for, and until when.
    ///
    /// # Errors
    /// The token is not good, or the issuer's keys cannot be had.
    pub async fn grant(&self, text: &str) -> Result<Grant, GrantError> {
        let VerifierState { expected, keys, .. } = &*self.0;
        let token = ParsedToken::read(text, expected)?;
        // A look at what nobody vouches for yet, so that a stranger's token does not have the issuer asked.
        token.judge(expected, Timestamp::now())?;
        keys.verify(&token).await?;
        Ok(token.judge(expected, Timestamp::now())?)
    }
}
