//! The key by which devices know this gateway.

use std::path::Path;
use std::sync::Arc;

use russh::keys::ssh_key::{HashAlg, PrivateKey};

use super::key_file::{self, KeyFileError};

/// The gateway's Ed25519 SSH host key. `Debug` shows its fingerprint only.
#[derive(Clone)]
pub struct HostKey(Arc<PrivateKey>);

impl HostKey {
    /// Reads the key in `path` (OpenSSH format, mode 0600), or makes one if there is none yet.
    pub fn load_or_create(path: &Path) -> Result<Self, KeyFileError> {
        key_file::load_or_create(path).map(|key| Self(Arc::new(key)))
    }

    /// What desktop users compare and pin: `SHA256:` and unpadded base64, as `ssh-keygen -l` prints it.
    pub fn fingerprint(&self) -> String {
        self.0.public_key().fingerprint(HashAlg::Sha256).to_string()
    }

    /// The public half as one line of a known-hosts file has it: `ssh-ed25519 AAAA…`.
    pub fn public_key(&self) -> String {
        let key = self.0.key_data().ed25519().expect("load_or_create gives Ed25519 keys only");
        deskgate_protocol::identity::PublicKey::from_bytes(key.public.0).to_string()
    }

    pub(super) fn private(&self) -> PrivateKey {
        (*self.0).clone()
    }
}

impl std::fmt::Debug for HostKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HostKey({})", self.fingerprint())
    }
}
