//! What the tools promise, tried through the same toolbox that a run uses.

mod confinement;
mod races;
mod results;

use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::{ToolOutput, Toolbox};
use crate::services::ToolName;

/// A folder with a working directory `in`, and beside it `out/secret.txt` that says SECRET.
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
    Toolbox::open(&ToolName::ALL, &[], directory).expect("opens")
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
