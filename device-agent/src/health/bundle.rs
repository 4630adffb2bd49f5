//! What a person sends to whoever helps them: one text that they can read before they send it.
//!
//! It is made of what says how the agent is. Inputs, results, instructions, arguments of calls, contents of files and keys
//! are in no part of it, and every part goes through [`redacted`] besides.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::log::{redacted, tail};
use crate::config::Home;

/// Lines of the log that go along.
const LOG_LINES: usize = 2000;

/// The parts.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Bundle {
    /// In their order.
    pub parts: Vec<Part>,
}

/// One part.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Part {
    /// Its heading.
    pub name: String,
    /// What is in it, for whoever decides whether to send it.
    pub what: String,
    /// It.
    pub text: String,
}

impl Bundle {
    /// What is known without asking anybody: the files of the agent's folder, and its log.
    pub fn of_disk(home: &Home) -> Self {
        let mut bundle = Self::default();
        bundle.add(
            "files",
            "Names, sizes and modes of the files in the agent's folder, nothing of what is in them",
            files(home.path()),
        );
        let log = tail(&home.log(), LOG_LINES, "").join("\n");
        bundle.add("log", "The last 2000 lines of the agent's log, which names services, runs and paths", log);
        bundle
    }

    /// Adds a part, without secrets. The person's home directory is written as `~`.
    pub fn add(&mut self, name: &str, what: &str, text: String) {
        let mut text = redacted(&text);
        if let Ok(home) = std::env::var("HOME")
            && home.len() > 1
        {
            text = text.replace(&home, "~");
        }
        self.parts.push(Part { name: name.to_owned(), what: what.to_owned(), text });
    }

    /// What is in it, one line for each part.
    pub fn contents(&self) -> String {
        let line = |part: &Part| format!("  {:<9} {} ({} bytes)\n", part.name, part.what, part.text.len());
        self.parts.iter().map(line).collect()
    }

    /// All of it, the list of its parts first.
    pub fn text(&self) -> String {
        let part = |part: &Part| format!("\n======== {}\n{}\n", part.name, part.text.trim_end());
        let parts: String = self.parts.iter().map(part).collect();
        format!("Deskgate {} support bundle\n\n{}{parts}", deskgate_protocol::VERSION, self.contents())
    }
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
