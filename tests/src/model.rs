//! A third-party model provider with scripted answers: aimock, from npm.
//!
//! It implements the wire formats of Anthropic and OpenAI, and records its requests.

use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;

use crate::process::{self, Process};
use crate::wait::until;
use crate::{backend, third_party};

/// The only key it accepts.
pub const MODEL_KEY: &str = "sk-model-key-of-the-tests";

/// The answers to the check of a service: a call of its tool, and the answer after it.
fn check_fixtures() -> Vec<Value> {
    let call = serde_json::json!({ "toolCalls": [{ "name": "Check", "arguments": "{\"word\":\"ready\"}" }] });
    let ready = serde_json::json!({ "content": "ready" });
    vec![
        serde_json::json!({ "match": { "userMessage": "Say: ready" }, "response": ready }),
        serde_json::json!({ "match": { "userMessage": "Call the tool Check", "turnIndex": 0 }, "response": call }),
        serde_json::json!({ "match": { "userMessage": "Call the tool Check", "turnIndex": 1 }, "response": ready }),
    ]
}

/// A running server.
#[derive(Debug)]
pub struct ModelServer {
    folder: TempDir,
    _process: Process,
    address: String,
    http: reqwest::Client,
}

impl ModelServer {
    /// Starts it with fixtures in its own format: the answer to each request. The check of a service is answered beside
    /// them. `None` if it cannot be installed here; on
    /// a build server that fails the test.
    pub async fn start(fixtures: Value) -> Option<Self> {
        let program = third_party::install_dir().await?.join("node_modules/@copilotkit/aimock/dist/cli.js");
        let folder = TempDir::with_prefix("deskgate-model-").expect("a temporary folder");
        let file = folder.path().join("fixtures.json");
        let fixtures: Vec<_> =
            check_fixtures().into_iter().chain(fixtures.as_array().cloned().unwrap_or_default()).collect();
        std::fs::write(&file, serde_json::json!({ "fixtures": fixtures }).to_string()).expect("writable");
        let mut command = process::command(Path::new("node"), folder.path());
        command.arg(program).args(["--port", "0", "--strict", "--validate-on-load", "--journal-max", "0"]);
        command.arg("--fixtures").arg(&file).env("AIMOCK_API_KEYS", MODEL_KEY);
        let process = Process::start(command, &folder.path().join("model.log"));
        let address = until("the model server to listen", async || {
            let log = process.log.own();
            let line =
                log.lines().find_map(|line| line.split_once("listening on ")).map(|(_, url)| url.trim().to_owned());
            line.ok_or(log)
        })
        .await;
        Some(Self { folder, _process: process, address, http: backend::client().build().expect("a client") })
    }

    /// Its address without a path.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// A file with a key, for the command line.
    pub fn key_file(&self, key: &str) -> PathBuf {
        let path = self.folder.path().join("key");
        std::fs::write(&path, key).expect("writable");
        path
    }

    /// The bodies of its requests so far, oldest first.
    pub async fn requests(&self) -> Vec<Value> {
        let journal = self.http.get(format!("{}/__aimock/journal", self.address)).bearer_auth(MODEL_KEY);
        let text = journal.send().await.expect("it runs").text().await.expect("a whole answer");
        let entries: Vec<Value> = serde_json::from_str(&text).expect("JSON");
        entries.into_iter().map(|entry| entry["body"].clone()).collect()
    }
}
