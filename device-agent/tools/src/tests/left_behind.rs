//! What a kill leaves of a change, and what removes it.

use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use serde_json::json;

use super::*;

const FILE_BYTES: usize = 1 << 20;

fn whole(letter: char) -> String {
    letter.to_string().repeat(FILE_BYTES)
}

/// Whether a process has an open file of this folder that has no name yet.
fn is_in_the_middle(process: u32, folder: &Path) -> bool {
    let open = std::fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().filter_map(Result::ok);
    open.filter_map(|entry| std::fs::read_link(entry.path()).ok()).any(|target| {
        let name = target.strip_prefix(folder).map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        name.starts_with('#') || name.starts_with(".deskgate-")
    })
}

#[tokio::test]
async fn a_kill_in_the_middle_of_a_change_leaves_whole_files_and_after_the_next_change_nothing_else() {
    let place = place();
    let inside = place.path().join("in").canonicalize().expect("there");
    write(&inside.join("old.txt"), whole('a'));
    for name in ["old", "1", "old", "2", "old", "3", "old", "4"] {
        let mut command = Command::new(std::env::current_exe().expect("known"));
        command.args(["--exact", "tests::left_behind::changing_until_killed", "--ignored"]);
        let child = command.env("PLACE", place.path()).env("NAME", name).stdout(Stdio::null()).spawn();
        let mut child = child.expect("starts");
        let begin = Instant::now();
        while !is_in_the_middle(child.id(), &inside) {
            assert!(begin.elapsed() < Duration::from_secs(60) && child.try_wait().expect("known").is_none());
            std::thread::yield_now();
        }
        child.kill().expect("killed");
        child.wait().expect("ended");
    }
    ok(&inside, "Write", json!({ "file_path": "last.txt", "content": whole('z') })).await;
    for (name, content) in tree(&inside) {
        assert!(name.ends_with(".txt"), "{name} was left");
        assert!(content.len() == FILE_BYTES && content.iter().all(|byte| *byte == content[0]), "{name} is not whole");
    }
}

#[tokio::test]
#[ignore = "run, and killed, by the test above"]
async fn changing_until_killed() {
    let inside = Path::new(&std::env::var_os("PLACE").expect("set by the outer test")).join("in");
    let file = format!("{}.txt", std::env::var("NAME").expect("set by the outer test"));
    let toolbox = toolbox(&inside);
    let call = async |tool: &str, arguments| toolbox.call(tool, arguments, CancellationToken::new()).await;
    // Where there is none yet, it is created.
    call("Read", json!({ "file_path": file })).await.expect("stands");
    for letter in ('b'..='y').cycle() {
        let output = call("Write", json!({ "file_path": file, "content": whole(letter) })).await.expect("stands");
        assert!(!output.is_error, "{}", output.text);
    }
}

#[tokio::test]
async fn only_what_was_left_behind_is_removed_and_nothing_that_somebody_put_there_in_its_name() {
    let place = place();
    let inside = place.path().join("in");
    let at = |name: &str| inside.join(name);
    let (left, linked) = (".deskgate-0123456789abcdef.tmp", ".deskgate-0000000000000002.tmp");
    write(&at(left), "half");
    // A second name of a file outside is a name inside.
    std::fs::hard_link(place.path().join("out/secret.txt"), at(linked)).expect("links");
    let live = ".deskgate-0000000000000001.tmp";
    write(&at(live), "half");
    let lock = std::fs::File::open(at(live)).expect("opens");
    flock(&lock, FlockOperation::LockExclusive).expect("locks");
    symlink("../out/secret.txt", at(".deskgate-0000000000000003.tmp")).expect("links");
    write(&at(".deskgate-0000000000000004.tmp/.deskgate-0000000000000005.tmp"), "deep");
    for other in [
        ".deskgate-0123.tmp",
        ".deskgate-0123456789ABCDEF.tmp",
        ".deskgate-0123456789abcdef.tmp.txt",
        "x.deskgate-0123456789abcdef.tmp",
        ".deskgate-0123456789abcdeg.tmp",
    ] {
        write(&at(other), "theirs");
    }
    let (before, outside) = (tree(&inside), tree(&place.path().join("out")));
    ok(&inside, "Write", json!({ "file_path": "new.txt", "content": "new" })).await;
    let mut expected = before;
    expected.retain(|(name, _)| *name != at(left).to_string_lossy() && *name != at(linked).to_string_lossy());
    expected.push((at("new.txt").to_string_lossy().into_owned(), b"new".to_vec()));
    expected.sort();
    assert_eq!(tree(&inside), expected);
    assert_eq!(tree(&place.path().join("out")), outside);
    // The process that held the lock is gone.
    drop(lock);
    ok(&inside, "Write", json!({ "file_path": "newer.txt", "content": "new" })).await;
    assert!(!at(live).exists());
}

#[tokio::test]
async fn two_agents_that_change_the_same_directory_take_nothing_from_each_other() {
    let place = place();
    let inside = place.path().join("in");
    let (one, other) = (toolbox(&inside), toolbox(&inside));
    for round in 0..100 {
        let write = |toolbox: &Toolbox, who: &str| {
            let arguments = json!({ "file_path": format!("{who}-{round}.txt"), "content": "new" });
            tokio::spawn(toolbox.call("Write", arguments, CancellationToken::new()))
        };
        for call in [write(&one, "one"), write(&other, "other")] {
            let output = call.await.expect("no panic").expect("stands");
            assert!(!output.is_error, "{}", output.text);
        }
    }
    assert_eq!(tree(&inside).len(), 200);
}
