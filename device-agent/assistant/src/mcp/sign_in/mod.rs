//! Signing in for an MCP server (the protocol's authorization: OAuth 2.1 with PKCE), and the tokens that come of it.
//!
//! | file | part |
//! |---|---|
//! | here | errors, what is kept, and what is shown |
//! | `discovery` | from the server to its authorization server |
//! | `grant` | the authorization code grant, and registering |
//! | `redirect` | the address on this computer to which the browser brings the answer |
//! | `progress` | the sign-in that waits for its owner |
//! | `tokens` | the tokens: kept, refreshed by one task at a time |
//! | `session_token` | the token of one session's requests |
//! | `revocation` | the end of a sign-in |
//!
//! **Trust.** The server names its authorization server, and only over HTTPS. Tokens are asked for the server's own
//! resource, go to the server's address and to that authorization server, and to nowhere else. A sign-in is kept in its
//! server's file, as a key is, and ends when the server is set to another address.

mod discovery;
mod grant;
mod progress;
mod redirect;
mod revocation;
mod session_token;
mod tokens;

use deskgate_oauth::IssuerAway;
use deskgate_protocol::Timestamp;
use deskgate_secrets::{SecretFileError, StoredKey};
use reqwest::Url;
use serde::{Deserialize, Serialize};

use super::connections::ConnectionError;
pub(super) use session_token::SessionToken;
pub use tokens::SignIns;

/// Why there is no sign-in or no token.
#[derive(Debug, thiserror::Error)]
pub enum SignInError {
    /// The server is not configured, or its file or key cannot be read or written.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    /// The server has a key.
    #[error("{0} has a key, which a sign-in would replace; take it away first: deskgate mcp set {0} --no-key")]
    HasKey(String),
    /// The server does not say where one signs in; holds what was found instead.
    #[error(
        "it does not say where one signs in (RFC 9728; {0}). If it wants a key: deskgate mcp set NAME --key-file FILE, \
         otherwise ask whoever runs it"
    )]
    NotOffered(String),
    /// The server or its authorization server does not answer as it should.
    #[error("{0}; try again later, or ask whoever runs it")]
    Away(#[from] IssuerAway),
    /// The authorization server takes codes from whoever has them.
    #[error("{0} does not offer PKCE with S256, without which a sign-in is not safe; ask whoever runs it")]
    NoPkce(String),
    /// Programs cannot register themselves.
    #[error("{0} registers no programs; get a client identifier there, and give it with --client-id")]
    NoRegistration(String),
    /// The registration was refused.
    #[error(
        "{issuer} does not register this program ({why}); get a client identifier there, and give it with --client-id"
    )]
    RegistrationRefused {
        /// The authorization server.
        issuer: String,
        /// Its reason.
        why: String,
    },
    /// The registered client needs a secret.
    #[error(
        "{0} gives only client identifiers that need a secret; get one for a public client there, and give it with \
         --client-id"
    )]
    SecretClient(String),
    /// There is no sign-in.
    #[error("nobody is signed in at {0}; sign in: deskgate mcp sign-in {0}")]
    SignedOut(String),
    /// The client identifier is not one.
    #[error("--client-id: a client identifier is one line of visible characters without spaces; this is not")]
    ClientId,
    /// The owner declined or took too long, or the answer cannot be used.
    #[error("nobody was signed in: {0}")]
    NotSignedIn(String),
    /// The sign-in is over.
    #[error("the sign-in is over: {why}. Sign in again: deskgate mcp sign-in {name}")]
    Over {
        /// The server's name.
        name: String,
        /// Why it is over.
        why: String,
    },
    /// A fault in this program.
    #[error("the agent failed while it handled a sign-in")]
    Broken,
}

impl From<SecretFileError> for SignInError {
    fn from(error: SecretFileError) -> Self {
        Self::Connection(error.into())
    }
}

/// What is kept of a sign-in, in its server's file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SignInRecord {
    issuer: String,
    client_id: String,
    /// Whether the owner gave the client identifier; another was registered for one sign-in.
    #[serde(default)]
    is_client_given: bool,
    resource: String,
    #[serde(with = "deskgate_oauth::url_text")]
    token: Url,
    #[serde(default, with = "deskgate_oauth::url_text::optional")]
    revocation: Option<Url>,
    since: Timestamp,
    /// Why it is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    over: Option<String>,
    /// The tokens as one text, so that both change in one step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) tokens: Option<StoredKey>,
}

impl SignInRecord {
    /// Whether it is the one that began then.
    pub(super) fn is_of(&self, since: Timestamp) -> bool {
        self.since == since
    }

    /// The sign-in for people.
    pub(super) fn view(&self) -> SignInView {
        SignInView { issuer: self.issuer.clone(), since: self.since, over: self.over.clone() }
    }
}

/// A sign-in, without its tokens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignInView {
    /// The authorization server.
    pub issuer: String,
    /// When the owner signed in.
    pub since: Timestamp,
    /// Why it is over; absent while it lasts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over: Option<String>,
}

/// What came of the end of a sign-in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct McpSignOut {
    /// The server's name.
    pub name: String,
    /// Why the authorization server could not be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_told: Option<String>,
}

/// What the owner needs to sign in: an address for a browser on this computer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct McpSignInPrompt {
    /// The authorization server.
    pub issuer: String,
    /// The address.
    pub address: String,
    /// Until when the answer is waited for.
    pub expires_at: Timestamp,
}

/// How a sign-in of a server stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "standing", rename_all = "snake_case")]
pub enum McpSignInStatus {
    /// Nobody is signed in.
    SignedOut,
    /// The last try failed; what was before it is unchanged.
    Failed {
        /// Why it failed.
        why: String,
    },
    /// A sign-in waits for the owner.
    Waiting {
        /// What the owner needs.
        prompt: McpSignInPrompt,
    },
    /// The owner is signed in, or was.
    SignedIn(SignInView),
}
