//! The account of a hosted gateway: signing in, the tokens that come of it, and signing out.
//!
//! | file | what it does |
//! |---|---|
//! | here | errors and the account's status |
//! | [`address`] | a hosted gateway's address |
//! | `discovery` | from the gateway to its issuer (RFC 9728, RFC 8414) |
//! | `grant` | the device authorization grant (RFC 8628) |
//! | [`token_manager`] | the sign-ins: stored, refreshed, ended |
//!
//! **Trust.** The gateway names its issuer over TLS, and so does the issuer itself. Tokens go to that issuer's
//! addresses and to that gateway only, whatever an answer points to. No address from an issuer is opened; the user sees
//! it.
//!
//! **Failure.** An unreachable issuer matters only once a token has expired, and is asked again. An issuer that refuses
//! to refresh has ended the sign-in: only the user can begin another.

pub mod address;
mod discovery;
mod grant;
pub mod token_manager;

use deskgate_oauth::{IssuerAway, IssuerClient};
use deskgate_outbound::{Clients, is_guarded};
use deskgate_protocol::Timestamp;
use deskgate_secrets::SecretError;
use serde::{Deserialize, Serialize};

pub use address::GatewayAddress;
pub use token_manager::TokenManager;

static CLIENTS: Clients = Clients::new(|builder| builder);

/// Issuers are asked over HTTPS, or on this computer.
const ISSUERS: IssuerClient<'static> = IssuerClient::new(&CLIENTS, is_guarded);

/// Why there is no sign-in or no token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccountError {
    /// Nobody is signed in.
    #[error("nobody is signed in at {0}. Sign in with `deskgate connection sign-in`, or on the page Connection")]
    SignedOut(String),
    /// The issuer ended the sign-in.
    #[error(
        "the sign-in at {gateway} is over: {issuer} refuses to renew it ({why}). Sign in again with `deskgate connection sign-in`"
    )]
    Refused {
        /// The gateway.
        gateway: String,
        /// The issuer that refuses.
        issuer: String,
        /// The issuer's reason.
        why: String,
    },
    /// The issuer, or the gateway that names it, cannot be reached.
    #[error("{place} does not answer as it should: {why}. It is asked again by itself")]
    Away {
        /// The server that cannot be reached.
        place: String,
        /// What failed.
        why: String,
    },
    /// The gateway takes no accounts.
    #[error(
        "{0} is no hosted gateway: it names no issuer of accounts. Check the address; a gateway of your own is reached in the remote mode"
    )]
    NotHosted(String),
    /// The user declined, or took too long.
    #[error("{0}")]
    NotSignedIn(String),
    /// The stored sign-in cannot be read or written.
    #[error("the sign-in cannot be kept: {0}")]
    Kept(String),
}

impl From<IssuerAway> for AccountError {
    fn from(IssuerAway { place, why }: IssuerAway) -> Self {
        Self::Away { place, why }
    }
}

impl From<SecretError> for AccountError {
    fn from(error: SecretError) -> Self {
        Self::Kept(error.to_string())
    }
}

/// What the user needs to sign in with: shown, never opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignInPrompt {
    /// The address to open, with any browser.
    pub verification_uri: String,
    /// The same with the code in it.
    pub verification_uri_complete: Option<String>,
    /// The code to enter, or to compare.
    pub user_code: String,
    /// When the code expires.
    pub expires_at: Timestamp,
}

/// The status of one gateway's account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "standing", rename_all = "snake_case")]
pub enum AccountStatus {
    /// Nobody is signed in.
    SignedOut {
        /// Why the last try ended, if there was one since the agent started.
        why: Option<String>,
    },
    /// A sign-in waits for the user.
    Waiting {
        /// The prompt for the user.
        invitation: SignInPrompt,
    },
    /// A user is signed in.
    SignedIn {
        /// The issuer.
        issuer: String,
        /// When the sign-in happened.
        since: Timestamp,
        /// Why the last refresh gave no newer token.
        trouble: Option<String>,
    },
    /// The issuer ended the sign-in.
    Refused {
        /// The issuer that refuses.
        issuer: String,
        /// The issuer's reason.
        why: String,
    },
}
