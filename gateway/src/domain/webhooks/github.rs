//! GitHub's scheme: the body is signed, identifier and type stand in headers beside it.

use deskgate_protocol::management::{HashAlgorithm, SignatureEncoding};

use super::mac::{decoded, is_mac};
use super::{Headers, SignatureError};

/// The header with the event's identifier.
pub(super) const ID_HEADER: &str = "x-github-delivery";
/// The header with its type.
pub(super) const TYPE_HEADER: &str = "x-github-event";
const SIGNATURE_HEADER: &str = "x-hub-signature-256";

/// Whether the signature is good.
pub(super) fn verify(secrets: &[&[u8]], headers: &Headers<'_>, body: &[u8]) -> Result<(), SignatureError> {
    let given = headers.needed(SIGNATURE_HEADER)?.strip_prefix("sha256=").ok_or(SignatureError::Malformed)?;
    let given = decoded(given, SignatureEncoding::Hex).ok_or(SignatureError::Malformed)?;
    if is_mac(HashAlgorithm::Sha256, secrets, &[body], &[given]) { Ok(()) } else { Err(SignatureError::Wrong) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_githubs_documentation_is_accepted() {
        let secret = b"It's a Secret to Everybody".as_slice();
        let signed = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
        let headers = Headers::from_iter([("X-Hub-Signature-256", signed.as_bytes())]);
        assert_eq!(verify(&[secret], &headers, b"Hello, World!"), Ok(()));
        assert_eq!(verify(&[secret], &headers, b"Hello, World?"), Err(SignatureError::Wrong));
        assert_eq!(verify(&[b"another"], &headers, b"Hello, World!"), Err(SignatureError::Wrong));
        let twice = Headers::from_iter([("x-hub-signature-256", signed.as_bytes()); 2]);
        assert_eq!(
            verify(&[secret], &twice, b"Hello, World!"),
            Err(SignatureError::Repeated(SIGNATURE_HEADER.to_owned()))
        );
    }
}
