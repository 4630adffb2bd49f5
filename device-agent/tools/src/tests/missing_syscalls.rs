//! File systems with fewer operations: each test runs itself again where the kernel refuses these operations.
//!
//! A filter of system calls answers as the kernel does for such a file system. The tools do not know of it.

use std::os::fd::AsFd;
use std::process::Command;

use rustix::fs::{CWD, RenameFlags};
use rustix::io::Errno;
use serde_json::json;

use super::*;
use crate::engine::access::AccessError;
use crate::engine::replace;

/// A system call, the argument that must not be zero for it to be refused, and the error.
type MissingSyscall = (i64, Option<u32>, Errno);

const RENAME_IF_FREE: MissingSyscall = (libc::SYS_renameat2, Some(4), Errno::INVAL);
const HARD_LINKS: MissingSyscall = (libc::SYS_linkat, None, Errno::PERM);
const NEW_ATTRIBUTES: MissingSyscall = (libc::SYS_fsetxattr, None, Errno::NOSPC);
const ATTRIBUTES: [MissingSyscall; 3] = [
    (libc::SYS_flistxattr, None, Errno::OPNOTSUPP),
    (libc::SYS_fremovexattr, None, Errno::OPNOTSUPP),
    (libc::SYS_fsetxattr, None, Errno::OPNOTSUPP),
];

/// The filter in the form that the kernel reads.
fn filter(lacking: &[MissingSyscall]) -> Vec<u8> {
    const LOAD: u16 = 0x20;
    const JUMP_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    const FIRST_ARGUMENT: u32 = 16;
    let mut steps: Vec<(u16, u8, u8, u32)> = Vec::new();
    for (call, argument, errno) in lacking {
        let number = u32::try_from(*call).expect("small");
        steps.extend([(LOAD, 0, 0, 0), (JUMP_EQUAL, 0, if argument.is_some() { 3 } else { 1 }, number)]);
        if let Some(argument) = argument {
            steps.extend([(LOAD, 0, 0, FIRST_ARGUMENT + 8 * argument), (JUMP_EQUAL, 1, 0, 0)]);
        }
        steps.push((RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | errno.raw_os_error().unsigned_abs()));
    }
    steps.push((RETURN, 0, 0, libc::SECCOMP_RET_ALLOW));
    let bytes = |(code, yes, no, value): (u16, u8, u8, u32)| {
        [&code.to_ne_bytes()[..], &[yes, no], &value.to_ne_bytes()].concat()
    };
    steps.into_iter().flat_map(bytes).collect()
}

/// Runs the inner test of this module where these calls are refused.
fn without(lacking: &[MissingSyscall], inner: &str, place: &Path) {
    write(&place.join("filter"), filter(lacking));
    let test = format!("tests::missing_syscalls::{inner}");
    let script =
        "exec bwrap --dev-bind / / --seccomp 3 \"$0\" --exact \"$1\" --ignored --nocapture 3< \"$PLACE/filter\"";
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(std::env::current_exe().expect("known")).arg(test).env("PLACE", place);
    let output = command.output().expect("starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}{}", String::from_utf8_lossy(&output.stderr));
}

fn given() -> std::path::PathBuf {
    std::env::var_os("PLACE").expect("set by the outer test").into()
}

#[test]
fn files_are_created_and_replaced_where_no_rename_spares_what_is_there() {
    without(&[RENAME_IF_FREE], "writing_whatever_the_file_system_can", place().path());
}

#[test]
fn files_are_created_and_replaced_where_there_are_no_hard_links_either() {
    without(&[RENAME_IF_FREE, HARD_LINKS], "writing_whatever_the_file_system_can", place().path());
}

#[tokio::test]
#[ignore = "run by the tests above"]
async fn writing_whatever_the_file_system_can() {
    let inside = given().join("in");
    let rename = rustix::fs::renameat_with(CWD, given().join("a"), CWD, given().join("b"), RenameFlags::NOREPLACE);
    assert_eq!(rename, Err(Errno::INVAL), "the filter holds");
    for path in ["new.txt", "some/deep/new.txt"] {
        ok(&inside, "Write", json!({ "file_path": path, "content": "new\n" })).await;
        let toolbox = toolbox(&inside);
        for (tool, arguments) in [
            ("Read", json!({ "file_path": path })),
            ("Edit", json!({ "file_path": path, "old_string": "new", "new_string": "newer" })),
            ("Write", json!({ "file_path": path, "content": "newest\n" })),
        ] {
            let output = toolbox.call(tool, arguments, CancellationToken::new()).await.expect("stands");
            assert!(!output.is_error, "{tool} {path}: {}", output.text);
        }
        assert_eq!(std::fs::read_to_string(inside.join(path)).expect("there"), "newest\n");
    }
    // The file that was created first stays.
    let directory = std::fs::File::open(&inside).expect("opens");
    let before = tree(&inside);
    let late = replace::create(directory.as_fd(), "new.txt".as_ref(), b"late");
    assert_eq!((late, tree(&inside)), (Err(AccessError::Changed), before));
    for round in 0..50 {
        let name = format!("race-{round}");
        let create = |bytes: &'static [u8]| {
            let (directory, name) = (directory.try_clone().expect("cloned"), name.clone());
            std::thread::spawn(move || replace::create(directory.as_fd(), name.as_ref(), bytes).is_ok())
        };
        let made = [create(b"one"), create(b"two")].map(|thread| thread.join().expect("no panic"));
        let text = std::fs::read(inside.join(&name)).expect("there");
        assert_eq!(made, [text == b"one", text == b"two"], "{text:?}");
    }
    assert!(!tree(&inside).iter().any(|(name, _)| name.ends_with(".tmp")));
}

#[test]
fn a_file_whose_attributes_cannot_be_kept_is_not_changed() {
    let place = place();
    let path = place.path().join("in/a.txt");
    write(&path, "old\n");
    let named = rustix::fs::setxattr(&path, "user.deskgate", b"x", rustix::fs::XattrFlags::empty());
    if named.is_err() {
        println!("SKIPPED: no attributes on this file system");
        return;
    }
    without(&[NEW_ATTRIBUTES], "a_change_is_refused_for_an_attribute", place.path());
}

#[tokio::test]
#[ignore = "run by the test above"]
async fn a_change_is_refused_for_an_attribute() {
    let inside = given().join("in");
    let before = tree(&inside);
    let output = change(&inside).await;
    assert!(output.is_error && output.text.contains("cannot be kept"), "{}", output.text);
    assert_eq!(tree(&inside), before);
}

#[test]
fn a_file_is_changed_where_no_file_has_attributes() {
    let place = place();
    write(&place.path().join("in/a.txt"), "old\n");
    without(&ATTRIBUTES, "a_change_is_made_without_attributes", place.path());
}

#[tokio::test]
#[ignore = "run by the test above"]
async fn a_change_is_made_without_attributes() {
    let output = change(&given().join("in")).await;
    assert!(!output.is_error, "{}", output.text);
}

async fn change(inside: &Path) -> ToolOutput {
    let toolbox = toolbox(inside);
    let call = async |tool: &str, arguments| toolbox.call(tool, arguments, CancellationToken::new()).await;
    call("Read", json!({ "file_path": "a.txt" })).await.expect("stands");
    call("Edit", json!({ "file_path": "a.txt", "old_string": "old", "new_string": "new" })).await.expect("stands")
}
