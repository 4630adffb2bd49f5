//! The guarantees of Edit and Write: exact, whole, only on files unchanged since they were read, attributes kept.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use deskgate_definition::tool::{Plan, PlanPreview};
use deskgate_protocol::canonical::Sha256Digest;
use serde_json::json;

use super::*;

/// One run in a folder.
struct WritingRun {
    folder: TempDir,
    toolbox: Toolbox,
}

impl WritingRun {
    fn new(files: &[(&str, &str)]) -> Self {
        Self::protecting(files, &[])
    }

    fn protecting(files: &[(&str, &str)], protected: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in files {
            write(&folder.path().join(name), text);
        }
        let protected: Vec<_> = protected.iter().map(|&pattern| pattern.to_owned()).collect();
        let options = WorkspaceOptions {
            protected: &protected,
            ..WorkspaceOptions::of(folder.path(), Path::new("/nonexistent"))
        };
        let toolbox = Toolbox::open(&ToolName::WORKSPACE_TOOLS, &[], options).expect("opens");
        Self { folder, toolbox }
    }

    async fn call(&self, tool: &str, arguments: Value) -> ToolOutput {
        self.toolbox.call(tool, arguments, CancellationToken::new()).await.expect("the directory stands")
    }

    async fn ok(&self, tool: &str, arguments: Value) -> String {
        let output = self.call(tool, arguments).await;
        assert!(!output.is_error, "{tool} failed: {}", output.text);
        output.text
    }

    /// The call is refused, and the folder is unchanged, without a further file.
    async fn refused(&self, tool: &str, arguments: Value, because: &str) {
        let before = self.tree();
        let output = self.call(tool, arguments.clone()).await;
        assert!(output.is_error && output.text.contains(because), "{tool} {arguments}: {}", output.text);
        assert_eq!(self.tree(), before, "{tool} {arguments}");
    }

    async fn read(&self, name: &str) {
        self.ok("Read", json!({ "file_path": name })).await;
    }

    async fn plan(&self, tool: &str, arguments: &Value) -> Result<Plan, ToolOutput> {
        self.toolbox.plan(tool, arguments).expect("a tool").await
    }

    fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(name)).expect("text")
    }

    /// Every name below, with the content of the files.
    fn tree(&self) -> Vec<(String, Vec<u8>)> {
        tree(self.folder.path())
    }
}

fn edit(file: &str, old: &str, new: &str) -> Value {
    json!({ "file_path": file, "old_string": old, "new_string": new })
}

#[tokio::test]
async fn edit_replaces_the_one_place_or_all_of_them_and_only_in_a_file_that_was_read() {
    let run = WritingRun::new(&[("a.txt", "one two\nthree two\n"), ("b.txt", "x")]);
    run.refused("Edit", edit("a.txt", "one", "1"), "has not been read").await;
    run.read("a.txt").await;
    assert_eq!(run.ok("Edit", edit("a.txt", "three", "3")).await, "a.txt was changed: one replacement in line 2.");
    // The tool's own edit counts as having read the new content.
    run.ok("Edit", edit("a.txt", "3 two", "3 zwei")).await;
    run.ok("Edit", edit("a.txt", " two", " 2")).await;
    assert_eq!(run.text("a.txt"), "one 2\n3 zwei\n");
    run.refused("Edit", edit("a.txt", "e", "x"), "2 times").await;
    run.refused("Edit", edit("a.txt", "absent", "x"), "not in the file").await;
    run.refused("Edit", edit("a.txt", "", "x"), "Use Write").await;
    run.refused("Edit", edit("a.txt", "one", "one"), "the same").await;
    run.refused("Edit", edit("missing.txt", "a", "b"), "no such file").await;
    run.refused("Edit", edit("a.txt", "one", "\0"), "NUL").await;
    let all = json!({ "file_path": "a.txt", "old_string": "e", "new_string": "E", "replace_all": true });
    assert_eq!(run.ok("Edit", all).await, "a.txt was changed: 2 replacements, the first in line 1.");
    assert_eq!(run.text("a.txt"), "onE 2\n3 zwEi\n");
    // However a path is written, it is the same file; having read a part is enough.
    run.ok("Read", json!({ "file_path": "./b.txt", "limit": 1 })).await;
    run.ok("Edit", edit(run.folder.path().join("b.txt").to_str().expect("text"), "x", "y")).await;
    assert_eq!(run.text("b.txt"), "y");
}

#[tokio::test]
async fn a_file_that_changed_since_it_was_read_is_left_alone_even_if_its_time_and_size_are_the_same() {
    let run = WritingRun::new(&[("a.txt", "one\n")]);
    let path = run.folder.path().join("a.txt");
    run.read("a.txt").await;
    let time = std::fs::metadata(&path).expect("there").modified().expect("known");
    std::fs::write(&path, "two\n").expect("writes");
    std::fs::File::options().write(true).open(&path).expect("opens").set_modified(time).expect("sets");
    run.refused("Edit", edit("a.txt", "two", "x"), "changed since it was read").await;
    run.refused("Write", json!({ "file_path": "a.txt", "content": "x" }), "changed since it was read").await;
    run.read("a.txt").await;
    run.ok("Edit", edit("a.txt", "two", "x")).await;
    // A file that another run has read does not count as read in this one.
    let other = WritingRun { toolbox: toolbox(run.folder.path()), folder: tempfile::tempdir().expect("a folder") };
    assert!(other.call("Edit", edit("a.txt", "x", "y")).await.text.contains("has not been read"));
}

#[tokio::test]
async fn a_call_that_was_shown_is_not_made_from_another_content_even_if_that_was_read_too() {
    let run = WritingRun::new(&[("a.txt", "one two\n")]);
    run.read("a.txt").await;
    let call = edit("a.txt", "one", "1");
    let PlanPreview::Change { before, after, diff } = run.plan("Edit", &call).await.expect("a plan").shown else {
        panic!()
    };
    assert_eq!((before, after), (Some(Sha256Digest::of(b"one two\n")), Sha256Digest::of(b"1 two\n")));
    assert_eq!(diff, "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-one two\n+1 two\n");
    assert_eq!(run.text("a.txt"), "one two\n", "a plan changes nothing");
    run.ok("Edit", edit("a.txt", "two", "2")).await;
    run.refused("Edit", call.clone(), "changed after this call was prepared").await;
    run.plan("Edit", &call).await.expect("a plan");
    run.ok("Edit", call).await;
    assert_eq!(run.text("a.txt"), "1 2\n");
    // A file that was created after it was shown as new.
    let call = json!({ "file_path": "new.txt", "content": "mine" });
    let plan = run.plan("Write", &call).await.expect("a plan");
    assert_eq!(plan.place.as_deref(), Some("new.txt"));
    assert!(matches!(plan.shown, PlanPreview::Change { before: None, .. }));
    std::fs::write(run.folder.path().join("new.txt"), "theirs").expect("writes");
    run.refused("Write", call, "has not been read").await;
    assert_eq!(run.text("new.txt"), "theirs");
}

#[tokio::test]
async fn a_call_that_a_person_allowed_is_planned_from_what_is_there_now_and_does_exactly_that() {
    let run = WritingRun::new(&[("a.txt", "one two\n")]);
    let path = run.folder.path().join("a.txt");
    run.read("a.txt").await;
    let call = edit("a.txt", "two", "2");
    run.plan("Edit", &call).await.expect("a plan");
    std::fs::write(&path, "three two\n").expect("writes");
    assert!(run.plan("Edit", &call).await.is_err(), "the run has not seen it");
    let again = async |call: &Value| run.toolbox.plan_again("Edit", call).expect("a tool").await;
    let PlanPreview::Change { diff, .. } = again(&call).await.expect("a person sees it").shown else { panic!() };
    assert!(diff.contains("-three two\n+three 2\n"), "{diff}");
    // Between that plan and the call.
    std::fs::write(&path, "four two\n").expect("writes");
    let output = run.call("Edit", call.clone()).await;
    assert!(output.is_error && output.is_outdated, "{output:?}");
    assert_eq!(run.text("a.txt"), "four two\n");
    again(&call).await.expect("a person sees it");
    run.ok("Edit", call.clone()).await;
    assert_eq!(run.text("a.txt"), "four 2\n");
    // That a person saw it is not that the run has seen it.
    std::fs::write(&path, "five two\n").expect("writes");
    again(&call).await.expect("a person sees it");
    run.refused("Edit", edit("a.txt", "five", "5"), "changed since it was read").await;
    std::fs::write(&path, "gone\n").expect("writes");
    assert!(again(&call).await.is_err_and(|output| output.text.contains("not in the file")));
    std::fs::remove_file(&path).expect("removes");
    let output = run.call("Edit", call).await;
    assert!(output.is_outdated && output.text.contains("no such file"), "{output:?}");
}

#[tokio::test]
async fn a_plan_says_no_in_the_words_of_the_call() {
    let run = WritingRun::new(&[("a.txt", "x"), (".git/config", "")]);
    for (tool, arguments) in [
        ("Edit", edit("a.txt", "x", "y")),
        ("Edit", edit("../a.txt", "x", "y")),
        ("Edit", json!({ "file_path": "a.txt" })),
        ("Write", json!({ "file_path": ".git/config", "content": "x" })),
        ("Read", json!({ "file_path": "b.txt" })),
        ("Grep", json!({ "pattern": "x", "path": "../.." })),
        ("Glob", json!({ "path": "x" })),
    ] {
        let planned = run.plan(tool, &arguments).await.expect_err("refused");
        assert_eq!(planned, run.call(tool, arguments).await, "{tool}");
    }
}

#[tokio::test]
async fn looking_is_planned_at_the_place_where_the_path_really_leads() {
    let run = WritingRun::new(&[("deep/er/a.txt", "x")]);
    symlink("deep/er", run.folder.path().join("link")).expect("links");
    for (tool, arguments, place) in [
        ("Read", json!({ "file_path": "link/a.txt" }), "deep/er/a.txt"),
        ("Read", json!({ "file_path": "link/../er/./a.txt" }), "deep/er/a.txt"),
        ("Grep", json!({ "pattern": "x", "path": "link" }), "deep/er"),
        ("Grep", json!({ "pattern": "x" }), "."),
        ("Glob", json!({ "pattern": "*", "path": "./deep/" }), "deep"),
    ] {
        let plan = run.plan(tool, &arguments).await.expect("a plan");
        assert_eq!(plan, Plan { place: Some(place.to_owned()), shown: PlanPreview::Arguments }, "{tool} {arguments}");
    }
}

#[tokio::test]
async fn write_creates_directories_and_replaces_only_what_was_read() {
    let run = WritingRun::new(&[("old.txt", "old")]);
    let write = |file: &str, content: &str| json!({ "file_path": file, "content": content });
    assert_eq!(run.ok("Write", write("a/b/c.txt", "new\n")).await, "a/b/c.txt was created.");
    assert_eq!(run.text("a/b/c.txt"), "new\n");
    // Written content counts as seen.
    assert_eq!(run.ok("Write", write("a/b/c.txt", "newer")).await, "a/b/c.txt was replaced.");
    run.ok("Edit", edit("a/b/c.txt", "newer", "newest")).await;
    run.refused("Write", write("old.txt", "x"), "has not been read").await;
    run.read("old.txt").await;
    run.ok("Write", write("old.txt", "")).await;
    assert_eq!((run.text("old.txt"), run.text("a/b/c.txt")), (String::new(), "newest".to_owned()));
    run.refused("Write", write("old.txt/x", "x"), "not a directory").await;
    run.refused("Write", write("a", "x"), "a directory").await;
    run.refused("Write", write("new/", "x"), "a directory").await;
    run.refused("Write", write("", "x"), "a directory").await;
    run.refused("Write", write(&format!("made/for/{}", "n".repeat(300)), "x"), "too long").await;
    run.refused("Write", write("nul.txt", "a\0b"), "NUL").await;
}

#[tokio::test]
async fn the_file_keeps_its_mode_its_line_ends_and_its_byte_order_mark() {
    let run = WritingRun::new(&[("script.sh", "#!/bin/sh\necho a\n"), ("windows.txt", "\u{feff}one\r\ntwo\r\n")]);
    let path = run.folder.path().join("script.sh");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o751)).expect("sets");
    run.read("script.sh").await;
    run.ok("Edit", edit("script.sh", "echo a", "echo b")).await;
    let metadata = std::fs::metadata(&path).expect("there");
    assert_eq!((metadata.mode() & 0o7777, metadata.nlink()), (0o751, 1));
    run.read("windows.txt").await;
    run.ok("Edit", edit("windows.txt", "one\ntwo\n", "1\n2\n3\n")).await;
    assert_eq!(run.text("windows.txt"), "\u{feff}1\r\n2\r\n3\r\n");
    run.ok("Write", json!({ "file_path": "windows.txt", "content": "a\nb\n" })).await;
    assert_eq!(run.text("windows.txt"), "\u{feff}a\r\nb\r\n");
    assert_eq!(run.tree().len(), 2, "nothing else is left");
}

#[tokio::test]
async fn a_file_keeps_its_owner_where_this_account_may_give_it() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: only root can give files away");
        return;
    }
    let run = WritingRun::new(&[("a.txt", "x")]);
    let path = run.folder.path().join("a.txt");
    std::os::unix::fs::chown(&path, Some(12_345), Some(54_321)).expect("gives it away");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o4755)).expect("sets");
    run.read("a.txt").await;
    run.ok("Edit", edit("a.txt", "x", "y")).await;
    let metadata = std::fs::metadata(&path).expect("there");
    assert_eq!((metadata.uid(), metadata.gid(), metadata.mode() & 0o7777), (12_345, 54_321, 0o4755));
}

#[tokio::test]
async fn what_is_no_text_too_large_or_has_a_second_name_is_not_changed() {
    let run = WritingRun::new(&[("large.txt", &"x".repeat(9 << 20)), ("full.txt", "y")]);
    let inside = run.folder.path();
    write(&inside.join("latin1.txt"), b"caf\xe9 au lait, s'il vous pla\xeet\n");
    write(&inside.join("late.txt"), [b"x".repeat(20_000), b"\0".to_vec()].concat());
    write(&inside.join("one.txt"), "x");
    std::fs::hard_link(inside.join("one.txt"), inside.join("two.txt")).expect("links");
    for (file, because) in
        [("large.txt", "8 MiB"), ("latin1.txt", "not UTF-8"), ("late.txt", "binary"), ("one.txt", "hard links")]
    {
        run.read(file).await;
        run.refused("Edit", edit(file, "x", "y"), because).await;
        run.refused("Write", json!({ "file_path": file, "content": "y" }), because).await;
    }
    run.read("full.txt").await;
    let arguments = json!({ "file_path": "full.txt", "old_string": "y", "new_string": "z".repeat(9 << 20) });
    run.refused("Edit", arguments, "8 MiB").await;
    run.refused("Write", json!({ "file_path": "new.txt", "content": "z".repeat(9 << 20) }), "8 MiB").await;
}

#[tokio::test]
async fn a_file_that_the_account_may_not_write_is_not_replaced_through_its_directory() {
    let run = WritingRun::new(&[("a.txt", "x")]);
    let path = run.folder.path().join("a.txt");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o444)).expect("sets");
    run.read("a.txt").await;
    if rustix::process::geteuid().is_root() {
        // No file is read-only for root, which may run the agent.
        run.ok("Edit", edit("a.txt", "x", "y")).await;
    } else {
        run.refused("Edit", edit("a.txt", "x", "y"), "read-only").await;
    }
    assert_eq!(std::fs::metadata(&path).expect("there").mode() & 0o777, 0o444);
}

#[tokio::test]
async fn what_the_service_protects_is_read_and_never_changed() {
    let run =
        WritingRun::protecting(&[(".env", "KEY=1"), ("secrets/a.txt", "x"), ("b.txt", "x")], &[".env", "secrets/"]);
    for file in [".env", "secrets/a.txt"] {
        run.read(file).await;
        run.refused("Edit", edit(file, "x", "y"), "protects this file").await;
        run.refused("Write", json!({ "file_path": file, "content": "y" }), "protects this file").await;
    }
    for file in ["secrets/new.txt", "deep/.ENV", "./secrets/../secrets/new.txt"] {
        run.refused("Write", json!({ "file_path": file, "content": "y" }), "protects this file").await;
    }
    run.read("b.txt").await;
    run.ok("Edit", edit("b.txt", "x", "y")).await;
}

#[tokio::test]
async fn what_the_owners_programs_run_is_made_by_no_tool_until_its_name_is_taken_off() {
    let run = WritingRun::new(&[]);
    for name in deskgate_definition::PROTECTED_NAMES {
        let file = if name.ends_with('/') { format!("{name}file") } else { name.to_owned() };
        for file in [format!("deep/{file}"), file.to_uppercase(), file.clone()] {
            run.refused("Write", json!({ "file_path": file, "content": "x" }), "protects this file").await;
        }
        let off = WritingRun::protecting(&[], &[&format!("!{name}")]);
        off.ok("Write", json!({ "file_path": file, "content": "x" })).await;
        let other = if name == ".envrc" { ".profile" } else { ".envrc" };
        off.refused("Write", json!({ "file_path": other, "content": "x" }), "protects this file").await;
    }
}

#[tokio::test]
async fn two_hundred_replacements_show_no_reader_half_a_file() {
    let whole = |n: usize| format!("{}\n", n % 10).repeat(20_000);
    let run = WritingRun::new(&[("a.txt", &whole(0))]);
    let path = run.folder.path().join("a.txt");
    let over = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let seen = std::sync::Arc::clone(&over);
    let reader = std::thread::spawn(move || {
        let mut looks = 0;
        while !seen.load(std::sync::atomic::Ordering::Relaxed) {
            let text = std::fs::read_to_string(&path).expect("always there");
            assert!(text.len() == 40_000 && text.bytes().step_by(2).all(|b| b == text.as_bytes()[0]), "half a file");
            looks += 1;
        }
        looks
    });
    run.read("a.txt").await;
    for n in 1..=200 {
        run.ok("Write", json!({ "file_path": "a.txt", "content": whole(n) })).await;
    }
    over.store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(reader.join().expect("no half file") > 0);
}
