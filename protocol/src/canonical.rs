//! Canonical JSON (RFC 8785): one text for each value, independent of key order and white space.
//!
//! It differs in one point: whole numbers beyond 2^53 keep all their digits. RFC 8785 would round them, so that two
//! different numbers had one text.

use serde::Serialize;
use serde_json::Value;
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
        Self::of_value(&serde_json::to_value(value)?)
    }

    /// The same of a value that is JSON already.
    ///
    /// # Errors
    /// None that is known.
    pub fn of_value(value: &Value) -> Result<Self, serde_json::Error> {
        let mut text = Vec::new();
        write(value, &mut text)?;
        Ok(Self::of(&text))
    }
}

/// Appends a value's canonical text.
fn write(value: &Value, text: &mut Vec<u8>) -> Result<(), serde_json::Error> {
    match value {
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_unstable_by(|(one, _), (other, _)| compare_names(one, other));
            text.push(b'{');
            for (place, (name, value)) in members.into_iter().enumerate() {
                if place > 0 {
                    text.push(b',');
                }
                serde_json::to_writer(&mut *text, name)?;
                text.push(b':');
                write(value, text)?;
            }
            text.push(b'}');
        }
        Value::Array(values) => {
            text.push(b'[');
            for (place, value) in values.iter().enumerate() {
                if place > 0 {
                    text.push(b',');
                }
                write(value, text)?;
            }
            text.push(b']');
        }
        Value::Number(number) if number.is_f64() => serde_json_canonicalizer::to_writer(number, text)?,
        other => serde_json::to_writer(text, other)?,
    }
    Ok(())
}

/// The order of members: by UTF-16 code units, which for ASCII is the order of their bytes.
fn compare_names(one: &str, other: &str) -> std::cmp::Ordering {
    match one.is_ascii() && other.is_ascii() {
        true => one.cmp(other),
        false => one.encode_utf16().cmp(other.encode_utf16()),
    }
}

impl std::fmt::Display for Sha256Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let digit = |value: u8| char::from(b"0123456789abcdef"[usize::from(value)]);
        let text: String = self.0.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect();
        f.write_str(&text)
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
    fn whole_numbers_beyond_2_to_53_differ_and_others_are_written_as_the_rfc_says() {
        let digest =
            |text: &str| Sha256Digest::of_value(&serde_json::from_str(text).expect("valid")).expect("canonical");
        assert_ne!(digest("9223372036854775806"), digest("9223372036854775807"));
        assert_ne!(digest("[-9007199254740993]"), digest("[-9007199254740992]"));
        assert_eq!(digest("10000000000000000000"), digest("1e19"));
        let rfc = |value: &Value| Sha256Digest::of(&serde_json_canonicalizer::to_vec(value).expect("canonical"));
        let value = json!({
            "numbers": [333333333.3333333, 1e30, 4.50, 2e-3, 1e-27, -0.0, 56.0, 9007199254740992u64],
            "string": "\u{20ac}$\u{f}\nA'B\"\\\"/\u{7f}\u{2028}",
            "literals": [null, true, false, {}, []],
            "\u{20ac}": 1, "\r": 2, "\u{fb33}": 3, "1": 4, "\u{1f600}": 5, "\u{80}": 6, "\u{f6}": 7
        });
        assert_eq!(Sha256Digest::of_value(&value).expect("canonical"), rfc(&value));
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
