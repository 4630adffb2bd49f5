//! Receipts as compact JWS: signed, and read strictly.
//!
//! A reader accepts exactly the bytes that [`ReceiptSigner::sign`] makes: header and payload are written again and compared, so
//! there is no second text for a receipt, no unknown or repeated member, and no other algorithm.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{MAX_RECEIPT_BYTES, RECEIPT_VERSION, Receipt};
use crate::canonical::Sha256Digest;
use crate::identity::PublicKey;

/// The `alg` of every receipt (RFC 8037).
pub const ALGORITHM: &str = "EdDSA";
/// The `typ` of every receipt.
pub const TYPE: &str = "deskgate-receipt+jwt";

#[derive(Serialize, Deserialize)]
struct Header {
    alg: String,
    jwk: Jwk,
    typ: String,
}

#[derive(Serialize, Deserialize)]
struct Jwk {
    crv: String,
    kty: String,
    x: String,
}

impl Header {
    fn of(key: &PublicKey) -> Self {
        let x = URL_SAFE_NO_PAD.encode(key.as_bytes());
        let jwk = Jwk { crv: "Ed25519".to_owned(), kty: "OKP".to_owned(), x };
        Self { alg: ALGORITHM.to_owned(), jwk, typ: TYPE.to_owned() }
    }
}

/// Why a text is not a receipt.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidReceipt {
    /// Larger than [`MAX_RECEIPT_BYTES`].
    #[error("it is larger than {MAX_RECEIPT_BYTES} bytes")]
    TooLarge,
    /// Not three parts of base64url.
    #[error("it is not a compact JWS: three parts of base64url without padding, joined by dots")]
    NotCompact,
    /// Another algorithm.
    #[error("its header names another algorithm than EdDSA")]
    Algorithm,
    /// The header has other members, another key or another spelling.
    #[error("its header is not the one of a receipt")]
    Header,
    /// The signature does not fit.
    #[error("its signature does not fit: it was changed after the device signed it")]
    Signature,
    /// A version that is not known here.
    #[error("it has version {0}; this program reads version {RECEIPT_VERSION}. Use a newer program")]
    Version(u64),
    /// The payload is signed, and is not a receipt's.
    #[error("what is signed is not a receipt in canonical JSON")]
    Payload,
}

/// A receipt whose signature is good. Whose key it is, its reader compares.
#[derive(Clone, Debug, PartialEq)]
pub struct SignedReceipt {
    /// What it says.
    pub receipt: Receipt,
    /// The key that signed it.
    pub key: PublicKey,
    /// The SHA-256 of its compact form: the `prev` of the next.
    pub sha256: Sha256Digest,
}

/// A device's key, for signing receipts only. Clones share it; `Debug` shows its fingerprint only.
#[derive(Clone)]
pub struct ReceiptSigner {
    key: Arc<SigningKey>,
    /// The first part of every receipt that it signs.
    header: Arc<str>,
}

impl ReceiptSigner {
    /// Signs with this key.
    pub fn new(key: Arc<SigningKey>) -> Self {
        let header = URL_SAFE_NO_PAD.encode(canonical(&Header::of(&PublicKey::of(&key))));
        Self { key, header: header.into() }
    }

    /// Signs with the key of this seed.
    pub fn from_seed(seed: [u8; 32]) -> Self {
        Self::new(Arc::new(SigningKey::from_bytes(&seed)))
    }

    /// The public half of the key.
    pub fn public_key(&self) -> PublicKey {
        PublicKey::of(&self.key)
    }

    /// The compact form of a receipt.
    pub fn sign(&self, receipt: &Receipt) -> String {
        let mut text = format!("{}.", self.header);
        URL_SAFE_NO_PAD.encode_string(canonical(receipt), &mut text);
        let signature = self.key.sign(text.as_bytes()).to_bytes();
        text.push('.');
        URL_SAFE_NO_PAD.encode_string(signature, &mut text);
        text
    }
}

impl std::fmt::Debug for ReceiptSigner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ReceiptSigner({})", self.public_key().fingerprint())
    }
}

impl SignedReceipt {
    /// Reads a compact form and checks everything but whose key it is.
    ///
    /// # Errors
    /// The first check that fails.
    pub fn read(text: &str) -> Result<Self, InvalidReceipt> {
        if text.len() > MAX_RECEIPT_BYTES {
            return Err(InvalidReceipt::TooLarge);
        }
        let parts: Vec<_> = text.split('.').collect();
        let [header, payload, signature] = parts[..] else { return Err(InvalidReceipt::NotCompact) };
        let signed = &text[..header.len() + 1 + payload.len()];
        let bytes = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| InvalidReceipt::NotCompact);
        let (header, payload, signature) = (bytes(header)?, bytes(payload)?, bytes(signature)?);
        let key = key_of(&header)?;
        let signature = Signature::from_slice(&signature).map_err(|_| InvalidReceipt::Signature)?;
        let verifying = VerifyingKey::from_bytes(key.as_bytes()).map_err(|_| InvalidReceipt::Header)?;
        verifying.verify_strict(signed.as_bytes(), &signature).map_err(|_| InvalidReceipt::Signature)?;
        Ok(Self { receipt: payload_of(&payload)?, key, sha256: Sha256Digest::of(text.as_bytes()) })
    }
}

fn key_of(header: &[u8]) -> Result<PublicKey, InvalidReceipt> {
    let value: Value = serde_json::from_slice(header).map_err(|_| InvalidReceipt::Header)?;
    if value.get("alg").and_then(Value::as_str) != Some(ALGORITHM) {
        return Err(InvalidReceipt::Algorithm);
    }
    let x = value.pointer("/jwk/x").and_then(Value::as_str).and_then(|x| URL_SAFE_NO_PAD.decode(x).ok());
    let x = x.and_then(|x| <[u8; 32]>::try_from(x).ok()).ok_or(InvalidReceipt::Header)?;
    let key = PublicKey::from_bytes(x);
    if canonical(&Header::of(&key)) == header { Ok(key) } else { Err(InvalidReceipt::Header) }
}

fn payload_of(payload: &[u8]) -> Result<Receipt, InvalidReceipt> {
    let value: Value = serde_json::from_slice(payload).map_err(|_| InvalidReceipt::Payload)?;
    match value.get("v").and_then(Value::as_u64) {
        Some(v) if v == u64::from(RECEIPT_VERSION) => {}
        Some(other) => return Err(InvalidReceipt::Version(other)),
        None => return Err(InvalidReceipt::Payload),
    }
    let receipt: Receipt = serde_json::from_value(value).map_err(|_| InvalidReceipt::Payload)?;
    if canonical(&receipt) == payload { Ok(receipt) } else { Err(InvalidReceipt::Payload) }
}

fn canonical(value: &impl Serialize) -> Vec<u8> {
    serde_json_canonicalizer::to_vec(value).expect("receipts and their headers are texts, whole numbers and lists")
}

/// Whether a text has the shape of a receipt: bounded, and three parts of base64url. For whoever only keeps receipts.
pub fn looks_like_receipt(text: &str) -> bool {
    let is_part = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    text.len() <= MAX_RECEIPT_BYTES && text.split('.').count() == 3 && text.split('.').all(is_part)
}
