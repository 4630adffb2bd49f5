//! The server's log: a file of limited size, and its last lines for error messages.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, PipeReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// When the file is this long it becomes the one earlier file that is kept.
const MAX_FILE_BYTES: u64 = 1024 * 1024;
/// A line longer than this is written in pieces.
const MAX_LINE_BYTES: u64 = 8 * 1024;
const ERROR_LINES: usize = 20;

/// Copies the server's output into the log file until all its processes have ended, and returns the last lines. The
/// file is best effort: a full disk must not stop the database.
pub(super) fn copy(from: PipeReader, path: &Path) -> Vec<String> {
    let mut from = BufReader::new(from);
    let mut file = LogFile::open(path);
    let mut last = VecDeque::with_capacity(ERROR_LINES);
    let mut line = Vec::new();
    loop {
        line.clear();
        match from.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return last.into(),
            Ok(_) => {}
        }
        file.write(&line);
        if last.len() == ERROR_LINES {
            last.pop_front();
        }
        last.push_back(String::from_utf8_lossy(&line).trim_end().to_owned());
    }
}

struct LogFile {
    path: PathBuf,
    file: Option<File>,
    length: u64,
}

impl LogFile {
    fn open(path: &Path) -> Self {
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path).ok();
        let length = file.as_ref().and_then(|file| file.metadata().ok()).map_or(0, |data| data.len());
        Self { path: path.to_owned(), file, length }
    }

    fn write(&mut self, line: &[u8]) {
        if self.length >= MAX_FILE_BYTES {
            let mut earlier = self.path.clone().into_os_string();
            earlier.push(".1");
            // If it cannot be renamed it is truncated instead: the limit matters more than the old lines.
            if std::fs::rename(&self.path, earlier).is_err() {
                let _ = self.file.as_ref().map(|file| file.set_len(0));
            }
            *self = Self::open(&self.path);
        }
        if let Some(file) = &mut self.file
            && file.write_all(line).is_ok()
        {
            self.length += line.len() as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_stays_bounded_and_the_last_lines_are_kept() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("postgres.log");
        let (reader, mut writer) = std::io::pipe().expect("pipe");
        let copier = std::thread::spawn({
            let path = path.clone();
            move || copy(reader, &path)
        });
        let endless_line = "x".repeat(100_000);
        for number in 0..40 {
            writeln!(writer, "{number} {endless_line}").expect("read by the copier");
        }
        writeln!(writer, "the end").expect("read by the copier");
        drop(writer);
        let last = copier.join().expect("no panic");
        assert_eq!(last.len(), ERROR_LINES);
        assert_eq!(last.last().map(String::as_str), Some("the end"));
        let total: u64 = std::fs::read_dir(dir.path())
            .expect("there")
            .map(|entry| entry.expect("there").metadata().expect("there").len())
            .sum();
        assert!((MAX_FILE_BYTES..=2 * (MAX_FILE_BYTES + MAX_LINE_BYTES)).contains(&total), "{total}");
    }
}
