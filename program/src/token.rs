//! The file of the private control token.

use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use deskgate_protocol::secret::{ControlToken, InvalidSecret};

/// The file's name in the state directory.
pub const CONTROL_TOKEN_FILE: &str = "control_token";

/// What is wrong with a token's file.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file cannot be read or written.
    #[error("{path}: {source}")]
    Io {
        /// Which file.
        path: PathBuf,
        /// Why the file cannot be read or written.
        source: std::io::Error,
    },
    /// The file holds no control token.
    #[error("{path}: {problem}")]
    Invalid {
        /// Which file.
        path: PathBuf,
        /// What it holds.
        problem: InvalidSecret,
    },
    /// Other users can read the file.
    #[error("{path} has mode {mode:04o}: others can read it. Run: chmod 600 {path}")]
    Loose {
        /// Which file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
}

/// Reads a token from a file that only its owner, and perhaps a group, can read.
///
/// # Errors
/// The file cannot be read, holds no token, or others can read it.
pub fn load(path: &Path) -> Result<ControlToken, TokenError> {
    let io = |source| TokenError::Io { path: path.to_owned(), source };
    let mode = std::fs::metadata(path).map_err(io)?.permissions().mode() & 0o777;
    if mode & 0o007 != 0 {
        return Err(TokenError::Loose { path: path.to_owned(), mode });
    }
    let text = std::fs::read_to_string(path).map_err(io)?;
    text.trim().parse().map_err(|problem| TokenError::Invalid { path: path.to_owned(), problem })
}

/// Reads the gateway's own token, or creates it.
///
/// # Errors
/// As [`load`]; or the file cannot be written.
pub fn load_or_create(state_dir: &Path) -> Result<ControlToken, TokenError> {
    let path = state_dir.join(CONTROL_TOKEN_FILE);
    match load(&path) {
        Err(TokenError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            let token = ControlToken::generate();
            save(&path, &token)?;
            Ok(token)
        }
        other => other,
    }
}

/// Writes a token into a file of mode 0600, replacing the old one in one step.
///
/// # Errors
/// The file cannot be written.
pub fn save(path: &Path, token: &ControlToken) -> Result<(), TokenError> {
    let written = || -> std::io::Result<()> {
        let partial = path.with_extension("new");
        let _ = std::fs::remove_file(&partial);
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&partial)?;
        file.write_all(format!("{}\n", token.reveal()).as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&partial, path)
    };
    written().map_err(|source| TokenError::Io { path: path.to_owned(), source })
}
