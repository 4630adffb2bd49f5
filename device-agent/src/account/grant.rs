//! The device authorization grant (RFC 8628): a code that the user enters elsewhere, and polling until then.

use std::time::Duration;

use deskgate_protocol::Timestamp;
use serde::Deserialize;
use tokio::time::{Instant, sleep};
use zeroize::Zeroizing;

use super::discovery::Issuer;
use super::{AccountError, ISSUERS, SignInPrompt};
use deskgate_oauth::{IssuerAway, IssuerResponse, Tokens};

/// The interval between two polls, if the issuer names none.
const DEFAULT_POLL_INTERVAL: Duration = Duration::from_secs(5);
/// Added to the interval each time the issuer asks to slow down (RFC 8628, section 3.5).
const SLOW_DOWN_INCREMENT: Duration = Duration::from_secs(5);
/// The longest interval that an issuer can request.
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(60);
/// The longest lifetime of a code.
const MAX_CODE_TTL: Duration = Duration::from_secs(3600);

/// An issuer's answer when a sign-in begins.
#[derive(Deserialize)]
struct DeviceAuthorization {
    device_code: Zeroizing<String>,
    user_code: String,
    verification_uri: String,
    #[serde(default)]
    verification_uri_complete: Option<String>,
    expires_in: u64,
    #[serde(default)]
    interval: Option<u64>,
}

/// A sign-in that waits for its user.
pub(super) struct PendingSignIn {
    issuer: Issuer,
    device_code: Zeroizing<String>,
    interval: Duration,
    until: Instant,
}

/// Begins a sign-in: the prompt for the user, and the sign-in that waits for them.
pub(super) async fn begin(issuer: Issuer) -> Result<(SignInPrompt, PendingSignIn), AccountError> {
    let mut form = vec![("client_id", issuer.client_id.as_str()), ("scope", issuer.scope.as_str())];
    form.extend(issuer.resource());
    let begun: DeviceAuthorization = match ISSUERS.ask(&issuer.device, &form).await? {
        IssuerResponse::Granted(begun) => begun,
        IssuerResponse::Refused(refusal) => {
            return Err(AccountError::NotSignedIn(format!("{} begins no sign-in: {}", issuer.issuer, refusal.words())));
        }
    };
    let lasts = Duration::from_secs(begun.expires_in).min(MAX_CODE_TTL);
    let now = Timestamp::now();
    let shown = |text: &str| ISSUERS.address(text).map(String::from);
    let is_code =
        (1..=64).contains(&begun.user_code.len()) && begun.user_code.chars().all(|c| c.is_ascii_graphic() || c == ' ');
    let verification_uri = shown(&begun.verification_uri).filter(|_| is_code);
    let invitation = SignInPrompt {
        verification_uri: verification_uri
            .ok_or_else(|| IssuerAway::new(&issuer.device, "what it gives cannot be shown: no address, or no code"))?,
        verification_uri_complete: begun.verification_uri_complete.as_deref().and_then(shown),
        user_code: begun.user_code,
        expires_at: now.0.checked_add(lasts).map_or(now, Timestamp::from),
    };
    let interval = begun
        .interval
        .map_or(DEFAULT_POLL_INTERVAL, Duration::from_secs)
        .clamp(Duration::from_secs(1), MAX_POLL_INTERVAL);
    Ok((invitation, PendingSignIn { device_code: begun.device_code, interval, until: Instant::now() + lasts, issuer }))
}

impl PendingSignIn {
    /// Polls until the user has signed in, declined, or taken too long.
    pub(super) async fn finish(mut self) -> Result<(Issuer, Tokens), AccountError> {
        let late =
            || AccountError::NotSignedIn("the code expired before anybody signed in with it; sign in again".to_owned());
        loop {
            sleep(self.interval).await;
            if Instant::now() >= self.until {
                return Err(late());
            }
            let mut form = vec![
                ("grant_type", "urn:ietf:params:oauth:grant-type:device_code"),
                ("device_code", self.device_code.as_str()),
                ("client_id", self.issuer.client_id.as_str()),
            ];
            form.extend(self.issuer.resource());
            let refusal = match ISSUERS.ask::<Tokens>(&self.issuer.token, &form).await {
                Ok(IssuerResponse::Granted(tokens)) => return Ok((self.issuer, tokens)),
                Ok(IssuerResponse::Refused(refusal)) => refusal,
                Err(error) => {
                    tracing::debug!(%error, "the issuer does not answer while a user signs in");
                    // As in section 3.5: less often, as long as the code is valid.
                    self.interval = (self.interval * 2).min(MAX_POLL_INTERVAL);
                    continue;
                }
            };
            match refusal.error.as_str() {
                "authorization_pending" => {}
                "slow_down" => self.interval = (self.interval + SLOW_DOWN_INCREMENT).min(MAX_POLL_INTERVAL),
                "expired_token" => return Err(late()),
                "access_denied" => {
                    return Err(AccountError::NotSignedIn(
                        "the sign-in was refused where the code was entered".to_owned(),
                    ));
                }
                _ => {
                    let why = format!("{} refuses the sign-in: {}", self.issuer.issuer, refusal.words());
                    return Err(AccountError::NotSignedIn(why));
                }
            }
        }
    }
}
