//! Secrets with a typed prefix and a checksum, hidden from logs.
//!
//! The prefix lets secret scanners find a leaked secret, and lets each field name the kind of secret that was pasted
//! into it by mistake. The checksum distinguishes a typing error from a revoked secret without a look-up. A secret has
//! 192 random bits, so a single fast SHA-256 is enough to store it.

use std::fmt;
use std::str::FromStr;

use rand::TryRng;
use serde::{Deserialize, Serialize};
use zeroize::{Zeroize, Zeroizing};

use crate::canonical::Sha256Digest;
use crate::ids::KeyId;

/// The kinds of secrets that a pasted text may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretKind {
    /// `dgk_…`: a business backend's key for the public API.
    ApplicationKey,
    /// `dgt_…`: the private control token that opens the gateway's control channel.
    ControlToken,
    /// `dgi_…`: an invitation, which pairs one device.
    Invitation,
    /// `dgl_…`: the one-time link that signs a browser in to the management pages.
    LaunchLink,
    /// `whsec_…`: a Standard Webhooks signing secret.
    WebhookSecret,
    /// `sk-…`: a model provider's key, which Deskgate does not make.
    ModelProviderKey,
    /// A private key in PEM form, which must never be pasted anywhere.
    PrivateKey,
}

impl SecretKind {
    const ALL: [(SecretKind, &'static str, &'static str); 7] = [
        (Self::ApplicationKey, "dgk_", "an application key"),
        (Self::ControlToken, "dgt_", "a private control token"),
        (Self::Invitation, "dgi_", "an invitation"),
        (Self::LaunchLink, "dgl_", "a launch link"),
        (Self::WebhookSecret, "whsec_", "a webhook signing secret"),
        (Self::ModelProviderKey, "sk-", "a model provider's key"),
        (Self::PrivateKey, "-----BEGIN", "a private key"),
    ];

    /// Recognises a secret by its first characters.
    pub fn of(text: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, prefix, _)| text.starts_with(prefix)).map(|(kind, ..)| *kind)
    }

    /// The characters it starts with.
    pub fn prefix(self) -> &'static str {
        self.row().1
    }

    fn row(self) -> &'static (Self, &'static str, &'static str) {
        Self::ALL.iter().find(|(kind, ..)| *kind == self).expect("every kind has a row in ALL")
    }
}

impl fmt::Display for SecretKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.row().2)
    }
}

/// Why a text is not the expected secret. It never repeats the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSecret {
    /// Another kind of secret was pasted.
    #[error("this is {found}; {expected} starts with \"{}\"", expected.prefix())]
    OtherKind {
        /// The kind that was pasted.
        found: SecretKind,
        /// The kind that was expected.
        expected: SecretKind,
    },
    /// The text is no known kind of secret.
    #[error("this is not {expected}, which starts with \"{}\"", expected.prefix())]
    Unknown {
        /// The kind that was expected.
        expected: SecretKind,
    },
    /// The right kind, but damaged: a character is missing or wrong.
    #[error("this {} is incomplete or mistyped: its checksum does not fit", expected.to_string().trim_start_matches("an ").trim_start_matches("a "))]
    Damaged {
        /// The kind that was expected.
        expected: SecretKind,
    },
}

const RANDOM_BYTES: usize = 24;
const CHECKSUM_DIGITS: usize = 8;

fn random_hex() -> String {
    let mut bytes = [0u8; RANDOM_BYTES];
    rand::rngs::SysRng
        .try_fill_bytes(&mut bytes)
        .expect("the operating system gives random bytes; without them nothing here is safe");
    let text = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    bytes.zeroize();
    text
}

fn checksum(body: &str) -> String {
    Sha256Digest::of(body.as_bytes()).to_string()[..CHECKSUM_DIGITS].to_owned()
}

/// Checks prefix and checksum, and returns the text between them.
fn body(text: &str, expected: SecretKind) -> Result<&str, InvalidSecret> {
    match SecretKind::of(text) {
        Some(found) if found == expected => {}
        Some(found) => return Err(InvalidSecret::OtherKind { found, expected }),
        None => return Err(InvalidSecret::Unknown { expected }),
    }
    let damaged = InvalidSecret::Damaged { expected };
    let (body, sum) = text.rsplit_once('_').ok_or(damaged.clone())?;
    if sum != checksum(body) {
        return Err(damaged);
    }
    body.strip_prefix(expected.prefix()).ok_or(damaged)
}

/// Whether a text can be the random part of a secret. Without this check, any text could have a valid checksum.
fn is_random(text: &str) -> bool {
    text.len() == 2 * RANDOM_BYTES && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// An application key, `dgk_<key id>_<secret>_<checksum>`, as the business backend sends it.
///
/// `Debug` shows the key's identifier only; the text is wiped from memory on drop.
#[derive(Clone)]
pub struct ApplicationKey {
    text: Zeroizing<String>,
    id: KeyId,
}

impl ApplicationKey {
    /// A fresh key.
    pub fn generate(id: KeyId) -> Self {
        let body = format!("dgk_{}_{}", id.uuid().simple(), random_hex());
        let text = format!("{body}_{}", checksum(&body));
        Self { text: Zeroizing::new(text), id }
    }

    /// The key's identifier, as its text claims.
    pub fn id(&self) -> KeyId {
        self.id
    }

    /// The full text, to be shown once.
    pub fn reveal(&self) -> &str {
        &self.text
    }

    /// What the gateway stores instead of the key.
    pub fn digest(&self) -> Sha256Digest {
        Sha256Digest::of(self.text.as_bytes())
    }

    /// The last four characters of the secret part, by which a person tells keys apart.
    pub fn last4(&self) -> &str {
        let end = self.text.len() - CHECKSUM_DIGITS - 1;
        &self.text[end - 4..end]
    }
}

impl FromStr for ApplicationKey {
    type Err = InvalidSecret;

    fn from_str(text: &str) -> Result<Self, InvalidSecret> {
        let damaged = InvalidSecret::Damaged { expected: SecretKind::ApplicationKey };
        let parts = body(text, SecretKind::ApplicationKey)?.split_once('_').filter(|(_, random)| is_random(random));
        let (id, _) = parts.ok_or(damaged.clone())?;
        let id = format!("{}{id}", KeyId::PREFIX).parse().map_err(|_| damaged)?;
        Ok(Self { text: Zeroizing::new(text.to_owned()), id })
    }
}

impl fmt::Debug for ApplicationKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ApplicationKey({})", self.id)
    }
}

/// The private control token, `dgt_<secret>_<checksum>`: it opens the private control listener; after that the device's
/// signature proves which device it is.
#[derive(Clone, PartialEq, Eq)]
pub struct ControlToken(Zeroizing<String>);

impl ControlToken {
    /// A fresh token.
    pub fn generate() -> Self {
        let body = format!("dgt_{}", random_hex());
        let sum = checksum(&body);
        Self(Zeroizing::new(format!("{body}_{sum}")))
    }

    /// The full text.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// What is compared and stored instead of the token.
    pub fn digest(&self) -> Sha256Digest {
        Sha256Digest::of(self.0.as_bytes())
    }
}

impl FromStr for ControlToken {
    type Err = InvalidSecret;

    fn from_str(text: &str) -> Result<Self, InvalidSecret> {
        let expected = SecretKind::ControlToken;
        let random = body(text, expected)?;
        is_random(random).then(|| Self(Zeroizing::new(text.to_owned()))).ok_or(InvalidSecret::Damaged { expected })
    }
}

impl Serialize for ControlToken {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for ControlToken {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Zeroizing::new(String::deserialize(deserializer)?);
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl fmt::Debug for ControlToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ControlToken(…)")
    }
}

/// An account's access token at a hosted gateway, as its issuer made it. Only the gateway reads its content.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AccessToken(Zeroizing<String>);

impl AccessToken {
    /// Wraps the text that an issuer gave.
    pub fn new(text: &str) -> Self {
        Self(Zeroizing::new(text.to_owned()))
    }

    /// The full text.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for AccessToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AccessToken(…)")
    }
}

/// Compares two digests in constant time.
pub fn digests_equal(one: &Sha256Digest, other: &Sha256Digest) -> bool {
    use subtle::ConstantTimeEq;
    one.0.ct_eq(&other.0).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_key_reads_back_and_names_itself() {
        let id = KeyId::new();
        let key = ApplicationKey::generate(id);
        let read: ApplicationKey = key.reveal().parse().expect("our own key");
        assert_eq!((read.id(), read.digest()), (id, key.digest()));
        assert_eq!(key.last4().len(), 4);
        assert!(!format!("{key:?}").contains(key.last4()));
    }

    #[test]
    fn a_secret_in_the_wrong_field_is_named() {
        let token = ControlToken::generate();
        let error = token.reveal().parse::<ApplicationKey>().expect_err("a token is no key");
        assert_eq!(error.to_string(), "this is a private control token; an application key starts with \"dgk_\"");
        let error = "sk-ant-1".parse::<ControlToken>().expect_err("a provider's key");
        assert_eq!(error.to_string(), "this is a model provider's key; a private control token starts with \"dgt_\"");
        let error = "hello".parse::<ControlToken>().expect_err("nothing we know");
        assert_eq!(error.to_string(), "this is not a private control token, which starts with \"dgt_\"");
    }

    #[test]
    fn only_what_can_have_been_made_is_read_though_its_checksum_fits() {
        let key = format!("dgk_{}", KeyId::new().uuid().simple());
        for random in ["", "short", "é☺", &"g".repeat(48), &"0".repeat(47), &format!("0_{}", "0".repeat(46))] {
            let summed = |body: String| format!("{body}_{}", checksum(&body));
            assert!(summed(format!("{key}_{random}")).parse::<ApplicationKey>().is_err(), "{random:?}");
            assert!(summed(format!("dgt_{random}")).parse::<ControlToken>().is_err(), "{random:?}");
        }
    }

    proptest! {
        #[test]
        fn one_changed_character_is_noticed(position in 4usize..60, change in 1u8..16) {
            let token = ControlToken::generate();
            let mut text = token.reveal().to_owned().into_bytes();
            let position = position.min(text.len() - 1);
            let digit = (text[position] as char).to_digit(16);
            prop_assume!(digit.is_some());
            let changed = (digit.expect("assumed") as u8 ^ change) % 16;
            text[position] = char::from_digit(u32::from(changed), 16).expect("below 16") as u8;
            let text = String::from_utf8(text).expect("ASCII");
            let error = text.parse::<ControlToken>().expect_err("damaged");
            prop_assert_eq!(error.to_string(), "this private control token is incomplete or mistyped: its checksum does not fit");
        }

        #[test]
        fn arbitrary_text_never_panics(text: String) {
            let _ = text.parse::<ApplicationKey>();
            let _ = format!("dgk_{text}").parse::<ApplicationKey>();
        }
    }
}
