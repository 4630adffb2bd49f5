//! The agent's support bundle: one text that a person can read before sending it.
//!
//! It describes the agent's state. Inputs, results, instructions, arguments of calls, contents of files and keys are
//! left out, and every part is redacted as well.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

pub use deskgate_program::support::Bundle;

use super::log::tail;
use crate::config::Home;

/// How many lines of the log are included.
const BUNDLE_LOG_LINES: usize = 2000;

/// The parts that need no request: the files of the agent's folder, and its log.
pub fn of_disk(home: &Home) -> Bundle {
    let mut bundle = Bundle::default();
    bundle.add(
        "files",
        "Names, sizes and modes of the files in the agent's folder, nothing of what is in them",
        files(home.path()),
    );
    let log = tail(&home.log(), BUNDLE_LOG_LINES, "").join("\n");
    bundle.add("log", "The last 2000 lines of the agent's log, which names services, runs and paths", log);
    bundle
}

fn files(home: &Path) -> String {
    let mut lines = Vec::new();
    for folder in ["", "providers", "mcp", "gateway"] {
        for entry in std::fs::read_dir(home.join(folder)).into_iter().flatten().flatten() {
            let Ok(metadata) = entry.metadata() else { continue };
            let name = Path::new(folder).join(entry.file_name());
            lines.push(format!("{:06o} {:>12} {}", metadata.mode(), metadata.len(), name.display()));
        }
    }
    lines.sort_by(|a, b| a.split_whitespace().last().cmp(&b.split_whitespace().last()));
    lines.join("\n")
}
