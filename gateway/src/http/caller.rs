//! Extracts the caller: the headers of authentication, each sent once and well-formed.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, Uri, header};
use deskgate_protocol::secret::SecretKind;

use super::Api;
use super::connection_service::ClientAddress;
use super::error::Error;
use super::rates::RateLimitSlot;
use crate::domain::access::{AuthenticatedRequest, Subject, is_subject};
use crate::domain::refusal::Refusal;

const SUBJECT_HEADER: HeaderName = HeaderName::from_static("x-gateway-subject");
const IDEMPOTENCY_KEY_HEADER: HeaderName = HeaderName::from_static("idempotency-key");
const DEPTH_HEADER: HeaderName = HeaderName::from_static("deskgate-depth");
/// So many assistants in a row are a circle.
const MAX_DEPTH: u8 = 4;
const TRACEPARENT_HEADER: HeaderName = HeaderName::from_static("traceparent");

impl FromRequestParts<Arc<Api>> for AuthenticatedRequest {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Result<Self, Error> {
        let credential = credential(&parts.headers)?;
        let subject = match once(&parts.headers, &SUBJECT_HEADER) {
            SingleHeader::Absent => Subject::Absent,
            SingleHeader::Value(text) if is_subject(text) => Subject::Named(text.to_owned()),
            _ => Subject::Unusable,
        };
        let from = parts.extensions.get().map(|ClientAddress(address)| *address);
        let authenticated = api.access.authenticate(credential, subject, from).await?;
        RateLimitSlot::leave(&parts.extensions, authenticated.rate_status());
        Ok(authenticated)
    }
}

/// The text behind `Bearer`.
pub(super) fn credential(headers: &HeaderMap) -> Result<&str, Refusal> {
    let invalid = || Refusal::CredentialInvalid { hint: String::new() };
    let text = match once(headers, &header::AUTHORIZATION) {
        SingleHeader::Absent => return Err(Refusal::CredentialMissing),
        SingleHeader::Value(text) => text,
        SingleHeader::Unusable => return Err(invalid()),
    };
    let (scheme, credential) = text.split_once(' ').ok_or_else(invalid)?;
    if scheme.eq_ignore_ascii_case("bearer") { Ok(credential.trim()) } else { Err(invalid()) }
}

/// The caller's name for a piece of work, bare or in quotes.
pub(super) fn idempotency_key(headers: &HeaderMap) -> Result<String, Error> {
    let text = match once(headers, &IDEMPOTENCY_KEY_HEADER) {
        SingleHeader::Absent => return Err(Error::idempotency_key_missing()),
        SingleHeader::Value(text) => text,
        SingleHeader::Unusable => return Err(Error::idempotency_key_invalid()),
    };
    let bare = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(text);
    // The same rule as for subjects: 1 to 255 visible ASCII characters.
    if is_subject(bare) && !bare.contains('"') { Ok(bare.to_owned()) } else { Err(Error::idempotency_key_invalid()) }
}

/// The same where a request need not have one.
pub(super) fn optional_idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Error> {
    headers.contains_key(&IDEMPOTENCY_KEY_HEADER).then(|| idempotency_key(headers)).transpose()
}

/// A well-formed W3C trace context; anything else counts as absent.
pub(super) fn traceparent(headers: &HeaderMap) -> Option<String> {
    let SingleHeader::Value(text) = once(headers, &TRACEPARENT_HEADER) else { return None };
    is_traceparent(text).then(|| text.to_owned())
}

/// Whether a text is a trace context of a version that can be read.
pub(super) fn is_traceparent(text: &str) -> bool {
    let lengths: Vec<_> = text.split('-').map(str::len).collect();
    let hexadecimal = text.bytes().all(|byte| matches!(byte, b'-' | b'0'..=b'9' | b'a'..=b'f'));
    lengths == [2, 32, 16, 2] && hexadecimal && !text.starts_with("ff")
}

/// How many assistants that call each other stand before the work.
///
/// # Errors
/// So many that they may be calling in a circle, or what the header says is no number.
pub(super) fn depth(headers: &HeaderMap) -> Result<u8, Error> {
    let depth = match once(headers, &DEPTH_HEADER) {
        SingleHeader::Absent => 0,
        SingleHeader::Value(text) => {
            let wrong = || Error::invalid_header(DEPTH_HEADER.as_str(), "a number from 0 to 255");
            text.parse().map_err(|_| wrong())?
        }
        SingleHeader::Unusable => return Err(Error::invalid_header(DEPTH_HEADER.as_str(), "a number, sent once")),
    };
    if depth < MAX_DEPTH { Ok(depth) } else { Err(Error::loop_detected(depth)) }
}

enum SingleHeader<'a> {
    Absent,
    Value(&'a str),
    /// Sent twice, or not readable as text.
    Unusable,
}

fn once<'a>(headers: &'a HeaderMap, name: &HeaderName) -> SingleHeader<'a> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => SingleHeader::Absent,
        (Some(value), None) => value.to_str().map_or(SingleHeader::Unusable, SingleHeader::Value),
        _ => SingleHeader::Unusable,
    }
}

/// Whether the query string holds one of our secrets, or a parameter made for one.
pub(super) fn credential_in_url(uri: &Uri) -> bool {
    let Some(query) = uri.query() else { return false };
    query.split('&').any(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let named = ["access_token", "api_key", "apikey", "app_key", "authorization", "token", "key"];
        let (name, value) = (decoded(name), decoded(value));
        is_ours(&name) || is_ours(&value) || named.iter().any(|known| name.eq_ignore_ascii_case(known))
    })
}

/// Whether a text begins as one of our secrets does.
fn is_ours(text: &str) -> bool {
    use SecretKind::{ApplicationKey, ControlToken, Invitation, LaunchLink, WebhookSecret};
    let ours = SecretKind::of(text.trim_start());
    matches!(ours, Some(ApplicationKey | ControlToken | Invitation | LaunchLink | WebhookSecret))
}

/// A decoded part of a query string; an invalid encoding stays as it is.
pub(super) fn decoded(part: &str) -> String {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.as_bytes();
    while let [first, more @ ..] = rest {
        let hexadecimal = more.get(..2).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let escaped = hexadecimal.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        let (byte, left) = match (first, escaped) {
            (b'%', Some(byte)) => (byte, &more[2..]),
            (b'+', _) => (b' ', more),
            _ => (*first, more),
        };
        bytes.push(byte);
        rest = left;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
