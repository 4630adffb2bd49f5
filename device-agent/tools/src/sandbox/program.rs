//! Finds the programs that create a sandbox, in folders that only the administrator can change.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::SandboxError;

/// The folders that are searched; never the agent's own `PATH`, which its user may have changed.
const PROGRAM_FOLDERS: [&str; 2] = ["/usr/bin", "/bin"];

/// The programs that create a sandbox.
#[derive(Clone, Debug)]
pub(super) struct SandboxPrograms {
    /// Makes the namespaces and mounts.
    pub(super) bwrap: PathBuf,
    /// Sets the limits, inside.
    pub(super) prlimit: PathBuf,
    /// Runs the command, and the launch script before it.
    pub(super) shell: PathBuf,
}

impl SandboxPrograms {
    /// Finds them, or returns which is missing or not trusted.
    pub(super) fn find() -> Result<Self, SandboxError> {
        Ok(Self {
            bwrap: find("bwrap", "bubblewrap")?,
            prlimit: find("prlimit", "util-linux")?,
            shell: find("bash", "bash").or_else(|_| find("sh", "dash"))?,
        })
    }
}

fn find(name: &'static str, package: &'static str) -> Result<PathBuf, SandboxError> {
    let mut places = PROGRAM_FOLDERS.iter().map(|folder| Path::new(folder).join(name));
    let found = places.find(|path| path.exists()).ok_or(SandboxError::Missing { name, package })?;
    match only_root_changes(&found) {
        true => Ok(found),
        false => Err(SandboxError::Untrusted(found)),
    }
}

/// Whether only root can change the file that the path resolves to, and each folder above it.
fn only_root_changes(path: &Path) -> bool {
    let Ok(real) = path.canonicalize() else { return false };
    real.ancestors().all(|part| part.metadata().is_ok_and(|found| found.uid() == 0 && found.mode() & 0o022 == 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_others_could_have_written_is_not_trusted() {
        use std::os::unix::fs::PermissionsExt;
        assert!(only_root_changes(Path::new("/bin/sh")));
        let place = tempfile::tempdir().expect("a folder");
        let program = place.path().join("bwrap");
        std::fs::write(&program, "").expect("writes");
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o777)).expect("opens");
        assert!(!only_root_changes(&program) && !only_root_changes(&place.path().join("missing")));
    }
}
