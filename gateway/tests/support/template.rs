//! Folders that are made once and then copied. Each test runs in a process of its own, and what takes
//! a second of processor time there takes minutes in all.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use deskgate_gateway::store::cluster::{self, Cluster, ClusterConfig};

/// Puts a prepared data directory where a cluster with this state directory looks for its data. Tests of `initdb`
/// itself do without.
pub(crate) async fn lay_out(state_dir: &Path) {
    let name = format!("postgres-{}", cluster::maker().expect("PostgreSQL is installed"));
    let made = once(&name, async |place| {
        let state = tempfile::tempdir().expect("a temporary directory");
        Cluster::start(ClusterConfig::new(state.path())).await.expect("PostgreSQL starts").stop().await;
        copy(&state.path().join("postgres"), place);
    });
    copy(&made.await, &state_dir.join("postgres"));
}

/// A folder beside the programs under test; the first test that needs it creates it.
pub(crate) async fn once(name: &str, make: impl AsyncFnOnce(&Path)) -> PathBuf {
    let own = std::env::current_exe().expect("a running program has a path");
    let folder = own.ancestors().nth(2).expect("tests are in target/<profile>/deps").join("templates");
    std::fs::create_dir_all(&folder).expect("writable");
    let (whole, partial) = (folder.join(name), folder.join(format!("{name}.partial")));
    if !whole.exists() {
        let lock = File::create(folder.join(format!("{name}.lock"))).expect("writable");
        // The holder may be another task of this thread.
        let lock = tokio::task::spawn_blocking(move || lock.lock().map(|()| lock)).await.expect("no panic");
        let _held = lock.expect("a file system with locks");
        if !whole.exists() {
            let _ = std::fs::remove_dir_all(&partial);
            make(&partial).await;
            std::fs::rename(&partial, &whole).expect("made");
        }
    }
    whole
}

/// Owners and permissions are PostgreSQL's business too.
fn copy(from: &Path, to: &Path) {
    let status = Command::new("cp").args(["--archive", "--reflink=auto"]).args([from, to]).status();
    assert!(status.expect("cp starts").success(), "{} is copied to {}", from.display(), to.display());
}
