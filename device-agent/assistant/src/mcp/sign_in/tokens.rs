//! The tokens of sign-ins: kept in their servers' files, refreshed by one task at a time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use deskgate_oauth::{IssuerAway, IssuerClient, IssuerResponse, Tokens};
use deskgate_outbound::Clients;
use deskgate_protocol::Timestamp;
use deskgate_protocol::secret::AccessToken;
use deskgate_secrets::{Secret, StoredKey};
use reqwest::Url;
use serde::{Deserialize, Serialize};
use tokio_util::task::AbortOnDropHandle;
use zeroize::Zeroizing;

use super::discovery::{self, SignInPlace};
use super::grant::Grant;
use super::progress::SignInProgress;
use super::redirect::RedirectListener;
use super::session_token::SessionToken;
use super::{McpSignInPrompt, McpSignInStatus, SignInError, SignInRecord};
use crate::mcp::connections::{ConnectionError, Connections, OpenedSignIn};

/// How long the owner has for a sign-in.
const SIGN_IN_TIMEOUT: Duration = Duration::from_secs(600);
/// A token that expires sooner is refreshed first.
pub(super) const EXPIRY_MARGIN: Duration = Duration::from_secs(60);
/// The longest lifetime that an authorization server can give.
const MAX_TOKEN_TTL: Duration = Duration::from_secs(365 * 24 * 3600);
/// The longest client identifier that the owner can give, in bytes.
const MAX_CLIENT_ID_BYTES: usize = 2000;

/// Tokens as a file or the keyring holds them: one text.
#[derive(Serialize, Deserialize)]
pub(super) struct KeptTokens {
    pub(super) access: Zeroizing<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) refresh: Option<Zeroizing<String>>,
}

impl KeptTokens {
    /// Tokens that came now. `before` is the refresh token that they were asked for with, which lasts if there is no
    /// other.
    fn of(tokens: Tokens, before: Option<Zeroizing<String>>, issuer: &Url) -> Result<Self, IssuerAway> {
        tokens.check_type().map_err(|why| IssuerAway::new(issuer, &why))?;
        // What is no key is no header's value either, and may be too long to be kept.
        let is_key = |token: &Zeroizing<String>| Secret::new(token).is_ok();
        if !is_key(&tokens.access_token) || !tokens.refresh_token.as_ref().is_none_or(is_key) {
            return Err(IssuerAway::new(issuer, "it gives tokens that no header can carry"));
        }
        let lasts = tokens.expires_in.map(|seconds| Duration::from_secs(seconds).min(MAX_TOKEN_TTL));
        let expires_at = lasts.and_then(|lasts| Timestamp::now().0.checked_add(lasts).ok()).map(Timestamp::from);
        Ok(Self { access: tokens.access_token, expires_at, refresh: tokens.refresh_token.or(before) })
    }

    fn to_key(&self) -> StoredKey {
        let text = Zeroizing::new(serde_json::to_string(self).expect("texts and a time are JSON"));
        StoredKey::new(text.as_str())
    }

    /// Whether the access token is valid for this long.
    fn lasts(&self, time: Duration) -> bool {
        let now = Timestamp::now().0;
        self.expires_at.is_none_or(|until| now.checked_add(time).is_ok_and(|then| then < until.0))
    }

    fn token(&self) -> CurrentToken {
        CurrentToken { token: AccessToken::new(&self.access), expires_at: self.expires_at }
    }
}

/// An access token with the time until which it is used.
#[derive(Clone)]
pub(super) struct CurrentToken {
    pub(super) token: AccessToken,
    pub(super) expires_at: Option<Timestamp>,
}

/// The state of one server's sign-in.
#[derive(Default)]
pub(super) struct SignInState {
    /// Held while the tokens are exchanged for others.
    pub(super) changing: tokio::sync::Mutex<()>,
    pub(super) progress: Mutex<SignInProgress>,
}

/// The sign-ins of MCP servers. Clones share everything.
#[derive(Clone)]
pub struct SignIns(Arc<SignInsInner>);

struct SignInsInner {
    connections: Connections,
    clients: Arc<Clients>,
    states: Mutex<HashMap<String, Arc<SignInState>>>,
}

impl std::fmt::Debug for SignIns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("SignIns").field(&self.0.connections).finish()
    }
}

impl SignIns {
    pub(in crate::mcp) fn new(connections: Connections, clients: Arc<Clients>) -> Self {
        Self(Arc::new(SignInsInner { connections, clients, states: Mutex::default() }))
    }

    /// The token of a new session with a server at an address.
    pub(in crate::mcp) fn session(&self, name: &str, url: &str) -> SessionToken {
        SessionToken::new(self.clone(), name, url)
    }

    /// Begins a sign-in, and replaces one that waits. [`SignIns::status`] gives its result.
    ///
    /// # Errors
    /// The server is not configured or has a key; it or its authorization server cannot be reached, or does not offer what
    /// a sign-in needs.
    pub async fn begin(&self, name: &str, client_id: Option<String>) -> Result<McpSignInPrompt, SignInError> {
        let usable =
            |id: &str| (1..=MAX_CLIENT_ID_BYTES).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_graphic());
        if client_id.as_deref().is_some_and(|id| !usable(id)) {
            return Err(SignInError::ClientId);
        }
        let (OpenedSignIn { url, has_key, record: saved, .. }, _) = self.saved(name).await?;
        if has_key {
            return Err(SignInError::HasKey(name.to_owned()));
        }
        let server = Url::parse(&url).map_err(|_| SignInError::Broken)?;
        let place = discovery::find(self.issuers(), self.0.clients.for_url(&server), &server).await?;
        let saved_id = saved.filter(|saved| saved.is_client_given && saved.issuer == place.issuer);
        let client_id = client_id.or_else(|| saved_id.map(|saved| saved.client_id));
        let is_client_given = client_id.is_some();
        let listener = RedirectListener::bind().await.map_err(|_| SignInError::Broken)?;
        let grant = Grant::begin(self.issuers(), place, client_id, listener.address()).await?;
        let now = Timestamp::now();
        let prompt = McpSignInPrompt {
            issuer: grant.place.issuer.clone(),
            address: grant.address().to_string(),
            expires_at: now.0.checked_add(SIGN_IN_TIMEOUT).map_or(now, Timestamp::from),
        };
        let (sign_ins, place, address) = (self.clone(), name.to_owned(), prompt.address.clone());
        let waiting = async move {
            let done = sign_ins.finish(&place, &url, &grant, is_client_given, listener).await;
            let state = sign_ins.state(&place);
            // The handle of this task itself, which is about to end.
            let finished = lock(&state.progress).end(&address, done.err().map(|error| error.to_string()));
            drop(finished);
        };
        let state = self.state(name);
        // Under the lock the task begins, so that it ends after it is known.
        let mut progress = lock(&state.progress);
        progress.begin(prompt.clone(), AbortOnDropHandle::new(tokio::spawn(waiting)));
        drop(progress);
        Ok(prompt)
    }

    async fn finish(
        &self,
        name: &str,
        url: &str,
        grant: &Grant,
        is_client_given: bool,
        listener: RedirectListener,
    ) -> Result<(), SignInError> {
        let late = || SignInError::NotSignedIn("no answer came from the browser in time".to_owned());
        let answer = tokio::time::timeout(SIGN_IN_TIMEOUT, listener.wait(grant.state())).await.map_err(|_| late())?;
        let tokens = grant.finish(self.issuers(), answer).await?;
        let SignInPlace { issuer, resource, token, revocation, .. } = grant.place.clone();
        let kept = KeptTokens::of(tokens, None, &token)?;
        let record = SignInRecord {
            issuer,
            client_id: grant.client_id.clone(),
            is_client_given,
            resource,
            token,
            revocation,
            since: Timestamp::now(),
            over: None,
            tokens: Some(kept.to_key()),
        };
        let (revocation, client_id) = (record.revocation.clone(), record.client_id.clone());
        let state = self.state(name);
        let _changing = state.changing.lock().await;
        let (name, url) = (name.to_owned(), url.to_owned());
        let done = self.with_files(move |connections| connections.keep_sign_in(&name, &url, record)).await;
        if done.is_err() {
            // Nobody will use them: the server is gone or has a key by now. The owner reads why it was not kept.
            let _ = Box::pin(self.revoke(revocation.as_ref(), &client_id, &kept)).await;
        }
        done
    }

    /// How a server's sign-in stands.
    ///
    /// # Errors
    /// The server is not configured, or its file cannot be read.
    pub async fn status(&self, name: &str) -> Result<McpSignInStatus, SignInError> {
        let read = name.to_owned();
        let state = self.state(name);
        let status = lock(&state.progress).status();
        if let Some(status) = status {
            return Ok(status);
        }
        let saved = self.with_files(move |connections| Ok(connections.sign_in(&read)?)).await?;
        Ok(saved.map_or(McpSignInStatus::SignedOut, McpSignInStatus::SignedIn))
    }

    /// Cancels a waiting sign-in.
    pub fn cancel(&self, name: &str) {
        lock(&self.state(name).progress).cancel();
    }

    /// A token for a server at an address. An exchange runs to its end in its own task: the caller may be gone, and the
    /// answer may hold the only token that is accepted from then on.
    pub(super) async fn token(
        &self,
        name: &str,
        url: &str,
        refused: Option<&AccessToken>,
    ) -> Result<CurrentToken, SignInError> {
        let (sign_ins, name, url, refused) = (self.clone(), name.to_owned(), url.to_owned(), refused.cloned());
        let fetching = tokio::spawn(async move { sign_ins.fetch(&name, &url, refused.as_ref()).await });
        fetching.await.unwrap_or(Err(SignInError::Broken))
    }

    async fn fetch(&self, name: &str, url: &str, refused: Option<&AccessToken>) -> Result<CurrentToken, SignInError> {
        let state = self.state(name);
        let _changing = state.changing.lock().await;
        let (saved, tokens) = self.saved(name).await?;
        if saved.url != url {
            return Err(ConnectionError::Moved { name: name.to_owned(), saved: saved.url }.into());
        }
        let record = saved.record.ok_or_else(|| SignInError::SignedOut(name.to_owned()))?;
        let over = |why: &str| SignInError::Over { name: name.to_owned(), why: why.to_owned() };
        let tokens = tokens.ok_or_else(|| over(record.over.as_deref().unwrap_or("its tokens are gone")))?;
        let is_refused = refused.is_some_and(|refused| refused.reveal() == tokens.access.as_str());
        if !is_refused && tokens.lasts(EXPIRY_MARGIN) {
            return Ok(tokens.token());
        }
        match self.refresh(name, &record, &tokens).await {
            // What is there lasts for a while.
            Err(SignInError::Away(_)) if !is_refused && tokens.lasts(Duration::ZERO) => Ok(tokens.token()),
            refreshed => refreshed,
        }
    }

    /// Refreshes (RFC 6749, section 6). The new tokens are kept before anything else happens with them.
    async fn refresh(
        &self,
        name: &str,
        record: &SignInRecord,
        tokens: &KeptTokens,
    ) -> Result<CurrentToken, SignInError> {
        let Some(refresh) = &tokens.refresh else {
            let why = "the server takes its token no longer, and there is nothing to renew it with".to_owned();
            return Err(self.end(name, record.since, why).await);
        };
        let form = [
            ("grant_type", "refresh_token"),
            ("refresh_token", refresh.as_str()),
            ("client_id", record.client_id.as_str()),
            ("resource", record.resource.as_str()),
        ];
        let new = match self.issuers().ask::<Tokens>(&record.token, &form).await? {
            IssuerResponse::Granted(new) => new,
            IssuerResponse::Refused(no) if no.is_final() => {
                let why = format!("{} refuses to renew it ({})", record.issuer, no.words());
                return Err(self.end(name, record.since, why).await);
            }
            // A server in between may refuse for a while; ending the sign-in would be permanent.
            IssuerResponse::Refused(no) => return Err(IssuerAway::new(&record.token, &no.words()).into()),
        };
        let kept = KeptTokens::of(new, Some(refresh.clone()), &record.token)?;
        let (key, name, since) = (kept.to_key(), name.to_owned(), record.since);
        let keep = move |connections: &Connections| {
            connections.change_sign_in(&name, since, |record| SignInRecord { tokens: Some(key), ..record })
        };
        self.with_files(keep).await?;
        Ok(kept.token())
    }

    /// Records that a sign-in is over, and deletes its tokens.
    async fn end(&self, name: &str, since: Timestamp, why: String) -> SignInError {
        let (place, reason) = (name.to_owned(), why.clone());
        let end = move |connections: &Connections| {
            let ended = |record| SignInRecord { over: Some(reason), tokens: None, ..record };
            connections.change_sign_in(&place, since, ended)
        };
        match self.with_files(end).await {
            Ok(()) => SignInError::Over { name: name.to_owned(), why },
            Err(error) => error,
        }
    }

    /// A server's sign-in with its tokens. Tokens that cannot be read count as gone: a new sign-in mends that.
    pub(super) async fn saved(&self, name: &str) -> Result<(OpenedSignIn, Option<KeptTokens>), SignInError> {
        let read = name.to_owned();
        let opened = self.with_files(move |connections| Ok(connections.open_sign_in(&read)?)).await?;
        let tokens = opened.tokens.as_ref().and_then(|text| serde_json::from_str(text).ok());
        Ok((opened, tokens))
    }

    pub(super) fn issuers(&self) -> IssuerClient<'_> {
        IssuerClient::new(&self.0.clients, |url| url.scheme() == "https")
    }

    /// Files, and perhaps the keyring, block: they are used on another thread.
    pub(super) async fn with_files<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connections) -> Result<T, SignInError> + Send + 'static,
    ) -> Result<T, SignInError> {
        let connections = self.0.connections.clone();
        tokio::task::spawn_blocking(move || work(&connections)).await.unwrap_or(Err(SignInError::Broken))
    }

    pub(super) fn state(&self, name: &str) -> Arc<SignInState> {
        lock(&self.0.states).entry(name.to_owned()).or_default().clone()
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The code under these locks does not panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
