//! `man`: a manual page for each command, generated from its help, for both command lines.

use std::path::Path;

use serde_json::json;

use crate::exit::{Exit, Failure};
use crate::output::Output;

/// Writes the pages into a folder, which is created if needed.
///
/// # Errors
/// The folder or a page cannot be written.
pub fn write(command: clap::Command, folder: &Path, out: Output) -> Result<(), Failure> {
    let written = std::fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(command, folder));
    written.map_err(|error| Failure::new(Exit::Failed, format!("{}: {error}", folder.display())))?;
    let pages = std::fs::read_dir(folder).map_or(0, |entries| entries.flatten().count());
    out.result("man/1", &json!({ "folder": folder }), || format!("{pages} pages are in {}.", folder.display()));
    Ok(())
}
