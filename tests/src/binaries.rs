//! The programs under test, built from the sources as they are.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// `deskgate-gateway`.
pub fn gateway() -> PathBuf {
    folder().join("deskgate-gateway")
}

/// `deskgate`.
pub fn agent() -> PathBuf {
    folder().join("deskgate")
}

/// A copy of a program that reports another version: the same binary, with that number in place of its own. Both
/// numbers have the same length.
pub fn of_version(program: &Path, version: &str) -> PathBuf {
    let own = deskgate_protocol::VERSION;
    assert_eq!(own.len(), version.len(), "{version} does not fit in the place of {own}");
    let name = program.file_name().expect("a program").to_str().expect("a plain name");
    let copies = program.with_file_name("versions");
    let (copy, partial) =
        (copies.join(format!("{name}-{version}")), copies.join(format!("{name}-{version}.{}", std::process::id())));
    let modified = |path: &Path| std::fs::metadata(path).and_then(|file| file.modified());
    let is_new = modified(&copy).is_ok_and(|copied| modified(program).is_ok_and(|built| copied > built));
    if !is_new {
        let mut bytes = std::fs::read(program).expect("built");
        let mut places = 0;
        for at in 0..bytes.len() - own.len() {
            if bytes[at..].starts_with(own.as_bytes()) {
                bytes[at..at + own.len()].copy_from_slice(version.as_bytes());
                places += 1;
            }
        }
        assert!(places > 0, "{name} does not say that it is {own}");
        std::fs::create_dir_all(&copies).expect("writable");
        std::fs::write(&partial, bytes).expect("writable");
        std::fs::set_permissions(&partial, std::fs::metadata(program).expect("built").permissions()).expect("ours");
        std::fs::rename(&partial, &copy).expect("the same folder");
    }
    copy
}

/// The folder of the programs: beside the asking program, or the folder of the test's own binary. Under cargo they are
/// built first, so that tests never use outdated programs; `DESKGATE_PROGRAMS_ARE_BUILT` means that this was done for
/// all tests.
fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let own = std::env::current_exe().expect("a running program has a path");
        let folder = own.parent().expect("a program is in a folder");
        let folder = if folder.ends_with("deps") { folder.parent().expect("target/<profile>/deps") } else { folder };
        let folder = folder.to_owned();
        let are_built = std::env::var_os("DESKGATE_PROGRAMS_ARE_BUILT").is_some();
        if let Some(cargo) = std::env::var_os("CARGO").filter(|_| !are_built) {
            let profile = folder.file_name().and_then(|name| name.to_str()).unwrap_or("debug");
            build(Path::new(&cargo), profile);
        }
        for name in ["deskgate-gateway", "deskgate"] {
            assert!(folder.join(name).is_file(), "{name} is missing in {}: run cargo build", folder.display());
        }
        folder
    })
}

fn build(cargo: &Path, profile: &str) {
    // Of this profile alone the folder has another name.
    let profile = if profile == "debug" { "dev" } else { profile };
    let mut command = Command::new(cargo);
    command.args(["build", "--workspace", "--bins", "--quiet", "--profile", profile]);
    command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    // Cargo's variables about this package would make some dependencies build again.
    let of_this_package = |name: &str| {
        ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_"].iter().any(|p| name.starts_with(p))
    };
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(of_this_package)) {
        command.env_remove(name);
    }
    assert!(command.status().expect("cargo runs").success(), "the programs under test do not build");
}
