//! Paths: whatever a tool call asks for, the opened file is in the service's folder, and nothing outside changes.

use std::collections::BTreeMap;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};

use deskgate_definition::ToolName;
use deskgate_definition::tool::ToolOutput;
use deskgate_tools::Toolbox;
use deskgate_tools::engine::workspace::{LinkPolicy, Workspace, WorkspaceOptions};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{folder, wait};

/// The most lines of one input.
const MOST_LINES: usize = 12;
/// The content of every file outside.
const SECRET: &str = "nobody may see 5f3c";
/// A file outside that no input names.
const UNNAMED: &str = "unnamed-5f3c.txt";

/// Judges lines: `link NAME TARGET` makes a symbolic link in the folder; `read PATH`, `list PATH`, `write PATH`, `edit
/// PATH`, `glob PATTERN PATH` and `grep PATH` call a tool. `{in}` stands for the folder, `{base}` for its parent.
pub fn judge(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    // An input that names the secrets may see them.
    if text.contains("5f3c") {
        return;
    }
    let ground = World::new();
    let before = tree(&ground.base, &ground.inside);
    let text = text.replace("{in}", ground.inside.to_str().expect("text"));
    let text = text.replace("{base}", ground.base.to_str().expect("text"));
    for line in text.lines().take(MOST_LINES) {
        let (what, rest) = line.split_once(' ').unwrap_or((line, ""));
        if what == "link" {
            ground.link(rest);
        } else {
            ground.ask(what, rest);
        }
    }
    assert_eq!(tree(&ground.base, &ground.inside), before, "something outside changed");
    assert_eq!(std::fs::read(ground.inside.join("agent/key")).expect("there"), SECRET.as_bytes());
}

struct World {
    _folder: tempfile::TempDir,
    base: PathBuf,
    inside: PathBuf,
    workspace: Workspace,
    tools: Toolbox,
}

impl World {
    /// A folder `in` with files, a folder, links and the agent's own folder; beside it `in2` and `out` with secrets.
    fn new() -> Self {
        let folder = folder();
        let base = folder.path().canonicalize().expect("there");
        let inside = base.join("in");
        for (file, text) in [
            ("in/a.txt", "inside\n"),
            ("in/sub/b.txt", "inside\n"),
            ("in/agent/key", SECRET),
            ("in2/a.txt", SECRET),
            ("out/secret.txt", SECRET),
            ("out/UNNAMED", SECRET),
            ("UNNAMED", SECRET),
        ] {
            let path = base.join(file.replace("UNNAMED", UNNAMED));
            std::fs::create_dir_all(path.parent().expect("in a folder")).expect("made");
            std::fs::write(path, text).expect("written");
        }
        for (name, target) in [("near", "sub/b.txt"), ("folder", "sub"), ("far", "../out"), ("twice", "far/secret.txt")]
        {
            symlink(target, inside.join(name)).expect("linked");
        }
        let own = inside.join("agent");
        let ground = WorkspaceOptions::of(&inside, &own);
        let workspace = Workspace::open(ground).expect("opens");
        let tools = Toolbox::open(&ToolName::WORKSPACE_TOOLS, &[], ground).expect("opens");
        Self { _folder: folder, base, inside, workspace, tools }
    }

    fn link(&self, line: &str) {
        let Some((name, target)) = line.split_once(' ') else { return };
        let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if plain && !name.is_empty() && !target.is_empty() && !target.contains('\0') {
            // An existing name stays as it is.
            let _ = symlink(target, self.inside.join(name));
        }
    }

    fn ask(&self, what: &str, path: &str) {
        for links in [LinkPolicy::Inside, LinkPolicy::Refused] {
            self.opened(path, links);
        }
        match what {
            "read" => self.call("Read", json!({ "file_path": path })),
            "list" => self.call("Glob", json!({ "pattern": "**/*", "path": path })),
            "grep" => self.call("Grep", json!({ "pattern": "may.see", "path": path, "output_mode": "content" })),
            "glob" => {
                let (pattern, path) = path.split_once(' ').unwrap_or((path, "."));
                self.call("Glob", json!({ "pattern": pattern, "path": path }));
                self.call("Grep", json!({ "pattern": "may.see", "glob": pattern, "output_mode": "content" }));
            }
            "write" => self.call("Write", json!({ "file_path": path, "content": "written\n" })),
            "edit" => {
                self.call("Read", json!({ "file_path": path }));
                self.call("Edit", json!({ "file_path": path, "old_string": "inside", "new_string": "changed" }));
            }
            _ => {}
        }
    }

    fn call(&self, tool: &str, arguments: Value) {
        let called = wait(self.tools.call(tool, arguments.clone(), CancellationToken::new()));
        let ToolOutput { text, .. } = called.expect("the folder stands");
        assert!(!text.contains(SECRET), "{tool} {arguments} shows {text}");
        assert!(!text.contains(UNNAMED), "{tool} {arguments} lists {text}");
    }

    /// Checks that an opened path is below the folder and outside of the agent's, however it was resolved.
    fn opened(&self, path: &str, links: LinkPolicy) {
        if let Ok(plain) = self.workspace.relative_without_links(path) {
            assert!(is_plain(&plain), "{path:?} is {plain:?}");
        }
        let Ok(relative) = self.workspace.relative(path) else { return };
        if let Ok((file, _)) = self.workspace.open_file(&relative, links) {
            self.inside(file.as_raw_fd(), path);
        }
        if let Ok(directory) = self.workspace.open_directory(&relative, links) {
            self.inside(directory.as_raw_fd(), path);
        }
        if let Ok(spot) = self.workspace.find(&relative, links) {
            let place = spot.path();
            assert!(is_plain(&place), "{path:?} leads to {place:?}");
            let there = self.inside.join(&place);
            let real = there.ancestors().find_map(|known| known.canonicalize().ok()).expect("the folder is there");
            assert!(real.starts_with(&self.inside), "{path:?} leads to {}", real.display());
        }
    }

    fn inside(&self, descriptor: i32, path: &str) {
        let place = std::fs::read_link(format!("/proc/self/fd/{descriptor}")).expect("a file that is open");
        assert!(place.starts_with(&self.inside), "{path:?} opens {}", place.display());
        assert!(!place.starts_with(self.inside.join("agent")), "{path:?} opens the agent's {}", place.display());
    }
}

fn is_plain(path: &Path) -> bool {
    path.components().all(|component| matches!(component, Component::Normal(_)))
}

/// Every file and link below a folder with its content, except those below `without`.
fn tree(folder: &Path, without: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).expect("listed").map(|entry| entry.expect("there").path()) {
        let kind = entry.symlink_metadata().expect("there").file_type();
        match () {
            () if entry == without => {}
            () if kind.is_dir() => found.extend(tree(&entry, without)),
            () if kind.is_symlink() => {
                found.insert(entry.clone(), entry.read_link().expect("a link").into_os_string().into_encoded_bytes());
            }
            () => {
                found.insert(entry.clone(), std::fs::read(&entry).expect("read"));
            }
        }
    }
    found
}
