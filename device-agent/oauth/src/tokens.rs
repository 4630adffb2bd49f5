//! Tokens as issuers send them, which is not always as RFC 6749 has it.

use std::time::Duration;

use serde::{Deserialize, Deserializer};
use serde_json::Value;
use zeroize::Zeroizing;

/// The longest type that an error names, in characters.
const MAX_TYPE_CHARS: usize = 40;

/// Tokens, as an issuer sends them.
#[derive(Deserialize)]
pub struct Tokens {
    /// The token for requests.
    pub access_token: Zeroizing<String>,
    /// How it is sent. RFC 6749, section 5.1, demands it; some vendors leave it out, and mean `Bearer`.
    #[serde(default)]
    token_type: Option<String>,
    /// Its lifetime in seconds, if the issuer says it.
    #[serde(default, deserialize_with = "seconds")]
    pub expires_in: Option<u64>,
    /// The token for the next refresh.
    #[serde(default)]
    pub refresh_token: Option<Zeroizing<String>>,
    /// What the token may be used for, if that is not what was asked for.
    #[serde(default)]
    pub scope: Option<String>,
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tokens(…)")
    }
}

impl Tokens {
    /// Checks that the access token is sent behind the word `Bearer`, in any case.
    ///
    /// # Errors
    /// It is of another type; says of which.
    pub fn check_type(&self) -> Result<(), String> {
        match self.token_type.as_deref().filter(|name| !name.is_empty()) {
            Some(name) if !name.eq_ignore_ascii_case("bearer") => {
                let name: String = name.chars().filter(char::is_ascii_graphic).take(MAX_TYPE_CHARS).collect();
                Err(format!("it gives tokens of the type {name:?}, and only Bearer is supported"))
            }
            _ => Ok(()),
        }
    }
}

/// A lifetime as issuers write it: a number, whole or not, or one as text. Whatever else stands there says nothing: such a
/// token lasts until it is refused.
fn seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let whole = |number: f64| Duration::try_from_secs_f64(number).ok().map(|lasts| lasts.as_secs());
    Ok(match Option::<Value>::deserialize(deserializer)? {
        Some(Value::Number(number)) => number.as_u64().or_else(|| number.as_f64().and_then(whole)),
        Some(Value::String(text)) => {
            let text = text.trim();
            text.parse().ok().or_else(|| text.parse().ok().and_then(whole))
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(members: &str) -> Tokens {
        serde_json::from_str(&format!("{{\"access_token\":\"canary\"{members}}}")).expect(members)
    }

    #[test]
    fn a_lifetime_is_read_in_every_form_that_issuers_send() {
        for (written, seconds) in [
            ("3600", Some(3600)),
            ("3600.9", Some(3600)),
            ("\"3600\"", Some(3600)),
            ("\" 3599.5 \"", Some(3599)),
            ("0", Some(0)),
            ("null", None),
            ("\"\"", None),
            ("\"soon\"", None),
            ("-1", None),
            ("1e300", None),
            ("\"inf\"", None),
            ("{}", None),
        ] {
            let tokens = tokens(&format!(",\"expires_in\":{written}"));
            assert_eq!(tokens.expires_in, seconds, "{written}");
        }
        assert_eq!(tokens("").expires_in, None);
    }

    #[test]
    fn a_token_without_a_type_is_a_bearers_and_another_type_is_refused_by_name() {
        for bearer in ["", ",\"token_type\":null", ",\"token_type\":\"\"", ",\"token_type\":\"bEARER\""] {
            assert_eq!(tokens(bearer).check_type(), Ok(()), "{bearer}");
        }
        for (other, named) in [("DPoP", "DPoP"), ("mac", "mac"), ("Bearer\\u001b[2J", "Bearer[2J")] {
            let error = tokens(&format!(",\"token_type\":\"{other}\"")).check_type().expect_err(other);
            assert!(error.contains(&format!("\"{named}\"")) && error.contains("only Bearer"), "{error}");
        }
        assert!(!format!("{:?}", tokens("")).contains("canary"));
    }
}
