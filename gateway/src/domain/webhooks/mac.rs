//! Message authentication codes, computed and compared.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use deskgate_protocol::management::{HashAlgorithm, SignatureEncoding};
use ring::hmac;
use subtle::ConstantTimeEq;

/// Whether one of the given codes is that of the parts under one of the secrets. All are compared, each in constant
/// time.
pub(super) fn is_mac(algorithm: HashAlgorithm, secrets: &[&[u8]], parts: &[&[u8]], given: &[Vec<u8>]) -> bool {
    let algorithm = match algorithm {
        HashAlgorithm::Sha1 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
        HashAlgorithm::Sha256 => hmac::HMAC_SHA256,
        HashAlgorithm::Sha512 => hmac::HMAC_SHA512,
    };
    let mut found = false;
    for secret in secrets {
        let mut signing = hmac::Context::with_key(&hmac::Key::new(algorithm, secret));
        parts.iter().for_each(|part| signing.update(part));
        let tag = signing.sign();
        for given in given {
            found |= bool::from(given.as_slice().ct_eq(tag.as_ref()));
        }
    }
    found
}

/// The bytes of an encoded code; `None` if the text is not encoded that way.
pub(super) fn decoded(text: &str, encoding: SignatureEncoding) -> Option<Vec<u8>> {
    match encoding {
        SignatureEncoding::Base64 => STANDARD.decode(text).ok(),
        SignatureEncoding::Hex => {
            let digits = text.as_bytes().chunks(2).map(|pair| {
                let pair = std::str::from_utf8(pair).ok().filter(|pair| pair.len() == 2 && !pair.starts_with('+'))?;
                u8::from_str_radix(pair, 16).ok()
            });
            digits.collect()
        }
    }
}
