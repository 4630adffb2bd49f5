//! The issuer's keys: found by its metadata, cached, and fetched again when a token names an unknown one.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Deserialize;
use tokio::sync::Semaphore;
use url::Url;

use super::GrantError;
use super::fetch::{self, DocumentClient, FetchError};
use super::key::Jwk;
use super::token::{InvalidToken, ParsedToken};

/// The most keys of one issuer that are cached.
const MAX_KEYS: usize = 64;
/// Tokens that may wait for the issuer at once. A token with a known key waits for none of them.
const MAX_WAITING_TOKENS: usize = 64;

/// When the issuer's keys are fetched.
#[derive(Clone, Copy, Debug)]
pub struct JwksTimings {
    /// The pause between two requests, however many tokens arrive.
    pub pause: Duration,
    /// The age of keys after which the next token has them fetched again.
    pub fresh: Duration,
    /// The largest age of keys, while the issuer is away.
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

/// An issuer's metadata (RFC 8414, OpenID Connect Discovery).
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

/// The source of the keys.
struct KeySource {
    issuer: Url,
    issuer_text: String,
    client: DocumentClient,
}

#[derive(Clone, Default)]
struct CachedKeys {
    keys: Arc<Vec<Jwk>>,
    /// When they were fetched, if ever.
    since: Option<Instant>,
    /// When the issuer was last asked, with success or not.
    asked: Option<Instant>,
    /// The error of that request.
    trouble: Option<String>,
}

/// The result of checking a token with the known keys.
enum SignatureCheck {
    Good,
    Bad,
    NoSuchKey,
}

impl IssuerKeys {
    pub(super) fn new(issuer: Url, issuer_text: String, client: DocumentClient, clocks: JwksTimings) -> Self {
        let source = Arc::new(KeySource { issuer, issuer_text, client });
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
            // A token without a key name was checked with every key, and the right one may be new.
            SignatureCheck::Bad if fresh && token.kid.is_some() => return Err(InvalidToken::Signature.into()),
            SignatureCheck::Good => self.asked_since(came).await.unwrap_or(known),
            _ => self.asked_since(came).await?,
        };
        match known.judge(token, self.clocks.stale) {
            SignatureCheck::Good => Ok(()),
            SignatureCheck::Bad => Err(InvalidToken::Signature.into()),
            // The issuer's answer now is unknown.
            SignatureCheck::NoSuchKey => match known.trouble {
                Some(trouble) => Err(GrantError::Unavailable(trouble)),
                None if known.asked.is_none_or(|asked| asked < came) => Err(GrantError::TooSoon),
                None => Err(InvalidToken::Key.into()),
            },
        }
    }

    /// The keys once the issuer was asked, unless it was asked just now.
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
        // A task of its own: when the waiting caller leaves, the next one must not start anew.
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
        // No code panics while it holds the lock.
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
        let published: JwksDocument = fetch::json(&self.client, &url).await?;
        // Keys of unknown types are for other uses.
        let keys = published.keys.into_iter().take(MAX_KEYS).filter_map(|key| serde_json::from_value(key).ok());
        Ok(keys.collect())
    }

    async fn metadata(&self) -> Result<IssuerMetadata, FetchError> {
        let [oauth, openid] = places(&self.issuer);
        let found = match fetch::json::<IssuerMetadata>(&self.client, &oauth).await {
            Err(error) if error.absent => fetch::json(&self.client, &openid).await?,
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

/// The addresses of an issuer's metadata: after the host (RFC 8414, section 3.1), or after the whole issuer (OpenID).
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
