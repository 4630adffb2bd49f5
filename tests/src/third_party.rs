//! Third-party programs for the other side of a wire, at fixed versions.

use std::path::{Path, PathBuf};

use serde_json::Value;
use tokio::process::Command;

use crate::folder::Folder;
use crate::{binaries, process};

/// The folder of the Python tools that `scripts/setup test` installs.
pub fn python_tools() -> PathBuf {
    let gateway = binaries::gateway();
    gateway.ancestors().nth(2).expect("the programs are in target/<profile>").join("tools/python/bin")
}

/// One of its programs.
pub fn python_tool(name: &str) -> PathBuf {
    let path = python_tools().join(name);
    assert!(path.is_file(), "{} is missing: run scripts/setup test", path.display());
    path
}

/// Their folder; they are installed on first use. `None`, with a message, if that is impossible; on a build server that
/// fails the test.
pub async fn install_dir() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("it stands in the repository");
    let installed = Command::new(root.join("scripts/clients")).output().await.expect("bash is there");
    if !installed.status.success() {
        let why = String::from_utf8_lossy(&installed.stderr).into_owned();
        assert!(std::env::var_os("CI").is_none(), "scripts/clients: {why}");
        println!("SKIPPED: scripts/clients cannot install them here: {why}");
        return None;
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    Some(target.join("clients"))
}

/// Runs a client's program in `tests/clients`, and returns what it prints: a line of JSON.
pub async fn run_client(client: &Path, script: &str, folder: &Folder, arguments: &[String]) -> Value {
    let mut command = process::command(client, &folder.path());
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("clients").join(script)).args(arguments);
    let output = tokio::task::spawn_blocking(move || command.output()).await.expect("it ends").expect("it is there");
    let said = String::from_utf8_lossy(&output.stdout);
    let seen = serde_json::from_str(said.lines().last().unwrap_or_default());
    seen.unwrap_or_else(|error| panic!("{error}: {output:?}"))
}
