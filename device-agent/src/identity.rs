//! The device key: created once, kept in a file of mode 0600, never shown.
//!
//! The key *is* the identity: there is no second, rotating device token to lose.

use std::path::Path;
use std::sync::Arc;

use deskgate_gateway::tunnel::key_file;
pub use deskgate_gateway::tunnel::key_file::KeyFileError;
use deskgate_protocol::identity::PublicKey;
use deskgate_protocol::invitation::InvitationToken;
use deskgate_protocol::receipt::jws::ReceiptSigner;
use ed25519_dalek::SigningKey;

/// This device's Ed25519 key. Clones share it; `Debug` shows its fingerprint only.
#[derive(Clone)]
pub struct DeviceKey(Arc<SigningKey>);

impl DeviceKey {
    /// Reads the key in `path` (OpenSSH private-key format, mode 0600), or creates it.
    ///
    /// # Errors
    /// The file cannot be used; or others can read it (the error names the command that fixes it).
    pub fn load_or_create(path: &Path) -> Result<Self, KeyFileError> {
        let key = key_file::load_or_create(path)?;
        let pair = key.key_data().ed25519().expect("load_or_create gives Ed25519 keys only");
        let key = SigningKey::try_from(pair).map_err(|_| KeyFileError::Unreadable {
            path: path.to_owned(),
            why: "its public half does not belong to its private half".to_owned(),
        })?;
        Ok(Self(Arc::new(key)))
    }

    /// The key of an invitation, which opens the tunnel for a device that is not paired yet.
    pub fn of_invitation(token: &InvitationToken) -> Self {
        Self(Arc::new(token.tunnel_key()))
    }

    /// The private half, for signing.
    pub fn signing_key(&self) -> &SigningKey {
        &self.0
    }

    /// Signs receipts with this key.
    pub fn receipt_signer(&self) -> ReceiptSigner {
        ReceiptSigner::new(self.0.clone())
    }

    /// The public half, by which a gateway identifies this device.
    pub fn public_key(&self) -> PublicKey {
        PublicKey::of(&self.0)
    }
}

impl std::fmt::Debug for DeviceKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DeviceKey({})", self.public_key().fingerprint())
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn the_key_stays_the_same_and_openssh_reads_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("device-key");
        let key = DeviceKey::load_or_create(&path).expect("made");
        assert_eq!(DeviceKey::load_or_create(&path).expect("read").public_key(), key.public_key());

        let output = Command::new("ssh-keygen").arg("-y").arg("-f").arg(&path).output().expect("ssh-keygen runs");
        let text = String::from_utf8(output.stdout).expect("text");
        assert_eq!(text.trim().parse(), Ok(key.public_key()));
    }

    #[test]
    fn debug_output_holds_nothing_of_the_private_half() {
        let folder = tempfile::tempdir().expect("a folder");
        let key = DeviceKey::load_or_create(&folder.path().join("device-key")).expect("made");
        assert_eq!(format!("{key:?}"), format!("DeviceKey({})", key.public_key().fingerprint()));
    }
}
