//! Finds the system's PostgreSQL programs.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::error::ClusterError;

/// The oldest major version the gateway's SQL is written for.
pub(super) const OLDEST_MAJOR: u32 = 15;

/// Where Debian and its relatives keep one directory for each major version. They are not in `PATH`.
const DEBIAN_ROOT: &str = "/usr/lib/postgresql";

/// One installed PostgreSQL: the directory with `postgres` and `initdb`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Binaries {
    pub(super) dir: PathBuf,
    pub(super) major: u32,
}

impl Binaries {
    pub(super) fn postgres(&self) -> PathBuf {
        self.dir.join("postgres")
    }

    pub(super) fn initdb(&self) -> PathBuf {
        self.dir.join("initdb")
    }
}

/// The directories to look in: the configured one alone, or Debian's and those of `PATH`.
pub(super) fn directories(configured: Option<&Path>, path: Option<&OsStr>) -> Vec<PathBuf> {
    if let Some(dir) = configured {
        return vec![dir.to_owned()];
    }
    let mut versions: Vec<(u32, PathBuf)> = std::fs::read_dir(DEBIAN_ROOT)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
        .collect();
    versions.sort_by_key(|(major, _)| std::cmp::Reverse(*major));
    let debian = versions.into_iter().map(|(_, dir)| dir);
    debian.chain(path.map(std::env::split_paths).into_iter().flatten()).collect()
}

/// Chooses among `directories`: the major version of the existing data if there is any, else the newest.
///
/// # Errors
/// [`ClusterError::NoBinaries`] and [`ClusterError::OtherMajor`].
pub(super) fn choose(directories: &[PathBuf], existing: Option<(&Path, u32)>) -> Result<Binaries, ClusterError> {
    let mut installed: Vec<Binaries> = Vec::new();
    for dir in directories {
        // A link in PATH may lead to `postgres` alone; its neighbours stand beside its target.
        let Ok(program) = dir.join("postgres").canonicalize() else { continue };
        let Some(dir) = program.parent() else { continue };
        if installed.iter().any(|known| known.dir == dir) || !dir.join("initdb").is_file() {
            continue;
        }
        if let Some(major) = major_of(&program) {
            installed.push(Binaries { dir: dir.to_owned(), major });
        }
    }
    let majors = || {
        let mut majors: Vec<u32> = installed.iter().map(|one| one.major).collect();
        majors.sort_unstable();
        majors.dedup();
        majors
    };
    let fits = |one: &&Binaries| one.major >= OLDEST_MAJOR && existing.is_none_or(|(_, major)| one.major == major);
    let newest = installed.iter().filter(fits).max_by_key(|one| one.major);
    match (newest, existing) {
        (Some(found), _) => Ok(found.clone()),
        (None, Some((data_dir, wanted))) if !installed.is_empty() => {
            Err(ClusterError::OtherMajor { data_dir: data_dir.to_owned(), wanted, installed: majors() })
        }
        (None, _) => Err(ClusterError::NoBinaries { too_old: majors() }),
    }
}

/// Asks the program itself: directory names and packages may lie.
fn major_of(postgres: &Path) -> Option<u32> {
    let output = Command::new(postgres).arg("--version").env_clear().output().ok()?;
    parse_version(std::str::from_utf8(&output.stdout).ok()?)
}

/// Reads `postgres (PostgreSQL) 15.18 (Debian …)`, also `17beta1` and `18devel`.
fn parse_version(text: &str) -> Option<u32> {
    let version = text.strip_prefix("postgres (PostgreSQL) ")?;
    let digits = version.find(|c: char| !c.is_ascii_digit()).map_or(version, |end| &version[..end]);
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn fake(root: &Path, name: &str, version: &str) -> PathBuf {
        let dir = root.join(name);
        std::fs::create_dir(&dir).expect("new");
        for program in ["postgres", "initdb"] {
            let path = dir.join(program);
            std::fs::write(&path, format!("#!/bin/sh\necho 'postgres (PostgreSQL) {version}'\n")).expect("written");
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("ours");
        }
        dir
    }

    #[test]
    fn versions_of_every_spelling_are_read() {
        assert_eq!(parse_version("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n"), Some(15));
        assert_eq!(parse_version("postgres (PostgreSQL) 18devel"), Some(18));
        assert_eq!(parse_version("postgres (PostgreSQL) 17"), Some(17));
        assert_eq!(parse_version("something else 17"), None);
    }

    #[test]
    fn the_newest_is_taken_for_new_data_and_the_fitting_one_for_old_data() {
        let root = tempfile::tempdir().expect("temporary directory");
        let directories =
            [fake(root.path(), "a", "15.1"), fake(root.path(), "b", "17.2"), fake(root.path(), "c", "9.6.1")];
        assert_eq!(choose(&directories, None).expect("found").major, 17);
        let data = Path::new("/data");
        assert_eq!(choose(&directories, Some((data, 15))).expect("found").major, 15);
        let error = choose(&directories, Some((data, 16))).expect_err("not installed").to_string();
        assert!(error.contains("PostgreSQL 16") && error.contains("9, 15, 17"), "{error}");
    }

    #[test]
    fn too_old_or_missing_programs_are_named_with_the_command_that_installs_them() {
        let root = tempfile::tempdir().expect("temporary directory");
        let error = choose(&[fake(root.path(), "old", "14.9")], None).expect_err("too old").to_string();
        assert!(error.contains("sudo apt-get install postgresql") && error.contains("too old: 14"), "{error}");
        let error = choose(&[root.path().join("nowhere")], None).expect_err("nothing there").to_string();
        assert!(error.contains("sudo apt-get install postgresql") && !error.contains("too old"), "{error}");
    }

    #[test]
    fn a_link_in_the_path_leads_to_the_real_directory() {
        let root = tempfile::tempdir().expect("temporary directory");
        let real = fake(root.path(), "real", "16.0").canonicalize().expect("exists");
        let links = root.path().join("links");
        std::fs::create_dir(&links).expect("new");
        std::os::unix::fs::symlink(real.join("postgres"), links.join("postgres")).expect("new");
        assert_eq!(choose(&[links], None).expect("found"), Binaries { dir: real, major: 16 });
    }
}
