//! What signing in has in common, wherever it is: requests to an issuer, its metadata, and its tokens.
//!
//! An issuer of tokens is asked for an account of a hosted gateway, and for the right to use an MCP server. How an issuer is
//! found, and which grant is used, differs and is decided elsewhere. No redirect is followed, and no error holds a value
//! that was sent.

mod client;
mod metadata;
mod tokens;
pub mod url_text;

use deskgate_program::redaction::without_secret;
use serde::Deserialize;

pub use client::{IssuerAway, IssuerClient, IssuerResponse, Lookup};
pub use metadata::IssuerMetadata;
pub use tokens::Tokens;

/// Errors after which refreshing cannot succeed (RFC 6749, section 5.2).
const FATAL_ERRORS: [&str; 3] = ["invalid_grant", "invalid_client", "unauthorized_client"];
/// The longest text of an issuer that is shown, in characters.
const MAX_WORDS_CHARS: usize = 300;

/// The fields of forms that hold secrets.
const SECRET_FIELDS: [&str; 5] = ["code", "code_verifier", "device_code", "refresh_token", "token"];
/// What stands in the place of a secret.
const REPLACEMENT_TEXT: &str = "[removed]";

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

    /// The same without the secrets of the form that is refused, which some issuers repeat.
    fn without_secrets(mut self, form: &[(&str, &str)]) -> Self {
        for (_, secret) in form.iter().filter(|(name, _)| SECRET_FIELDS.contains(name)) {
            self.error = without_secret(&self.error, secret, REPLACEMENT_TEXT);
            self.error_description = self.error_description.map(|text| without_secret(&text, secret, REPLACEMENT_TEXT));
        }
        self
    }

    /// Whether the refusal of a refresh ends the sign-in. A server in between may refuse otherwise for a while.
    pub fn is_final(&self) -> bool {
        FATAL_ERRORS.contains(&self.error.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_repeats_no_secret_that_was_sent() {
        let error_description = Some("no canary%2F4711 of refresh_token".to_owned());
        let refusal = OAuthError { error: "invalid_grant".to_owned(), error_description };
        let form = [("grant_type", "refresh_token"), ("refresh_token", "canary/4711")];
        let refusal = refusal.without_secrets(&form);
        assert_eq!(refusal.words(), "invalid_grant: no [removed] of refresh_token");
        assert!(refusal.is_final());
    }
}
