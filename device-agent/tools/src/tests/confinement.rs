//! Ways out of the working directory, one by one. None may show a byte or a name from outside.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;

use serde_json::json;

use super::*;
use crate::engine::workspace::{Workspace, WorkspaceError};

/// A way out: a model's path, and a word that the refusal contains.
async fn no_way_out(inside: &Path, path: &str, because: &str) {
    let told = refused(inside, "Read", json!({ "file_path": path })).await;
    assert!(told.contains(because), "Read {path:?} was refused with {told:?}");
    let arguments = json!({ "pattern": "SECRET", "path": path, "output_mode": "content" });
    let searched = call(inside, "Grep", arguments).await;
    assert!(!searched.text.contains("SECRET"), "Grep {path:?} shows {searched:?}");
    let listed = call(inside, "Glob", json!({ "pattern": "**/*", "path": path })).await;
    assert!(!listed.text.contains("secret"), "Glob {path:?} lists {listed:?}");
}

#[tokio::test]
async fn parents_and_absolute_paths_are_outside() {
    let place = place();
    let inside = place.path().join("in");
    write(&inside.join("sub/a.txt"), "inside\n");
    let absolute = |path: &str| place.path().join(path).to_str().expect("text").to_owned();
    for path in [
        "../out/secret.txt".to_owned(),
        "sub/../../out/secret.txt".to_owned(),
        "./../in/../out/secret.txt".to_owned(),
        absolute("out/secret.txt"),
        absolute("in/../out/secret.txt"),
        // A name that merely begins like the working directory's.
        absolute("in2/secret.txt"),
        "/etc/passwd".to_owned(),
        "..".to_owned(),
        "/".to_owned(),
    ] {
        no_way_out(&inside, &path, "outside").await;
    }
}

#[tokio::test]
async fn a_path_that_stays_inside_is_read_however_it_is_written() {
    let place = place();
    let inside = place.path().join("in");
    write(&inside.join("sub/a.txt"), "inside\n");
    let absolute = inside.join("sub/a.txt");
    for path in ["sub/a.txt", "./sub//a.txt", "sub/../sub/a.txt", absolute.to_str().expect("text")] {
        assert!(ok(&inside, "Read", json!({ "file_path": path })).await.contains("inside"), "{path}");
        let found = ok(&inside, "Grep", json!({ "pattern": "inside", "path": path })).await;
        assert!(found.contains("a.txt"), "{path}");
    }
    for path in ["sub", "./sub/", "sub/../sub", inside.join("sub").to_str().expect("text")] {
        assert_eq!(ok(&inside, "Glob", json!({ "pattern": "*", "path": path })).await, "sub/a.txt");
    }
    let pattern = inside.join("sub/*.txt");
    assert_eq!(ok(&inside, "Glob", json!({ "pattern": pattern })).await, "sub/a.txt");
    let elsewhere = place.path().join("out/*");
    assert!(refused(&inside, "Glob", json!({ "pattern": elsewhere })).await.contains("outside"));
}

#[tokio::test]
async fn a_symlink_that_leaves_the_folder_is_refused() {
    let place = place();
    let inside = place.path().join("in");
    let out = place.path().join("out");
    symlink("../out/secret.txt", inside.join("file")).expect("links");
    symlink(out.join("secret.txt"), inside.join("absolute")).expect("links");
    symlink("../out", inside.join("directory")).expect("links");
    symlink("directory/secret.txt", inside.join("nested")).expect("links");
    symlink("nested", inside.join("twice")).expect("links");
    for path in ["file", "absolute", "directory", "directory/secret.txt", "nested", "twice"] {
        no_way_out(&inside, path, "outside").await;
    }
    // A walk over everything does not follow one of them either.
    let searched = ok(&inside, "Grep", json!({ "pattern": "SECRET" })).await;
    assert_eq!(searched, "(no matches found)");
    assert_eq!(ok(&inside, "Glob", json!({ "pattern": "**/*" })).await, "(no files found)");
}

#[tokio::test]
async fn a_symlink_inside_is_read_when_it_is_relative_and_refused_when_it_is_absolute() {
    let place = place();
    let inside = place.path().join("in");
    write(&inside.join("sub/a.txt"), "inside\n");
    symlink("sub/a.txt", inside.join("relative")).expect("links");
    symlink(inside.join("sub/a.txt"), inside.join("absolute")).expect("links");
    symlink("loop", inside.join("loop")).expect("links");
    symlink("sub", inside.join("directory")).expect("links");
    assert!(ok(&inside, "Read", json!({ "file_path": "relative" })).await.contains("inside"));
    assert!(ok(&inside, "Read", json!({ "file_path": "directory/a.txt" })).await.contains("inside"));
    assert!(refused(&inside, "Read", json!({ "file_path": "absolute" })).await.contains("Absolute symbolic links"));
    assert!(refused(&inside, "Read", json!({ "file_path": "loop" })).await.contains("symbolic link"));
    // A walk begins at real directories only.
    assert!(
        refused(&inside, "Glob", json!({ "pattern": "*", "path": "directory" })).await.contains("Give the real path")
    );
}

#[tokio::test]
async fn links_of_proc_lead_nowhere() {
    let place = place();
    let inside = place.path().join("in");
    let secret = std::fs::File::open(place.path().join("out/secret.txt")).expect("opens");
    let descriptor = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&secret));
    let whole = format!("/proc/self/root{}", place.path().join("out/secret.txt").display());
    symlink(&descriptor, inside.join("descriptor")).expect("links");
    symlink(&whole, inside.join("root")).expect("links");
    symlink(format!("../../../../../../../..{descriptor}"), inside.join("relative")).expect("links");
    for path in [descriptor.as_str(), whole.as_str(), "descriptor", "root", "relative"] {
        no_way_out(&inside, path, "outside").await;
    }
    // Even where /proc itself is the working directory, its magic links are no way out of it.
    let told = refused(Path::new("/proc/self"), "Read", json!({ "file_path": "root/etc/passwd" })).await;
    assert!(told.contains("symbolic link"), "{told}");
    let told = refused(Path::new("/proc/self/fd"), "Read", json!({ "file_path": descriptor.rsplit('/').next() })).await;
    assert!(told.contains("symbolic link"), "{told}");
}

#[tokio::test]
async fn pipes_sockets_and_devices_are_refused_without_waiting() {
    let place = place();
    let inside = place.path().join("in");
    let mode = rustix::fs::Mode::from_raw_mode(0o644);
    rustix::fs::mknodat(rustix::fs::CWD, inside.join("pipe"), rustix::fs::FileType::Fifo, mode, 0).expect("a pipe");
    let _listener = UnixListener::bind(inside.join("socket")).expect("a socket");
    symlink("/dev/zero", inside.join("zero")).expect("links");
    let everything = async {
        no_way_out(&inside, "pipe", "a named pipe").await;
        no_way_out(&inside, "socket", "a socket").await;
        no_way_out(&inside, "zero", "outside").await;
        assert_eq!(ok(&inside, "Grep", json!({ "pattern": "x" })).await, "(no matches found)");
        assert_eq!(ok(&inside, "Glob", json!({ "pattern": "*" })).await, "(no files found)");
        // A device can be inside only where one may be created, as below /dev.
        let told = refused(Path::new("/dev"), "Read", json!({ "file_path": "zero" })).await;
        assert!(told.contains("a device"), "{told}");
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), everything).await.expect("nothing hangs");
}

#[tokio::test]
async fn names_that_no_file_has_are_refused_by_what_is_wrong_with_them() {
    let place = place();
    let inside = place.path().join("in");
    no_way_out(&inside, "a\0../out/secret.txt", "NUL").await;
    no_way_out(&inside, &"a/".repeat(5000), "too long").await;
    no_way_out(&inside, &"a".repeat(10_000), "too long").await;
    no_way_out(&inside, "", "directory").await;
}

#[tokio::test]
async fn names_that_are_not_text_are_shown_on_one_line_and_searched() {
    let place = place();
    let inside = place.path().join("in");
    write(&inside.join(std::ffi::OsStr::from_bytes(b"bad-\xff.txt")), "needle\n");
    write(&inside.join("two\nlines.txt"), "needle\n");
    let found = ok(&inside, "Grep", json!({ "pattern": "needle" })).await;
    assert_eq!(found, "bad-\u{fffd}.txt\ntwo\\nlines.txt");
    let listed = ok(&inside, "Glob", json!({ "pattern": "*.txt" })).await;
    assert_eq!(listed.lines().count(), 2, "{listed}");
}

#[tokio::test]
async fn a_file_that_the_account_may_not_read_says_so() {
    // A write-only file; here the mode applies to the superuser too.
    let (directory, name) = (Path::new("/proc/sys/vm"), "compact_memory");
    for (tool, arguments) in [("Read", json!({ "file_path": name })), ("Grep", json!({ "pattern": "x", "path": name }))]
    {
        let told = refused(directory, tool, arguments).await;
        assert!(told.contains("not readable"), "{tool}: {told}");
    }
}

#[tokio::test]
async fn a_search_says_how_many_files_it_could_not_read() {
    let place = place();
    let inside = place.path().join("in");
    write(&inside.join("closed.txt"), "closed\n");
    std::fs::set_permissions(inside.join("closed.txt"), std::fs::Permissions::from_mode(0o000)).expect("closes");
    let superuser = std::fs::File::open(inside.join("closed.txt")).is_ok();
    let expected = if superuser { "closed.txt" } else { "(no matches found)\n\n(1 files could not be searched)" };
    assert_eq!(ok(&inside, "Grep", json!({ "pattern": "closed" })).await, expected);
}

#[tokio::test]
async fn a_hard_link_is_the_file_itself_and_is_readable() {
    // Documented in `workspace`: the kernel cannot distinguish them, and only tools that write refuse them.
    let place = place();
    let inside = place.path().join("in");
    std::fs::hard_link(place.path().join("out/secret.txt"), inside.join("hard")).expect("links");
    assert!(ok(&inside, "Read", json!({ "file_path": "hard" })).await.contains("SECRET"));
}

#[test]
fn a_working_directory_that_cannot_be_used_is_refused_by_what_is_wrong_with_it() {
    let place = place();
    write(&place.path().join("file"), "");
    let open = |name: &str| {
        let directory = &place.path().join(name);
        Workspace::open(WorkspaceOptions::of(directory, Path::new("/nonexistent"))).expect_err("unusable")
    };
    assert!(matches!(open("missing"), WorkspaceError::Missing));
    assert!(matches!(open("file"), WorkspaceError::NotADirectory));
}

#[tokio::test]
async fn a_removed_working_directory_is_a_failure_and_not_an_empty_folder() {
    let place = place();
    let inside = place.path().join("in");
    let toolbox = toolbox(&inside);
    std::fs::remove_dir(&inside).expect("removes");
    for (tool, arguments) in [
        ("Read", json!({ "file_path": "a" })),
        ("Glob", json!({ "pattern": "*" })),
        ("Glob", json!({ "pattern": "*", "path": "sub" })),
        ("Grep", json!({ "pattern": "x" })),
        ("Grep", json!({ "pattern": "x", "path": "sub" })),
    ] {
        let result = toolbox.call(tool, arguments, CancellationToken::new()).await;
        assert_eq!(result, Err(deskgate_definition::tool::ToolFailure::WorkspaceGone), "{tool}");
    }
}
