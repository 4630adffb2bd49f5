//! The bugs that `make faults-self-test` plants: each can be planted into the sources as they are, and says how it is found.

use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the workspace")
}

fn bugs() -> Vec<PathBuf> {
    let folder = std::fs::read_dir(root().join("tests/planted")).expect("the folder of bugs");
    let mut bugs: Vec<_> = folder.map(|entry| entry.expect("it is there").path()).collect();
    bugs.retain(|file| file.extension().is_some_and(|ending| ending == "patch"));
    bugs.sort();
    bugs
}

#[test]
fn every_planted_bug_fits_the_sources() {
    let root = root();
    let bugs = bugs();
    assert!(bugs.len() >= 10, "{bugs:?}");
    for bug in bugs {
        let mut git = Command::new("git");
        // The sources may have been exported into a folder of some other repository.
        git.args(["apply", "--check"]).arg(&bug).current_dir(&root);
        git.env("GIT_CEILING_DIRECTORIES", root.parent().expect("not the root of everything"));
        let output = git.output().expect("git is installed");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{}: {said}", bug.display());
    }
}

#[test]
fn every_planted_bug_says_by_what_it_is_found() {
    let checks =
        std::fs::read_to_string(root().join("tests/harness/src/bin/faults/check/mod.rs")).expect("the checker");
    for bug in bugs() {
        let text = std::fs::read_to_string(&bug).expect("readable");
        let (head, _) = text.split_once("\ndiff ").expect("a patch with a head");
        let line = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        let wanted = line("Caught by").unwrap_or_else(|| panic!("{}: by what?", bug.display()));
        assert!(checks.contains(&format!("(\"{wanted}\", ")), "{}: {wanted} is not judged", bug.display());
        let faults: usize = line("Faults").and_then(|number| number.parse().ok()).expect("how many faults");
        assert_eq!(faults > 0, line("Kinds").is_some(), "{}: faults have kinds", bug.display());
    }
}
