//! Ed25519 private keys in 0600 files: created once, read strictly, never printed.
//!
//! The gateway's host key and a device's identity are stored in the same way, so both halves use this.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use russh::keys::ssh_key::{Algorithm, LineEnding, PrivateKey};

/// No Ed25519 key in OpenSSH format comes near this size, in bytes.
const MAX_KEY_FILE_BYTES: u64 = 16 * 1024;

/// Why a private key cannot be used. Never repeats the file's content.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// Other users can read or change it.
    #[error(
        "the private key {path} has mode {mode:04o}: others can read or change it. \
             If nobody else had access so far, mend it with: chmod 600 {path}"
    )]
    LooseMode {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// It belongs to another user of this machine.
    #[error(
        "the private key {path} belongs to the user with number {owner}, not to the one this program runs as. \
             If it is yours, mend it with: chown {wanted} {path}"
    )]
    ForeignOwner {
        /// The file.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// The required owner.
        wanted: u32,
    },
    /// The path is a folder, a device, or a much too large file.
    #[error("{path} is no private key file: it is not a regular file of at most {MAX_KEY_FILE_BYTES} bytes")]
    NotAKeyFile {
        /// The file.
        path: PathBuf,
    },
    /// Its content is not a usable key.
    #[error(
        "{path} is not an unencrypted Ed25519 private key in OpenSSH format ({why}). \
             Restore it from a backup, or move it away to get a new key with a new fingerprint"
    )]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The parser's error.
        why: String,
    },
    /// The file system failed.
    #[error("cannot {what} the private key {path}: {source}")]
    Io {
        /// The operation.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}

/// Reads the key in `path`, or creates one if there is none.
///
/// The file appears complete or not at all, and an existing one is never overwritten: two programs that start at once
/// end up with the same key. Missing folders are created with mode 0700. A symbolic link as the last part of the path
/// is refused.
///
/// # Errors
/// See [`KeyFileError`].
pub fn load_or_create(path: &Path) -> Result<PrivateKey, KeyFileError> {
    match load_if_there(path)? {
        Some(key) => Ok(key),
        None => {
            create(path)?;
            load(path)
        }
    }
}

/// Reads the key in `path`, if there is one.
///
/// # Errors
/// See [`KeyFileError`]. A missing file is no error.
pub fn load_if_there(path: &Path) -> Result<Option<PrivateKey>, KeyFileError> {
    match load(path) {
        Err(KeyFileError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        read => read.map(Some),
    }
}

/// Replaces the key file `to` by the file `from`, in one durable step.
///
/// # Errors
/// [`KeyFileError::Io`]: the file cannot be renamed, or afterwards its folder cannot be synced.
pub fn replace(from: &Path, to: &Path) -> Result<(), KeyFileError> {
    let io_error = |source| KeyFileError::Io { what: "replace", path: to.to_owned(), source };
    fs::rename(from, to).map_err(io_error)?;
    File::open(folder_of(to)).and_then(|folder| folder.sync_all()).map_err(io_error)
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn load(path: &Path) -> Result<PrivateKey, KeyFileError> {
    let io_error = |source| KeyFileError::Io { what: "read", path: path.to_owned(), source };
    // Non-blocking, so that a named pipe at this path cannot block the start.
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path).map_err(io_error)?;
    let meta = file.metadata().map_err(io_error)?;
    if !meta.is_file() || meta.len() > MAX_KEY_FILE_BYTES {
        return Err(KeyFileError::NotAKeyFile { path: path.to_owned() });
    }
    let wanted = rustix::process::geteuid().as_raw();
    if meta.uid() != wanted {
        return Err(KeyFileError::ForeignOwner { path: path.to_owned(), owner: meta.uid(), wanted });
    }
    if meta.mode() & 0o077 != 0 {
        return Err(KeyFileError::LooseMode { path: path.to_owned(), mode: meta.mode() & 0o7777 });
    }
    parse(file, path)
}

fn parse(file: File, path: &Path) -> Result<PrivateKey, KeyFileError> {
    let unreadable = |why: &str| KeyFileError::Unreadable { path: path.to_owned(), why: why.to_owned() };
    let key =
        PrivateKey::read_openssh(&mut file.take(MAX_KEY_FILE_BYTES)).map_err(|error| unreadable(&error.to_string()))?;
    if key.is_encrypted() {
        return Err(unreadable("it is protected by a passphrase"));
    }
    if key.algorithm() != Algorithm::Ed25519 {
        return Err(unreadable("it is a key of another type"));
    }
    Ok(key)
}

fn create(path: &Path) -> Result<(), KeyFileError> {
    let io_error = |source| KeyFileError::Io { what: "create", path: path.to_owned(), source };
    let folder = folder_of(path);
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(io_error)?;

    let key = PrivateKey::random(&mut rand::rng(), Algorithm::Ed25519)
        .and_then(|key| key.to_openssh(LineEnding::LF))
        .map_err(|error| io_error(io::Error::other(error)))?;
    let draft = DraftFile(folder.join(format!(".deskgate-key-{:032x}", rand::random::<u128>())));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft.0).map_err(io_error)?;
    file.write_all(key.as_bytes()).and_then(|()| file.sync_all()).map_err(io_error)?;
    // A hard link, unlike a rename, never replaces a key that another process created in between.
    match fs::hard_link(&draft.0, path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(io_error(error)),
        _ => {}
    }
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(io_error)
}

/// A file under a temporary name, which goes away in any case.
struct DraftFile(PathBuf);

impl Drop for DraftFile {
    fn drop(&mut self) {
        // A failure here is harmless: the name is never used again.
        let _ = fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_key_is_made_once_and_only_its_owner_can_read_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("keys/host");
        let made = load_or_create(&path).expect("made");
        let read = load_or_create(&path).expect("read");
        assert_eq!(made.public_key().key_data(), read.public_key().key_data());
        assert_eq!(fs::metadata(&path).expect("there").mode() & 0o7777, 0o600);
        assert_eq!(fs::metadata(path.parent().expect("has one")).expect("there").mode() & 0o7777, 0o700);
        assert_eq!(fs::read_dir(path.parent().expect("has one")).expect("there").count(), 1, "no draft is left");
    }

    #[test]
    fn programs_that_start_at_once_get_the_same_key() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("host");
        let keys = std::thread::scope(|scope| {
            let starts: Vec<_> = (0..8).map(|_| scope.spawn(|| load_or_create(&path).expect("a key"))).collect();
            starts.into_iter().map(|start| start.join().expect("no panic")).collect::<Vec<_>>()
        });
        assert!(keys.iter().all(|key| key.public_key().key_data() == keys[0].public_key().key_data()));
    }

    #[test]
    fn a_key_that_others_can_read_is_refused_with_the_command_that_mends_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("host");
        load_or_create(&path).expect("made");
        for mode in [0o640, 0o604, 0o620, 0o601] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("changed");
            let error = load_or_create(&path).expect_err("refused").to_string();
            assert!(error.contains(&format!("{mode:04o}")), "{error}");
            assert!(error.ends_with(&format!("chmod 600 {}", path.display())), "{error}");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).expect("changed");
        load_or_create(&path).expect("read-only for its owner is fine");
    }

    #[test]
    fn what_is_no_key_is_refused_and_left_as_it_is() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, content: &str| {
            let path = folder.path().join(name);
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).expect("new");
            file.write_all(content.as_bytes()).expect("written");
            path
        };
        let garbage = write("garbage", "my secret words");
        let error = load_or_create(&garbage).expect_err("refused").to_string();
        assert!(!error.contains("secret"), "{error}");
        assert_eq!(fs::read_to_string(&garbage).expect("there"), "my secret words");

        let huge = write("huge", &"x".repeat(MAX_KEY_FILE_BYTES as usize + 1));
        assert!(matches!(load_or_create(&huge), Err(KeyFileError::NotAKeyFile { .. })));
        assert!(matches!(load_or_create(folder.path()), Err(KeyFileError::NotAKeyFile { .. })));

        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&garbage, &link).expect("linked");
        assert!(matches!(load_or_create(&link), Err(KeyFileError::Io { what: "read", .. })));

        let pipe = folder.path().join("pipe");
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).expect("a named pipe");
        assert!(matches!(load_or_create(&pipe), Err(KeyFileError::NotAKeyFile { .. })));
    }
}
