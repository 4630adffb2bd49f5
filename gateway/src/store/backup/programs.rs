//! Finds and runs the system's programs, and passes them the database's address.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;

use super::BackupError;
use crate::store::Database;
use crate::store::cluster::program_directories;

/// Finds one of PostgreSQL's client programs of at least this major version; the newest.
pub(super) fn find(program: &'static str, least: u32) -> Result<PathBuf, BackupError> {
    let mut found: Vec<(u32, PathBuf)> = program_directories()
        .into_iter()
        .map(|folder| folder.join(program))
        .filter_map(|path| Some((major_of(&path)?, path)))
        .collect();
    found.sort();
    match found.pop() {
        Some((major, path)) if major >= least => Ok(path),
        newest => {
            let installed = found.into_iter().chain(newest).map(|(major, _)| major).collect();
            Err(BackupError::NoProgram { program, installed })
        }
    }
}

/// Reads `pg_dump (PostgreSQL) 15.18 (Debian …)`.
fn major_of(program: &Path) -> Option<u32> {
    let output = std::process::Command::new(program).arg("--version").env_clear().output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let version = text.split("(PostgreSQL) ").nth(1)?;
    version.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// Runs one of them on a database.
pub(super) async fn run(
    name: &'static str,
    program: &Path,
    database: &Database,
    arguments: &[&str],
) -> Result<(), BackupError> {
    let service = ServiceFile::write(database)?;
    let mut command = Command::new(program);
    command.args(["--dbname=service=deskgate", "--no-password"]).args(arguments);
    command.env_clear().env("PATH", "/usr/bin:/bin").env("LC_ALL", "C.UTF-8").env("PGSERVICEFILE", &service.file);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    let output = command.output().await.map_err(|source| BackupError::Io { path: program.to_owned(), source })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(BackupError::Program { program: name, said: if said.is_empty() { output.status.to_string() } else { said } })
}

/// The database's address with its password, in a file for libpq; gone when dropped.
struct ServiceFile {
    folder: PathBuf,
    file: PathBuf,
}

impl ServiceFile {
    fn write(database: &Database) -> Result<Self, BackupError> {
        let lines = database.service()?;
        let folder = std::env::temp_dir().join(format!("deskgate-{:032x}", rand::random::<u128>()));
        let io = |source| BackupError::Io { path: folder.clone(), source };
        std::fs::DirBuilder::new().mode(0o700).create(&folder).map_err(io)?;
        let service = Self { file: folder.join("service"), folder: folder.clone() };
        let written = File::options().write(true).create_new(true).mode(0o600).open(&service.file);
        written.and_then(|mut file| write!(file, "[deskgate]\n{lines}")).map_err(io)?;
        Ok(service)
    }
}

impl Drop for ServiceFile {
    fn drop(&mut self) {
        // A failure here is harmless; the folder is private.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
