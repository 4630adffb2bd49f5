//! The token that the requests of one session carry.

use std::sync::atomic::{AtomicUsize, Ordering};

use deskgate_protocol::Timestamp;
use deskgate_protocol::secret::AccessToken;
use tokio::sync::Mutex;

use super::SignInError;
use super::tokens::{CurrentToken, EXPIRY_MARGIN, SignIns};

/// The token that the requests of one session carry.
pub(in crate::mcp) struct SessionToken {
    sign_ins: SignIns,
    name: String,
    url: String,
    tokens: Mutex<RecentTokens>,
    waits: AtomicUsize,
}

/// The token that is used, and the one before: an answer that comes late may repeat that.
#[derive(Default)]
struct RecentTokens {
    current: Option<CurrentToken>,
    former: Option<AccessToken>,
}

impl RecentTokens {
    fn replace(&mut self, new: CurrentToken) -> AccessToken {
        let token = new.token.clone();
        let former = self.current.replace(new).map(|former| former.token);
        self.former = former.filter(|former| *former != token).or(self.former.take());
        token
    }
}

impl std::fmt::Debug for SessionToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("SessionToken").field(&self.name).finish()
    }
}

impl SessionToken {
    /// The token of a new session with a server at an address.
    pub(super) fn new(sign_ins: SignIns, name: &str, url: &str) -> Self {
        let (name, url) = (name.to_owned(), url.to_owned());
        Self { sign_ins, name, url, tokens: Mutex::default(), waits: AtomicUsize::new(0) }
    }

    /// A token for a request. It is refreshed before it expires.
    pub(in crate::mcp) async fn get(&self) -> Result<AccessToken, SignInError> {
        let mut tokens = self.tokens.lock().await;
        let soon = Timestamp::now().0.checked_add(EXPIRY_MARGIN).map_err(|_| SignInError::Broken)?;
        match &tokens.current {
            Some(good) if good.expires_at.is_none_or(|until| soon < until.0) => Ok(good.token.clone()),
            _ => Ok(tokens.replace(self.fetch(None).await?)),
        }
    }

    /// A token in place of one that the server has refused.
    pub(in crate::mcp) async fn instead_of(&self, refused: &AccessToken) -> Result<AccessToken, SignInError> {
        let mut tokens = self.tokens.lock().await;
        match &tokens.current {
            // Another request of this session was refused with it before.
            Some(other) if other.token != *refused => Ok(other.token.clone()),
            _ => Ok(tokens.replace(self.fetch(Some(refused)).await?)),
        }
    }

    /// The tokens that the answers of this session may repeat.
    pub(in crate::mcp) async fn recent(&self) -> Vec<AccessToken> {
        let tokens = self.tokens.lock().await;
        let current = tokens.current.as_ref().map(|current| current.token.clone());
        current.into_iter().chain(tokens.former.clone()).collect()
    }

    /// The error for a token that was refused although it is new.
    pub(in crate::mcp) fn refused(&self) -> SignInError {
        SignInError::Over { name: self.name.clone(), why: "the server does not take its token".to_owned() }
    }

    /// Counts when a request begins to wait for a token, and when it has it: odd while one waits.
    pub(in crate::mcp) fn waits(&self) -> usize {
        self.waits.load(Ordering::SeqCst)
    }

    /// Called under the lock of `tokens`.
    async fn fetch(&self, refused: Option<&AccessToken>) -> Result<CurrentToken, SignInError> {
        let _waiting = WaitGuard::new(&self.waits);
        self.sign_ins.token(&self.name, &self.url, refused).await
    }
}

/// A request that waits for a token, for as long as this lives.
struct WaitGuard<'a>(&'a AtomicUsize);

impl<'a> WaitGuard<'a> {
    fn new(waits: &'a AtomicUsize) -> Self {
        waits.fetch_add(1, Ordering::SeqCst);
        Self(waits)
    }
}

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_before_the_current_one_is_known_still() {
        let mut tokens = RecentTokens::default();
        for token in ["first", "second", "second", "third", "third"] {
            tokens.replace(CurrentToken { token: AccessToken::new(token), expires_at: None });
        }
        assert!(tokens.current.is_some_and(|current| current.token == AccessToken::new("third")));
        assert_eq!(tokens.former, Some(AccessToken::new("second")));
    }
}
