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

/// Where they are: beside the folder of the test's own program. Under cargo they are brought up to
/// date, so that no test judges yesterday's program; who did so for all tests says it in
/// `DESKGATE_PROGRAMS_ARE_BUILT`.
fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let own = std::env::current_exe().expect("a running program has a path");
        let folder = own.ancestors().nth(2).expect("tests are in target/<profile>/deps").to_owned();
        let are_built = std::env::var_os("DESKGATE_PROGRAMS_ARE_BUILT").is_some();
        if let Some(cargo) = std::env::var_os("CARGO").filter(|_| !are_built) {
            build(Path::new(&cargo), folder.ends_with("release"));
        }
        for name in ["deskgate-gateway", "deskgate"] {
            assert!(folder.join(name).is_file(), "{name} is missing in {}: run cargo build", folder.display());
        }
        folder
    })
}

fn build(cargo: &Path, release: bool) {
    let mut command = Command::new(cargo);
    command.args(["build", "--workspace", "--bins", "--quiet"]).current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    if release {
        command.arg("--release");
    }
    // What cargo told this test about its own package would make some dependencies build anew.
    let of_this_package = |name: &str| {
        ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_"].iter().any(|p| name.starts_with(p))
    };
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(of_this_package)) {
        command.env_remove(name);
    }
    assert!(command.status().expect("cargo runs").success(), "the programs under test do not build");
}
