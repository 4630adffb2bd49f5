//! Encrypts private values that must be read again before they go into the database, with a key from a file.
//!
//! So a copy of the database contains no usable private key of a certificate, and no usable signing secret. A key of its
//! own, derived from the same file, tells a backup of this installation from any other.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::{hkdf, hmac};
use zeroize::Zeroizing;

/// The key file's name in the gateway's folder.
pub const KEY_FILE_NAME: &str = "seal";

/// Bytes of a key.
const KEY_BYTES: usize = 32;

/// What is wrong with the key's file, or with encrypted data.
#[derive(Debug, thiserror::Error)]
pub enum EncryptionError {
    /// The file cannot be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The key file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// Other users can read the file.
    #[error("{path} has mode {mode:04o}: others can read it. Run: chmod 600 {path}")]
    Loose {
        /// The key file.
        path: PathBuf,
        /// The file's mode.
        mode: u32,
    },
    /// The file holds something else.
    #[error("{path}: it holds no sealing key, which is 43 letters and digits that the first gateway made")]
    NoKey {
        /// The key file.
        path: PathBuf,
    },
    /// The data was encrypted with another key, or changed.
    #[error("what the database keeps was sealed with another key. Give every replica the same seal_file")]
    OtherKey,
}

/// Encrypts and decrypts. Clones have the same key.
#[derive(Clone)]
pub struct DataCipher(LessSafeKey);

impl DataCipher {
    /// Reads the key, or creates it.
    ///
    /// # Errors
    /// See [`EncryptionError`].
    pub fn load_or_create(path: &Path) -> Result<Self, EncryptionError> {
        match Self::load(path) {
            Err(EncryptionError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                let key: [u8; KEY_BYTES] = std::array::from_fn(|_| rand::random());
                save(path, &URL_SAFE_NO_PAD.encode(key))
                    .map_err(|source| EncryptionError::Io { path: path.to_owned(), source })?;
                Self::load(path)
            }
            other => other,
        }
    }

    /// Reads an existing key.
    ///
    /// # Errors
    /// See [`EncryptionError`].
    pub fn load(path: &Path) -> Result<Self, EncryptionError> {
        let key = UnboundKey::new(&CHACHA20_POLY1305, &read_key(path)?).ok();
        key.map(|key| Self(LessSafeKey::new(key))).ok_or_else(|| EncryptionError::NoKey { path: path.to_owned() })
    }

    /// Encrypts a secret for one context, such as a row; it decrypts in no other.
    pub fn encrypt(&self, secret: &[u8], place: &str) -> Vec<u8> {
        // At random, so that replicas need not agree; so few values are encrypted that no nonce comes twice.
        let nonce: [u8; NONCE_LEN] = std::array::from_fn(|_| rand::random());
        let mut text = secret.to_vec();
        self.0
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(place), &mut text)
            .expect("only a text of many gigabytes is too long");
        [nonce.as_slice(), &text].concat()
    }

    /// Decrypts data that was encrypted for this context.
    ///
    /// # Errors
    /// The data was encrypted with another key or for another context, or was changed.
    pub fn decrypt(&self, sealed: &[u8], place: &str) -> Result<Vec<u8>, EncryptionError> {
        let (nonce, text) = sealed.split_first_chunk::<NONCE_LEN>().ok_or(EncryptionError::OtherKey)?;
        let mut text = text.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let opened = self.0.open_in_place(nonce, Aad::from(place), &mut text).map_err(|_| EncryptionError::OtherKey)?;
        Ok(opened.to_vec())
    }
}

/// Tells whether a backup was made with the sealing key of this installation, and is as it was made. From it nobody
/// learns the sealing key.
#[derive(Debug)]
pub struct BackupKey {
    key: hmac::Key,
    id: String,
}

/// The purpose for which the key of backups is derived (RFC 5869, `info`).
const BACKUP_KEY_PURPOSE: &[u8] = b"deskgate backup hmac-sha-256 1";
/// Bytes of the identifier of a key.
const KEY_ID_BYTES: usize = 8;

impl BackupKey {
    /// Derives it from the key in this file.
    ///
    /// # Errors
    /// See [`EncryptionError`].
    pub fn load(path: &Path) -> Result<Self, EncryptionError> {
        let sealing_key = read_key(path)?;
        let purpose = [BACKUP_KEY_PURPOSE];
        let extracted = hkdf::Salt::new(hkdf::HKDF_SHA256, b"").extract(&sealing_key);
        let derived = extracted.expand(&purpose, hmac::HMAC_SHA256).expect("the length of the hash is allowed");
        let key = hmac::Key::from(derived);
        let id = hmac::sign(&key, b"identifier").as_ref()[..KEY_ID_BYTES].iter().map(|b| format!("{b:02x}")).collect();
        Ok(Self { key, id })
    }

    /// Names the key, and tells nothing about it.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Begins the authentication code (HMAC-SHA-256) of a backup.
    pub fn begin(&self) -> hmac::Context {
        hmac::Context::with_key(&self.key)
    }
}

/// The key in a file that others cannot read.
fn read_key(path: &Path) -> Result<Zeroizing<Vec<u8>>, EncryptionError> {
    let io = |source| EncryptionError::Io { path: path.to_owned(), source };
    let mode = std::fs::metadata(path).map_err(io)?.permissions().mode() & 0o777;
    if mode & 0o007 != 0 {
        return Err(EncryptionError::Loose { path: path.to_owned(), mode });
    }
    let text = Zeroizing::new(std::fs::read_to_string(path).map_err(io)?);
    let key = URL_SAFE_NO_PAD.decode(text.trim()).ok().filter(|key| key.len() == KEY_BYTES);
    key.map(Zeroizing::new).ok_or_else(|| EncryptionError::NoKey { path: path.to_owned() })
}

/// Writes a key into a file that only its owner can read. A key that another process created meanwhile stays.
fn save(path: &Path, key: &str) -> std::io::Result<()> {
    // At random: replicas in containers may share the folder, and have the same process id.
    let partial = path.with_extension(format!("{:032x}.new", rand::random::<u128>()));
    let written = write(&partial, key).and_then(|()| match std::fs::hard_link(&partial, path) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    });
    // A failure here is harmless: the name is never used again.
    let _ = std::fs::remove_file(&partial);
    written?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

fn write(path: &Path, key: &str) -> std::io::Result<()> {
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(format!("{key}\n").as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sealed_opens_with_its_key_at_its_place_and_nowhere_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("seal");
        let cipher = DataCipher::load_or_create(&path).unwrap();
        let sealed = cipher.encrypt(b"private", "here");
        assert!(!sealed.windows(7).any(|part| part == b"private"));
        let again = DataCipher::load_or_create(&path).unwrap();
        assert_eq!(again.decrypt(&sealed, "here").unwrap(), b"private");
        assert!(matches!(again.decrypt(&sealed, "there"), Err(EncryptionError::OtherKey)));
        assert!(matches!(again.decrypt(&sealed[..5], "here"), Err(EncryptionError::OtherKey)));
        let mut changed = sealed.clone();
        *changed.last_mut().unwrap() ^= 1;
        assert!(matches!(again.decrypt(&changed, "here"), Err(EncryptionError::OtherKey)));
        let other = DataCipher::load_or_create(&folder.path().join("other")).unwrap();
        assert!(matches!(other.decrypt(&sealed, "here"), Err(EncryptionError::OtherKey)));
    }

    #[test]
    fn the_key_of_backups_is_the_same_for_one_sealing_key_and_another_for_another() {
        let folder = tempfile::tempdir().unwrap();
        let [first, second] = ["seal", "other"].map(|name| folder.path().join(name));
        for path in [&first, &second] {
            DataCipher::load_or_create(path).unwrap();
        }
        let code = |path: &Path| BackupKey::load(path).unwrap().begin().sign().as_ref().to_vec();
        assert_eq!(code(&first), code(&first));
        assert_ne!(code(&first), code(&second));
        let [one, other] = [&first, &second].map(|path| BackupKey::load(path).unwrap());
        assert!(one.id() != other.id() && one.id().len() == 2 * KEY_ID_BYTES);
    }

    #[test]
    fn gateways_that_start_at_once_and_name_one_place_have_the_same_key() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("seal");
        let seals: Vec<_> = std::thread::scope(|scope| {
            let starts: Vec<_> = (0..16).map(|_| scope.spawn(|| DataCipher::load_or_create(&path).unwrap())).collect();
            starts.into_iter().map(|start| start.join().unwrap()).collect()
        });
        let sealed = seals[0].encrypt(b"private", "here");
        assert!(seals.iter().all(|cipher| cipher.decrypt(&sealed, "here").unwrap() == b"private"));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn a_key_that_others_can_read_or_that_is_none_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("seal");
        DataCipher::load_or_create(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(DataCipher::load_or_create(&path), Err(EncryptionError::Loose { mode: 0o644, .. })));
        let path = folder.path().join("none");
        std::fs::OpenOptions::new().create(true).append(true).mode(0o600).open(&path).unwrap();
        assert!(matches!(DataCipher::load_or_create(&path), Err(EncryptionError::NoKey { .. })));
    }
}
