//! Finds and runs the system's programs, and passes them the database's address.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, ChildStdout, Command};
use tokio_util::task::AbortOnDropHandle;

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
            let mut installed: Vec<_> = found.into_iter().chain(newest).map(|(major, _)| major).collect();
            installed.dedup();
            Err(BackupError::NoProgram { program, needed: least, installed })
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

/// Bytes that are kept of what a program says of its failure.
const MAX_SAID_BYTES: usize = 16 * 1024;

/// A program that reads a file, and connects to no database. Ends when this is dropped.
pub(super) struct Reading {
    path: PathBuf,
    child: Child,
    said: AbortOnDropHandle<String>,
}

/// Starts `pg_restore` on a file; what it writes is to be read.
pub(super) fn read(program: &Path, arguments: &[&str], file: &Path) -> Result<Reading, BackupError> {
    let io = |source| BackupError::Io { path: program.to_owned(), source };
    let mut command = Command::new(program);
    command.args(arguments).arg(file).env_clear().env("PATH", "/usr/bin:/bin").env("LC_ALL", "C.UTF-8");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().map_err(io)?;
    let errors = child.stderr.take();
    let said = AbortOnDropHandle::new(tokio::spawn(async move {
        match errors {
            Some(errors) => beginning(errors).await,
            None => String::new(),
        }
    }));
    Ok(Reading { path: program.to_owned(), child, said })
}

/// The beginning of a text; the rest is read too, so that the program does not wait.
async fn beginning(mut from: impl AsyncRead + Unpin) -> String {
    let (mut kept, mut piece) = (Vec::new(), vec![0; MAX_SAID_BYTES]);
    while let Ok(length) = from.read(&mut piece).await
        && length > 0
    {
        kept.extend_from_slice(&piece[..length.min(MAX_SAID_BYTES - kept.len())]);
    }
    String::from_utf8_lossy(&kept).trim().to_owned()
}

impl Reading {
    /// What it writes; to be taken once.
    pub(super) fn output(&mut self) -> Result<ChildStdout, BackupError> {
        let missing = || BackupError::Io { path: self.path.clone(), source: std::io::Error::other("no output") };
        self.child.stdout.take().ok_or_else(missing)
    }

    /// Waits for its end, which must be a good one.
    pub(super) async fn end(mut self) -> Result<(), BackupError> {
        let status = self.child.wait().await;
        let status = status.map_err(|source| BackupError::Io { path: self.path.clone(), source })?;
        if status.success() {
            return Ok(());
        }
        let said = self.said.await.unwrap_or_default();
        let said = if said.is_empty() { status.to_string() } else { said };
        Err(BackupError::Program { program: "pg_restore", said })
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_newer_than_every_installed_client_is_told_with_the_package_that_is_missing() {
        let error = find("pg_dump", 99).expect_err("there is none").to_string();
        assert!(error.contains("pg_dump of PostgreSQL 99 or newer"), "{error}");
        assert!(error.contains("apt-get install postgresql-client-99") && error.contains("installed is 1"), "{error}");
        assert!(find("pg_dump", 15).is_ok());
    }
}
