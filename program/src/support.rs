//! What a person sends to whoever helps them: one text of named parts that they can read before they send it. Each part
//! goes through `redaction`, whatever it is made of.

use serde::{Deserialize, Serialize};

use crate::redaction::redact;

/// The parts.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Bundle {
    /// In their order.
    pub parts: Vec<BundlePart>,
}

/// One part.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BundlePart {
    /// Its heading.
    pub name: String,
    /// What is in it, for whoever decides whether to send it.
    pub what: String,
    /// It.
    pub text: String,
}

impl Bundle {
    /// Adds a part, without secrets. The person's home directory is written as `~`.
    pub fn add(&mut self, name: &str, what: &str, text: String) {
        let mut text = redact(&text);
        if let Ok(home) = std::env::var("HOME")
            && home.len() > 1
        {
            text = text.replace(&home, "~");
        }
        self.parts.push(BundlePart { name: name.to_owned(), what: what.to_owned(), text });
    }

    /// What is in it, one line for each part.
    pub fn contents(&self) -> String {
        let line = |part: &BundlePart| format!("  {:<9} {} ({} bytes)\n", part.name, part.what, part.text.len());
        self.parts.iter().map(line).collect()
    }

    /// All of it, the list of its parts first. `of` is the program it is about.
    pub fn text(&self, of: &str) -> String {
        let part = |part: &BundlePart| format!("\n======== {}\n{}\n", part.name, part.text.trim_end());
        let parts: String = self.parts.iter().map(part).collect();
        format!("{of} {} support bundle\n\n{}{parts}", deskgate_protocol::VERSION, self.contents())
    }
}
