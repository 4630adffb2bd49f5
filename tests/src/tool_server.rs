//! A third-party MCP server: the protocol's own SDK, from npm, over HTTPS.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::process::{self, Process};
use crate::wait::until;
use crate::{TestDevice, third_party};

/// The only key it accepts.
pub const TOOL_SERVER_KEY: &str = "mcp-key-of-the-tests";

/// A running server. It has the tools `add_note`, and `note_and_vanish`, which breaks off its own answer.
#[derive(Debug)]
pub struct ToolServer {
    folder: TempDir,
    _process: Process,
    url: String,
}

impl ToolServer {
    /// Starts it. `None` if it cannot be installed here; on a build server that fails the test.
    pub async fn start() -> Option<Self> {
        let place = third_party::install_dir().await?;
        let folder = TempDir::with_prefix("deskgate-mcp-").expect("a temporary folder");
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
        for (name, text) in [
            ("cert.pem", made.cert.pem()),
            ("key.pem", made.signing_key.serialize_pem()),
            ("description", "Adds a note.".to_owned()),
            ("argument", "text".to_owned()),
            ("notes", String::new()),
        ] {
            std::fs::write(folder.path().join(name), text).expect("writable");
        }
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/mcp-server.mjs");
        let mut command = process::command(Path::new("node"), folder.path());
        command.arg(script).arg(folder.path()).arg(TOOL_SERVER_KEY).arg(place);
        let process = Process::start(command, &folder.path().join("server.log"));
        let url = until("the MCP server to listen", async || {
            let log = process.log.own();
            let url = log.lines().find_map(|line| line.strip_prefix("listening on ")).map(str::to_owned);
            url.ok_or(log)
        })
        .await;
        Some(Self { folder, _process: process, url })
    }

    /// The effects of its tools, in order.
    pub fn notes(&self) -> Vec<String> {
        let notes = std::fs::read_to_string(self.folder.path().join("notes")).expect("it is there");
        notes.lines().map(str::to_owned).collect()
    }

    /// Changes the description of `add_note` from the next session on.
    pub fn describe(&self, description: &str) {
        std::fs::write(self.folder.path().join("description"), description).expect("writable");
    }

    /// Renames the argument of `add_note` from the next session on.
    pub fn rename_argument(&self, name: &str) {
        std::fs::write(self.folder.path().join("argument"), name).expect("writable");
    }

    /// A device in built-in mode that trusts its certificate and knows it as `crm`.
    pub async fn configured_device(&self) -> TestDevice {
        let mut device = TestDevice::new();
        device.trust_certificate(&self.folder.path().join("cert.pem"));
        device.start().await;
        device.wait_until_connected().await;
        let key_file = self.key_file(TOOL_SERVER_KEY);
        let key_file = key_file.to_str().expect("a plain name");
        device.cli(&["mcp", "set", "crm", "--url", &self.url, "--key-file", key_file]).await.ok();
        device
    }

    /// A file with a key, for the command line.
    pub fn key_file(&self, key: &str) -> PathBuf {
        let path = self.folder.path().join("key");
        std::fs::write(&path, key).expect("writable");
        path
    }
}
