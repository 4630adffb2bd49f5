//! Incoming webhooks: whether an event is genuine, whether it is wanted, and what becomes of it.
//!
//! | file | what it decides |
//! |---|---|
//! | `standard` `github` `stripe` `plain` | whether a signature is good, one file for each scheme |
//! | `headers` `mac` | what they share |
//! | [`rules`] | filter and mapping: what an event would become |
//! | [`path`] [`template`] [`cel`] | the small languages of filter and mapping, each bounded |
//! | [`reception`] | what becomes of an event that was received |
//! | `cache` `receipts` | the cache of webhooks, and the records of their events |
//! | [`secrets`] | the secrets of each scheme |
//!
//! The order is part of the defence (security, A16): the signature is checked over the bytes as received, before they
//! are parsed; the parsed values are data, and reach `text`, `subject`, the conversation's key and `metadata` only.

pub(super) mod cache;
pub mod cel;
mod github;
mod headers;
mod mac;
pub mod path;
mod plain;
mod receipts;
pub mod reception;
pub mod rules;
pub mod secrets;
mod standard;
mod stripe;
pub mod template;

use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::management::{HashAlgorithm, WebhookScheme};
use serde_json::Value;

pub use headers::Headers;
use rules::ValueSource;

/// Seconds that a signed time may be off, in both directions.
const TIMESTAMP_TOLERANCE_S: i64 = 300;
/// More than any rotation of secrets needs.
const MAX_SIGNATURES: usize = 16;
/// Bytes of an event's identifier or type that are stored and compared; a longer identifier is replaced by its digest.
const MAX_EVENT_NAME_BYTES: usize = 255;

/// An event whose signature was good.
#[derive(Clone, Debug, PartialEq)]
pub struct WebhookEvent {
    /// The sender's identifier; without one, a digest of the body.
    pub id: String,
    /// Its type, if it has one.
    pub kind: Option<String>,
    /// Its content.
    pub payload: Value,
}

/// Why a signature is invalid. The webhook's owner learns the reason; the sender does not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// A header is missing.
    #[error("the header {0} is missing")]
    Missing(String),
    /// A header is repeated.
    #[error("the header {0} came twice")]
    Repeated(String),
    /// A header is not text.
    #[error("the header {0} cannot be read")]
    Unreadable(String),
    /// The signature does not have the scheme's form.
    #[error("the signature cannot be read")]
    Malformed,
    /// The signature is of other data, or by another secret.
    #[error("the signature does not fit")]
    Wrong,
    /// The time is not a number.
    #[error("the signed time cannot be read")]
    NoTime,
    /// The signed time is too far in the past or future.
    #[error("it was signed {} {}, and five minutes are allowed", minutes(*.0), if *.0 < 0 { "from now" } else { "ago" })]
    OutOfTime(i64),
}

impl SignatureError {
    /// Whether it was found without a computation over the body.
    fn is_cheap(&self) -> bool {
        matches!(self, Self::Missing(_) | Self::Repeated(_) | Self::Unreadable(_) | Self::Malformed)
    }
}

fn minutes(seconds: i64) -> String {
    match seconds.unsigned_abs() {
        seconds if seconds < 600 => format!("{seconds} seconds"),
        seconds => format!("{} minutes", seconds / 60),
    }
}

/// What a genuine event's headers say beside its body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Proof<'a> {
    /// The identifier that is signed with the body.
    id: Option<&'a str>,
}

/// Checks a signature over the bytes as received. `now_s` is in seconds since 1970.
///
/// # Errors
/// See [`SignatureError`].
pub fn verify<'a>(
    scheme: &WebhookScheme,
    secrets: &[&[u8]],
    headers: &Headers<'a>,
    body: &[u8],
    now_s: i64,
) -> Result<Proof<'a>, SignatureError> {
    let nothing = Proof::default();
    let verified = match scheme {
        WebhookScheme::StandardWebhooks {} => {
            standard::verify(secrets, headers, body, now_s).map(|id| Proof { id: Some(id) })
        }
        WebhookScheme::Github {} => github::verify(secrets, headers, body).map(|()| nothing),
        WebhookScheme::Stripe {} => stripe::verify(secrets, headers, body, now_s).map(|()| nothing),
        WebhookScheme::Hmac(plain) => plain::verify(plain, secrets, headers, body).map(|()| nothing),
    };
    // So that the time of an answer does not show whether a webhook exists, or its scheme.
    if verified.as_ref().is_err_and(SignatureError::is_cheap) {
        mac::is_mac(HashAlgorithm::Sha256, secrets, &[body], &[]);
    }
    verified
}

/// The headers' values of an event whose signature is not checked.
pub(super) fn unproven<'a>(scheme: &WebhookScheme, headers: &Headers<'a>) -> Result<Proof<'a>, SignatureError> {
    match scheme {
        WebhookScheme::StandardWebhooks {} => Ok(Proof { id: headers.find(standard::ID_HEADER)? }),
        _ => Ok(Proof::default()),
    }
}

/// The event in a body.
///
/// # Errors
/// A header with its name came twice, or cannot be read.
pub fn event(
    scheme: &WebhookScheme,
    proof: Proof<'_>,
    headers: &Headers<'_>,
    body: &[u8],
    payload: Value,
) -> Result<WebhookEvent, SignatureError> {
    let member = |name: &str| payload.get(name).and_then(Value::as_str).map(str::to_owned);
    let (id, kind) = match scheme {
        WebhookScheme::StandardWebhooks {} => (proof.id.map(str::to_owned), member("type")),
        WebhookScheme::Github {} => {
            (owned(headers.find(github::ID_HEADER)?), owned(headers.find(github::TYPE_HEADER)?))
        }
        WebhookScheme::Stripe {} => (member("id"), member("type")),
        WebhookScheme::Hmac(plain) => {
            let named = |source: &Option<String>| match source.as_deref().map(|source| ValueSource::parse("", source)) {
                // Checked when the webhook was saved.
                None | Some(Err(_)) => Ok(None),
                Some(Ok(source)) => source.of(headers, &payload),
            };
            (named(&plain.event_id)?, named(&plain.event_type)?)
        }
    };
    let kind = kind.filter(|kind| !kind.is_empty()).map(|kind| cut(kind, MAX_EVENT_NAME_BYTES));
    Ok(WebhookEvent { id: named(id.filter(|id| !id.is_empty()), body), kind, payload })
}

fn owned(text: Option<&str>) -> Option<String> {
    text.map(str::to_owned)
}

/// An identifier that can be stored, made from the sender's.
fn named(id: Option<String>, body: &[u8]) -> String {
    match id {
        Some(id) if id.len() <= MAX_EVENT_NAME_BYTES && !id.contains('\0') => id,
        Some(id) => format!("sha256:{}", Sha256Digest::of(id.as_bytes())),
        None => format!("body:{}", Sha256Digest::of(body)),
    }
}

/// The beginning of a text, in whole characters, without characters that a database cannot store.
fn cut(text: String, bytes: usize) -> String {
    let end = (0..=bytes.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    text[..end].replace('\0', "\u{fffd}")
}

/// The position at which a text's end begins: its character, counted from 1.
fn character(text: &str, end: &str) -> usize {
    text.chars().count().saturating_sub(end.chars().count()) + 1
}

/// Whether a signed time is close enough.
fn within_window(timestamp: &str, now_s: i64) -> Result<(), SignatureError> {
    let signed: i64 = timestamp.parse().map_err(|_| SignatureError::NoTime)?;
    let age = now_s.saturating_sub(signed);
    if age.unsigned_abs() <= TIMESTAMP_TOLERANCE_S.unsigned_abs() {
        Ok(())
    } else {
        Err(SignatureError::OutOfTime(age))
    }
}

#[cfg(test)]
mod tests;
