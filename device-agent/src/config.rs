//! The agent's folder, and the paths of its files.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The mode of the agent's folder.
const OWNER_ONLY: u32 = 0o700;

/// The agent's own folder. `DESKGATE_HOME` selects another one, so several agents can run on one computer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home(PathBuf);

/// Why there is no usable folder.
#[derive(Debug, thiserror::Error)]
pub enum HomeError {
    /// Neither variable is set.
    #[error("no place for the agent's files is known: set HOME or DESKGATE_HOME")]
    Unknown,
    /// The path is not absolute.
    #[error("DESKGATE_HOME must be an absolute path; it is {0}")]
    Relative(PathBuf),
    /// The folder cannot be created or examined.
    #[error("{path}: {source}")]
    Io {
        /// The folder.
        path: PathBuf,
        /// Why it cannot be used.
        source: io::Error,
    },
    /// Others could change its content.
    #[error("{path} belongs to another user or can be changed by others (mode {mode:04o}). Run: chmod 700 {path}")]
    Loose {
        /// The folder.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
}

impl Home {
    /// The folder that the environment names; it is not created yet.
    ///
    /// # Errors
    /// The environment names none, or a relative path.
    pub fn find() -> Result<Self, HomeError> {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        if let Some(home) = variable("DESKGATE_HOME") {
            return if home.is_absolute() { Ok(Self(home)) } else { Err(HomeError::Relative(home)) };
        }
        let data = variable("XDG_DATA_HOME").or_else(|| Some(variable("HOME")?.join(".local/share")));
        data.map(|data| Self(data.join("deskgate"))).ok_or(HomeError::Unknown)
    }

    /// A folder that is known already.
    pub fn at(folder: PathBuf) -> Self {
        Self(folder)
    }

    /// The folder of this user's systemd units, whether or not it exists.
    pub fn user_units() -> Option<PathBuf> {
        let variable = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let config = variable("XDG_CONFIG_HOME").or_else(|| Some(variable("HOME")?.join(".config")));
        config.map(|config| config.join("systemd/user"))
    }

    /// Creates the folder with mode 0700, or gives an existing one that mode if only its owner can change it.
    ///
    /// # Errors
    /// It cannot be created, or others can change it.
    pub fn prepare(&self) -> Result<(), HomeError> {
        let io = |source| HomeError::Io { path: self.0.clone(), source };
        std::fs::DirBuilder::new().recursive(true).mode(OWNER_ONLY).create(&self.0).map_err(io)?;
        self.check()?;
        let mode = std::fs::metadata(&self.0).map_err(io)?.permissions().mode() & 0o777;
        if mode & !OWNER_ONLY != 0 {
            std::fs::set_permissions(&self.0, Permissions::from_mode(OWNER_ONLY)).map_err(io)?;
        }
        Ok(())
    }

    /// Checks that only its owner can change the existing folder.
    ///
    /// # Errors
    /// It cannot be examined, or others can change it.
    pub fn check(&self) -> Result<(), HomeError> {
        let io = |source| HomeError::Io { path: self.0.clone(), source };
        let metadata = std::fs::metadata(&self.0).map_err(io)?;
        let mode = metadata.permissions().mode() & 0o777;
        if metadata.uid() != rustix::process::geteuid().as_raw() || mode & 0o022 != 0 {
            return Err(HomeError::Loose { path: self.0.clone(), mode });
        }
        Ok(())
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The device key.
    pub fn key(&self) -> PathBuf {
        self.0.join("identity_ed25519")
    }

    /// The database: journal, services, settings.
    pub fn database(&self) -> PathBuf {
        self.0.join("deskgate.db")
    }

    /// The saved control token of a remote gateway.
    pub fn control_token(&self) -> PathBuf {
        self.0.join("control_token")
    }

    /// The host keys that the remote gateway announced.
    pub fn host_keys(&self) -> PathBuf {
        self.0.join("host_keys")
    }

    /// The gateways that this device was connected to.
    pub fn known_gateways(&self) -> PathBuf {
        self.0.join("known_gateways")
    }

    /// The model providers and their keys.
    pub fn providers(&self) -> PathBuf {
        self.0.join("providers")
    }

    /// Temporary files of commands, during their runs.
    pub fn scratch(&self) -> PathBuf {
        self.0.join("scratch")
    }

    /// The MCP servers and their keys.
    pub fn mcp_servers(&self) -> PathBuf {
        self.0.join("mcp")
    }

    /// The sign-ins at hosted gateways.
    pub fn accounts(&self) -> PathBuf {
        self.0.join("accounts")
    }

    /// The state of the built-in gateway.
    pub fn gateway(&self) -> PathBuf {
        self.0.join("gateway")
    }

    /// The log of a background agent.
    pub fn log(&self) -> PathBuf {
        self.0.join("agent.log")
    }

    /// The file that opens the management pages in a browser.
    pub fn opener(&self) -> PathBuf {
        self.0.join("open.html")
    }

    /// The recorded version of the remote gateway.
    pub fn gateway_version(&self) -> PathBuf {
        self.0.join("gateway_version")
    }

    /// The private socket.
    pub fn socket(&self) -> PathBuf {
        self.0.join("agent.sock")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_others_may_read_becomes_its_owners_alone() {
        let place = tempfile::tempdir().expect("a folder");
        let home = Home::at(place.path().join("home"));
        let mode = || std::fs::metadata(home.path()).expect("there").permissions().mode() & 0o777;
        let set = |mode| std::fs::set_permissions(home.path(), Permissions::from_mode(mode)).expect("ours");
        home.prepare().expect("is made");
        assert_eq!(mode(), 0o700);
        set(0o755);
        home.prepare().expect("is ours");
        assert_eq!(mode(), 0o700);
        // Others may have changed what is in it.
        set(0o775);
        assert!(matches!(home.prepare(), Err(HomeError::Loose { mode: 0o775, .. })));
        assert_eq!(mode(), 0o775);
    }
}
