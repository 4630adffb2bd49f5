//! The guarantees of the tools, tested through the same toolbox that a run uses.

mod attributes;
mod commands;
mod confinement;
mod disk;
mod escapes;
mod hidden;
mod left_behind;
mod missing_syscalls;
mod races;
mod repositories;
mod results;
mod stops;
mod writing;

use std::path::Path;

use deskgate_definition::ToolName;
use deskgate_definition::tool::ToolOutput;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::engine::workspace::WorkspaceOptions;
use crate::toolbox::Toolbox;

/// A folder with a working directory `in`, and beside it `out/secret.txt` with the content SECRET.
pub(super) fn place() -> TempDir {
    let place = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(place.path().join("in")).expect("creates");
    std::fs::create_dir(place.path().join("out")).expect("creates");
    write(&place.path().join("out/secret.txt"), "SECRET\n");
    place
}

pub(super) fn write(path: &Path, text: impl AsRef<[u8]>) {
    std::fs::create_dir_all(path.parent().expect("has a parent")).expect("creates");
    std::fs::write(path, text).expect("writes");
}

pub(super) fn toolbox(directory: &Path) -> Toolbox {
    let options = WorkspaceOptions::of(directory, Path::new("/nonexistent"));
    Toolbox::open(&ToolName::WORKSPACE_TOOLS, &[], options).expect("opens")
}

pub(super) async fn call(directory: &Path, tool: &str, arguments: Value) -> ToolOutput {
    toolbox(directory).call(tool, arguments, CancellationToken::new()).await.expect("the directory stands")
}

/// The text of a call that must succeed.
pub(super) async fn ok(directory: &Path, tool: &str, arguments: Value) -> String {
    let output = call(directory, tool, arguments).await;
    assert!(!output.is_error, "{tool} failed: {}", output.text);
    output.text
}

/// The text of a call that must be refused.
pub(super) async fn refused(directory: &Path, tool: &str, arguments: Value) -> String {
    let output = call(directory, tool, arguments.clone()).await;
    assert!(output.is_error, "{tool} {arguments} was not refused: {}", output.text);
    output.text
}

/// Every name below a folder, with the content of files and the targets of links.
pub(super) fn tree(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    let mut pending = vec![folder.to_owned()];
    while let Some(path) = pending.pop() {
        for entry in std::fs::read_dir(&path).expect("listed").map(|entry| entry.expect("there").path()) {
            let kind = entry.symlink_metadata().expect("there").file_type();
            let content = match () {
                () if kind.is_dir() => b"directory".to_vec(),
                () if kind.is_symlink() => entry.read_link().expect("a link").into_os_string().into_encoded_bytes(),
                () if kind.is_file() => std::fs::read(&entry).expect("read"),
                () => b"special".to_vec(),
            };
            all.push((entry.to_string_lossy().into_owned(), content));
            if kind.is_dir() {
                pending.push(entry);
            }
        }
    }
    all.sort();
    all
}
