//! An access token's claims, and whether they are good here (RFC 7519, RFC 9068, RFC 8725). Pure except for the
//! signature.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use deskgate_protocol::Timestamp;
use serde::Deserialize;

use crate::config::Algorithm;
use crate::domain::accounts::{Account, Grant};

/// Bytes of a token.
const MAX_TOKEN_BYTES: usize = 16 * 1024;
/// Characters of a subject (OpenID Connect Core, section 2).
const MAX_SUBJECT_CHARS: usize = 255;
/// Seconds that clocks may differ.
pub(super) const LEEWAY_S: i64 = 30;

/// Why a token is not good. Contains none of the token's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidToken {
    /// The text is not a signed token.
    #[error("the access token is no signed JWT")]
    Malformed,
    /// The token is of another kind, such as an ID token.
    #[error("the token's type is not that of an access token")]
    Type,
    /// Its algorithm is not accepted.
    #[error("the access token is signed with an algorithm that is not accepted")]
    Algorithm,
    /// It demands an extension that is not understood.
    #[error("the access token demands an extension that is not understood")]
    Critical,
    /// The issuer has no key of that name.
    #[error("the access token is signed with a key that the issuer does not publish")]
    Key,
    /// It was changed, or signed with another key.
    #[error("the access token's signature does not hold")]
    Signature,
    /// Another issuer made it.
    #[error("the access token is of another issuer")]
    Issuer,
    /// It was made for another audience.
    #[error("the access token is not for this gateway")]
    Audience,
    /// It was made for another client.
    #[error("the access token is of another client")]
    Client,
    /// It has expired.
    #[error("the access token expired")]
    Expired,
    /// It is not valid yet.
    #[error("the access token is not valid yet")]
    NotYet,
    /// Its subject is not usable.
    #[error("the access token names no account")]
    Subject,
}

/// The requirements for a token.
pub(super) struct TokenRequirements {
    pub(super) issuer: String,
    pub(super) audience: String,
    pub(super) client_id: String,
    pub(super) algorithms: Vec<Algorithm>,
    pub(super) plain_tokens: bool,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    #[serde(default)]
    typ: Option<String>,
    #[serde(default)]
    kid: Option<String>,
    #[serde(default)]
    crit: Option<serde::de::IgnoredAny>,
    #[serde(default)]
    b64: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
struct Claims {
    iss: String,
    sub: String,
    aud: Audience,
    exp: f64,
    #[serde(default)]
    nbf: Option<f64>,
    #[serde(default)]
    client_id: Option<String>,
    #[serde(default)]
    azp: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Several(Vec<String>),
}

/// A parsed token. Its claims count only once its signature was verified.
pub(super) struct ParsedToken<'a> {
    /// The signature's algorithm.
    pub(super) algorithm: Algorithm,
    /// The name of the issuer's key.
    pub(super) kid: Option<String>,
    /// The signed bytes.
    pub(super) signed: &'a [u8],
    /// The signature.
    pub(super) signature: Vec<u8>,
    claims: Claims,
}

impl<'a> ParsedToken<'a> {
    /// Parses a token, and refuses it where no key could make it good.
    pub(super) fn read(text: &'a str, expected: &TokenRequirements) -> Result<Self, InvalidToken> {
        let malformed = |()| InvalidToken::Malformed;
        if text.len() > MAX_TOKEN_BYTES {
            return Err(InvalidToken::Malformed);
        }
        let (signed, signature) = text.rsplit_once('.').ok_or(InvalidToken::Malformed)?;
        let (header, claims) = signed.split_once('.').ok_or(InvalidToken::Malformed)?;
        let bytes = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(drop);
        let header: Header = parsed(&bytes(header).map_err(malformed)?)?;
        let algorithm = header.alg.parse().ok().filter(|algorithm| expected.algorithms.contains(algorithm));
        let algorithm = algorithm.ok_or(InvalidToken::Algorithm)?;
        if header.crit.is_some() || header.b64.is_some() {
            return Err(InvalidToken::Critical);
        }
        if !is_access_token(header.typ.as_deref(), expected.plain_tokens) {
            return Err(InvalidToken::Type);
        }
        let claims = parsed(&bytes(claims).map_err(malformed)?)?;
        let signature = bytes(signature).map_err(malformed)?;
        Ok(Self { algorithm, kid: header.kid, signed: signed.as_bytes(), signature, claims })
    }

    /// Checks the claims at this moment, and returns the account and the end.
    pub(super) fn judge(&self, expected: &TokenRequirements, now: Timestamp) -> Result<Grant, InvalidToken> {
        let claims = &self.claims;
        if claims.iss != expected.issuer {
            return Err(InvalidToken::Issuer);
        }
        let meant = match &claims.aud {
            Audience::One(one) => *one == expected.audience,
            Audience::Several(several) => several.contains(&expected.audience),
        };
        if !meant {
            return Err(InvalidToken::Audience);
        }
        // One of the two must be there (RFC 9068, section 2.2), or the token's client would be unknown.
        let mut clients = [&claims.client_id, &claims.azp].into_iter().flatten().peekable();
        if clients.peek().is_none() || clients.any(|client| *client != expected.client_id) {
            return Err(InvalidToken::Client);
        }
        let now_s = now.0.as_second();
        let expires = moment(claims.exp)?;
        if expires + LEEWAY_S <= now_s {
            return Err(InvalidToken::Expired);
        }
        if claims.nbf.map(moment).transpose()?.is_some_and(|begins| begins - LEEWAY_S > now_s) {
            return Err(InvalidToken::NotYet);
        }
        let named = (1..=MAX_SUBJECT_CHARS).contains(&claims.sub.len()) && !claims.sub.chars().any(char::is_control);
        if !named {
            return Err(InvalidToken::Subject);
        }
        let until = jiff::Timestamp::from_second(expires).map_err(|_| InvalidToken::Malformed)?;
        let account = Account { issuer: claims.iss.clone(), subject: claims.sub.clone() };
        Ok(Grant { account, until: until.into() })
    }
}

fn parsed<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, InvalidToken> {
    serde_json::from_slice(bytes).map_err(|_| InvalidToken::Malformed)
}

/// A NumericDate in whole seconds; refused if it is out of range.
fn moment(seconds: f64) -> Result<i64, InvalidToken> {
    if (0.0..=253_402_300_000.0).contains(&seconds) { Ok(seconds.floor() as i64) } else { Err(InvalidToken::Malformed) }
}

fn is_access_token(kind: Option<&str>, plain_tokens: bool) -> bool {
    let is = |name: &str| kind.is_some_and(|kind| kind.eq_ignore_ascii_case(name));
    is("at+jwt") || is("application/at+jwt") || (plain_tokens && (kind.is_none() || is("JWT")))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn expected() -> TokenRequirements {
        TokenRequirements {
            issuer: "https://id.example.com".to_owned(),
            audience: "https://gateway.example.com".to_owned(),
            client_id: "deskgate".to_owned(),
            algorithms: vec![Algorithm::Rs256, Algorithm::EdDsa],
            plain_tokens: false,
        }
    }

    fn text(header: &Value, claims: &Value) -> String {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        format!("{}.{}.{}", part(header), part(claims), URL_SAFE_NO_PAD.encode("signature"))
    }

    fn header() -> Value {
        json!({ "alg": "RS256", "typ": "at+jwt", "kid": "1" })
    }

    fn claims() -> Value {
        json!({ "iss": "https://id.example.com", "aud": "https://gateway.example.com", "sub": "ada",
                "client_id": "deskgate", "exp": 1000, "nbf": 900 })
    }

    fn judged(header: Value, change: Value, now_s: i64) -> Result<Grant, InvalidToken> {
        let mut all = claims();
        for (name, value) in change.as_object().expect("an object") {
            all[name] = value.clone();
        }
        let text = text(&header, &all);
        let now = jiff::Timestamp::from_second(now_s).expect("a time").into();
        ParsedToken::read(&text, &expected())?.judge(&expected(), now)
    }

    fn with(claim: &str, value: Value) -> Result<Grant, InvalidToken> {
        judged(header(), json!({ claim: value }), 950)
    }

    #[test]
    fn a_good_token_stands_for_its_account_until_it_expires() {
        let grant = judged(header(), json!({}), 950).expect("good");
        assert_eq!((grant.account.subject.as_str(), grant.until.0.as_second()), ("ada", 1000));
        let several = json!(["https://other.example.com", "https://gateway.example.com"]);
        assert!(with("aud", several).is_ok() && with("exp", json!(1000.7)).is_ok());
    }

    #[test]
    fn whatever_is_not_meant_for_this_gateway_is_refused_by_its_reason() {
        for (claim, value, why) in [
            ("iss", json!("https://id.example.com/"), InvalidToken::Issuer),
            ("iss", json!("https://evil.example.com"), InvalidToken::Issuer),
            ("aud", json!("https://gateway.example.com/"), InvalidToken::Audience),
            ("aud", json!([]), InvalidToken::Audience),
            ("client_id", json!("other"), InvalidToken::Client),
            ("azp", json!("other"), InvalidToken::Client),
            ("sub", json!(""), InvalidToken::Subject),
            ("sub", json!("a\u{0}b"), InvalidToken::Subject),
            ("sub", json!("x".repeat(256)), InvalidToken::Subject),
            ("exp", json!(null), InvalidToken::Malformed),
            ("exp", json!("1000"), InvalidToken::Malformed),
            ("exp", json!(1e300), InvalidToken::Malformed),
            ("nbf", json!(-1), InvalidToken::Malformed),
        ] {
            assert_eq!(with(claim, value.clone()), Err(why), "{claim} {value}");
        }
    }

    #[test]
    fn clocks_may_differ_by_half_a_minute_and_no_more() {
        let at = |now_s| judged(header(), json!({}), now_s).map(drop);
        assert_eq!((at(1029), at(1030)), (Ok(()), Err(InvalidToken::Expired)));
        assert_eq!((at(870), at(869)), (Ok(()), Err(InvalidToken::NotYet)));
    }

    #[test]
    fn what_a_token_says_of_itself_decides_nothing() {
        let head = |name: &str, value: Value| {
            let mut all = header();
            all[name] = value;
            judged(all, json!({}), 950).map(drop)
        };
        for name in ["none", "None", "HS256", "HS512", "PS256", "ES256", "RS256 ", ""] {
            assert_eq!(head("alg", json!(name)), Err(InvalidToken::Algorithm), "{name}");
        }
        for kind in [json!("JWT"), json!("id_token+jwt"), json!("logout+jwt"), json!(null)] {
            assert_eq!(head("typ", kind.clone()), Err(InvalidToken::Type), "{kind}");
        }
        assert_eq!(head("typ", json!("application/AT+JWT")), Ok(()));
        assert_eq!(head("crit", json!(["exp"])), Err(InvalidToken::Critical));
        assert_eq!(head("b64", json!(false)), Err(InvalidToken::Critical));
        let plain = TokenRequirements { plain_tokens: true, ..expected() };
        let token = text(&json!({ "alg": "RS256", "typ": "JWT" }), &claims());
        assert!(ParsedToken::read(&token, &plain).is_ok());
    }

    #[test]
    fn what_is_no_token_is_told_so() {
        let good = text(&header(), &claims());
        for text in [
            "",
            ".",
            "..",
            "a.b.c",
            "x",
            &good.replace('.', ""),
            &format!("{good}.x"),
            &"a".repeat(MAX_TOKEN_BYTES + 1),
        ] {
            assert_eq!(
                ParsedToken::read(text, &expected()).err(),
                Some(InvalidToken::Malformed),
                "{}",
                &text[..text.len().min(20)]
            );
        }
    }
}
