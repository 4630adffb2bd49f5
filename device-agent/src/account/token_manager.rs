//! The sign-ins at hosted gateways: begun, stored, refreshed by one task at a time, ended.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use deskgate_definition::is_short_name;
use deskgate_oauth::{IssuerAway, IssuerResponse, Tokens};
use deskgate_protocol::Timestamp;
use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::secret::AccessToken;
use deskgate_secrets::keyring::KeyringEntry;
use deskgate_secrets::{KeyHolder, KeyPreference, SecretFileError, SecretFileStore, StoredKey};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::task::AbortOnDropHandle;
use zeroize::Zeroizing;

use super::discovery::Issuer;
use super::grant::{self, PendingSignIn};
use super::{AccountError, AccountStatus, GatewayAddress, ISSUERS, SignInPrompt};

/// The lifetime of a token if its issuer does not send one.
const DEFAULT_TOKEN_TTL: Duration = Duration::from_secs(300);
/// A token that expires sooner is not used for a new connection.
const EXPIRY_MARGIN: Duration = Duration::from_secs(30);

/// The content of one gateway's file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AccountFile {
    gateway: GatewayAddress,
    issuer: Issuer,
    since: Timestamp,
    /// Why the issuer refuses to refresh.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    refused: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    refresh_token: Option<StoredKey>,
}

impl KeyHolder for AccountFile {
    fn key(&self) -> Option<&StoredKey> {
        self.refresh_token.as_ref()
    }

    fn key_mut(&mut self) -> Option<&mut StoredKey> {
        self.refresh_token.as_mut()
    }
}

/// The longest accepted lifetime of an access token, whatever its issuer sends.
const MAX_TOKEN_TTL: Duration = Duration::from_secs(24 * 3600);
/// The shortest time before a refresh.
const MIN_RENEWAL_DELAY: Duration = Duration::from_secs(1);

/// An access token with its lifetime, kept in memory only.
struct CachedToken {
    token: AccessToken,
    since: Instant,
    lasts: Duration,
}

impl CachedToken {
    fn of(tokens: &Tokens) -> Self {
        let lasts = tokens.expires_in.map_or(DEFAULT_TOKEN_TTL, Duration::from_secs).min(MAX_TOKEN_TTL);
        Self { token: AccessToken::new(&tokens.access_token), since: Instant::now(), lasts }
    }

    /// Whether a connection can begin with it.
    fn is_good(&self) -> bool {
        self.since.elapsed() + EXPIRY_MARGIN.min(self.lasts / 4) < self.lasts
    }

    /// When it is refreshed: at half its lifetime, so that an unreachable issuer has the other half to return.
    fn due(&self) -> Instant {
        self.since + (self.lasts / 2).max(MIN_RENEWAL_DELAY)
    }
}

/// The state of one gateway's account.
#[derive(Default)]
struct AccountState {
    /// Locked during a refresh.
    fresh: tokio::sync::Mutex<Option<CachedToken>>,
    now: Mutex<SignInProgress>,
}

#[derive(Default)]
struct SignInProgress {
    waiting: Option<(SignInPrompt, AbortOnDropHandle<()>)>,
    /// Why the last sign-in failed.
    failed: Option<String>,
    /// Why the last refresh failed.
    trouble: Option<String>,
}

/// The accounts of this device. Clones share everything.
#[derive(Clone)]
pub struct TokenManager(Arc<TokenManagerInner>);

struct TokenManagerInner {
    files: SecretFileStore<AccountFile>,
    lives: Mutex<HashMap<GatewayAddress, Arc<AccountState>>>,
    news: watch::Sender<()>,
    sign_ins: watch::Sender<()>,
}

impl std::fmt::Debug for TokenManager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("TokenManager").field(&self.0.files).finish()
    }
}

impl TokenManager {
    /// The accounts in a folder, which is created if needed, with keys kept at the preferred place.
    pub fn new(folder: PathBuf, wanted: KeyPreference) -> Self {
        let files =
            SecretFileStore::new(folder, |name| is_short_name(name, MAX_FILE_NAME_CHARS)).with_preference(wanted);
        Self(Arc::new(TokenManagerInner {
            files,
            lives: Mutex::default(),
            news: watch::Sender::new(()),
            sign_ins: watch::Sender::new(()),
        }))
    }

    /// Changes when a sign-in begins or ends.
    pub fn watch(&self) -> watch::Receiver<()> {
        self.0.news.subscribe()
    }

    /// Changes when a user has signed in.
    pub fn sign_ins(&self) -> watch::Receiver<()> {
        self.0.sign_ins.subscribe()
    }

    /// Moves every key to the preferred place. May block.
    ///
    /// # Errors
    /// [`AccountError::Kept`]: a file or a key cannot be read or written. Keys moved before the failure stay moved.
    pub fn move_keys(&self) -> Result<(), AccountError> {
        self.0.files.move_keys().map_err(kept)
    }

    /// The keyring entries of the accounts' keys. May block.
    pub fn entries(&self) -> Vec<KeyringEntry> {
        self.0.files.entries()
    }

    /// The status of a gateway's account.
    ///
    /// # Errors
    /// [`AccountError::Kept`]: the stored sign-in cannot be read, and no sign-in waits.
    pub async fn standing(&self, gateway: &GatewayAddress) -> Result<AccountStatus, AccountError> {
        let read = self.with_files(gateway, |files, name| files.read(name)).await?;
        let live = self.live(gateway);
        let now = lock(&live.now);
        if let Some((invitation, _)) = &now.waiting {
            return Ok(AccountStatus::Waiting { invitation: invitation.clone() });
        }
        match read {
            Ok(AccountFile { refused: Some(why), issuer, .. }) => {
                Ok(AccountStatus::Refused { issuer: issuer.issuer, why })
            }
            Ok(AccountFile { issuer, since, .. }) => {
                Ok(AccountStatus::SignedIn { issuer: issuer.issuer, since, trouble: now.trouble.clone() })
            }
            Err(SecretFileError::Unknown(_)) => Ok(AccountStatus::SignedOut { why: now.failed.clone() }),
            Err(error) => Err(kept(error)),
        }
    }

    /// Begins a sign-in, and replaces one that waits. [`TokenManager::standing`] gives its result.
    ///
    /// # Errors
    /// [`AccountError::NotHosted`]: the gateway names no issuer, or no client identifier there. [`AccountError::Away`]:
    /// the gateway or the issuer cannot be reached, or its answer cannot be used. [`AccountError::NotSignedIn`]: the
    /// issuer refuses to begin a sign-in.
    pub async fn sign_in(&self, gateway: &GatewayAddress) -> Result<SignInPrompt, AccountError> {
        let (invitation, pending) = grant::begin(Issuer::of(gateway).await?).await?;
        let (manager, place) = (self.clone(), gateway.clone());
        let live = self.live(gateway);
        let mut now = lock(&live.now);
        let waiting = AbortOnDropHandle::new(tokio::spawn(async move { manager.finish(&place, pending).await }));
        now.waiting = Some((invitation.clone(), waiting));
        now.failed = None;
        drop(now);
        self.tell();
        Ok(invitation)
    }

    /// Cancels a waiting sign-in.
    pub fn cancel(&self, gateway: &GatewayAddress) {
        lock(&self.live(gateway).now).waiting = None;
        self.tell();
    }

    async fn finish(&self, gateway: &GatewayAddress, pending: PendingSignIn) {
        let done = match pending.finish().await {
            Ok((issuer, tokens)) => self.keep(gateway, issuer, tokens).await,
            Err(error) => Err(error),
        };
        let live = self.live(gateway);
        let mut now = lock(&live.now);
        (now.failed, now.trouble) = (done.as_ref().err().map(ToString::to_string), None);
        // The handle of this task itself, which is about to end.
        let finished = now.waiting.take();
        drop(now);
        match done {
            Ok(()) => tracing::info!(%gateway, "signed in"),
            Err(error) => tracing::warn!(%gateway, %error, "not signed in"),
        }
        self.tell();
        drop(finished);
    }

    async fn keep(&self, gateway: &GatewayAddress, issuer: Issuer, tokens: Tokens) -> Result<(), AccountError> {
        check(&issuer, &tokens)?;
        let live = self.live(gateway);
        let mut fresh = live.fresh.lock().await;
        let written = AccountFile {
            gateway: gateway.clone(),
            issuer,
            since: Timestamp::now(),
            refused: None,
            refresh_token: tokens.refresh_token.as_ref().map(|token| StoredKey::new(token.as_str())),
        };
        let save = |files: &SecretFileStore<AccountFile>, name: &str| files.change(name, true, None, |_| Ok(written));
        self.with_files(gateway, save).await?.map_err(kept)?;
        *fresh = Some(CachedToken::of(&tokens));
        self.0.sign_ins.send_replace(());
        Ok(())
    }

    /// A token with which a connection can begin.
    ///
    /// # Errors
    /// Nobody is signed in any more, or the issuer cannot be reached.
    pub async fn token(&self, gateway: &GatewayAddress) -> Result<AccessToken, AccountError> {
        self.fetch(gateway, CachedToken::is_good).await
    }

    /// Waits until half of the token's lifetime is over, and returns a newer one.
    ///
    /// # Errors
    /// As for [`TokenManager::token`]; called again, it does not wait again.
    pub async fn newer_token(&self, gateway: &GatewayAddress) -> Result<AccessToken, AccountError> {
        let live = self.live(gateway);
        let due = live.fresh.lock().await.as_ref().map(CachedToken::due);
        if let Some(due) = due {
            sleep_until(due).await;
        }
        self.fetch(gateway, |fresh| fresh.due() > Instant::now()).await
    }

    /// Discards a token that the gateway refused: the next one is another.
    pub async fn invalidate(&self, gateway: &GatewayAddress, token: &AccessToken) {
        let live = self.live(gateway);
        let mut fresh = live.fresh.lock().await;
        if fresh.as_ref().is_some_and(|fresh| fresh.token == *token) {
            *fresh = None;
        }
    }

    /// The current token if it is good enough, or a newer one. A refresh runs to its end in its own task: the caller
    /// may be gone, and the answer may hold the only key that the issuer accepts from then on.
    async fn fetch(
        &self,
        gateway: &GatewayAddress,
        will_do: fn(&CachedToken) -> bool,
    ) -> Result<AccessToken, AccountError> {
        let (manager, place) = (self.clone(), gateway.clone());
        let fetching = tokio::spawn(async move {
            let live = manager.live(&place);
            let mut fresh = live.fresh.lock().await;
            if let Some(fresh) = fresh.as_ref().filter(|fresh| will_do(fresh)) {
                return Ok(fresh.token.clone());
            }
            let refreshed = manager.refresh(&place).await;
            let trouble = refreshed.as_ref().err().map(ToString::to_string);
            let changed = std::mem::replace(&mut lock(&live.now).trouble, trouble.clone()) != trouble;
            if changed {
                manager.tell();
            }
            *fresh = match refreshed {
                Ok(new) => Some(new),
                // The current token stays valid for its lifetime.
                Err(error @ AccountError::Away { .. }) if fresh.as_ref().is_some_and(CachedToken::is_good) => {
                    return Err(error);
                }
                Err(error) => {
                    *fresh = None;
                    return Err(error);
                }
            };
            Ok(fresh.as_ref().map(|fresh| fresh.token.clone()).expect("it was put there"))
        });
        fetching
            .await
            .unwrap_or_else(|_| Err(AccountError::Kept("the agent failed while it asked for a token".to_owned())))
    }

    /// Refreshes at the issuer (RFC 6749, section 6). A new refresh token is on disk before anything else happens.
    async fn refresh(&self, gateway: &GatewayAddress) -> Result<CachedToken, AccountError> {
        let signed_out = || AccountError::SignedOut(gateway.to_string());
        let (written, key) = match self.with_files(gateway, |files, name| files.open(name)).await? {
            Ok(opened) => opened,
            Err(SecretFileError::Unknown(_)) => return Err(signed_out()),
            Err(error) => return Err(kept(error)),
        };
        let issuer = written.issuer;
        let refused = |why| AccountError::Refused { gateway: gateway.to_string(), issuer: issuer.issuer.clone(), why };
        if let Some(why) = written.refused {
            return Err(refused(why));
        }
        let Some(key) = key else {
            let why = "it gave nothing to renew it with; the scope offline_access may be missing".to_owned();
            return Err(self.end(gateway, refused(why.clone()), why).await);
        };
        let mut form = vec![
            ("grant_type", "refresh_token"),
            ("refresh_token", key.as_str()),
            ("client_id", issuer.client_id.as_str()),
        ];
        form.extend(issuer.resource());
        let tokens = match ISSUERS.ask::<Tokens>(&issuer.token, &form).await? {
            IssuerResponse::Granted(tokens) => tokens,
            IssuerResponse::Refused(no) if no.is_final() => {
                return Err(self.end(gateway, refused(no.words()), no.words()).await);
            }
            // A server in between may refuse for a while; ending the sign-in would be permanent.
            IssuerResponse::Refused(no) => return Err(IssuerAway::new(&issuer.token, &no.words()).into()),
        };
        check(&issuer, &tokens)?;
        if let Some(new) = tokens.refresh_token.as_ref().filter(|new| **new != key) {
            self.rotate(gateway, StoredKey::new(new.as_str())).await?;
        }
        Ok(CachedToken::of(&tokens))
    }

    async fn rotate(&self, gateway: &GatewayAddress, key: StoredKey) -> Result<(), AccountError> {
        let unknown = SecretFileError::Unknown(gateway.to_string());
        let exchange = |files: &SecretFileStore<AccountFile>, name: &str| {
            files.change(name, false, None, |saved| {
                saved.map(|saved| AccountFile { refresh_token: Some(key), ..saved }).ok_or(unknown)
            })
        };
        self.with_files(gateway, exchange).await?.map(drop).map_err(kept)
    }

    /// Records that the issuer refuses to refresh, and deletes its key.
    async fn end(&self, gateway: &GatewayAddress, error: AccountError, why: String) -> AccountError {
        tracing::warn!(%gateway, %error, "the sign-in is over");
        let unknown = SecretFileError::Unknown(gateway.to_string());
        let end = |files: &SecretFileStore<AccountFile>, name: &str| {
            files.change(name, false, None, |saved| {
                saved.map(|saved| AccountFile { refused: Some(why), refresh_token: None, ..saved }).ok_or(unknown)
            })
        };
        match self.with_files(gateway, end).await {
            Ok(Err(error)) => kept(error),
            Err(error) => error,
            Ok(Ok(_)) => error,
        }
    }

    /// Signs out: revokes at the issuer, if it supports that (RFC 7009), and deletes everything. Returns why the issuer
    /// could not be notified.
    ///
    /// # Errors
    /// [`AccountError::Kept`]: the stored sign-in cannot be deleted.
    pub async fn sign_out(&self, gateway: &GatewayAddress) -> Result<Option<String>, AccountError> {
        let live = self.live(gateway);
        let mut fresh = live.fresh.lock().await;
        let opened = self.with_files(gateway, |files, name| files.open(name)).await?;
        let told = match opened {
            Ok((written, Some(key))) => match &written.issuer.revocation {
                Some(place) => revoke(place, &key, &written.issuer.client_id).await.err(),
                None => Some("the issuer has no place where that could be told".to_owned()),
            },
            // A file that cannot be read can still be deleted.
            _ => None,
        };
        *fresh = None;
        *lock(&live.now) = SignInProgress::default();
        match self.with_files(gateway, |files, name| files.remove(name)).await? {
            Ok(()) | Err(SecretFileError::Unknown(_)) => {}
            Err(error) => return Err(kept(error)),
        }
        self.tell();
        Ok(told)
    }

    /// Files, and perhaps the keyring, block: they are used on another thread.
    async fn with_files<T: Send + 'static>(
        &self,
        gateway: &GatewayAddress,
        work: impl FnOnce(&SecretFileStore<AccountFile>, &str) -> T + Send + 'static,
    ) -> Result<T, AccountError> {
        let (files, name) = (self.0.files.clone(), file_name(gateway));
        let worked = tokio::task::spawn_blocking(move || work(&files, &name)).await;
        worked.map_err(|_| AccountError::Kept("the agent failed while it looked at its files".to_owned()))
    }

    fn live(&self, gateway: &GatewayAddress) -> Arc<AccountState> {
        lock(&self.0.lives).entry(gateway.clone()).or_default().clone()
    }

    fn tell(&self) {
        self.0.news.send_replace(());
    }
}

async fn revoke(place: &reqwest::Url, key: &Zeroizing<String>, client_id: &str) -> Result<(), String> {
    let form = [("token", key.as_str()), ("token_type_hint", "refresh_token"), ("client_id", client_id)];
    ISSUERS.tell(place, &form).await.map_err(|error| error.to_string())
}

/// Accepts only what the gateway takes unchanged.
fn check(issuer: &Issuer, tokens: &Tokens) -> Result<(), AccountError> {
    Ok(tokens.check_type().map_err(|why| IssuerAway::new(&issuer.token, &why))?)
}

/// How many characters a file's name has.
const MAX_FILE_NAME_CHARS: usize = 32;

/// Addresses contain characters that file names cannot.
fn file_name(gateway: &GatewayAddress) -> String {
    Sha256Digest::of(gateway.as_str().as_bytes()).to_string().chars().take(MAX_FILE_NAME_CHARS).collect()
}

fn kept(error: SecretFileError) -> AccountError {
    AccountError::Kept(match error {
        SecretFileError::Unknown(_) => "it was removed meanwhile".to_owned(),
        error => error.to_string(),
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The code under these locks does not panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
