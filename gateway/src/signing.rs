//! Signatures of messages between systems (Standard Webhooks 1.0.0): the same for what is sent and what comes in.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use deskgate_protocol::secret::SecretKind;
use ring::hmac;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// Bytes of a secret that is made here.
const MADE: usize = 32;
/// Bytes that a secret may have.
const BYTES: std::ops::RangeInclusive<usize> = 24..=64;
/// Which way of signing it is: HMAC-SHA256.
const VERSION: &str = "v1";

/// A secret that both sides know: `whsec_` and 24 to 64 bytes in base64. It is forgotten when it is dropped.
#[derive(Clone)]
pub struct SigningSecret(Zeroizing<Vec<u8>>);

/// A text that is no signing secret. It does not repeat the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoSigningSecret {
    /// Another kind of secret.
    #[error("this is {0}; a signing secret starts with whsec_")]
    Other(SecretKind),
    /// Nothing that is known.
    #[error("a signing secret starts with whsec_")]
    Unknown,
    /// What follows the prefix is not base64.
    #[error("after whsec_ a signing secret is base64")]
    NotBase64,
    /// Too short to be safe, or longer than anybody makes them.
    #[error("a signing secret has 24 to 64 bytes, and this one has {0}")]
    Length(usize),
}

impl SigningSecret {
    /// A new one.
    pub fn generate() -> Self {
        Self(Zeroizing::new(rand::random::<[u8; MADE]>().to_vec()))
    }

    /// Reads one as people pass it on.
    ///
    /// # Errors
    /// See [`NoSigningSecret`].
    pub fn parse(text: &str) -> Result<Self, NoSigningSecret> {
        let text = text.trim();
        let Some(encoded) = text.strip_prefix(SecretKind::WebhookSecret.prefix()) else {
            return Err(SecretKind::of(text).map_or(NoSigningSecret::Unknown, NoSigningSecret::Other));
        };
        let bytes = Zeroizing::new(STANDARD.decode(encoded).map_err(|_| NoSigningSecret::NotBase64)?);
        if BYTES.contains(&bytes.len()) { Ok(Self(bytes)) } else { Err(NoSigningSecret::Length(bytes.len())) }
    }

    /// One that was kept as its bytes.
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// Its bytes, to be sealed.
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
        format!("{VERSION},{}", STANDARD.encode(tag.as_ref()))
    };
    secrets.iter().map(signature).collect::<Vec<_>>().join(" ")
}

/// Whether one of the signatures in `webhook-signature` is by one of the secrets. Compared in constant time;
/// signatures of other versions are passed over. `timestamp` is the header's text as it came.
pub fn is_signed(signatures: &str, secrets: &[&SigningSecret], id: &str, timestamp: &str, body: &[u8]) -> bool {
    let tags: Vec<_> = secrets.iter().map(|s| s.sign([id.as_bytes(), timestamp.as_bytes(), body])).collect();
    let of_this_version = |signature: &str| {
        let (version, encoded) = signature.split_once(',')?;
        (version == VERSION).then(|| STANDARD.decode(encoded).ok()).flatten()
    };
    let given: Vec<_> = signatures.split(' ').take(MOST_SIGNATURES).filter_map(of_this_version).collect();
    given.iter().any(|given| tags.iter().any(|tag| given.ct_eq(tag.as_ref()).into()))
}

/// More than any roll of secrets needs.
const MOST_SIGNATURES: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the specification.
    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
    const AT: i64 = 1_614_265_330;
    const BODY: &[u8] = b"{\"test\": 2432232314}";
    const SIGNED: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";

    #[test]
    fn the_example_of_the_specification_is_signed_as_it_says() {
        let secret = SigningSecret::parse(SECRET).unwrap();
        assert_eq!(sign(&[&secret], ID, AT, BODY), SIGNED);
        assert_eq!(*secret.reveal(), SECRET);
    }

    #[test]
    fn while_a_secret_rolls_there_are_two_signatures_and_either_is_enough() {
        let [old, new] = [SigningSecret::parse(SECRET).unwrap(), SigningSecret::generate()];
        let both = sign(&[&new, &old], ID, AT, BODY);
        assert!(both.ends_with(&format!(" {SIGNED}")), "{both}");
        let at = AT.to_string();
        for secrets in [vec![&old], vec![&new], vec![&SigningSecret::generate(), &old]] {
            assert!(is_signed(&both, &secrets, ID, &at, BODY));
        }
        assert!(!is_signed(&both, &[&SigningSecret::generate()], ID, &at, BODY));
        assert!(!is_signed(&both, &[], ID, &at, BODY));
    }

    #[test]
    fn anything_that_was_changed_is_not_signed() {
        let secret = SigningSecret::parse(SECRET).unwrap();
        let ok = |signatures: &str, id: &str, at: &str, body: &[u8]| is_signed(signatures, &[&secret], id, at, body);
        let at = AT.to_string();
        assert!(ok(SIGNED, ID, &at, BODY));
        assert!(ok(&format!("v1a,xxxx v2,{} {SIGNED}", &SIGNED[3..]), ID, &at, BODY), "others are passed over");
        assert!(!ok(SIGNED, "msg_other", &at, BODY));
        assert!(!ok(SIGNED, ID, "1614265331", BODY));
        assert!(!ok(SIGNED, ID, &format!("0{at}"), BODY), "as it was written");
        assert!(!ok(SIGNED, ID, &at, b"{\"test\": 2432232315}"));
        assert!(!ok("", ID, &at, BODY) && !ok("v1,", ID, &at, BODY) && !ok("v1,AAAA", ID, &at, BODY));
        assert!(!ok(&SIGNED.replace("v1,", "v2,"), ID, &at, BODY));
        assert!(!ok(&SIGNED[..SIGNED.len() - 4], ID, &at, BODY));
        // Where one part ends and the next begins is signed too only because no id and no time holds a dot.
        let behind = format!("{} ", "v1,AAAA ".repeat(20)) + SIGNED;
        assert!(!ok(&behind, ID, &at, BODY), "nobody has to try a hundred signatures");
    }

    #[test]
    fn what_is_no_secret_is_named_and_never_repeated() {
        assert_eq!(SigningSecret::parse("whsec_MfKQ9r8G").unwrap_err(), NoSigningSecret::Length(6));
        assert_eq!(SigningSecret::parse("whsec_not base64!").unwrap_err(), NoSigningSecret::NotBase64);
        let token = deskgate_protocol::secret::ControlToken::generate();
        let error = SigningSecret::parse(token.reveal()).unwrap_err().to_string();
        assert!(error.contains("control token") && !error.contains("dgt_"), "{error}");
        assert!(!format!("{:?}", SigningSecret::parse(SECRET).unwrap()).contains("MfKQ"));
    }
}
