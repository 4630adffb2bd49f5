//! A working folder with known content, and scripts for the scripted assistant.

use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;

/// A folder that a service works in. Scripts are beside it, outside the reach of tools.
#[derive(Debug)]
pub struct Folder {
    folder: TempDir,
}

/// The content of `orders.txt` in every fresh folder.
pub const ORDERS_TEXT: &str = "Order 4711: three green lamps for Ms Meier, due on Friday.";

impl Folder {
    /// A folder with one file, `orders.txt`.
    pub fn new() -> Self {
        let folder = Self { folder: TempDir::with_prefix("deskgate-wd-").expect("a temporary folder") };
        std::fs::create_dir(folder.path()).expect("a fresh folder");
        folder.write("orders.txt", ORDERS_TEXT);
        folder
    }

    /// Where tools work.
    pub fn path(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    /// Writes a file into it.
    pub fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path().join(name), text).expect("writable");
    }

    /// Removes the whole folder.
    pub fn vanish(&self) {
        std::fs::remove_dir_all(self.path()).expect("it was there");
    }

    /// Writes a script and returns the model that plays it. The steps are described in the agent's
    /// `assistant/script.rs`.
    pub fn script(&self, name: &str, steps: Value) -> String {
        let path = self.folder.path().join(format!("{name}.json"));
        std::fs::write(&path, serde_json::json!({ "steps": steps }).to_string()).expect("writable");
        model(&path)
    }

    /// A script that waits and then answers `answer`.
    pub fn slow_answer(&self, delay_ms: u64, answer: &str) -> String {
        self.script(&format!("slow_{delay_ms}"), serde_json::json!([{ "delay_ms": delay_ms }, { "text": answer }]))
    }
}

impl Default for Folder {
    fn default() -> Self {
        Self::new()
    }
}

fn model(path: &Path) -> String {
    format!("script:{}", path.display())
}
