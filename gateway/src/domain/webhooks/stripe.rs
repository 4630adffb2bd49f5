//! Stripe: time and body are signed, in `Stripe-Signature: t=…,v1=…`. The secret is its text as a whole.

use deskgate_protocol::management::{HashAlgorithm, SignatureEncoding};

use super::mac::{decoded, is_mac};
use super::{Headers, MAX_SIGNATURES, SignatureError, within_window};

const SIGNATURE_HEADER: &str = "stripe-signature";

/// Whether the signature is good.
pub(super) fn verify(secrets: &[&[u8]], headers: &Headers<'_>, body: &[u8], now_s: i64) -> Result<(), SignatureError> {
    let (mut timestamp, mut given) = (None, Vec::new());
    for part in headers.needed(SIGNATURE_HEADER)?.split(',') {
        match part.split_once('=') {
            Some(("t", _)) if timestamp.is_some() => return Err(SignatureError::Repeated("t".to_owned())),
            Some(("t", value)) => timestamp = Some(value),
            Some(("v1", value)) if given.len() < MAX_SIGNATURES => {
                given.extend(decoded(value, SignatureEncoding::Hex));
            }
            // Signatures of other versions.
            _ => {}
        }
    }
    let timestamp = timestamp.ok_or(SignatureError::Malformed)?;
    if !is_mac(HashAlgorithm::Sha256, secrets, &[timestamp.as_bytes(), b".", body], &given) {
        return Err(SignatureError::Wrong);
    }
    within_window(timestamp, now_s)
}
