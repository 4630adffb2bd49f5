//! A corpus of escape paths, each tried with every file tool: no file outside is read or changed.
//!
//! The working directory contains the agent's own folder, repositories and a protected folder, and stands beside
//! canaries. After each attempt everything is unchanged, or exactly one more file is inside.

use std::os::fd::AsRawFd;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::json;

use super::*;

/// In every file that no tool may show, and in the names of some.
const CANARY_WORD: &str = "canary-4711";

/// What Write may do with a path.
#[derive(Clone, Copy, Debug, PartialEq)]
enum WriteExpectation {
    Refused,
    /// The path is a strange name of a file inside.
    CreatesInside,
}
use WriteExpectation::{CreatesInside, Refused};

/// The folder with everything that an attempt needs.
struct EscapeSite {
    place: TempDir,
    toolbox: Toolbox,
    /// Kept open while the attempts are made.
    _open: (std::fs::File, UnixListener),
    descriptor: i32,
    /// A process that works outside, until its input is closed.
    elsewhere: Child,
}

impl Drop for EscapeSite {
    fn drop(&mut self) {
        drop(self.elsewhere.stdin.take());
        let _ = self.elsewhere.wait();
    }
}

impl EscapeSite {
    fn new() -> Self {
        let place = tempfile::tempdir().expect("a folder");
        let at = |path: &str| place.path().join(path);
        for file in ["out/secret.txt", "out/canary-4711.txt", "out/deep/secret.txt", "in2/secret.txt", "secret.txt"] {
            write(&at(file), CANARY_WORD);
        }
        for file in ["key", "deskgate.db", "providers/work", "gateway/postgres/base"] {
            write(&at("in/agent-home").join(file), CANARY_WORD);
        }
        for file in ["in/sub/a.txt", "in/keep/a.txt", "in/.env", "in/sub/tree/.git"] {
            write(&at(file), "inside\n");
        }
        for file in
            [".git/config", ".git/hooks/pre-push", ".hg/hgrc", ".svn/wc.db", ".jj/repo/store", "mod/.GIT/config"]
        {
            write(&at("in").join(file), "[core]\n");
        }
        for file in ["in/bare/HEAD", "in/bare/config", "in/bare/objects/x", "in/bare/refs/x"] {
            write(&at(file), "[core]\n");
        }
        links(&at("in"), &at("out"));
        let mut elsewhere = Command::new("cat");
        elsewhere.current_dir(at("out")).stdin(Stdio::piped()).stdout(Stdio::null());
        let elsewhere = elsewhere.spawn().expect("cat is there");
        symlink(format!("/proc/{}/cwd/", elsewhere.id()), at("in/proc-cwd")).expect("links");
        let mode = rustix::fs::Mode::from_raw_mode(0o644);
        rustix::fs::mknodat(rustix::fs::CWD, at("in/pipe"), rustix::fs::FileType::Fifo, mode, 0).expect("a pipe");
        let listener = UnixListener::bind(at("in/socket")).expect("a socket");
        let secret = std::fs::File::options().read(true).write(true).open(at("out/secret.txt")).expect("opens");
        let descriptor = secret.as_raw_fd();
        symlink(format!("/proc/self/fd/{descriptor}"), at("in/descriptor")).expect("links");
        let protected = ["keep/".to_owned(), ".env".to_owned()];
        let (directory, own) = (&at("in"), &at("in/agent-home"));
        let toolbox = Toolbox::open(
            &ToolName::WORKSPACE_TOOLS,
            &[],
            WorkspaceOptions { protected: &protected, ..WorkspaceOptions::of(directory, own) },
        );
        Self { toolbox: toolbox.expect("opens"), place, _open: (secret, listener), descriptor, elsewhere }
    }

    fn absolute(&self, path: &str) -> String {
        self.place.path().join(path).to_str().expect("text").to_owned()
    }

    /// Every tool on one path.
    async fn attempt(&self, path: &str, writing: WriteExpectation) {
        let before = tree(self.place.path());
        let calls = [
            ("Read", json!({ "file_path": path })),
            ("Grep", json!({ "pattern": "canary", "path": path, "output_mode": "content" })),
            ("Grep", json!({ "pattern": "canary", "glob": path, "output_mode": "content" })),
            ("Glob", json!({ "pattern": "**/*", "path": path })),
            ("Glob", json!({ "pattern": path })),
            ("Edit", json!({ "file_path": path, "old_string": "c", "new_string": "x", "replace_all": true })),
            ("Edit", json!({ "file_path": path, "old_string": "i", "new_string": "x", "replace_all": true })),
            ("Edit", json!({ "file_path": path, "old_string": "[core]", "new_string": "[x]" })),
        ];
        for (tool, arguments) in calls {
            let output = self.call(tool, arguments).await;
            assert!(!output.text.contains(CANARY_WORD), "{tool} {path:?} shows {}", output.text);
            assert!(tool != "Edit" || output.is_error, "{tool} {path:?}: {}", output.text);
            assert!(tree(self.place.path()) == before, "{tool} {path:?} changed something: {}", output.text);
        }
        let call = json!({ "file_path": path, "content": "written" });
        let planned = self.toolbox.plan("Write", &call).expect("a tool").await;
        assert!(tree(self.place.path()) == before, "a plan to write {path:?} changed something");
        let output = self.call("Write", call).await;
        assert_eq!(output.is_error, writing == Refused, "Write {path:?}: {}", output.text);
        assert_eq!(planned.is_err(), output.is_error, "the plan and the call of Write {path:?} agree");
        let after = tree(self.place.path());
        let inside = self.absolute("in/");
        for (name, content) in after.iter().filter(|entry| !before.contains(entry)) {
            assert!(writing == CreatesInside && name.starts_with(&inside), "Write {path:?} made {name}");
            assert!(matches!(content.as_slice(), b"written" | b"directory"), "Write {path:?} made {name}");
        }
        assert!(before.iter().all(|entry| after.contains(entry)), "Write {path:?} took something away");
    }

    /// No call may wait for the other end of a pipe, or read a device to its end.
    async fn call(&self, tool: &str, arguments: Value) -> ToolOutput {
        let call = self.toolbox.call(tool, arguments.clone(), CancellationToken::new());
        let output = tokio::time::timeout(Duration::from_secs(20), call).await;
        output.unwrap_or_else(|_| panic!("{tool} {arguments} hangs")).expect("the directory stands")
    }
}

fn links(inside: &Path, out: &Path) {
    let link = |target: &Path, name: &str| symlink(target, inside.join(name)).expect("links");
    let to = |target: &str, name: &str| link(Path::new(target), name);
    to("../out/secret.txt", "file");
    link(&out.join("secret.txt"), "file-absolute");
    to("../out", "folder");
    link(out, "folder-absolute");
    to("folder/secret.txt", "through");
    to("through", "twice");
    to("../out/new.txt", "dangling");
    link(&out.join("new.txt"), "dangling-absolute");
    to("..", "up");
    to("sub/../../out", "winding");
    to("loop", "loop");
    to("sub", "inner");
    to("sub/a.txt", "inner-file");
    to("agent-home", "own");
    to("agent-home/key", "own-key");
    to(".git", "repository");
    to("/proc/self/root/", "proc-root");
    let whole = out.join("secret.txt");
    link(
        &Path::new("../../../../../../../../proc/self/root").join(whole.strip_prefix("/").expect("absolute")),
        "proc-relative",
    );
    to("/dev/zero", "zero");
    to("/dev/stdin", "stdin");
    (0..45).for_each(|n| to(&format!("chain-{}", n + 1), &format!("chain-{n}")));
    to("../out/secret.txt", "chain-45");
    std::fs::hard_link(inside.join("agent-home/key"), inside.join("innocent.txt")).expect("links");
}

#[tokio::test]
async fn no_path_leads_a_tool_outside_or_to_what_is_left_alone() {
    let site = EscapeSite::new();
    let absolute = |path: &str| site.absolute(path);
    let mut attempts: Vec<(String, WriteExpectation)> = Vec::new();
    // Out of the working directory, by names.
    for path in [
        "../out/secret.txt",
        "sub/../../out/secret.txt",
        "./../in/../out/secret.txt",
        "sub/./.././../out/secret.txt",
        "../in2/secret.txt",
        "..",
        "../",
        "/",
        "../out/new.txt",
        "../../../../../../../../../../../../../../../../../tmp/deskgate-canary",
        "missing/../../out/secret.txt",
    ] {
        attempts.push((path.to_owned(), Refused));
    }
    for path in ["out/secret.txt", "in/../out/secret.txt", "in2/secret.txt", "out/new.txt", "in/sub/../../secret.txt"] {
        attempts.push((absolute(path), Refused));
    }
    attempts.push((format!("/{}", absolute("out/secret.txt")), Refused));
    // Through links, which are never followed for writing.
    for path in [
        "file",
        "file-absolute",
        "folder/secret.txt",
        "folder/new.txt",
        "folder/new/new.txt",
        "folder-absolute/secret.txt",
        "through",
        "twice",
        "dangling",
        "dangling-absolute",
        "up/out/secret.txt",
        "up/in/../out/secret.txt",
        "winding/secret.txt",
        "inner/../../out/secret.txt",
        "loop",
        "loop/x",
        "chain-0",
        "chain-10",
        "inner-file",
        "inner/a.txt",
        "inner/new.txt",
        "file/",
        "folder/.",
    ] {
        attempts.push((path.to_owned(), Refused));
    }
    // By paths that the kernel offers.
    let secret = absolute("out/secret.txt");
    for path in [
        format!("/proc/self/root{secret}"),
        format!("/proc/self/fd/{}", site.descriptor),
        format!("/dev/fd/{}", site.descriptor),
        format!("/proc/self/task/{}/root{secret}", std::process::id()),
        format!("/proc/{}/cwd/secret.txt", site.elsewhere.id()),
        "descriptor".to_owned(),
        format!("proc-root{secret}"),
        "proc-cwd/secret.txt".to_owned(),
        "proc-relative".to_owned(),
        "zero".to_owned(),
        "stdin".to_owned(),
        "pipe".to_owned(),
        "socket".to_owned(),
    ] {
        attempts.push((path, Refused));
    }
    // By invalid names, or names that are refused as they are.
    for path in
        ["sub/a.txt\0", "a\0../out/secret.txt", "", "sub/a.txt/", "sub/a.txt/.", "sub/a.txt/../../../out/secret.txt"]
    {
        attempts.push((path.to_owned(), Refused));
    }
    attempts.push((format!("{}secret.txt", "../out/".repeat(1000)), Refused));
    attempts.push((format!("{}/x", "n".repeat(256)), Refused));
    attempts.push(("a/".repeat(5000) + "x", Refused));
    // By names that mean more to other software than to the kernel.
    for path in [
        "~/secret.txt",
        "~root/x",
        "$HOME/x",
        "${DESKGATE_HOME}/key",
        "%2e%2e/out/secret.txt",
        "..%2fout%2fsecret.txt",
        "..\\out\\secret.txt",
        ".. /out/secret.txt",
        "..\u{200b}/out/secret.txt",
        "\u{2024}\u{2024}/out/secret.txt",
        "\u{ff0e}\u{ff0e}\u{ff0f}out/secret.txt",
        "\u{202e}txt.terces",
        "-rf",
        "file:x",
        "new\nline.txt",
    ] {
        attempts.push((path.to_owned(), CreatesInside));
    }
    // To version control's folders, in every spelling.
    for path in [
        ".git/config",
        ".git/hooks/pre-commit",
        ".git/new/deep",
        "./sub/../.git/config",
        "repository/config",
        ".GIT/config",
        ".Git/hooks/x",
        "mod/.GIT/config",
        ".git./config",
        ".git /config",
        ".git. . /x",
        ".g\u{200c}it/config",
        "\u{feff}.git/config",
        "GIT~1/config",
        ".git::$INDEX_ALLOCATION/config",
        "sub/tree/.git",
        "sub/.git",
        "sub/deep/module/.git/hooks/post-checkout",
        ".hg/hgrc",
        ".hg",
        ".svn/wc.db",
        ".\u{17f}vn/x",
        ".jj/repo/store",
        "bare/config",
        "bare/hooks/post-update",
        "bare/refs/new",
    ] {
        attempts.push((path.to_owned(), Refused));
    }
    // To the agent's own folder, and to paths that the service protects.
    for path in [
        "agent-home",
        "agent-home/key",
        "agent-home/new",
        "agent-home/providers/work",
        "agent-home/gateway/postgres/base",
        "./sub/../agent-home/deskgate.db",
        "agent-home/../agent-home/key",
        "own/key",
        "own",
        "own-key",
        "innocent.txt",
        "keep/a.txt",
        "keep/new.txt",
        "KEEP/a.txt",
        ".env",
        "sub/.Env",
    ] {
        attempts.push((path.to_owned(), Refused));
    }
    attempts.push((absolute("in/agent-home/key"), Refused));
    assert!(attempts.len() >= 100, "{} attempts", attempts.len());
    for (path, writing) in &attempts {
        site.attempt(path, *writing).await;
    }
    // A walk over everything finds none of them either.
    let found = site.call("Grep", json!({ "pattern": "canary|root:", "output_mode": "content" })).await;
    assert_eq!(found.text, "(no matches found)");
    let listed = site.call("Glob", json!({ "pattern": "**/*" })).await.text;
    assert!(listed.contains("sub/a.txt") && !listed.contains(CANARY_WORD), "{listed}");
    let ways = ["agent-home/", "own", "folder", "up/", "pipe", "socket", "zero", ".git/"];
    assert!(!listed.lines().any(|line| ways.iter().any(|way| line.starts_with(way))), "{listed}");
}

#[tokio::test]
async fn a_working_directory_inside_the_agents_own_folder_is_no_ground_to_work_on() {
    let site = EscapeSite::new();
    let own = site.place.path().join("in/agent-home");
    for inside in ["", "providers", "gateway/postgres"] {
        let directory = &own.join(inside);
        let opened = Toolbox::open(&ToolName::WORKSPACE_TOOLS, &[], WorkspaceOptions::of(directory, &own));
        assert!(opened.is_err_and(|error| error.to_string().contains("own folder")), "{inside}");
    }
    // By a link it is the same folder.
    let (directory, own_by_link) = (&own.join("providers"), &site.place.path().join("in/own"));
    let opened = Toolbox::open(&ToolName::WORKSPACE_TOOLS, &[], WorkspaceOptions::of(directory, own_by_link));
    assert!(opened.is_err());
}

#[tokio::test]
async fn a_working_directory_inside_a_repositorys_inside_is_for_reading_only() {
    let site = EscapeSite::new();
    for (inside, file) in [("in/.git", "config"), ("in/.git/hooks", "pre-push"), ("in/bare", "config")] {
        let directory = &site.place.path().join(inside);
        let toolbox = toolbox(directory);
        let read = toolbox.call("Read", json!({ "file_path": file }), CancellationToken::new()).await.expect("stands");
        assert!(!read.is_error, "{}", read.text);
        for name in [file, "new"] {
            let call = json!({ "file_path": name, "content": "x" });
            let output = toolbox.call("Write", call, CancellationToken::new()).await.expect("stands");
            assert!(output.is_error && output.text.contains("version control"), "{inside}/{name}: {}", output.text);
        }
    }
}
