//! The plain scheme: an HMAC of the body in a header of any name.

use deskgate_protocol::management::PlainHmac;

use super::mac::{decoded, is_mac};
use super::{Headers, SignatureError};

/// Whether the signature is good.
pub(super) fn verify(
    scheme: &PlainHmac,
    secrets: &[&[u8]],
    headers: &Headers<'_>,
    body: &[u8],
) -> Result<(), SignatureError> {
    let given = headers.needed(&scheme.header)?.strip_prefix(&scheme.prefix).ok_or(SignatureError::Malformed)?;
    let given = decoded(given, scheme.encoding).ok_or(SignatureError::Malformed)?;
    if is_mac(scheme.algorithm, secrets, &[body], &[given]) { Ok(()) } else { Err(SignatureError::Wrong) }
}
