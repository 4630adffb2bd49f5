//! `man`: a manual page for each command, made of what its help says. Both command lines write theirs with it.

use std::path::Path;

use serde_json::json;

use crate::exit::{Exit, Failure};
use crate::output::Output;

/// Writes them into a folder, which is made if it is not there.
pub fn write(command: clap::Command, folder: &Path, out: Output) -> Result<(), Failure> {
    let written = std::fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(command, folder));
    written.map_err(|error| Failure::new(Exit::Failed, format!("{}: {error}", folder.display())))?;
    let pages = std::fs::read_dir(folder).map_or(0, |entries| entries.flatten().count());
    out.result("man/1", &json!({ "folder": folder }), || format!("{pages} pages are in {}.", folder.display()));
    Ok(())
}
