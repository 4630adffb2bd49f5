//! Storage of secrets on this computer: files of mode 0600, or the desktop's keyring for the keys in them.

mod file_store;
pub mod keyring;
mod stored_key;

use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use zeroize::Zeroizing;

pub use file_store::{KeyChange, SecretFileError, SecretFileStore};
use keyring::KeyringError;
pub use stored_key::{KeyHolder, KeyPreference, StoredKey};

/// The size limit of a secret, in bytes. Providers' keys are far shorter.
const MAX_SECRET_BYTES: usize = 8 * 1024;
/// The size limit of a file that holds a secret, in bytes.
const MAX_FILE_BYTES: u64 = 64 * 1024;

/// A secret that somebody else issued. Clones share it; `Debug` does not show it, and it is overwritten when the last
/// clone is dropped.
#[derive(Clone)]
pub struct Secret(Arc<Zeroizing<String>>);

/// Why a secret cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The file cannot be read or written.
    #[error("{path}: {source}")]
    Io {
        /// Which file.
        path: PathBuf,
        /// Why the file cannot be read or written.
        source: io::Error,
    },
    /// Others can read the file.
    #[error("{path} has mode {mode:04o}: others can read it. Run: chmod 600 {path}")]
    Loose {
        /// Which file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// The keyring cannot be used.
    #[error(transparent)]
    Keyring(#[from] KeyringError),
    /// The text is not a valid key.
    #[error(
        "a key is one line of visible ASCII characters without spaces, of at most {MAX_SECRET_BYTES} bytes; this is not"
    )]
    NotAKey,
}

impl Secret {
    /// Takes a secret as typed or read, without the white space around it.
    ///
    /// # Errors
    /// The text is not a valid key.
    pub fn new(text: &str) -> Result<Self, SecretError> {
        let text = text.trim();
        let is_one =
            !text.is_empty() && text.len() <= MAX_SECRET_BYTES && text.bytes().all(|byte| byte.is_ascii_graphic());
        if is_one { Ok(Self(Arc::new(Zeroizing::new(text.to_owned())))) } else { Err(SecretError::NotAKey) }
    }

    /// The secret itself, for the request that needs it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Reads a file that only its owner can read; `None` if there is none.
///
/// # Errors
/// The file cannot be read, or others can read it.
pub fn read_private(path: &Path) -> Result<Option<Zeroizing<String>>, SecretError> {
    let io = |source| SecretError::Io { path: path.to_owned(), source };
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io(error)),
    };
    let mode = file.metadata().map_err(io)?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(SecretError::Loose { path: path.to_owned(), mode });
    }
    let mut text = Zeroizing::new(String::new());
    file.take(MAX_FILE_BYTES).read_to_string(&mut text).map_err(io)?;
    Ok(Some(text))
}

/// Writes a file of mode 0600 in one step: a reader sees the old content or the new, and the new one is durable when
/// this returns. The caller serialises writes to the same file.
///
/// # Errors
/// The file cannot be written.
pub fn write_private(path: &Path, content: &[u8]) -> Result<(), SecretError> {
    let partial = path.with_extension("new");
    let written = || -> io::Result<()> {
        let _ = std::fs::remove_file(&partial);
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&partial)?;
        file.write_all(content)?;
        file.sync_all()?;
        std::fs::rename(&partial, path)?;
        // Before this sync, a power failure may restore the old file, which may name a key that was deleted since.
        path.parent().map_or(Ok(()), |folder| std::fs::File::open(folder)?.sync_all())
    };
    written().map_err(|source| SecretError::Io { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_private_file_comes_back_and_one_that_others_can_read_is_refused_without_its_content() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("key");
        assert!(read_private(&path).expect("no file is no error").is_none());
        write_private(&path, b"sk-canary-1").expect("saved");
        assert_eq!(read_private(&path).expect("read").expect("there").as_str(), "sk-canary-1");
        assert_eq!(path.metadata().expect("there").permissions().mode() & 0o777, 0o600);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).expect("own file");
        let error = read_private(&path).expect_err("others can read it").to_string();
        assert!(error.contains("chmod 600") && !error.contains("canary"), "{error}");
    }

    #[test]
    fn what_cannot_be_a_key_is_refused_without_being_repeated() {
        let secret = Secret::new("  sk-canary-1\n").expect("a key");
        assert!(!format!("{secret:?}").contains("canary"));
        for text in ["", " \n", "two words", "line\nline", "schlüssel", &"x".repeat(9000)] {
            let error = Secret::new(text).expect_err(text).to_string();
            assert!(text.trim().is_empty() || !error.contains(text.trim()), "{error}");
        }
    }
}
