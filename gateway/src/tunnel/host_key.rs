//! The keys by which devices know this gateway.

use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};

use deskgate_protocol::control::ProvenHostKey;
use deskgate_protocol::identity::{HostKeyProof, PublicKey};
use ed25519_dalek::SigningKey;
use russh::keys::ssh_key::PrivateKey;

use super::key_file::{self, KeyFileError};

/// The current key, in the gateway's state folder.
const CURRENT_KEY_FILE: &str = "ssh_host_ed25519_key";
/// The announced key.
const NEXT_KEY_FILE: &str = "ssh_host_ed25519_key.next";

/// An Ed25519 SSH host key. `Debug` shows its fingerprint only.
#[derive(Clone)]
pub struct HostKey(Arc<PrivateKey>);

impl HostKey {
    /// Reads the key in `path` (OpenSSH format, mode 0600), or makes one if there is none yet.
    ///
    /// # Errors
    /// See [`KeyFileError`]: the file is not a usable key, is open to other users or belongs to one, or cannot be read
    /// or created.
    pub fn load_or_create(path: &Path) -> Result<Self, KeyFileError> {
        key_file::load_or_create(path).map(|key| Self(Arc::new(key)))
    }

    /// The fingerprint that desktop users compare and pin: `SHA256:` and unpadded base64, as `ssh-keygen -l` prints it.
    pub fn fingerprint(&self) -> String {
        self.public_key().fingerprint()
    }

    /// The public half; as text, it is what a line of a known-hosts file has: `ssh-ed25519 AAAA…`.
    pub fn public_key(&self) -> PublicKey {
        PublicKey::of(&self.signing_key())
    }

    pub(super) fn private(&self) -> PrivateKey {
        (*self.0).clone()
    }

    fn signing_key(&self) -> SigningKey {
        let key = self.0.key_data().ed25519().expect("load_or_create gives Ed25519 keys only");
        SigningKey::from_bytes(&key.private.to_bytes())
    }
}

impl std::fmt::Debug for HostKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HostKey({})", self.fingerprint())
    }
}

/// A gateway's host keys: the current one, and the one that it announces before it replaces it.
///
/// Replacing a key without manual work takes both: devices that connected while the next one was announced know it when
/// it takes over. Clones share them.
#[derive(Clone, Debug)]
pub struct HostKeys {
    folder: PathBuf,
    kept: Arc<RwLock<KeySet>>,
}

#[derive(Clone, Debug)]
struct KeySet {
    current: HostKey,
    next: Option<HostKey>,
}

/// Why the announced key cannot replace the current one.
#[derive(Debug, thiserror::Error)]
pub enum RotateError {
    /// No key is announced.
    #[error("no new host key was announced: begin with `deskgate-gateway admin host-key announce`")]
    NotAnnounced,
    /// A key file failed.
    #[error(transparent)]
    File(#[from] KeyFileError),
}

impl HostKeys {
    /// Reads the keys in `folder`, or creates the current one if there is none yet.
    ///
    /// # Errors
    /// See [`KeyFileError`]: a file is not a usable key, is open to other users or belongs to one, or cannot be read or
    /// created.
    pub fn load_or_create(folder: &Path) -> Result<Self, KeyFileError> {
        let current = HostKey::load_or_create(&folder.join(CURRENT_KEY_FILE))?;
        let next = key_file::load_if_there(&folder.join(NEXT_KEY_FILE))?.map(|key| HostKey(Arc::new(key)));
        Ok(Self { folder: folder.to_owned(), kept: Arc::new(RwLock::new(KeySet { current, next })) })
    }

    /// The current key.
    pub fn current(&self) -> HostKey {
        self.kept().current
    }

    /// The announced key.
    pub fn next(&self) -> Option<HostKey> {
        self.kept().next
    }

    /// Creates the next key and announces it from now on; or uses an existing file, as on a further replica.
    ///
    /// # Errors
    /// See [`KeyFileError`]: the next key's file is not a usable key, is open to other users or belongs to one, or
    /// cannot be read or created.
    pub fn announce(&self) -> Result<HostKey, KeyFileError> {
        let mut kept = self.kept.write().expect("nothing panics while it is held");
        let next = HostKey::load_or_create(&self.folder.join(NEXT_KEY_FILE))?;
        kept.next = Some(next.clone());
        Ok(next)
    }

    /// Uses the next key from now on, and never the one before: its file is replaced.
    ///
    /// # Errors
    /// [`RotateError::NotAnnounced`]: no key is announced. [`RotateError::File`]: the file cannot be replaced; or it
    /// was, and its folder cannot be synced. The current key is used on.
    pub fn rotate(&self) -> Result<HostKey, RotateError> {
        let mut kept = self.kept.write().expect("nothing panics while it is held");
        let next = kept.next.clone().ok_or(RotateError::NotAnnounced)?;
        key_file::replace(&self.folder.join(NEXT_KEY_FILE), &self.folder.join(CURRENT_KEY_FILE))?;
        *kept = KeySet { current: next.clone(), next: None };
        Ok(next)
    }

    /// All of them, each with its proof.
    pub fn proven(&self, proof: &HostKeyProof<'_>) -> Vec<ProvenHostKey> {
        let KeySet { current, next } = self.kept();
        let prove =
            |key: HostKey| ProvenHostKey { public_key: key.public_key(), signature: proof.sign(&key.signing_key()) };
        [Some(current), next].into_iter().flatten().map(prove).collect()
    }

    fn kept(&self) -> KeySet {
        self.kept.read().expect("nothing panics while it is held").clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_announced_key_outlives_a_restart_and_takes_the_place_of_the_old_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let open = || HostKeys::load_or_create(folder.path()).expect("readable");
        let old = open().current().fingerprint();
        assert!(open().next().is_none() && matches!(open().rotate(), Err(RotateError::NotAnnounced)));
        let next = open().announce().expect("made").fingerprint();
        assert_eq!(open().announce().expect("the same").fingerprint(), next);
        let keys = open();
        assert_eq!((keys.current().fingerprint(), keys.next().map(|key| key.fingerprint())), (old, Some(next.clone())));
        assert_eq!(keys.rotate().expect("moved").fingerprint(), next);
        for keys in [keys, open()] {
            assert!(keys.next().is_none() && keys.current().fingerprint() == next);
        }
    }

    #[test]
    fn every_key_is_told_with_its_own_proof() {
        let folder = tempfile::tempdir().expect("a folder");
        let keys = HostKeys::load_or_create(folder.path()).expect("made");
        keys.announce().expect("made");
        let device = PublicKey::of(&SigningKey::from_bytes(&[8; 32]));
        let proof = HostKeyProof { gateway_id: deskgate_protocol::GatewayId::new(), nonce: "n", device: &device };
        let told = keys.proven(&proof);
        assert_eq!(told[0].public_key, keys.current().public_key());
        assert_eq!(told.len(), 2);
        assert!(told.iter().all(|key| proof.verify(&key.public_key, &key.signature)));
        assert!(!proof.verify(&told[0].public_key, &told[1].signature));
    }
}
