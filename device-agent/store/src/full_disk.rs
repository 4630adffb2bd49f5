//! A full disk, tested on a real one: the test runs itself again in a mount namespace of its own.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Store;

#[test]
fn what_happens_on_a_disk_that_somebody_else_filled_is_written_down() {
    let may = Command::new("unshare").args(["--user", "--map-root-user", "--mount", "true"]).status();
    if !may.is_ok_and(|status| status.success()) {
        println!("SKIPPED: this system gives no user namespaces");
        return;
    }
    let place = tempfile::tempdir().expect("a folder");
    let script = "mount -t tmpfs -o size=48m tmpfs \"$PLACE\"; exec \"$0\" --exact full_disk::on_a_full_disk --ignored";
    let program = std::env::current_exe().expect("known");
    let mut inside = Command::new("unshare");
    inside.args(["--user", "--map-root-user", "--mount", "sh", "-e", "-c", script]).arg(program);
    let output = inside.env("PLACE", place.path()).output().expect("starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}{}", String::from_utf8_lossy(&output.stderr));
}

fn fill(place: &Path) {
    let mut filler = std::fs::File::create(place.join("filler")).expect("made");
    for block in [64 * 1024, 4096, 1] {
        while filler.write_all(&vec![0; block]).is_ok() {}
    }
}

#[tokio::test]
#[ignore = "run by what_happens_on_a_disk_that_somebody_else_filled_is_written_down, on a disk of 48 MiB"]
async fn on_a_full_disk() {
    let place = PathBuf::from(std::env::var_os("PLACE").expect("set by the outer test"));
    let store = Store::open(place.join("home/deskgate.db")).await.expect("opens");
    fill(&place);
    assert!(std::fs::write(place.join("more"), [0; 8192]).is_err(), "the disk is full");
    for entry in 0..500 {
        store.settings().set_device_name(&format!("desk {entry}")).await.expect("written");
    }
    assert_eq!(store.settings().device_name().await.expect("readable").as_deref(), Some("desk 499"));
}
