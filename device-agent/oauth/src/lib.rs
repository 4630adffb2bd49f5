//! What signing in has in common, wherever it is: requests to an issuer, its metadata, and its tokens.
//!
//! An issuer of tokens is asked for an account of a hosted gateway, and for the right to use an MCP server. How an issuer is
//! found, and which grant is used, differs and is decided elsewhere. No redirect is followed, and no error holds a value
//! that was sent.

mod client;
mod metadata;
mod tokens;
pub mod url_text;

use serde::Deserialize;

pub use client::{IssuerAway, IssuerClient, IssuerResponse, Lookup};
pub use metadata::IssuerMetadata;
pub use tokens::Tokens;

/// Errors after which refreshing cannot succeed (RFC 6749, section 5.2).
const FATAL_ERRORS: [&str; 3] = ["invalid_grant", "invalid_client", "unauthorized_client"];
/// The longest text of an issuer that is shown, in characters.
const MAX_WORDS_CHARS: usize = 300;

/// An issuer's error (RFC 6749, section 5.2).
#[derive(Clone, Debug, Deserialize)]
pub struct OAuthError {
    /// The code for programs.
    pub error: String,
    /// The description for people.
    #[serde(default)]
    pub error_description: Option<String>,
}

impl OAuthError {
    /// Code and description, without terminal control characters.
    pub fn words(&self) -> String {
        let words = match &self.error_description {
            Some(words) => format!("{}: {words}", self.error),
            None => self.error.clone(),
        };
        words.chars().filter(|c| !c.is_control()).take(MAX_WORDS_CHARS).collect()
    }

    /// Whether the refusal of a refresh ends the sign-in. A server in between may refuse otherwise for a while.
    pub fn is_final(&self) -> bool {
        FATAL_ERRORS.contains(&self.error.as_str())
    }
}
