//! The matching lines of a search, in the order of their files, whichever thread found them first.
//!
//! At most as many lines are kept as can be shown. Once there are enough, later files are neither kept nor, if the
//! search threads ask first, searched.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use super::output::{MAX_OUTPUT_BYTES, OutputBuffer};

/// Lines of one file: at most as many as can be shown, and one more.
#[derive(Debug, Default)]
pub(crate) struct FileLines {
    lines: Vec<String>,
    bytes: usize,
}

impl FileLines {
    /// Adds a line; `false` once no more can be shown.
    pub(crate) fn push(&mut self, line: String, head: usize) -> bool {
        self.bytes += line.len() + 1;
        self.lines.push(line);
        self.lines.len() <= head && self.bytes <= MAX_OUTPUT_BYTES
    }
}

/// The results of all threads of one call.
#[derive(Debug)]
pub(crate) struct LineHits {
    head: usize,
    /// Whether as much is kept as can be shown.
    full: AtomicBool,
    found: Mutex<CollectedLines>,
}

#[derive(Debug, Default)]
struct CollectedLines {
    files: BTreeMap<PathBuf, FileLines>,
    lines: usize,
    bytes: usize,
}

/// Whether there is more than can be shown.
fn is_full(lines: usize, bytes: usize, head: usize) -> bool {
    lines > head || bytes > MAX_OUTPUT_BYTES
}

impl LineHits {
    /// Keeps at most `head` lines.
    pub(crate) fn new(head: usize) -> Self {
        Self { head, full: AtomicBool::new(false), found: Mutex::default() }
    }

    /// How many lines are shown at most.
    pub(crate) fn head(&self) -> usize {
        self.head
    }

    /// Whether lines of this file, or of files below this directory, could still be shown.
    pub(crate) fn wants(&self, path: &Path) -> bool {
        !self.full.load(Ordering::Relaxed)
            || self.lock().files.last_key_value().is_some_and(|(last, _)| path < last.as_path())
    }

    /// Adds the lines of one file.
    pub(crate) fn add(&self, path: &Path, found: FileLines) {
        if found.lines.is_empty() {
            return;
        }
        let mut kept = self.lock();
        kept.lines += found.lines.len();
        kept.bytes += found.bytes;
        kept.files.insert(path.to_owned(), found);
        while let Some(last) = kept.files.last_entry() {
            let (lines, bytes) = (last.get().lines.len(), last.get().bytes);
            if !is_full(kept.lines - lines, kept.bytes - bytes, self.head) {
                break;
            }
            kept.files.pop_last();
            kept.lines -= lines;
            kept.bytes -= bytes;
        }
        self.full.store(is_full(kept.lines, kept.bytes, self.head), Ordering::Relaxed);
    }

    /// The lines to show, and whether there were more.
    pub(crate) fn finish(self) -> (OutputBuffer, bool) {
        let mut output = OutputBuffer::default();
        let kept = self.found.into_inner().unwrap_or_else(PoisonError::into_inner);
        for line in kept.files.values().flat_map(|found| &found.lines) {
            if output.lines() >= self.head || !output.push(line) {
                return (output, true);
            }
        }
        (output, false)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, CollectedLines> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(texts: &[&str]) -> FileLines {
        let mut lines = FileLines::default();
        texts.iter().for_each(|&text| assert!(lines.push(text.to_owned(), 100)));
        lines
    }

    #[test]
    fn the_first_files_are_shown_whatever_order_they_are_found_in_and_the_others_are_not_wanted() {
        let hits = LineHits::new(3);
        hits.add(Path::new("d"), lines(&["d1", "d2"]));
        hits.add(Path::new("e"), lines(&["e1"]));
        assert!(hits.wants(Path::new("z")), "three lines are not more than three");
        hits.add(Path::new("b"), lines(&["b1", "b2"]));
        assert!(hits.wants(Path::new("a")) && hits.wants(Path::new("b/c")) && !hits.wants(Path::new("e")));
        hits.add(Path::new("c"), lines(&["c1"]));
        assert_eq!(hits.lock().files.len(), 3, "what cannot be shown is not kept");
        let (output, cut) = hits.finish();
        assert_eq!((output.finish(&[]).as_str(), cut), ("b1\nb2\nc1", true));
    }

    #[test]
    fn what_fits_exactly_is_not_cut() {
        let hits = LineHits::new(2);
        hits.add(Path::new("b"), lines(&["b1"]));
        hits.add(Path::new("a"), lines(&["a1"]));
        let (output, cut) = hits.finish();
        assert_eq!((output.finish(&[]).as_str(), cut), ("a1\nb1", false));
    }
}
