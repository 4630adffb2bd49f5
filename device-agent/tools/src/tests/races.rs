//! Names that change while the tools work: no byte and no name from outside is ever shown.

use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde_json::json;

use super::*;

/// Turns `in/flip` from a directory into a symbolic link to `out`, and back, until it is dropped.
struct LinkFlipper {
    over: Arc<AtomicBool>,
    turns: Arc<AtomicU64>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl LinkFlipper {
    fn start(place: &Path) -> Self {
        let inside = place.join("in");
        write(&inside.join("flip/secret.txt"), "HARMLESS\n");
        write(&inside.join("flip/deep/secret.txt"), "HARMLESS\n");
        write(&place.join("out/deep/secret.txt"), "SECRET\n");
        write(&place.join("out/outside-only.txt"), "SECRET\n");
        symlink(place.join("out"), inside.join("link-absolute")).expect("links");
        symlink("../out", inside.join("link")).expect("links");
        let over = Arc::new(AtomicBool::new(false));
        let turns = Arc::new(AtomicU64::new(0));
        let (seen, counted) = (Arc::clone(&over), Arc::clone(&turns));
        let (a, b): (PathBuf, PathBuf) = (inside.join("flip"), inside.join("link"));
        let thread = std::thread::spawn(move || {
            while !seen.load(Ordering::Relaxed) {
                // Exchanged in one step: the name always exists.
                let flags = rustix::fs::RenameFlags::EXCHANGE;
                rustix::fs::renameat_with(rustix::fs::CWD, &a, rustix::fs::CWD, &b, flags).expect("exchanges");
                counted.fetch_add(1, Ordering::Relaxed);
            }
        });
        Self { over, turns, thread: Some(thread) }
    }

    fn turns(&self) -> u64 {
        self.turns.load(Ordering::Relaxed)
    }
}

impl Drop for LinkFlipper {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Calls until each of two results was seen many times, so that the race really took place.
async fn race(tool: &str, arguments: serde_json::Value, fine: impl Fn(&ToolOutput) -> bool) {
    let place = place();
    let flipping = LinkFlipper::start(place.path());
    let toolbox = toolbox(&place.path().join("in"));
    let (mut through, mut refused) = (0, 0);
    let begin = std::time::Instant::now();
    let mut calls = 0;
    while calls < 3000 || through < 20 || refused < 20 {
        let output = toolbox.call(tool, arguments.clone(), CancellationToken::new()).await.expect("stands");
        assert!(!output.text.contains("SECRET") && !output.text.contains("outside-only"), "{}", output.text);
        calls += 1;
        if fine(&output) {
            through += 1
        } else {
            refused += 1
        }
        assert!(begin.elapsed().as_secs() < 60, "{calls} calls: {through} through, {refused} refused");
    }
    assert!(flipping.turns() > 100);
}

/// Writes until the name was refused and accepted many times; outside nothing changes, and every accepted file is
/// inside.
async fn write_race(path: &str) {
    let place = place();
    let flipping = LinkFlipper::start(place.path());
    let toolbox = toolbox(&place.path().join("in"));
    let outside = tree(&place.path().join("out"));
    let (mut through, mut refused) = (0, 0);
    let begin = std::time::Instant::now();
    while through + refused < 2000 || through < 20 || refused < 20 {
        let call = json!({ "file_path": format!("{path}{}.txt", through + refused), "content": "new" });
        let output = toolbox.call("Write", call, CancellationToken::new()).await.expect("stands");
        if output.is_error {
            refused += 1
        } else {
            through += 1
        }
        assert!(begin.elapsed().as_secs() < 60, "{through} through, {refused} refused");
    }
    assert!(flipping.turns() > 100);
    drop(flipping);
    assert_eq!(tree(&place.path().join("out")), outside);
    let inside = tree(&place.path().join("in"));
    assert_eq!(inside.iter().filter(|(_, content)| content == b"new").count(), through);
    assert!(!inside.iter().any(|(name, _)| name.ends_with(".tmp")));
}

#[tokio::test]
async fn write_never_lands_behind_a_link_that_was_a_directory() {
    write_race("flip/deep/new").await;
}

#[tokio::test]
async fn write_makes_no_directories_behind_a_link_that_was_a_directory() {
    write_race("flip/new/").await;
}

#[tokio::test]
async fn a_write_that_was_refused_in_a_race_with_another_program_has_changed_nothing() {
    let place = place();
    let inside = place.path().join("in");
    write(&inside.join("a.txt"), "0\n");
    let toolbox = toolbox(&inside);
    let call =
        async |tool: &str, arguments| toolbox.call(tool, arguments, CancellationToken::new()).await.expect("stands");
    for round in 0..200 {
        call("Read", json!({ "file_path": "a.txt" })).await;
        let theirs = format!("theirs {round}\n");
        let edit = call("Write", json!({ "file_path": "a.txt", "content": format!("ours {round}\n") }));
        let path = inside.join("a.txt");
        let other = {
            let (theirs, path) = (theirs.clone(), path.clone());
            tokio::task::spawn_blocking(move || {
                let temporary = path.with_extension("other");
                std::fs::write(&temporary, theirs).expect("writes");
                std::fs::rename(temporary, path).expect("renames");
            })
        };
        let (edited, other) = tokio::join!(edit, other);
        other.expect("no panic");
        let text = std::fs::read_to_string(&path).expect("there");
        assert!(!edited.is_error || text == theirs, "{}: {text}", edited.text);
    }
}

#[tokio::test]
async fn read_never_follows_a_directory_that_turns_into_a_link() {
    race("Read", json!({ "file_path": "flip/deep/secret.txt" }), |output| output.text.contains("HARMLESS")).await;
}

#[tokio::test]
async fn read_with_parents_in_the_path_never_gets_out_by_a_rename() {
    let path = "flip/deep/../deep/../../flip/secret.txt";
    race("Read", json!({ "file_path": path }), |output| output.text.contains("HARMLESS")).await;
}

#[tokio::test]
async fn grep_never_searches_behind_a_link_that_was_a_directory() {
    let arguments = json!({ "pattern": "SECRET|HARMLESS", "output_mode": "content" });
    race("Grep", arguments, |output| output.text.contains("flip/")).await;
}

#[tokio::test]
async fn glob_never_lists_what_is_behind_a_link_that_was_a_directory() {
    race("Glob", json!({ "pattern": "**/*.txt" }), |output| output.text.contains("flip/")).await;
}
