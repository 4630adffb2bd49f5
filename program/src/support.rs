//! The support bundle: one text of named parts that a person can read before sending it. Each part goes through
//! `redaction`.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::confirmation::Confirmation;
use crate::exit::Failure;
use crate::output::Output;
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

    /// Lists the contents, asks for confirmation, and writes a file that only its owner reads. `of` names the program,
    /// `withheld` what is in no part.
    ///
    /// # Errors
    /// The person declined, or the file exists already or cannot be written.
    pub fn write(
        &self,
        of: &str,
        withheld: &str,
        file: &Path,
        confirmation: Confirmation,
        out: Output,
    ) -> Result<(), Failure> {
        let name = file.display();
        confirmation.confirm(&format!(
            "{name} will hold, and you can read it before you send it:\n{}{withheld}",
            self.contents()
        ))?;
        let mut options = std::fs::OpenOptions::new();
        let opened = options.write(true).create_new(true).mode(0o600).open(file);
        let written = opened.and_then(|mut opened| opened.write_all(self.text(of).as_bytes()));
        written.map_err(|error| Failure::file(file, &error))?;
        let parts: Vec<_> = self.parts.iter().map(|part| &part.name).collect();
        out.result("bundle/1", &json!({ "file": file, "parts": parts }), || {
            format!("Written to {name}. Read it before you send it.")
        });
        Ok(())
    }
}
