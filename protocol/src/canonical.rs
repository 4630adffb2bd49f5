//! Canonical JSON (RFC 8785): one text for each value, independent of key order and white space.

use serde::Serialize;
use sha2::{Digest, Sha256};

/// A SHA-256 digest, written as 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Sha256Digest(pub [u8; 32]);

impl Sha256Digest {
    /// The digest of some bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The digest of a value's canonical JSON.
    ///
    /// # Errors
    /// JSON cannot hold the value, such as a map with keys that are not text.
    pub fn of_json(value: &impl Serialize) -> Result<Self, serde_json::Error> {
        serde_json_canonicalizer::to_vec(value).map(|bytes| Self::of(&bytes))
    }
}

impl std::fmt::Display for Sha256Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl std::fmt::Debug for Sha256Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl std::str::FromStr for Sha256Digest {
    type Err = InvalidDigest;

    fn from_str(text: &str) -> Result<Self, InvalidDigest> {
        if text.len() != 64 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(InvalidDigest);
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
            let digits = std::str::from_utf8(pair).map_err(|_| InvalidDigest)?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| InvalidDigest)?;
        }
        Ok(Self(bytes))
    }
}

/// The error for a text that is not 64 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a SHA-256 digest of 64 hexadecimal digits")]
pub struct InvalidDigest;

impl Serialize for Sha256Digest {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Sha256Digest {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn key_order_and_number_notation_do_not_matter() {
        let one: serde_json::Value = serde_json::from_str(r#"{"b":1.0,"a":[true,"é"]}"#).expect("valid");
        let other: serde_json::Value = serde_json::from_str(r#" { "a" : [true, "\u00e9"], "b" : 1 } "#).expect("valid");
        let digest = |value| Sha256Digest::of_json(&value).expect("canonical");
        assert_eq!(digest(one.clone()), digest(other));
        assert_ne!(digest(one), digest(json!({"a": [true, "é"], "b": 2})));
    }

    #[test]
    fn a_digest_reads_back_and_nonsense_is_refused() {
        let digest = Sha256Digest::of(b"deskgate");
        assert_eq!(digest.to_string().parse(), Ok(digest));
        for nonsense in ["", "zz", &"é".repeat(32), &"+1".repeat(32)] {
            assert_eq!(nonsense.parse::<Sha256Digest>(), Err(InvalidDigest));
        }
    }
}
