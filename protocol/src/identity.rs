//! A device's identity: one Ed25519 key, the file with its public half, and the proof of possession.
//!
//! The key *is* the identity. The file that a person carries to the gateway holds only the public half, and a signature
//! that proves that its author has the private half.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::ids::GatewayId;
use crate::time::Timestamp;

/// The format name in every device identity file.
pub const IDENTITY_FORMAT: &str = "deskgate-device/1";
const KEY_TYPE: &str = "ssh-ed25519";
const FILE_CONTEXT: &str = "deskgate device identity file v1";
const HELLO_CONTEXT: &str = "deskgate control channel hello v2";
const HOST_KEY_CONTEXT: &str = "deskgate gateway host key v1";

/// A device's public key, written as OpenSSH writes it: `ssh-ed25519 AAAA…`, without a comment.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PublicKey([u8; 32]);

impl PublicKey {
    /// The public half of a private key.
    pub fn of(key: &SigningKey) -> Self {
        Self(key.verifying_key().to_bytes())
    }

    /// From the 32 bytes of an Ed25519 public key.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 32 bytes of the Ed25519 public key.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The SSH wire form (RFC 8709): two length-prefixed strings.
    fn wire(&self) -> Vec<u8> {
        let mut wire = Vec::with_capacity(51);
        for part in [KEY_TYPE.as_bytes(), &self.0] {
            wire.extend((part.len() as u32).to_be_bytes());
            wire.extend(part);
        }
        wire
    }

    /// The fingerprint as `ssh-keygen -l` prints it: `SHA256:` and unpadded base64.
    pub fn fingerprint(&self) -> String {
        format!("SHA256:{}", STANDARD_NO_PAD.encode(Sha256::digest(self.wire())))
    }

    /// The beginning of the fingerprint, short enough to read out: four groups of four digits, 64 bits. Two keys may
    /// share a code; the fingerprint decides.
    pub fn short_code(&self) -> String {
        let digest = Sha256::digest(self.wire());
        let groups: Vec<_> = digest.chunks(2).take(4).map(|two| format!("{:02X}{:02X}", two[0], two[1])).collect();
        groups.join("-")
    }

    fn verify(&self, message: &[u8], signature: &str) -> bool {
        let Ok(bytes) = STANDARD.decode(signature) else { return false };
        let Ok(signature) = Signature::from_slice(&bytes) else { return false };
        VerifyingKey::from_bytes(&self.0).is_ok_and(|key| key.verify_strict(message, &signature).is_ok())
    }
}

impl std::fmt::Display for PublicKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{KEY_TYPE} {}", STANDARD.encode(self.wire()))
    }
}

impl std::fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PublicKey({})", self.fingerprint())
    }
}

impl std::str::FromStr for PublicKey {
    type Err = InvalidIdentity;

    fn from_str(text: &str) -> Result<Self, InvalidIdentity> {
        let mut words = text.split_ascii_whitespace();
        if words.next() != Some(KEY_TYPE) {
            return Err(InvalidIdentity::KeyType);
        }
        let wire = words.next().and_then(|word| STANDARD.decode(word).ok()).ok_or(InvalidIdentity::Key)?;
        let bytes = wire.get(wire.len().saturating_sub(32)..).and_then(|tail| tail.try_into().ok());
        let key = Self(bytes.ok_or(InvalidIdentity::Key)?);
        if key.wire() != wire || VerifyingKey::from_bytes(&key.0).is_err() {
            return Err(InvalidIdentity::Key);
        }
        Ok(key)
    }
}

impl Serialize for PublicKey {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PublicKey {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Why an identity file is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidIdentity {
    /// It is not JSON, or has other members.
    #[error("this is not a device identity file: {0}. Export one on the desktop with `deskgate identity export FILE`")]
    NotAFile(String),
    /// It has the format of another version.
    #[error("the file's format is {0:?}; this version reads {IDENTITY_FORMAT:?}")]
    Format(String),
    /// The key has another type.
    #[error("a device key is an Ed25519 key and begins with \"ssh-ed25519\"")]
    KeyType,
    /// The key's text is damaged.
    #[error("the public key is damaged")]
    Key,
    /// The fingerprint belongs to another key.
    #[error("the fingerprint in the file is not the fingerprint of its key")]
    Fingerprint,
    /// The signature does not match.
    #[error("the file's signature does not fit its contents: it was changed after it was exported")]
    Signature,
}

/// The public half of a device's identity, as `deskgate identity export` writes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IdentityFile {
    /// Always [`IDENTITY_FORMAT`].
    pub format: String,
    /// The name the desktop user gave the device.
    pub device_name: String,
    /// The key itself.
    pub public_key: PublicKey,
    /// [`PublicKey::fingerprint`], for people to compare.
    pub fingerprint: String,
    /// When the file was exported.
    pub created_at: Timestamp,
    /// Base64 of the key's signature over the other members.
    pub signature: String,
}

impl IdentityFile {
    /// Signs a fresh file.
    pub fn sign(key: &SigningKey, device_name: &str, created_at: Timestamp) -> Self {
        let public_key = PublicKey::of(key);
        let mut file = Self {
            format: IDENTITY_FORMAT.to_owned(),
            device_name: device_name.to_owned(),
            public_key,
            fingerprint: public_key.fingerprint(),
            created_at,
            signature: String::new(),
        };
        file.signature = STANDARD.encode(key.sign(&file.message()).to_bytes());
        file
    }

    /// Reads a file and checks its format, key, fingerprint and signature.
    ///
    /// # Errors
    /// The first of these checks that fails.
    pub fn read(text: &str) -> Result<Self, InvalidIdentity> {
        let value: serde_json::Value =
            serde_json::from_str(text).map_err(|error| InvalidIdentity::NotAFile(error.to_string()))?;
        match value.get("format").and_then(|format| format.as_str()) {
            Some(IDENTITY_FORMAT) => {}
            Some(other) => return Err(InvalidIdentity::Format(other.chars().take(40).collect())),
            None => return Err(InvalidIdentity::NotAFile("it has no \"format\" member".to_owned())),
        }
        let file: Self = serde_json::from_value(value).map_err(|error| InvalidIdentity::NotAFile(error.to_string()))?;
        if file.fingerprint != file.public_key.fingerprint() {
            return Err(InvalidIdentity::Fingerprint);
        }
        if !file.public_key.verify(&file.message(), &file.signature) {
            return Err(InvalidIdentity::Signature);
        }
        Ok(file)
    }

    fn message(&self) -> Vec<u8> {
        message(&[
            FILE_CONTEXT,
            &self.format,
            &self.device_name,
            &self.public_key.to_string(),
            &self.fingerprint,
            &self.created_at.to_string(),
        ])
    }
}

/// Joins length-prefixed parts, so that two different lists of parts never give the same bytes.
fn message(parts: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for part in parts {
        bytes.extend((part.len() as u64).to_be_bytes());
        bytes.extend(part.as_bytes());
    }
    bytes
}

/// By what a device recognised the server to which it says hello.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecognisedServer {
    /// By the SSH host key that it showed.
    HostKey(PublicKey),
    /// By the certificate for this address, as in `https://gateway.example.com`.
    Origin(String),
    /// The gateway is in the same process.
    BuiltIn,
}

impl std::fmt::Display for RecognisedServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::HostKey(key) => f.write_str(&key.fingerprint()),
            Self::Origin(origin) => f.write_str(origin),
            Self::BuiltIn => f.write_str("the same process"),
        }
    }
}

impl RecognisedServer {
    fn parts(&self) -> (&'static str, String) {
        match self {
            Self::HostKey(key) => ("host key", key.to_string()),
            Self::Origin(origin) => ("origin", origin.clone()),
            Self::BuiltIn => ("built in", String::new()),
        }
    }
}

/// What a device signs to authenticate: this gateway, this session's nonce, both versions, and the server that it
/// recognised. So who is recognised as one server cannot pass the hello on to another.
#[derive(Clone, Copy, Debug)]
pub struct HelloProof<'a> {
    /// From the challenge.
    pub gateway_id: GatewayId,
    /// From the challenge.
    pub nonce: &'a str,
    /// From the challenge.
    pub gateway_version: &'a str,
    /// The device's own.
    pub device_version: &'a str,
    /// From the connection, as the device sees it.
    pub server: &'a RecognisedServer,
}

impl HelloProof<'_> {
    /// Base64 of the signature.
    pub fn sign(&self, key: &SigningKey) -> String {
        STANDARD.encode(key.sign(&self.message()).to_bytes())
    }

    /// Whether `signature` is this proof made with the private half of `key`.
    pub fn verify(&self, key: &PublicKey, signature: &str) -> bool {
        key.verify(&self.message(), signature)
    }

    fn message(&self) -> Vec<u8> {
        let (kind, server) = self.server.parts();
        let gateway_id = self.gateway_id.to_string();
        message(&[HELLO_CONTEXT, &gateway_id, self.nonce, self.gateway_version, self.device_version, kind, &server])
    }
}

/// What a gateway's SSH host key signs, so that a device may trust a key that it has not seen in use: this gateway, the
/// device's own nonce, the device. As in OpenSSH's `hostkeys-prove-00`, a key counts only if it can sign.
#[derive(Clone, Copy, Debug)]
pub struct HostKeyProof<'a> {
    /// From the challenge.
    pub gateway_id: GatewayId,
    /// From the hello.
    pub nonce: &'a str,
    /// The device that the proof is for.
    pub device: &'a PublicKey,
}

impl HostKeyProof<'_> {
    /// Base64 of the signature.
    pub fn sign(&self, key: &SigningKey) -> String {
        STANDARD.encode(key.sign(&self.message()).to_bytes())
    }

    /// Whether `signature` is this proof made with the private half of `key`.
    pub fn verify(&self, key: &PublicKey, signature: &str) -> bool {
        key.verify(&self.message(), signature)
    }

    fn message(&self) -> Vec<u8> {
        message(&[HOST_KEY_CONTEXT, &self.gateway_id.to_string(), self.nonce, &self.device.to_string()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> SigningKey {
        SigningKey::from_bytes(&[7; 32])
    }

    fn file() -> IdentityFile {
        IdentityFile::sign(&key(), "anna's laptop", "2026-11-21T09:00:00Z".parse().expect("valid"))
    }

    fn reread(change: impl FnOnce(&mut serde_json::Value)) -> Result<IdentityFile, InvalidIdentity> {
        let mut value = serde_json::to_value(file()).expect("serialises");
        change(&mut value);
        IdentityFile::read(&value.to_string())
    }

    #[test]
    fn a_host_key_is_believed_for_one_gateway_one_session_and_one_device() {
        let (gateway_id, device, host) = (GatewayId::new(), PublicKey::of(&SigningKey::from_bytes(&[8; 32])), key());
        let proof = HostKeyProof { gateway_id, nonce: "n", device: &device };
        let signature = proof.sign(&host);
        assert!(proof.verify(&PublicKey::of(&host), &signature));
        let elsewhere = [
            HostKeyProof { gateway_id: GatewayId::new(), ..proof },
            HostKeyProof { nonce: "m", ..proof },
            HostKeyProof { device: &PublicKey::of(&host), ..proof },
        ];
        assert!(elsewhere.iter().all(|other| !other.verify(&PublicKey::of(&host), &signature)));
        assert!(!proof.verify(&device, &signature), "another key");
    }

    #[test]
    fn an_exported_file_reads_back() {
        assert_eq!(reread(|_| {}), Ok(file()));
    }

    #[test]
    fn a_changed_file_is_refused_by_what_is_wrong_with_it() {
        assert_eq!(reread(|v| v["device_name"] = "other".into()), Err(InvalidIdentity::Signature));
        assert_eq!(reread(|v| v["fingerprint"] = "SHA256:x".into()), Err(InvalidIdentity::Fingerprint));
        assert_eq!(
            reread(|v| v["format"] = "deskgate-device/9".into()),
            Err(InvalidIdentity::Format("deskgate-device/9".into()))
        );
        assert!(matches!(reread(|v| v["extra"] = 1.into()), Err(InvalidIdentity::NotAFile(_))));
        assert!(matches!(IdentityFile::read("ssh-ed25519 AAAA"), Err(InvalidIdentity::NotAFile(_))));
        let other = IdentityFile::sign(&SigningKey::from_bytes(&[8; 32]), "x", file().created_at);
        let swapped = reread(|v| {
            v["public_key"] = other.public_key.to_string().into();
            v["fingerprint"] = other.fingerprint.clone().into();
        });
        assert_eq!(swapped, Err(InvalidIdentity::Signature));
    }

    #[test]
    fn the_key_text_is_what_openssh_writes() {
        // Made with ssh-keygen; the fingerprint is what `ssh-keygen -lf` printed for it.
        let text = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILRI0lf54e2o+kM7ySftCaYIRfdujbIamvVLFRzpj6js";
        let key: PublicKey = text.parse().expect("an OpenSSH key");
        assert_eq!(key.to_string(), text);
        assert_eq!(key.fingerprint(), "SHA256:5TYAUnj1p7hSySxwLSzuo2ncngeS76sPafw9EyRvV6g");
        assert_eq!(key.short_code(), "E536-0052-78F5-A7B8", "the same, in other digits");
        assert_eq!(format!("{text} a comment").parse(), Ok(key));
        assert_eq!("ssh-rsa AAAA".parse::<PublicKey>(), Err(InvalidIdentity::KeyType));
        assert_eq!("ssh-ed25519 AAAA".parse::<PublicKey>(), Err(InvalidIdentity::Key));
    }

    #[test]
    fn a_proof_holds_for_one_gateway_one_nonce_both_versions_and_one_server() {
        let server = RecognisedServer::HostKey(PublicKey::of(&key()));
        let proof = HelloProof {
            gateway_id: GatewayId::from(uuid::Uuid::nil()),
            nonce: "n1",
            gateway_version: "1.0.0",
            device_version: "1.0.1",
            server: &server,
        };
        let signature = proof.sign(&key());
        let public = PublicKey::of(&key());
        assert!(proof.verify(&public, &signature));
        assert!(!HelloProof { nonce: "n2", ..proof }.verify(&public, &signature));
        assert!(!HelloProof { gateway_id: GatewayId::new(), ..proof }.verify(&public, &signature));
        assert!(!HelloProof { device_version: "1.0.2", ..proof }.verify(&public, &signature));
        for other in [
            RecognisedServer::HostKey(PublicKey::of(&SigningKey::from_bytes(&[8; 32]))),
            RecognisedServer::Origin(PublicKey::of(&key()).to_string()),
            RecognisedServer::BuiltIn,
        ] {
            assert!(!HelloProof { server: &other, ..proof }.verify(&public, &signature), "{other}");
        }
        assert!(!proof.verify(&public, "not base64"));
        assert!(!proof.verify(&PublicKey::of(&SigningKey::from_bytes(&[8; 32])), &signature));
    }
}
