//! Stripe: time and body are signed, in `Stripe-Signature: t=…,v1=…`. The secret is its text as a whole.

use deskgate_protocol::management::{HashAlgorithm, SignatureEncoding};

use super::mac::{decoded, is_mac};
use super::{Headers, MOST_SIGNATURES, Unsigned, within_window};

const SIGNATURE: &str = "stripe-signature";

/// Whether the signature is good.
pub(super) fn verify(secrets: &[&[u8]], headers: &Headers<'_>, body: &[u8], now_s: i64) -> Result<(), Unsigned> {
    let (mut timestamp, mut given) = (None, Vec::new());
    for part in headers.needed(SIGNATURE)?.split(',') {
        match part.split_once('=') {
            Some(("t", _)) if timestamp.is_some() => return Err(Unsigned::Repeated("t".to_owned())),
            Some(("t", value)) => timestamp = Some(value),
            Some(("v1", value)) if given.len() < MOST_SIGNATURES => {
                given.extend(decoded(value, SignatureEncoding::Hex));
            }
            // Other ways of signing, which we do not know.
            _ => {}
        }
    }
    let timestamp = timestamp.ok_or(Unsigned::Malformed)?;
    if !is_mac(HashAlgorithm::Sha256, secrets, &[timestamp.as_bytes(), b".", body], &given) {
        return Err(Unsigned::Wrong);
    }
    within_window(timestamp, now_s)
}
