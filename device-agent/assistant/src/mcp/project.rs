//! MCP servers that a project's own `.mcp.json` names: they are shown, never used. A file in a working directory is
//! content; only the owner adds a server to a service.

use std::io::Read;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value};

/// The file in which coding agents look for servers.
const PROJECT_FILE_NAME: &str = ".mcp.json";
/// The size limit of the file, in bytes.
const MAX_FILE_BYTES: u64 = 256 * 1024;
/// At most this many servers are shown.
const MAX_SERVERS_SHOWN: usize = 32;

/// A server that a project names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProjectServer {
    /// Its name there.
    pub name: String,
    /// Why the agent does not use it.
    pub why: String,
}

#[derive(Deserialize)]
struct ProjectFile {
    #[serde(rename = "mcpServers", default)]
    servers: Map<String, Value>,
}

/// The servers that the file in this folder names; empty if there is no readable file. Blocks.
pub fn find_servers(folder: &Path) -> Vec<ProjectServer> {
    let path = folder.join(PROJECT_FILE_NAME);
    // Excludes links to other places, and pipes, which would block.
    let is_file = path.symlink_metadata().is_ok_and(|metadata| metadata.is_file());
    let Some(file) = is_file.then(|| std::fs::File::open(&path).ok()).flatten() else { return Vec::new() };
    let mut text = String::new();
    if file.take(MAX_FILE_BYTES).read_to_string(&mut text).is_err() {
        return Vec::new();
    }
    let Ok(ProjectFile { servers }) = serde_json::from_str(&text) else { return Vec::new() };
    let shown = |name: &str| name.chars().filter(|c| !c.is_control()).take(60).collect();
    servers
        .iter()
        .take(MAX_SERVERS_SHOWN)
        .map(|(name, server)| ProjectServer { name: shown(name), why: why(server).to_owned() })
        .collect()
}

fn why(server: &Value) -> &'static str {
    let text = |member: &str| server.get(member).and_then(Value::as_str);
    match (text("type"), text("url")) {
        (Some("sse"), _) => {
            "it speaks SSE, the protocol's old transport; only streamable HTTP over https:// can be published"
        }
        (Some("stdio"), _) | (_, None) => {
            "it is a program that this computer would start (stdio); only servers over https:// can be published"
        }
        (_, Some(url)) if url.starts_with("https://") => {
            "it is not used by itself; if you trust it: deskgate mcp set NAME --url URL, and deskgate service edit \
             SERVICE --mcp NAME"
        }
        (_, Some(_)) => "its address is not https://",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_of_a_project_are_shown_with_the_reason_why_they_are_not_used() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(find_servers(folder.path()), []);
        let file = folder.path().join(PROJECT_FILE_NAME);
        std::fs::write(
            &file,
            r#"{ "mcpServers": {
                "a": { "command": "npx", "args": ["-y", "x"], "env": { "KEY": "canary" } },
                "b": { "type": "sse", "url": "https://x.example/sse?key=canary" },
                "c": { "type": "http", "url": "http://x.example/mcp" },
                "d\u001b[2J": { "type": "http", "url": "https://x.example/mcp" } } }"#,
        )
        .expect("written");
        let servers = find_servers(folder.path());
        let reasons = ["stdio", "SSE", "not https", "deskgate mcp set"];
        assert_eq!(servers.len(), reasons.len());
        for (server, reason) in servers.iter().zip(reasons) {
            assert!(server.why.contains(reason), "{server:?}");
        }
        assert!(!format!("{servers:?}").contains("canary") && servers[3].name == "d[2J");
        for text in ["{", "[]", "{\"mcpServers\": 3}", ""] {
            std::fs::write(&file, text).expect("written");
            assert_eq!(find_servers(folder.path()), [], "{text}");
        }
        std::fs::remove_file(&file).expect("there");
        std::os::unix::fs::symlink("/dev/zero", &file).expect("linked");
        assert_eq!(find_servers(folder.path()), []);
    }
}
