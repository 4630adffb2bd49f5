//! Problems of the computer: private files, and free disk space. Reads the disk.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::reserve::{RESERVE_BYTES, Reserve};
use super::{Finding, ProblemCode};

/// The threshold of free space, in bytes.
const MIN_FREE_BYTES: u64 = 512 << 20;

/// Checks the agent's folder.
pub fn look(home: &Path) -> Vec<Finding> {
    let mut findings: Vec<_> = private_files(home).into_iter().filter_map(|path| loose(&path)).collect();
    findings.extend(nearly_full(home));
    findings.extend(reserve(home));
    findings
}

/// The folder, the files at its top, the keys of providers and servers, and sign-ins.
fn private_files(home: &Path) -> Vec<PathBuf> {
    let list = |folder: PathBuf| std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let keys = ["providers", "mcp", "accounts"].into_iter().flat_map(|name| list(home.join(name)));
    let mut files: Vec<_> = list(home.to_owned()).chain(keys).filter(|path| path.is_file()).collect();
    files.sort();
    files
}

fn loose(path: &Path) -> Option<Finding> {
    let mode = path.metadata().ok()?.permissions().mode() & 0o777;
    if mode & 0o077 == 0 {
        return None;
    }
    let shown = path.display();
    let text = format!("{shown} has mode {mode:04o}: others on this computer can read or change it.");
    // The problem is named after the file's stem: a provider's file has the provider's name.
    let name = path.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    Some(Finding::about(ProblemCode::FileLoose, name, text, format!("Run: chmod 600 {shown}")))
}

fn nearly_full(home: &Path) -> Option<Finding> {
    let disk = rustix::fs::statvfs(home).ok()?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    (free < MIN_FREE_BYTES).then(|| {
        // In steps, so that the text of a lasting problem does not change all the time.
        let text = format!("Less than {} MB are free where {} is.", (free >> 20) / 64 * 64 + 64, home.display());
        Finding::new(ProblemCode::DiskNearlyFull, text, "Free some space. Without room no run can be taken.")
    })
}

fn reserve(home: &Path) -> Option<Finding> {
    Reserve::of(home).is_given().then(|| {
        let text = format!(
            "The disk of {} ran full. The agent gave the {} MB that it held back, to go on writing its journal.",
            home.display(),
            RESERVE_BYTES >> 20
        );
        Finding::new(
            ProblemCode::ReserveUsed,
            text,
            "Free some space. With 600 MB free the agent takes its reserve again.",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_others_can_read_is_named_with_what_mends_it() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join("providers")).expect("made");
        let key = folder.path().join("providers/work.json");
        for path in [&key, &folder.path().join("control_token")] {
            std::fs::write(path, "sk-canary").expect("written");
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).expect("ours");
        }
        let loose = || {
            look(folder.path()).into_iter().filter(|finding| finding.code == ProblemCode::FileLoose).collect::<Vec<_>>()
        };
        assert_eq!(loose(), []);
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o640)).expect("ours");
        let found = loose();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].about.as_deref(), Some("work"));
        assert!(found[0].next.ends_with("providers/work.json") && !found[0].text.contains("canary"), "{found:?}");
    }
}
