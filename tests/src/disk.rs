//! A disk of a folder's own, small enough to be filled.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::netns::run;

/// What fills it, when it is full.
const FILLER_FILE: &str = "filler";
/// Bytes that are written at once, as long as there is room for so many.
const BLOCK_BYTES: [usize; 2] = [64 * 1024, 4096];

/// A file system in memory that lies over a folder, on an island. What was in the folder is on it, and goes back in the end.
/// Nobody may use the folder while it is laid over it, nor while it is taken away.
#[derive(Debug)]
pub struct Disk {
    folder: PathBuf,
    /// Where it is made, and unmade.
    beside: PathBuf,
    is_there: bool,
}

impl Disk {
    /// Lays one over a folder, with room for so many KiB more than what is in there.
    pub fn over(folder: &Path, spare_kib: u64) -> Self {
        let beside = folder.with_file_name(format!("{}-disk", folder.file_name().expect("a folder").to_string_lossy()));
        std::fs::create_dir(&beside).expect("a fresh folder");
        let disk = Self { folder: folder.to_owned(), beside, is_there: true };
        let used = run("du", &["-sk", &text(folder)]);
        let used: u64 = used.split_whitespace().next().and_then(|kib| kib.parse().ok()).expect("a size");
        run("mount", &["-t", "tmpfs", "-o", &format!("size={}k", used + spare_kib), "tmpfs", &text(&disk.beside)]);
        copy(folder, &disk.beside);
        run("mount", &["--move", &text(&disk.beside), &text(folder)]);
        disk
    }

    /// Fills it, also what has become free since. Returns how many bytes that were.
    pub fn fill(&self) -> u64 {
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(self.folder.join(FILLER_FILE));
        // Where there is no room for another name there is none for anything.
        let Ok(mut file) = file else { return 0 };
        let mut filled = 0;
        for block in BLOCK_BYTES {
            while let Ok(written @ 1..) = file.write(&vec![0; block]) {
                filled += written as u64;
            }
        }
        filled
    }

    /// There is room again.
    pub fn free(&self) {
        match std::fs::remove_file(self.folder.join(FILLER_FILE)) {
            Err(error) if error.kind() != ErrorKind::NotFound => panic!("{}: {error}", self.folder.display()),
            _ => {}
        }
    }

    /// Takes it away. What was on it is in the folder.
    pub fn end(mut self) {
        self.free();
        run("mount", &["--move", &text(&self.folder), &text(&self.beside)]);
        for entry in std::fs::read_dir(&self.folder).expect("it is there") {
            let path = entry.expect("it is there").path();
            let removed = if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
            removed.expect("ours");
        }
        copy(&self.beside, &self.folder);
        run("umount", &[&text(&self.beside)]);
        std::fs::remove_dir(&self.beside).expect("it is empty");
        self.is_there = false;
    }
}

impl Drop for Disk {
    /// When everything is cut off: what was on it is lost.
    fn drop(&mut self) {
        if self.is_there {
            for place in [&self.folder, &self.beside] {
                let _ = Command::new("umount").args(["--quiet", "--lazy"]).arg(place).output();
            }
            let _ = std::fs::remove_dir(&self.beside);
        }
    }
}

fn text(path: &Path) -> String {
    path.to_str().expect("a plain name").to_owned()
}

/// Owners, rights and times stay.
fn copy(from: &Path, to: &Path) {
    run("cp", &["-a", &format!("{}/.", text(from)), &text(to)]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netns;

    #[test]
    fn a_full_disk_refuses_and_what_was_on_it_stays() {
        if !netns::is_supported() {
            return;
        }
        netns::run_test("disk::tests::a_full_disk_refuses_and_what_was_on_it_stays", async || {
            let folder = tempfile::tempdir().expect("a folder");
            let path = |name: &str| folder.path().join("home").join(name);
            std::fs::create_dir_all(path("deep")).expect("made");
            std::fs::write(path("deep/old"), "old").expect("room");
            let disk = Disk::over(&folder.path().join("home"), 1024);
            assert_eq!(std::fs::read_to_string(path("deep/old")).expect("it came along"), "old");
            assert!(disk.fill() > 0);
            assert!(std::fs::write(path("new"), "new").is_err());
            disk.free();
            std::fs::write(path("new"), "new").expect("room again");
            std::fs::remove_file(path("deep/old")).expect("it is there");
            disk.end();
            let entries = |name: &str| std::fs::read_dir(path(name)).expect("it is there").count();
            assert_eq!((entries(""), entries("deep")), (2, 0));
            assert_eq!(std::fs::read_to_string(path("new")).expect("it went back"), "new");
        });
    }
}
