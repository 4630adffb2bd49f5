//! The agent's log line by line while it is written, redacted.
//!
//! The file is emptied when the agent starts with a large one, shortened when old lines are forgotten, and may be moved away
//! by the system's log rotation. A reader of its lines misses none and sees none twice.

use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use deskgate_program::redaction::redact;
use deskgate_program::visible;

use super::log::MAX_SCANNED_BYTES;

/// Reads a log as it grows.
#[derive(Debug)]
pub struct LogFollower {
    path: PathBuf,
    /// A line is shown if it has all of these.
    wanted: Vec<String>,
    log: Option<OpenLog>,
}

/// A log file, and how far it was read.
#[derive(Debug)]
struct OpenLog {
    file: File,
    /// After the last whole line that was read.
    at: u64,
    /// That line, by which the place is found again in a file that was shortened.
    last: Vec<u8>,
}

impl LogFollower {
    /// A reader of the lines that contain all of these texts.
    pub fn new(path: PathBuf, wanted: Vec<String>) -> Self {
        Self { path, wanted, log: None }
    }

    /// The last lines that there are; those that come later are [`Self::new_lines`]. `None`: there is no log.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn last_lines(&mut self, count: usize) -> io::Result<Option<Vec<String>>> {
        let Some(mut log) = OpenLog::open(&self.path)? else { return Ok(None) };
        log.at = log.file.metadata()?.len().saturating_sub(MAX_SCANNED_BYTES);
        let is_cut = log.at > 0;
        let mut raw = log.read()?;
        raw.drain(..raw.len().min(usize::from(is_cut)));
        self.log = Some(log);
        let mut lines = self.shown(&raw);
        lines.drain(..lines.len().saturating_sub(count));
        Ok(Some(lines))
    }

    /// What was written since, at most some hundred kilobytes; empty if nothing was.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn new_lines(&mut self) -> io::Result<Vec<String>> {
        if let Some(log) = &mut self.log {
            log.find_place()?;
            let raw = log.read()?;
            // A file that was moved away is read to its end before the one in its place.
            if !raw.is_empty() || log.is_at(&self.path)? {
                return Ok(self.shown(&raw));
            }
        }
        let Some(mut log) = OpenLog::open(&self.path)? else { return Ok(Vec::new()) };
        let raw = log.read()?;
        self.log = Some(log);
        Ok(self.shown(&raw))
    }

    fn shown(&self, raw: &[Vec<u8>]) -> Vec<String> {
        let lines = raw.iter().map(|line| redact(String::from_utf8_lossy(line).trim_end_matches('\n')));
        let is_wanted = |line: &String| self.wanted.iter().all(|text| line.contains(text));
        lines.filter(is_wanted).map(|line| visible::line(&line)).collect()
    }
}

impl OpenLog {
    fn open(path: &Path) -> io::Result<Option<Self>> {
        match File::open(path) {
            Ok(file) => Ok(Some(Self { file, at: 0, last: Vec::new() })),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether it is still the file of this name, or nothing has taken its place yet.
    fn is_at(&self, path: &Path) -> io::Result<bool> {
        let own = self.file.metadata()?;
        match std::fs::metadata(path) {
            Ok(there) => Ok((there.dev(), there.ino()) == (own.dev(), own.ino())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// The next whole lines.
    fn read(&mut self) -> io::Result<Vec<Vec<u8>>> {
        self.file.seek(SeekFrom::Start(self.at))?;
        let mut bytes = Vec::new();
        (&mut self.file).take(MAX_SCANNED_BYTES).read_to_end(&mut bytes)?;
        let whole = match bytes.iter().rposition(|byte| *byte == b'\n') {
            Some(end) => end + 1,
            // A line without an end must not stop everything behind it.
            None if bytes.len() as u64 == MAX_SCANNED_BYTES => bytes.len(),
            None => 0,
        };
        let lines: Vec<_> = bytes[..whole].split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
        self.at += whole as u64;
        if let Some(line) = lines.last() {
            self.last.clone_from(line);
        }
        Ok(lines)
    }

    /// Goes to where the last line stands now, if the file was shortened: to its beginning if that line is gone.
    fn find_place(&mut self) -> io::Result<()> {
        let length = self.file.metadata()?.len();
        // Between being emptied and written anew there is nothing to say where it goes on.
        if length == 0 || self.is_in_place(length)? {
            return Ok(());
        }
        self.file.seek(SeekFrom::Start(0))?;
        let (mut reader, mut line, mut end, mut place) = (BufReader::new(&mut self.file), Vec::new(), 0, 0);
        while reader.read_until(b'\n', &mut line)? > 0 {
            end += line.len() as u64;
            if line == self.last {
                place = end;
            }
            line.clear();
        }
        self.at = place;
        if place == 0 {
            self.last.clear();
        }
        Ok(())
    }

    fn is_in_place(&mut self, length: u64) -> io::Result<bool> {
        let Some(begin) = self.at.checked_sub(self.last.len() as u64).filter(|_| self.at <= length) else {
            return Ok(false);
        };
        self.file.seek(SeekFrom::Start(begin))?;
        let mut there = vec![0; self.last.len()];
        match self.file.read_exact(&mut there) {
            Ok(()) => Ok(there == self.last),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::io::Write;

    use super::super::log::forget_before;
    use super::*;

    const RUN: &str = "run_019ab3c4d5e67f8091a2b3c4d5e6f708";

    struct Written {
        folder: tempfile::TempDir,
        writer: File,
    }

    impl Written {
        fn new() -> Self {
            let folder = tempfile::tempdir().expect("a folder");
            let writer = appending(&folder.path().join("agent.log"));
            Self { folder, writer }
        }

        fn path(&self) -> PathBuf {
            self.folder.path().join("agent.log")
        }

        fn write(&mut self, text: &str) {
            self.writer.write_all(text.as_bytes()).expect("written");
        }
    }

    fn appending(path: &Path) -> File {
        OpenOptions::new().create(true).append(true).open(path).expect("ours")
    }

    fn new_lines(log: &mut LogFollower) -> Vec<String> {
        log.new_lines().expect("readable")
    }

    #[test]
    fn each_whole_line_comes_once_without_secrets_and_only_if_it_is_wanted() {
        let mut written = Written::new();
        written.write(&format!("one\ntwo run_id={RUN}\nthree\n"));
        let mut all = LogFollower::new(written.path(), Vec::new());
        let mut of_run = LogFollower::new(written.path(), vec![RUN.to_owned(), "WARN".to_owned()]);
        assert_eq!(all.last_lines(2).expect("readable"), Some(vec![format!("two run_id={RUN}"), "three".to_owned()]));
        assert_eq!(of_run.last_lines(9).expect("readable"), Some(vec![]));
        assert_eq!(new_lines(&mut all), [""; 0]);
        written.write(&format!("key dgk_0123456789 WARN\x1b[2K run_id={RUN}\nhal"));
        let clean = format!("key [removed] WARN<U+001B>[2K run_id={RUN}");
        assert_eq!((new_lines(&mut all), new_lines(&mut of_run)), (vec![clean.clone()], vec![clean]));
        written.write("f\n");
        assert_eq!((new_lines(&mut all), new_lines(&mut of_run)), (vec!["half".to_owned()], vec![]));
        assert_eq!(new_lines(&mut all), [""; 0]);
    }

    #[test]
    fn no_line_is_missed_or_comes_twice_when_the_file_is_shortened_emptied_or_moved_away() {
        let mut written = Written::new();
        written.write("2026-02-01T10:00:00Z old\n2026-03-01T10:00:00Z one\n");
        let mut log = LogFollower::new(written.path(), Vec::new());
        log.last_lines(0).expect("readable");
        forget_before(&written.path(), "2026-02-15T00:00:00Z".parse().expect("a time")).expect("ours");
        assert_eq!(new_lines(&mut log), [""; 0], "what is left was shown");
        written.write("2026-03-01T10:00:01Z two\n");
        assert_eq!(new_lines(&mut log), ["2026-03-01T10:00:01Z two"]);

        written.writer.set_len(0).expect("ours");
        assert_eq!(new_lines(&mut log), [""; 0]);
        written.write("a new beginning that is longer than all that was there before, whatever that was, by far\n");
        assert_eq!(new_lines(&mut log).len(), 1, "also if it is longer than before");

        std::fs::rename(written.path(), written.folder.path().join("agent.log.1")).expect("moved");
        written.write("the last of the old file\n");
        assert_eq!(new_lines(&mut log), ["the last of the old file"]);
        assert_eq!(new_lines(&mut log), [""; 0], "nothing has taken its place");
        written.writer = appending(&written.path());
        written.write("the first of the new one\n");
        assert_eq!(new_lines(&mut log), ["the first of the new one"]);
        assert_eq!(new_lines(&mut log), [""; 0]);
    }

    #[test]
    fn a_log_that_is_not_there_yet_is_waited_for_and_of_a_long_one_only_whole_lines_are_shown() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("agent.log");
        let mut log = LogFollower::new(path.clone(), Vec::new());
        assert_eq!(log.last_lines(5).expect("no error"), None);
        assert_eq!(new_lines(&mut log), [""; 0]);
        let line = format!("{}x\n", "x ".repeat(499));
        std::fs::write(&path, line.repeat(2000)).expect("written");
        assert!(new_lines(&mut log).iter().all(|shown| shown.len() == 999));
        let mut late = LogFollower::new(path, Vec::new());
        let lines = late.last_lines(usize::MAX).expect("readable").expect("there");
        assert!(lines.len() > 500 && lines.iter().all(|shown| shown.len() == 999), "{}", lines.len());
    }
}
