//! A full disk, and the agent's own folder under another mount: tested on real mounts.
//!
//! Each test runs itself again in its own mount namespace, where it may mount without being root.

use std::process::Command;
use std::sync::Arc;

use deskgate_definition::ModelReads;
use deskgate_definition::approvals::Rulebook;
use futures_util::future::BoxFuture;
use serde_json::json;

use super::*;
use crate::deliver::{Outbox, TakenCopy};

/// Runs the inner test of this module after `prepare`, a shell script that finds the test's folder in `$PLACE`.
/// `false`, with a message, if this system has no unprivileged namespaces.
fn inside_a_namespace(inner: &str, prepare: &str, place: &Path) -> bool {
    let test = format!("tests::disk::{inner}");
    let script = format!("set -e; {prepare}; exec \"$0\" --exact {test} --ignored --nocapture");
    let program = std::env::current_exe().expect("known");
    let unshare = ["--user", "--map-root-user", "--mount", "sh", "-c", &script];
    let may = Command::new("unshare").args(["--user", "--map-root-user", "--mount", "true"]).status();
    if !may.is_ok_and(|status| status.success()) {
        println!("SKIPPED: this system gives no user namespaces");
        return false;
    }
    let output = Command::new("unshare").args(unshare).arg(program).env("PLACE", place).output().expect("starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}{}", String::from_utf8_lossy(&output.stderr));
    true
}

fn given() -> std::path::PathBuf {
    std::env::var_os("PLACE").expect("set by the outer test").into()
}

#[test]
fn a_full_disk_leaves_the_old_file_and_nothing_else() {
    let place = place();
    inside_a_namespace("on_a_small_disk", "mount -t tmpfs -o size=256k tmpfs \"$PLACE/in\"", place.path());
}

#[tokio::test]
#[ignore = "run by a_full_disk_leaves_the_old_file_and_nothing_else, on a disk of 256 KiB"]
async fn on_a_small_disk() {
    let inside = given().join("in");
    write(&inside.join("a.txt"), "old\n");
    let toolbox = toolbox(&inside);
    let call = async |tool: &str, arguments| {
        toolbox.call(tool, arguments, CancellationToken::new()).await.expect("the directory stands")
    };
    assert!(!call("Read", json!({ "file_path": "a.txt" })).await.is_error);
    let before = tree(&inside);
    let much = "much\n".repeat(100_000);
    for (tool, arguments) in [
        ("Edit", json!({ "file_path": "a.txt", "old_string": "old", "new_string": much })),
        ("Write", json!({ "file_path": "a.txt", "content": much })),
        ("Write", json!({ "file_path": "new.txt", "content": much })),
        ("Write", json!({ "file_path": "some/deep/new.txt", "content": much })),
    ] {
        let output = call(tool, arguments).await;
        assert!(output.is_error && output.text.contains("disk is full"), "{}", output.text);
        assert_eq!(tree(&inside), before, "neither changed, nor anything more");
    }
    // Smaller content still fits.
    assert!(!call("Edit", json!({ "file_path": "a.txt", "old_string": "old", "new_string": "new" })).await.is_error);
}

#[test]
fn what_the_agent_needs_for_its_journal_no_tool_writes_into() {
    let place = place();
    inside_a_namespace("beside_the_journal", "mount -t tmpfs -o size=48m tmpfs \"$PLACE\"", place.path());
}

/// Nothing is ever taken from its folder.
struct NoOutbox(std::path::PathBuf);

impl Outbox for NoOutbox {
    fn folder(&self) -> std::path::PathBuf {
        self.0.clone()
    }

    fn take(&self, copy: TakenCopy) -> BoxFuture<'static, Result<String, String>> {
        panic!("{copy:?} was taken")
    }
}

#[tokio::test]
#[ignore = "run by what_the_agent_needs_for_its_journal_no_tool_writes_into, on a disk of 48 MiB"]
async fn beside_the_journal() {
    let place = given();
    for folder in ["in", "home"] {
        std::fs::create_dir(place.join(folder)).expect("creates");
    }
    let (inside, own) = (place.join("in"), place.join("home"));
    let open = |own_folder: &Path| {
        let options = WorkspaceOptions::of(&inside, own_folder);
        Toolbox::open(&ToolName::WORKSPACE_TOOLS, &[], options).expect("opens")
    };
    let write = async |toolbox: &Toolbox| {
        let arguments = json!({ "file_path": "a.txt", "content": "x" });
        toolbox.call("Write", arguments, CancellationToken::new()).await.expect("the directory stands")
    };
    let output = write(&open(&own)).await;
    assert!(output.is_error && output.text.contains("needs what is left for its journal"), "{}", output.text);
    assert!(!inside.join("a.txt").exists());
    // What is handed out is copied into the agent's own folder first.
    std::fs::write(inside.join("report.txt"), "x").expect("written");
    let (options, outbox) = (WorkspaceOptions::of(&inside, &own), Arc::new(NoOutbox(own.clone())));
    let toolbox =
        Toolbox::open_under(&Rulebook::default(), &[ToolName::Deliver], &[], ModelReads::Text, Some(outbox), options);
    let arguments = json!({ "file_path": "report.txt" });
    let called = toolbox.expect("opens").call("Deliver", arguments, CancellationToken::new()).await;
    let output = called.expect("the directory stands");
    assert!(output.is_error && output.text.contains("needs what is left for its journal"), "{}", output.text);
    assert_eq!(std::fs::read_dir(&own).expect("there").count(), 0);
    // An agent whose folder is on another disk loses nothing.
    let elsewhere = tempfile::tempdir().expect("on another disk");
    assert!(!write(&open(&elsewhere.path().join("none"))).await.is_error);
}

#[test]
fn the_agents_own_folder_is_recognised_under_another_mount() {
    let place = place();
    write(&place.path().join("out/home/providers/work"), "SECRET\n");
    write(&place.path().join("out/home/identity"), "SECRET\n");
    for folder in ["in/home", "in/below", "in/above", "in/file"] {
        std::fs::create_dir(place.path().join(folder)).expect("creates");
    }
    write(&place.path().join("in/file/identity"), "");
    let mounts = "cd \"$PLACE\"; mount --bind out/home in/home; mount --bind out/home/providers in/below; \
                  mount --bind out in/above";
    inside_a_namespace("where_the_own_folder_is_mounted", mounts, place.path());
}

#[tokio::test]
#[ignore = "run by the_agents_own_folder_is_recognised_under_another_mount, with mounts in place"]
async fn where_the_own_folder_is_mounted() {
    let place = given();
    let own = place.join("out/home");
    let open = |directory: &Path| Toolbox::open(&ToolName::WORKSPACE_TOOLS, &[], WorkspaceOptions::of(directory, &own));
    let toolbox = open(&place.join("in")).expect("opens");
    let call = async |tool: &str, arguments| {
        toolbox.call(tool, arguments, CancellationToken::new()).await.expect("the directory stands")
    };
    for path in ["home", "home/identity", "below", "below/work", "above/home/identity", "above/home/providers/work"] {
        for (tool, arguments) in [
            ("Read", json!({ "file_path": path })),
            ("Grep", json!({ "pattern": "SECRET", "path": path })),
            ("Glob", json!({ "pattern": "*", "path": path })),
            ("Write", json!({ "file_path": format!("{path}/new"), "content": "x" })),
        ] {
            let output = call(tool, arguments).await;
            assert!(output.is_error && output.text.contains("agent itself"), "{tool} {path}: {}", output.text);
        }
    }
    assert_eq!(call("Grep", json!({ "pattern": "SECRET" })).await.text, "above/secret.txt");
    assert_eq!(call("Glob", json!({ "pattern": "{identity,work}" })).await.text, "file/identity");
    for mounted in ["in/home", "in/below", "in/above/home/providers"] {
        assert!(open(&place.join(mounted)).is_err_and(|error| error.to_string().contains("own folder")), "{mounted}");
    }
}
