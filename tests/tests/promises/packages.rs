//! The Debian packages: documentation whose links lead somewhere, small programs, and their symbols beside them.

use std::path::{Path, PathBuf};
use std::process::Command;

use deskgate_tests::binaries;
use tempfile::TempDir;

fn said(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().expect("it is installed");
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a plain name")
}

/// The packages of the programs that the tests run, unpacked into a folder each, and the list of their sizes.
fn unpacked(folder: &Path) -> (Vec<PathBuf>, String) {
    let programs = binaries::gateway().parent().expect("a folder").to_owned();
    std::os::unix::fs::symlink(&programs, folder.join("debug")).expect("a fresh folder");
    let mut making = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/deb"));
    let made = making.arg("debug").env("CARGO_TARGET_DIR", folder).output().expect("bash is there");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let roots = ["deskgate-gateway", "deskgate-gateway-dbgsym", "deskgate", "deskgate-dbgsym"].map(|package| {
        let root = folder.join(package);
        let files: Vec<_> =
            std::fs::read_dir(folder.join("deb")).expect("made").map(|file| file.expect("one").path()).collect();
        let begins = format!("{package}_");
        let file =
            files.iter().find(|file| file.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&begins)));
        said("dpkg-deb", &["--extract", text(file.expect("it was made")), text(&root)]);
        root
    });
    (roots.into(), std::fs::read_to_string(folder.join("deb/SIZES")).expect("told"))
}

/// The pages below a folder.
fn pages(folder: &Path) -> Vec<PathBuf> {
    let listed = said("find", &[text(folder), "-name", "*.md"]);
    listed.lines().map(PathBuf::from).collect()
}

/// What a page links to beside it, outside of its examples.
fn links(page: &str) -> Vec<&str> {
    let prose = page.split("```").step_by(2).flat_map(|part| part.split('`').step_by(2));
    let targets = prose.flat_map(|part| part.split("](").skip(1)).filter_map(|rest| rest.split_once(')'));
    let files = targets.filter_map(|(target, _)| target.split('#').next());
    files.filter(|file| !file.is_empty() && !file.contains(':')).collect()
}

#[test]
fn packages_have_the_pages_that_they_link_to_and_their_symbols_in_packages_of_their_own() {
    let folder = TempDir::new().expect("a folder");
    let (roots, sizes) = unpacked(folder.path());
    for (package, program) in [(0, "deskgate-gateway"), (2, "deskgate")] {
        let (root, symbols) = (&roots[package], &roots[package + 1]);
        assert_eq!(sizes.lines().filter(|line| line.starts_with(&format!("{program} "))).count(), 1, "{sizes}");
        let pages = pages(&root.join("usr/share/doc"));
        assert!(pages.iter().any(|page| page.ends_with("docs/server.md")), "{pages:?}");
        for page in &pages {
            for link in links(&std::fs::read_to_string(page).expect("text")) {
                let target = page.parent().expect("a folder").join(link);
                assert!(target.exists(), "{} links to {link}", page.display());
            }
        }
        let installed = root.join("usr/bin").join(program);
        assert!(said(text(&installed), &["--version"]).starts_with(program));
        assert!(said("nm", &[text(&installed)]).contains("no symbols"));
        let id = said("readelf", &["-n", text(&installed)]);
        let id = id.split_once("Build ID: ").expect("one").1.split_whitespace().next().expect("a number");
        let beside = symbols.join(format!("usr/lib/debug/.build-id/{}/{}.debug", &id[..2], &id[2..]));
        assert!(said("nm", &[text(&beside)]).contains(" T main"), "{}", beside.display());
    }
}
