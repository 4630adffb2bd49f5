//! The lifetime of an account's connection: until its token expires, unless a newer one arrives over the connection in
//! time.

use std::time::Duration;

use deskgate_protocol::Timestamp;
use deskgate_protocol::secret::AccessToken;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use crate::domain::accounts::{Account, Grant};
use crate::hosted::{GrantError, TokenVerifier};

/// A token whose issuer cannot be reached is checked again after this time; the one before it stays valid meanwhile.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// The longest time that a connection is accepted without another check of a token.
const MAX_CREDENTIAL_LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);

/// Why a connection is no longer authorised.
#[derive(Debug, thiserror::Error)]
pub(super) enum CredentialEnd {
    /// No newer token arrived in time.
    #[error("the account's access token expired, and no newer one came")]
    Expired,
    /// A newer token was refused.
    #[error("the newer access token is not good: {0}")]
    Refused(GrantError),
    /// A newer token belongs to another account.
    #[error("the newer access token is of another account")]
    OtherAccount,
}

/// The account of a connection, if it has one, and the state of its tokens.
pub(super) struct CredentialLifetime {
    held: Option<(Account, Instant)>,
    judging: JoinSet<Result<Grant, GrantError>>,
}

impl CredentialLifetime {
    pub(super) fn new(grant: Option<Grant>) -> Self {
        let held = grant.map(|grant| (grant.account, end(grant.until)));
        Self { held, judging: JoinSet::new() }
    }

    /// Starts the check of a newer token, in place of one that is being checked. False if the connection has no
    /// account.
    pub(super) fn present(&mut self, verifier: TokenVerifier, token: AccessToken) -> bool {
        let wanted = self.held.is_some();
        if wanted {
            self.judging = JoinSet::new();
            self.judging.spawn(async move {
                loop {
                    match verifier.grant(token.reveal()).await {
                        Err(error @ (GrantError::TooSoon | GrantError::Unavailable(_))) => {
                            tracing::debug!(%error, "a newer token cannot be judged yet");
                            sleep(RETRY_INTERVAL).await;
                        }
                        judged => return judged,
                    }
                }
            });
        }
        wanted
    }

    /// Waits for a result: a newer token is good, or the connection is over. Waits for ever without an account.
    pub(super) async fn next_result(&mut self) -> Result<(), CredentialEnd> {
        let Some((account, until)) = &mut self.held else { return std::future::pending().await };
        let judged = tokio::select! {
            biased;
            Some(judged) = self.judging.join_next() => judged,
            () = sleep_until(*until) => return Err(CredentialEnd::Expired),
        };
        // After a panic of the check the connection stays valid for as long as it was.
        let Ok(judged) = judged else { return Ok(()) };
        let grant = judged.map_err(CredentialEnd::Refused)?;
        if grant.account != *account {
            return Err(CredentialEnd::OtherAccount);
        }
        *until = end(grant.until);
        Ok(())
    }
}

/// When a token expires, on the monotonic clock.
fn end(until: Timestamp) -> Instant {
    let left = until.0.duration_since(jiff::Timestamp::now());
    let left = Duration::try_from(left).unwrap_or(Duration::ZERO).min(MAX_CREDENTIAL_LIFETIME);
    Instant::now() + left
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(milliseconds: i64) -> Grant {
        let account = Account { issuer: "https://id.example.com".to_owned(), subject: "ada".to_owned() };
        let until = jiff::Timestamp::now() + jiff::SignedDuration::from_millis(milliseconds);
        Grant { account, until: until.into() }
    }

    #[tokio::test]
    async fn a_line_is_over_when_its_token_is_and_one_without_an_account_never() {
        let began = Instant::now();
        let over = CredentialLifetime::new(Some(grant(200))).next_result().await;
        assert!(matches!(over, Err(CredentialEnd::Expired)), "{over:?}");
        assert!(began.elapsed() >= Duration::from_millis(190), "after {:?}", began.elapsed());
        let mut never = CredentialLifetime::new(None);
        assert!(tokio::time::timeout(Duration::from_millis(50), never.next_result()).await.is_err());
    }

    #[tokio::test]
    async fn a_newer_token_of_another_account_ends_it_and_one_of_the_same_prolongs_it() {
        let mut pass = CredentialLifetime::new(Some(grant(60_000)));
        let before = pass.held.as_ref().expect("an account").1;
        pass.judging.spawn(async { Ok(grant(600_000)) });
        pass.next_result().await.expect("good");
        assert!(pass.held.as_ref().expect("still").1 > before + Duration::from_secs(500));
        let mut other = grant(600_000);
        other.account.subject = "eve".to_owned();
        pass.judging.spawn(async move { Ok(other) });
        assert!(matches!(pass.next_result().await, Err(CredentialEnd::OtherAccount)));
    }
}
