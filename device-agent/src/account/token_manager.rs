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
    waiting: Option<WaitingSignIn>,
    /// How many sign-ins have begun.
    begun: u64,
    /// Why the last sign-in failed.
    failed: Option<String>,
    /// Why the last refresh failed.
    trouble: Option<String>,
}

/// A sign-in that waits for its user, or whose tokens are about to be kept.
struct WaitingSignIn {
    number: u64,
    prompt: SignInPrompt,
    /// Ends the task with the sign-in; taken out when there are tokens, which somebody has to keep or to revoke.
    task: Option<AbortOnDropHandle<()>>,
}

impl SignInProgress {
    /// The sign-in of this number, if it was neither cancelled nor replaced.
    fn waiting(&mut self, number: u64) -> Option<&mut WaitingSignIn> {
        self.waiting.as_mut().filter(|waiting| waiting.number == number)
    }

    /// The sign-in of this number goes on to its end, whatever becomes of it here.
    fn detach(&mut self, number: u64) {
        let task = self.waiting(number).and_then(|waiting| waiting.task.take());
        drop(task.map(AbortOnDropHandle::detach));
    }
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
        if let Some(WaitingSignIn { prompt, .. }) = &now.waiting {
            return Ok(AccountStatus::Waiting { invitation: prompt.clone() });
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

    /// Why the newest sign-in failed; `None`: it has not, or was cancelled.
    pub fn last_failure(&self, gateway: &GatewayAddress) -> Option<String> {
        lock(&self.live(gateway).now).failed.clone()
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
        now.begun += 1;
        let number = now.begun;
        let task = AbortOnDropHandle::new(tokio::spawn(async move { manager.finish(&place, number, pending).await }));
        now.waiting = Some(WaitingSignIn { number, prompt: invitation.clone(), task: Some(task) });
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

    async fn finish(&self, gateway: &GatewayAddress, number: u64, pending: PendingSignIn) {
        let granted = pending.finish().await;
        let live = self.live(gateway);
        lock(&live.now).detach(number);
        let done = match granted {
            Ok((issuer, tokens)) => self.keep(gateway, number, issuer, tokens).await,
            Err(error) => Err(error),
        };
        let mut now = lock(&live.now);
        if now.waiting(number).is_none() {
            return;
        }
        now.waiting = None;
        (now.failed, now.trouble) = (done.as_ref().err().map(ToString::to_string), None);
        drop(now);
        match done {
            Ok(()) => tracing::info!(%gateway, "signed in"),
            Err(error) => tracing::warn!(%gateway, %error, "not signed in"),
        }
        self.tell();
    }

    /// Keeps the tokens of a sign-in, or revokes them if it was cancelled or replaced meanwhile.
    async fn keep(
        &self,
        gateway: &GatewayAddress,
        number: u64,
        issuer: Issuer,
        tokens: Tokens,
    ) -> Result<(), AccountError> {
        check(&issuer, &tokens)?;
        let live = self.live(gateway);
        let mut fresh = live.fresh.lock().await;
        if lock(&live.now).waiting(number).is_none() {
            let told = match (&issuer.revocation, &tokens.refresh_token) {
                (Some(place), Some(key)) => revoke(place, key, &issuer.client_id).await,
                _ => Ok(()),
            };
            if let Err(why) = told {
                tracing::warn!(%gateway, %why, "the tokens of a cancelled sign-in are not revoked");
            }
            return Ok(());
        }
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
            Ok((_, None)) | Err(SecretFileError::Unknown(_)) => None,
            // A file that cannot be read can still be deleted.
            Err(error) => Some(format!("its key could not be read ({error})")),
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

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::sync::mpsc;

    use super::*;

    /// What is sent to a server that takes every revocation.
    async fn revocations(listener: TcpListener, told: mpsc::UnboundedSender<String>) {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = String::new();
            while !request.contains("token=") {
                let mut bytes = [0; 4096];
                let read = stream.read(&mut bytes).await.expect("a request");
                request.push_str(&String::from_utf8_lossy(&bytes[..read]));
            }
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
            stream.write_all(answer).await.expect("somebody reads");
            told.send(request).expect("somebody reads");
        }
    }

    #[tokio::test]
    async fn tokens_of_a_sign_in_that_was_cancelled_meanwhile_are_revoked_and_not_kept() {
        let (told, mut revoked) = mpsc::unbounded_channel();
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let base = format!("http://{}", listener.local_addr().expect("bound"));
        let _serving = AbortOnDropHandle::new(tokio::spawn(revocations(listener, told)));
        let folder = tempfile::tempdir().expect("a folder");
        let manager = TokenManager::new(folder.path().to_owned(), KeyPreference::default());
        let gateway = GatewayAddress::parse(&base).expect("loopback");
        let issuer = || -> Issuer {
            let place = |path: &str| format!("{base}/{path}");
            let issuer = json!({ "issuer": base, "client_id": "desk", "audience": base, "scope": "openid",
                "token": place("token"), "device": place("device"), "revocation": place("revoke") });
            serde_json::from_value(issuer).expect("an issuer")
        };
        let tokens =
            || serde_json::from_value(json!({ "access_token": "a", "token_type": "Bearer", "refresh_token": "r-1" }));
        let prompt = SignInPrompt {
            verification_uri: base.clone(),
            verification_uri_complete: None,
            user_code: "ABCD-EFGH".to_owned(),
            expires_at: Timestamp::now(),
        };
        let begin = |number| {
            let task = AbortOnDropHandle::new(tokio::spawn(std::future::pending()));
            let waiting = WaitingSignIn { number, prompt: prompt.clone(), task: Some(task) };
            lock(&manager.live(&gateway).now).waiting = Some(waiting);
        };
        begin(1);
        lock(&manager.live(&gateway).now).detach(1);
        manager.cancel(&gateway);
        manager.keep(&gateway, 1, issuer(), tokens().expect("tokens")).await.expect("nothing fails");
        assert!(revoked.recv().await.expect("revoked").contains("token=r-1"));
        assert_eq!(manager.standing(&gateway).await.expect("known"), AccountStatus::SignedOut { why: None });
        // One that replaced it is kept.
        begin(2);
        manager.keep(&gateway, 1, issuer(), tokens().expect("tokens")).await.expect("nothing fails");
        assert!(revoked.recv().await.expect("revoked").contains("token=r-1"));
        manager.keep(&gateway, 2, issuer(), tokens().expect("tokens")).await.expect("kept");
        manager.token(&gateway).await.expect("signed in");
    }
}
