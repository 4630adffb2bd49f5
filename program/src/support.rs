//! The support bundle: one text of named parts that a person can read before sending it. Each part goes through
//! `redaction`.

use serde::{Deserialize, Serialize};

use crate::redaction::redact;

/// The parts.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Bundle {
    /// The parts, in order.
    pub parts: Vec<BundlePart>,
}

/// One part.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BundlePart {
    /// The part's heading.
    pub name: String,
    /// What the part contains, for the person who decides whether to send it.
    pub what: String,
    /// The part's text.
    pub text: String,
}

impl Bundle {
    /// Adds a part, with secrets removed. The person's home directory is written as `~`.
    pub fn add(&mut self, name: &str, what: &str, text: String) {
        let mut text = redact(&text);
        if let Ok(home) = std::env::var("HOME")
            && home.len() > 1
        {
            text = text.replace(&home, "~");
        }
        self.parts.push(BundlePart { name: name.to_owned(), what: what.to_owned(), text });
    }

    /// The list of contents, one line for each part.
    pub fn contents(&self) -> String {
        let line = |part: &BundlePart| format!("  {:<9} {} ({} bytes)\n", part.name, part.what, part.text.len());
        self.parts.iter().map(line).collect()
    }

    /// The whole text, its list of contents first. `of` names the program.
    pub fn text(&self, of: &str) -> String {
        let part = |part: &BundlePart| format!("\n======== {}\n{}\n", part.name, part.text.trim_end());
        let parts: String = self.parts.iter().map(part).collect();
        format!("{of} {} support bundle\n\n{}{parts}", deskgate_protocol::VERSION, self.contents())
    }
}
