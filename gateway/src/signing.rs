//! Signatures of messages between systems (Standard Webhooks 1.0.0), for outgoing and incoming messages alike.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use deskgate_protocol::secret::SecretKind;
use ring::hmac;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// Bytes of a secret that is made here.
const GENERATED_SECRET_BYTES: usize = 32;
/// Bytes that a secret may have.
const SECRET_BYTES_RANGE: std::ops::RangeInclusive<usize> = 24..=64;
/// The version of the signature scheme: HMAC-SHA256.
const SIGNATURE_VERSION: &str = "v1";

/// A secret that both sides know: `whsec_` and 24 to 64 bytes in base64. Its memory is cleared when it is dropped.
#[derive(Clone)]
pub struct SigningSecret(Zeroizing<Vec<u8>>);

/// Why a text is not a signing secret. It does not repeat the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSigningSecret {
    /// Another kind of secret.
    #[error("this is {0}; a signing secret starts with whsec_")]
    Other(SecretKind),
    /// A text without a known prefix.
    #[error("a signing secret starts with whsec_")]
    Unknown,
    /// What follows the prefix is not base64.
    #[error("after whsec_ a signing secret is base64")]
    NotBase64,
    /// Too short to be safe, or longer than is usual.
    #[error("a signing secret has 24 to 64 bytes, and this one has {0}")]
    Length(usize),
}

impl SigningSecret {
    /// Generates a new secret.
    pub fn generate() -> Self {
        Self(Zeroizing::new(rand::random::<[u8; GENERATED_SECRET_BYTES]>().to_vec()))
    }

    /// Parses a secret as people pass it on.
    ///
    /// # Errors
    /// See [`InvalidSigningSecret`].
    pub fn parse(text: &str) -> Result<Self, InvalidSigningSecret> {
        let text = text.trim();
        let Some(encoded) = text.strip_prefix(SecretKind::WebhookSecret.prefix()) else {
            return Err(SecretKind::of(text).map_or(InvalidSigningSecret::Unknown, InvalidSigningSecret::Other));
        };
        let bytes = Zeroizing::new(STANDARD.decode(encoded).map_err(|_| InvalidSigningSecret::NotBase64)?);
        if SECRET_BYTES_RANGE.contains(&bytes.len()) {
            Ok(Self(bytes))
        } else {
            Err(InvalidSigningSecret::Length(bytes.len()))
        }
    }

    /// A secret that was stored as its bytes.
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// Its bytes, to be encrypted.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// As people pass it on. To be shown once.
    pub fn reveal(&self) -> Zeroizing<String> {
        Zeroizing::new(format!("{}{}", SecretKind::WebhookSecret.prefix(), STANDARD.encode(&self.0)))
    }

    fn sign(&self, signed: [&[u8]; 3]) -> hmac::Tag {
        let mut signing = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, &self.0));
        for (place, part) in signed.into_iter().enumerate() {
            if place > 0 {
                signing.update(b".");
            }
            signing.update(part);
        }
        signing.sign()
    }
}

impl std::fmt::Debug for SigningSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SigningSecret(…)")
    }
}

/// The value of `webhook-signature`: one signature for each secret, with spaces between.
///
/// `timestamp` is in seconds since 1970, as `webhook-timestamp` has it.
pub fn sign(secrets: &[&SigningSecret], id: &str, timestamp: i64, body: &[u8]) -> String {
    let timestamp = timestamp.to_string();
    let signature = |secret: &&SigningSecret| {
        let tag = secret.sign([id.as_bytes(), timestamp.as_bytes(), body]);
        format!("{SIGNATURE_VERSION},{}", STANDARD.encode(tag.as_ref()))
    };
    secrets.iter().map(signature).collect::<Vec<_>>().join(" ")
}

/// Whether one of the signatures in `webhook-signature` is by one of the secrets. Compared in constant time;
/// signatures of other versions are passed over. `timestamp` is the header's text as it came.
pub fn is_signed(signatures: &str, secrets: &[&SigningSecret], id: &str, timestamp: &str, body: &[u8]) -> bool {
    let tags: Vec<_> = secrets.iter().map(|s| s.sign([id.as_bytes(), timestamp.as_bytes(), body])).collect();
    let of_this_version = |signature: &str| {
        let (version, encoded) = signature.split_once(',')?;
        (version == SIGNATURE_VERSION).then(|| STANDARD.decode(encoded).ok()).flatten()
    };
    let given: Vec<_> = signatures.split(' ').take(MAX_SIGNATURES).filter_map(of_this_version).collect();
    given.iter().any(|given| tags.iter().any(|tag| given.ct_eq(tag.as_ref()).into()))
}

/// More than any rotation of secrets needs.
const MAX_SIGNATURES: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the specification.
    const EXAMPLE_SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const EXAMPLE_ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
    const EXAMPLE_TIMESTAMP: i64 = 1_614_265_330;
    const EXAMPLE_BODY: &[u8] = b"{\"test\": 2432232314}";
    const EXAMPLE_SIGNATURE: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";

    #[test]
    fn the_example_of_the_specification_is_signed_as_it_says() {
        let secret = SigningSecret::parse(EXAMPLE_SECRET).unwrap();
        assert_eq!(sign(&[&secret], EXAMPLE_ID, EXAMPLE_TIMESTAMP, EXAMPLE_BODY), EXAMPLE_SIGNATURE);
        assert_eq!(*secret.reveal(), EXAMPLE_SECRET);
    }

    #[test]
    fn while_a_secret_rolls_there_are_two_signatures_and_either_is_enough() {
        let [old, new] = [SigningSecret::parse(EXAMPLE_SECRET).unwrap(), SigningSecret::generate()];
        let both = sign(&[&new, &old], EXAMPLE_ID, EXAMPLE_TIMESTAMP, EXAMPLE_BODY);
        assert!(both.ends_with(&format!(" {EXAMPLE_SIGNATURE}")), "{both}");
        let at = EXAMPLE_TIMESTAMP.to_string();
        for secrets in [vec![&old], vec![&new], vec![&SigningSecret::generate(), &old]] {
            assert!(is_signed(&both, &secrets, EXAMPLE_ID, &at, EXAMPLE_BODY));
        }
        assert!(!is_signed(&both, &[&SigningSecret::generate()], EXAMPLE_ID, &at, EXAMPLE_BODY));
        assert!(!is_signed(&both, &[], EXAMPLE_ID, &at, EXAMPLE_BODY));
    }

    #[test]
    fn anything_that_was_changed_is_not_signed() {
        let secret = SigningSecret::parse(EXAMPLE_SECRET).unwrap();
        let ok = |signatures: &str, id: &str, at: &str, body: &[u8]| is_signed(signatures, &[&secret], id, at, body);
        let at = EXAMPLE_TIMESTAMP.to_string();
        assert!(ok(EXAMPLE_SIGNATURE, EXAMPLE_ID, &at, EXAMPLE_BODY));
        assert!(
            ok(&format!("v1a,xxxx v2,{} {EXAMPLE_SIGNATURE}", &EXAMPLE_SIGNATURE[3..]), EXAMPLE_ID, &at, EXAMPLE_BODY),
            "others are passed over"
        );
        assert!(!ok(EXAMPLE_SIGNATURE, "msg_other", &at, EXAMPLE_BODY));
        assert!(!ok(EXAMPLE_SIGNATURE, EXAMPLE_ID, "1614265331", EXAMPLE_BODY));
        assert!(!ok(EXAMPLE_SIGNATURE, EXAMPLE_ID, &format!("0{at}"), EXAMPLE_BODY), "as it was written");
        assert!(!ok(EXAMPLE_SIGNATURE, EXAMPLE_ID, &at, b"{\"test\": 2432232315}"));
        assert!(
            !ok("", EXAMPLE_ID, &at, EXAMPLE_BODY)
                && !ok("v1,", EXAMPLE_ID, &at, EXAMPLE_BODY)
                && !ok("v1,AAAA", EXAMPLE_ID, &at, EXAMPLE_BODY)
        );
        assert!(!ok(&EXAMPLE_SIGNATURE.replace("v1,", "v2,"), EXAMPLE_ID, &at, EXAMPLE_BODY));
        assert!(!ok(&EXAMPLE_SIGNATURE[..EXAMPLE_SIGNATURE.len() - 4], EXAMPLE_ID, &at, EXAMPLE_BODY));
        // Without a length, the parts are separate only because neither an identifier nor a timestamp contains a dot.
        let behind = format!("{} ", "v1,AAAA ".repeat(20)) + EXAMPLE_SIGNATURE;
        assert!(!ok(&behind, EXAMPLE_ID, &at, EXAMPLE_BODY), "nobody has to try a hundred signatures");
    }

    #[test]
    fn what_is_no_secret_is_named_and_never_repeated() {
        assert_eq!(SigningSecret::parse("whsec_MfKQ9r8G").unwrap_err(), InvalidSigningSecret::Length(6));
        assert_eq!(SigningSecret::parse("whsec_not base64!").unwrap_err(), InvalidSigningSecret::NotBase64);
        let token = deskgate_protocol::secret::ControlToken::generate();
        let error = SigningSecret::parse(token.reveal()).unwrap_err().to_string();
        assert!(error.contains("control token") && !error.contains("dgt_"), "{error}");
        assert!(!format!("{:?}", SigningSecret::parse(EXAMPLE_SECRET).unwrap()).contains("MfKQ"));
    }
}
