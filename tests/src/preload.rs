//! Makes the system report another time of day to a program, fail or delay every sync, and read some files slowly. A small
//! preloaded library (`told.c`) does it; it reads a file at each call, so the values can change while the program runs.

use std::fs::{File, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

const SHIM_SOURCE: &str = include_str!("told.c");
/// Offsets of its numbers, eight bytes each.
const CLOCK_OFFSET_POS: u64 = 0;
const SYNC_FAILURE_POS: u64 = 8;
const OVERRIDE_COUNT_POS: u64 = 16;
const SLOW_READ_POS: u64 = 24;
const SLOW_SYNC_POS: u64 = 32;
/// The length of all numbers, in bytes.
const NUMBERS_BYTES: usize = 40;

/// The overrides for the programs that are started with it; at first there are none.
#[derive(Debug)]
pub struct PreloadShim {
    folder: TempDir,
    file: File,
}

impl PreloadShim {
    /// Builds the library, without overrides.
    pub fn new() -> Self {
        let folder = TempDir::with_prefix("deskgate-told-").expect("a temporary folder");
        // Also readable for a server that runs as another user.
        std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("ours");
        let (source, library) = (folder.path().join("told.c"), folder.path().join("told.so"));
        std::fs::write(&source, SHIM_SOURCE).expect("written");
        let mut compiler = Command::new("cc");
        compiler.args(["-O2", "-shared", "-fPIC", "-o"]).arg(&library).arg(&source);
        let output = compiler.output().expect("a C compiler");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let file = folder.path().join("says");
        let file =
            File::options().create(true).truncate(true).read(true).write(true).open(file).expect("a fresh folder");
        file.write_all_at(&[0; NUMBERS_BYTES], 0).expect("written");
        file.set_permissions(Permissions::from_mode(0o666)).expect("ours");
        Self { folder, file }
    }

    /// The environment variables of a program that loads it.
    pub fn environment(&self) -> Vec<(String, String)> {
        let path = |name: &str| self.folder.path().join(name).display().to_string();
        vec![("LD_PRELOAD".to_owned(), path("told.so")), ("TOLD".to_owned(), path("says"))]
    }

    /// A folder with wrappers that start the programs beside this one with the library.
    pub fn programs_beside(&self, program: &Path) -> PathBuf {
        let folder = self.folder.path().join("bin");
        std::fs::create_dir(&folder).expect("once");
        let variables: Vec<_> = self.environment().iter().map(|(name, value)| format!("{name}='{value}'")).collect();
        for entry in std::fs::read_dir(program.parent().expect("a program is in a folder")).expect("it is there") {
            let entry = entry.expect("it is there");
            let begins = format!("#!/bin/sh\nexec env {} '{}' \"$@\"\n", variables.join(" "), entry.path().display());
            let own = folder.join(entry.file_name());
            std::fs::write(&own, begins).expect("written");
            std::fs::set_permissions(&own, Permissions::from_mode(0o755)).expect("ours");
        }
        folder
    }

    /// Shifts the time of day by this many seconds from now on.
    pub fn set_clock_offset(&self, seconds: i64) {
        self.write(CLOCK_OFFSET_POS, seconds);
    }

    /// Makes every sync of a file fail with EIO from now on, or work again.
    pub fn set_sync_failure(&self, fails: bool) {
        self.write(SYNC_FAILURE_POS, i64::from(fails));
    }

    /// Makes each read of a file whose name begins with `slow-` take this long from now on, as on a network folder.
    pub fn set_slow_read(&self, milliseconds: u32) {
        self.write(SLOW_READ_POS, milliseconds.into());
    }

    /// Makes each sync of a file take this much longer from now on.
    pub fn set_slow_sync(&self, milliseconds: u32) {
        self.write(SLOW_SYNC_POS, milliseconds.into());
    }

    /// How often an override was applied.
    pub fn override_count(&self) -> i64 {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, OVERRIDE_COUNT_POS).expect("it is as long");
        i64::from_ne_bytes(bytes)
    }

    fn write(&self, at: u64, number: i64) {
        self.file.write_all_at(&number.to_ne_bytes(), at).expect("ours");
    }
}

impl Default for PreloadShim {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(told: &PreloadShim, program: &str, arguments: &[&str]) -> std::process::Output {
        let mut command = Command::new(program);
        command.args(arguments).envs(told.environment()).output().expect("coreutils are there")
    }

    #[test]
    fn a_program_believes_another_day_and_that_nothing_can_be_made_durable() {
        let (told, file) = (PreloadShim::new(), tempfile::NamedTempFile::new().expect("a file"));
        let file = file.path().to_str().expect("a plain name");
        let days = |told: &PreloadShim| {
            let seconds = String::from_utf8(says(told, "date", &["+%s"]).stdout).expect("digits");
            seconds.trim().parse::<u64>().expect("a number") / 86_400
        };
        let today = days(&told);
        assert!(says(&told, "sync", &[file]).status.success());
        assert_eq!(told.override_count(), 0, "nothing but the truth");
        told.set_clock_offset(-1000 * 86_400);
        assert!(days(&told).abs_diff(today - 1000) <= 1);
        told.set_slow_sync(300);
        let began = std::time::Instant::now();
        assert!(says(&told, "sync", &[file]).status.success());
        assert!(began.elapsed() >= std::time::Duration::from_millis(300), "{:?}", began.elapsed());
        told.set_sync_failure(true);
        assert!(!says(&told, "sync", &[file]).status.success());
        assert!(told.override_count() >= 2);
    }
}
