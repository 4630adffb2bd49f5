//! The end of the agent's log, redacted.
//!
//! The agent writes no secret into its log; this is a second safeguard where the log is shown or sent.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::Path;

use deskgate_program::redaction::redact;
use deskgate_protocol::Timestamp;

use deskgate_program::visible;

/// How many bytes of the log are read.
pub(super) const MAX_SCANNED_BYTES: u64 = 512 * 1024;
/// The length of a timestamp up to its seconds.
const TIMESTAMP_BYTES: usize = "2026-01-31T00:00:00".len();
/// The last lines that contain `filter`, with control characters made visible. Empty if the agent runs in the
/// foreground and logs elsewhere.
pub fn tail(path: &Path, lines: usize, filter: &str) -> Vec<String> {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(MAX_SCANNED_BYTES)))?;
        let mut bytes = Vec::new();
        file.take(MAX_SCANNED_BYTES).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().unwrap_or_default();
    let text = redact(&String::from_utf8_lossy(&bytes));
    let mut last: Vec<_> =
        text.lines().rev().filter(|line| line.contains(filter)).take(lines).map(visible::line).collect();
    last.reverse();
    last
}

/// How many lines the log has, how many of them were written before a moment, and the size of those. A line without a
/// time belongs to the one before it.
pub fn lines_before(path: &Path, moment: Timestamp) -> (u64, u64, u64) {
    // Times are written as RFC 3339 in UTC, which sorts as text does.
    let moment = moment.to_string();
    let (mut all, mut old, mut bytes, mut young) = (0, 0, 0, false);
    let Ok(file) = File::open(path) else { return (0, 0, 0) };
    let mut file = BufReader::new(file);
    let mut line = Vec::new();
    while file.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
        let time = std::str::from_utf8(line.get(..TIMESTAMP_BYTES).unwrap_or_default()).unwrap_or_default();
        young |= time.starts_with("20") && time >= &moment[..TIMESTAMP_BYTES];
        all += 1;
        if !young {
            old += 1;
            bytes += line.len() as u64;
        }
        line.clear();
    }
    (all, old, bytes)
}

/// Deletes the lines that were written before a moment. The agent keeps appending to its log; a line that it writes at
/// the instant of the replacement may be lost.
///
/// # Errors
/// The log cannot be opened for writing, read, or rewritten. If the rewriting fails, younger lines may be lost. A log
/// that cannot be read at first counts as empty.
pub fn forget_before(path: &Path, moment: Timestamp) -> std::io::Result<()> {
    let (_, _, bytes) = lines_before(path, moment);
    if bytes == 0 {
        return Ok(());
    }
    let mut file = OpenOptions::new().read(true).append(true).open(path)?;
    file.seek(SeekFrom::Start(bytes))?;
    let mut rest = Vec::new();
    file.read_to_end(&mut rest)?;
    file.set_len(0)?;
    file.write_all(&rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_are_too_old_go_with_what_belongs_to_them_and_the_writer_goes_on() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("agent.log");
        let moment: Timestamp = "2026-03-01T00:00:00Z".parse().expect("a time");
        assert_eq!(lines_before(&path, moment), (0, 0, 0));
        forget_before(&path, moment).expect("there is none");
        let mut writer = OpenOptions::new().create(true).append(true).open(&path).expect("ours");
        let old = "2026-02-01T10:00:00.5Z  INFO one\nits second line\n";
        let new = "2026-03-01T00:00:00.1Z  INFO two\n2026-02-01T00:00:00Z  INFO by a clock that was set back\n";
        writer.write_all(format!("{old}{new}").as_bytes()).expect("written");
        assert_eq!(lines_before(&path, moment), (4, 2, old.len() as u64));
        forget_before(&path, moment).expect("ours");
        writer.write_all(b"three\n").expect("written");
        assert_eq!(std::fs::read_to_string(&path).expect("readable"), format!("{new}three\n"));
    }

    #[test]
    fn the_last_lines_that_fit_are_shown_as_they_are() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("agent.log");
        assert_eq!(tail(&path, 5, ""), Vec::<String>::new());
        std::fs::write(&path, "INFO one\nWARN two\x1b[2K\nINFO three\nWARN dgk_0123456789\n").expect("written");
        assert_eq!(tail(&path, 2, ""), ["INFO three", "WARN [removed]"]);
        assert_eq!(tail(&path, 5, "WARN"), ["WARN two<U+001B>[2K", "WARN [removed]"]);
    }
}
