//! The issuer's keys: found by its metadata, remembered, and looked for anew when a token names one that is not there.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Deserialize;
use tokio::sync::Semaphore;
use tokio_rustls::TlsConnector;
use url::Url;

use super::GrantError;
use super::fetch::{self, FetchError};
use super::key::Jwk;
use super::token::{InvalidToken, ParsedToken};

/// Keys of one issuer that are remembered.
const MAX_KEYS: usize = 64;
/// Tokens that may wait for the issuer at once. Whoever comes with a known key waits for nobody.
const MAX_WAITING_TOKENS: usize = 64;

/// When the issuer is asked.
#[derive(Clone, Copy, Debug)]
pub struct JwksTimings {
    /// At least between two questions, whatever tokens come.
    pub pause: Duration,
    /// How old keys may be before the next token has them looked for anew.
    pub fresh: Duration,
    /// How old they may be at most, while the issuer is away.
    pub stale: Duration,
}

impl Default for JwksTimings {
    fn default() -> Self {
        Self {
            pause: Duration::from_secs(30),
            fresh: Duration::from_secs(15 * 60),
            stale: Duration::from_secs(24 * 60 * 60),
        }
    }
}

/// What an issuer says of itself (RFC 8414, OpenID Connect Discovery).
#[derive(Deserialize)]
struct IssuerMetadata {
    issuer: String,
    jwks_uri: String,
}

#[derive(Deserialize)]
struct JwksDocument {
    keys: Vec<serde_json::Value>,
}

/// The keys of one issuer.
pub(super) struct IssuerKeys {
    source: Arc<KeySource>,
    clocks: JwksTimings,
    known: Arc<Mutex<CachedKeys>>,
    asking: tokio::sync::Mutex<()>,
    waiting: Semaphore,
}

/// Where they come from.
struct KeySource {
    issuer: Url,
    issuer_text: String,
    tls: TlsConnector,
}

#[derive(Clone, Default)]
struct CachedKeys {
    keys: Arc<Vec<Jwk>>,
    /// When they were published, as far as is known here.
    since: Option<Instant>,
    /// When the issuer was last asked, whatever came of it.
    asked: Option<Instant>,
    /// Why it said nothing then.
    trouble: Option<String>,
}

/// What the keys that are known say of a token.
enum SignatureCheck {
    Good,
    Bad,
    NoSuchKey,
}

impl IssuerKeys {
    pub(super) fn new(issuer: Url, issuer_text: String, tls: TlsConnector, clocks: JwksTimings) -> Self {
        let source = Arc::new(KeySource { issuer, issuer_text, tls });
        let (known, asking) = (Arc::default(), tokio::sync::Mutex::default());
        Self { source, clocks, known, asking, waiting: Semaphore::new(MAX_WAITING_TOKENS) }
    }

    /// Whether one of the issuer's keys signed this.
    pub(super) async fn verify(&self, token: &ParsedToken<'_>) -> Result<(), GrantError> {
        let came = Instant::now();
        let known = self.known();
        let verdict = known.judge(token, self.clocks.stale);
        let fresh = known.since.is_some_and(|since| since.elapsed() < self.clocks.fresh);
        let known = match verdict {
            SignatureCheck::Good if fresh => return Ok(()),
            // Without a name every key was tried, and the right one may be new.
            SignatureCheck::Bad if fresh && token.kid.is_some() => return Err(InvalidToken::Signature.into()),
            SignatureCheck::Good => self.asked_since(came).await.unwrap_or(known),
            _ => self.asked_since(came).await?,
        };
        match known.judge(token, self.clocks.stale) {
            SignatureCheck::Good => Ok(()),
            SignatureCheck::Bad => Err(InvalidToken::Signature.into()),
            // What it would say now nobody knows.
            SignatureCheck::NoSuchKey => match known.trouble {
                Some(trouble) => Err(GrantError::Unavailable(trouble)),
                None if known.asked.is_none_or(|asked| asked < came) => Err(GrantError::TooSoon),
                None => Err(InvalidToken::Key.into()),
            },
        }
    }

    /// What is known once the issuer was asked, unless it was asked just now.
    async fn asked_since(&self, came: Instant) -> Result<CachedKeys, GrantError> {
        let too_many = |_| GrantError::Unavailable("too many tokens wait for the issuer".to_owned());
        let _one_of_few = self.waiting.try_acquire().map_err(too_many)?;
        let _asking = self.asking.lock().await;
        let known = self.known();
        let lately = known.asked.is_some_and(|asked| asked >= came || asked.elapsed() < self.clocks.pause);
        if lately {
            return Ok(known);
        }
        let asked = Some(Instant::now());
        change(&self.known, |known| known.asked = asked);
        let (source, known) = (self.source.clone(), self.known.clone());
        // A task of its own: whoever waits may leave, and the next one is not to begin anew.
        let asking = tokio::spawn(async move {
            let found = source.find().await;
            change(&known, |known| match found {
                Ok(keys) => *known = CachedKeys { keys: Arc::new(keys), since: asked, asked, trouble: None },
                Err(error) => {
                    tracing::warn!(%error, "the issuer of accounts does not give its keys");
                    known.trouble = Some(error.to_string());
                }
            });
        });
        asking.await.map_err(|error| GrantError::Unavailable(error.to_string()))?;
        Ok(self.known())
    }

    fn known(&self) -> CachedKeys {
        // Nothing panics while it holds the lock.
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn change(known: &Mutex<CachedKeys>, how: impl FnOnce(&mut CachedKeys)) {
    how(&mut known.lock().unwrap_or_else(PoisonError::into_inner));
}

impl KeySource {
    async fn find(&self) -> Result<Vec<Jwk>, FetchError> {
        let metadata = self.metadata().await?;
        let url = Url::parse(&metadata.jwks_uri);
        let url = url.map_err(|_| FetchError::other(&self.issuer, "its jwks_uri is no address"))?;
        let published: JwksDocument = fetch::json(&self.tls, &url).await?;
        // Keys of a kind that is not known here are for others.
        let keys = published.keys.into_iter().take(MAX_KEYS).filter_map(|key| serde_json::from_value(key).ok());
        Ok(keys.collect())
    }

    async fn metadata(&self) -> Result<IssuerMetadata, FetchError> {
        let [oauth, openid] = places(&self.issuer);
        let found = match fetch::json::<IssuerMetadata>(&self.tls, &oauth).await {
            Err(error) if error.absent => fetch::json(&self.tls, &openid).await?,
            found => found?,
        };
        if found.issuer == self.issuer_text {
            return Ok(found);
        }
        Err(FetchError::other(&self.issuer, "its metadata name another issuer than hosted.issuer does"))
    }
}

impl CachedKeys {
    fn judge(&self, token: &ParsedToken<'_>, stale: Duration) -> SignatureCheck {
        if self.since.is_none_or(|since| since.elapsed() >= stale) {
            return SignatureCheck::NoSuchKey;
        }
        let named = |key: &&Jwk| token.kid.is_none() || key.kid == token.kid;
        let mut fitting = self.keys.iter().filter(|key| named(key) && key.suits(token.algorithm)).peekable();
        if fitting.peek().is_none() {
            return SignatureCheck::NoSuchKey;
        }
        let signed = fitting.any(|key| key.verifies(token.algorithm, token.signed, &token.signature));
        if signed { SignatureCheck::Good } else { SignatureCheck::Bad }
    }
}

/// Where an issuer's metadata are: behind the host (RFC 8414, section 3.1), or behind the whole of it (OpenID).
fn places(issuer: &Url) -> [Url; 2] {
    let path = issuer.path().trim_end_matches('/');
    [format!("/.well-known/oauth-authorization-server{path}"), format!("{path}/.well-known/openid-configuration")].map(
        |path| {
            let mut url = issuer.clone();
            url.set_path(&path);
            url
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_are_sought_where_the_standards_say() {
        let at = |text: &str| places(&Url::parse(text).unwrap()).map(|url| url.to_string());
        assert_eq!(
            at("https://id.example.com"),
            [
                "https://id.example.com/.well-known/oauth-authorization-server",
                "https://id.example.com/.well-known/openid-configuration"
            ]
        );
        assert_eq!(
            at("https://id.example.com/realms/a/"),
            [
                "https://id.example.com/.well-known/oauth-authorization-server/realms/a",
                "https://id.example.com/realms/a/.well-known/openid-configuration"
            ]
        );
    }
}
