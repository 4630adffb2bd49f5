//! A small disk for one folder, which a test can fill.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::netns::run;

/// The file that fills it.
const FILLER_FILE: &str = "filler";
/// Sizes of single writes, as long as they fit.
const BLOCK_BYTES: [usize; 2] = [64 * 1024, 4096];

/// A file system in memory, mounted over a folder on an island. The folder's content is copied onto it, and copied back
/// at the end. The folder must be unused while it is mounted and unmounted.
#[derive(Debug)]
pub struct Disk {
    folder: PathBuf,
    /// The folder in which it is prepared and taken down.
    beside: PathBuf,
    is_there: bool,
}

impl Disk {
    /// Mounts one over a folder, with this many KiB more than its content needs.
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

    /// Fills it, also what has become free since. Returns the number of bytes.
    pub fn fill(&self) -> u64 {
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(self.folder.join(FILLER_FILE));
        // If another name does not fit, the disk is full.
        let Ok(mut file) = file else { return 0 };
        let mut filled = 0;
        for block in BLOCK_BYTES {
            while let Ok(written @ 1..) = file.write(&vec![0; block]) {
                filled += written as u64;
            }
        }
        filled
    }

    /// Fills it until no more than this many bytes are left.
    pub fn leave(&self, bytes: u64) {
        let disk = rustix::fs::statvfs(&self.folder).expect("it is mounted");
        let taken = (disk.f_bavail * disk.f_frsize).saturating_sub(bytes);
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(self.folder.join(FILLER_FILE));
        let file = file.expect("there is room for a name");
        rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, taken).expect("there is room for it");
    }

    /// Frees space again.
    pub fn free(&self) {
        match std::fs::remove_file(self.folder.join(FILLER_FILE)) {
            Err(error) if error.kind() != ErrorKind::NotFound => panic!("{}: {error}", self.folder.display()),
            _ => {}
        }
    }

    /// Unmounts it. Its content is copied to the folder.
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
    /// On an early exit the content of the disk is lost.
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

/// Copies files with owners, rights and times.
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
