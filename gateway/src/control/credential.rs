//! How long the line of an account is good: until its token is over, unless a newer one comes over the line in time.

use std::time::Duration;

use deskgate_protocol::Timestamp;
use deskgate_protocol::secret::AccessToken;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use crate::domain::accounts::{Account, Grant};
use crate::hosted::{GrantError, TokenVerifier};

/// A token whose issuer cannot be asked is judged again after so long; the one before it goes on meanwhile.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// No line is believed for longer than this without another look at its token.
const MAX_CREDENTIAL_LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);

/// Why a line is not good any more.
#[derive(Debug, thiserror::Error)]
pub(super) enum CredentialEnd {
    /// No newer token came in time.
    #[error("the account's access token expired, and no newer one came")]
    Expired,
    /// One came, and was not good.
    #[error("the newer access token is not good: {0}")]
    Refused(GrantError),
    /// One came, and was somebody else's.
    #[error("the newer access token is of another account")]
    OtherAccount,
}

/// The account of a line, if it is one's, and what is known of its tokens.
pub(super) struct CredentialLifetime {
    held: Option<(Account, Instant)>,
    judging: JoinSet<Result<Grant, GrantError>>,
}

impl CredentialLifetime {
    pub(super) fn new(grant: Option<Grant>) -> Self {
        let held = grant.map(|grant| (grant.account, end(grant.until)));
        Self { held, judging: JoinSet::new() }
    }

    /// Has a newer token judged, in place of one that is being judged. False where none belongs.
    pub(super) fn present(&mut self, judge: TokenVerifier, token: AccessToken) -> bool {
        let wanted = self.held.is_some();
        if wanted {
            self.judging = JoinSet::new();
            self.judging.spawn(async move {
                loop {
                    match judge.grant(token.reveal()).await {
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

    /// Waits until something is known: a newer token is good, or the line is over. For ever where there is no account.
    pub(super) async fn next_result(&mut self) -> Result<(), CredentialEnd> {
        let Some((account, until)) = &mut self.held else { return std::future::pending().await };
        let judged = tokio::select! {
            biased;
            Some(judged) = self.judging.join_next() => judged,
            () = sleep_until(*until) => return Err(CredentialEnd::Expired),
        };
        // A judge that panicked has said nothing: the line is good for as long as it was.
        let Ok(judged) = judged else { return Ok(()) };
        let grant = judged.map_err(CredentialEnd::Refused)?;
        if grant.account != *account {
            return Err(CredentialEnd::OtherAccount);
        }
        *until = end(grant.until);
        Ok(())
    }
}

/// When a token is over, on the clock that no user sets.
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
