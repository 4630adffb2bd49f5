//! The end of a sign-in: by its owner's wish, or because its server is removed or gets a key. What came of it is revoked
//! at the authorization server where that is possible (RFC 7009), and deleted here in any case.

use reqwest::Url;

use super::progress::SignInProgress;
use super::tokens::{KeptTokens, SignIns, lock};
use super::{McpSignOut, SignInError, SignInRecord};
use crate::mcp::connections::{ConnectionError, Connections, McpServerChange, McpServerConfig};

/// Why tokens are not revoked that are not there, or that the keyring does not give.
const UNREADABLE_TEXT: &str = "its tokens had ended, or could not be read";

impl SignIns {
    /// Signs out: revokes at the authorization server, if it supports that, and deletes everything. Returns why it could
    /// not be told.
    ///
    /// # Errors
    /// The server is not configured, or its file cannot be read or written.
    pub async fn sign_out(&self, name: &str) -> Result<Option<String>, SignInError> {
        let state = self.state(name);
        let _changing = state.changing.lock().await;
        *lock(&state.progress) = SignInProgress::default();
        let (saved, tokens) = self.saved(name).await?;
        let record = saved.record.ok_or_else(|| SignInError::SignedOut(name.to_owned()))?;
        let not_told = match tokens {
            Some(tokens) => Box::pin(self.revoke(record.revocation.as_ref(), &record.client_id, &tokens)).await.err(),
            None => Some(UNREADABLE_TEXT.to_owned()),
        };
        let forgotten = name.to_owned();
        self.with_files(move |connections| Ok(connections.forget_sign_in(&forgotten)?)).await?;
        Ok(not_told)
    }

    /// Adds a server or changes it; fields that are `None` stay. A saved key never goes to another address. Returns what
    /// became of a sign-in that this ended.
    ///
    /// # Errors
    /// The change is not valid, or the file or key cannot be written.
    pub async fn set(
        &self,
        name: &str,
        change: McpServerChange,
    ) -> Result<(McpServerConfig, Option<McpSignOut>), SignInError> {
        let changed = name.to_owned();
        self.ending(name, move |connections| connections.set(&changed, change)).await
    }

    /// Removes a server and its key. Services that name it can no longer run. Returns what became of its sign-in.
    ///
    /// # Errors
    /// There is no server of this name, or its file cannot be removed.
    pub async fn remove(&self, name: &str) -> Result<Option<McpSignOut>, SignInError> {
        *lock(&self.state(name).progress) = SignInProgress::default();
        let removed = name.to_owned();
        let ((), ended) = self.ending(name, move |connections| connections.remove(&removed)).await?;
        Ok(ended)
    }

    /// Makes a change, and revokes what came of a sign-in that is gone after it. The change itself waits for nobody: it
    /// counts also when the authorization server is away.
    async fn ending<T: Send + 'static>(
        &self,
        name: &str,
        change: impl FnOnce(&Connections) -> Result<T, ConnectionError> + Send + 'static,
    ) -> Result<(T, Option<McpSignOut>), SignInError> {
        let state = self.state(name);
        // A refresh meanwhile would get tokens that nobody revokes.
        let _changing = state.changing.lock().await;
        // What cannot be read is changed all the same; there is nothing to revoke it with.
        let before = self.saved(name).await.ok();
        let read = name.to_owned();
        let had = self.with_files(move |connections| Ok(connections.sign_in(&read)?)).await.ok().flatten();
        let read = name.to_owned();
        let change = move |connections: &Connections| {
            let changed = change(connections)?;
            Ok((changed, connections.sign_in(&read).ok().flatten()))
        };
        let (changed, after) = self.with_files(change).await?;
        if had.as_ref().map(|view| view.since) == after.map(|view| view.since) {
            return Ok((changed, None));
        }
        let not_told = match before.map(|(saved, tokens)| (saved.record, tokens)) {
            Some((Some(record), Some(tokens))) => self.revoke_to_the_end(record, tokens).await,
            _ => Some(UNREADABLE_TEXT.to_owned()),
        };
        Ok((changed, Some(McpSignOut { name: name.to_owned(), not_told })))
    }

    /// Revokes, also when nobody waits for it any longer: the tokens are gone from here. Returns why it could not be done.
    async fn revoke_to_the_end(&self, record: SignInRecord, tokens: KeptTokens) -> Option<String> {
        let sign_ins = self.clone();
        let revoking = async move { sign_ins.revoke(record.revocation.as_ref(), &record.client_id, &tokens).await };
        let revoked = tokio::spawn(revoking).await;
        revoked.unwrap_or_else(|_| Err("the agent failed at it".to_owned())).err()
    }

    /// Revokes the refresh token, with which an authorization server ends the access token as well, or else that one.
    pub(super) async fn revoke(&self, place: Option<&Url>, client_id: &str, tokens: &KeptTokens) -> Result<(), String> {
        let place = place.ok_or("it has no place where that could be told")?;
        let (token, kind) = match &tokens.refresh {
            Some(refresh) => (refresh, "refresh_token"),
            None => (&tokens.access, "access_token"),
        };
        let form = [("token", token.as_str()), ("token_type_hint", kind), ("client_id", client_id)];
        self.issuers().tell(place, &form).await.map_err(|error| error.to_string())
    }
}
