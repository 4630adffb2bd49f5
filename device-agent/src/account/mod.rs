//! The account of a hosted gateway: signing in, the tokens that come of it, and signing out.
//!
//! | file | what it does |
//! |---|---|
//! | here | the words |
//! | [`address`] | a hosted gateway's address |
//! | `discovery` | from the gateway to its issuer (RFC 9728, RFC 8414) |
//! | `grant` | the device authorization grant (RFC 8628) |
//! | `issuer` | what an issuer is asked, and how it answers (RFC 6749) |
//! | [`token_manager`] | who is signed in where: kept, refreshed, ended |
//!
//! **Trust.** The gateway names its issuer over TLS, and the issuer itself. Tokens go to the addresses of that issuer and to
//! that gateway, and never where an answer points to. Nothing that an issuer says is opened; the user sees the address.
//!
//! **Failure.** An issuer that is away costs nothing until a token is over, and is asked again. One that refuses to
//! refresh has ended the sign-in: only the user can begin another.

pub mod address;
mod discovery;
mod grant;
mod issuer;
pub mod token_manager;

use deskgate_protocol::Timestamp;
use deskgate_secrets::SecretError;
use serde::{Deserialize, Serialize};

pub use address::GatewayAddress;
pub use token_manager::TokenManager;

/// Why nobody is signed in, or no token can be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccountError {
    /// Nobody is.
    #[error("nobody is signed in at {0}. Sign in with `deskgate connection sign-in`, or on the page Connection")]
    SignedOut(String),
    /// The issuer ended it.
    #[error(
        "the sign-in at {gateway} is over: {issuer} refuses to renew it ({why}). Sign in again with `deskgate connection sign-in`"
    )]
    Refused {
        /// The gateway.
        gateway: String,
        /// Who refuses.
        issuer: String,
        /// In its words.
        why: String,
    },
    /// The issuer, or the gateway that names it, does not answer.
    #[error("{place} does not answer as it should: {why}. It is asked again by itself")]
    Away {
        /// Who.
        place: String,
        /// How.
        why: String,
    },
    /// The gateway takes no accounts.
    #[error(
        "{0} is no hosted gateway: it names no issuer of accounts. Check the address; a gateway of your own is reached in the remote mode"
    )]
    NotHosted(String),
    /// The user said no, or took too long.
    #[error("{0}")]
    NotSignedIn(String),
    /// What is kept cannot be read or written.
    #[error("the sign-in cannot be kept: {0}")]
    Kept(String),
}

impl From<SecretError> for AccountError {
    fn from(error: SecretError) -> Self {
        Self::Kept(error.to_string())
    }
}

/// What the user needs to sign in with: shown, never opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignInPrompt {
    /// Where to go, with any browser.
    pub verification_uri: String,
    /// The same with the code in it.
    pub verification_uri_complete: Option<String>,
    /// What to enter, or to compare.
    pub user_code: String,
    /// Until when.
    pub expires_at: Timestamp,
}

/// How it stands with the account of one gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "standing", rename_all = "snake_case")]
pub enum AccountStatus {
    /// Nobody is signed in.
    SignedOut {
        /// Why the last try ended, if there was one since the agent started.
        why: Option<String>,
    },
    /// The user is to go somewhere.
    Waiting {
        /// Where, with what.
        invitation: SignInPrompt,
    },
    /// Somebody is signed in.
    SignedIn {
        /// At whom.
        issuer: String,
        /// Since when.
        since: Timestamp,
        /// Why the issuer gave no newer token when it was last asked.
        trouble: Option<String>,
    },
    /// The issuer ended it.
    Refused {
        /// Who.
        issuer: String,
        /// In its words.
        why: String,
    },
}
