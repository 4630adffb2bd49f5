//! Reads a file for a search: in chunks, so that a stop takes effect between them, and with a bound on each line.
//!
//! A pattern is matched against a whole line at once, and a hostile one is slow. The bound prevents a file with one
//! endless line from occupying a thread long after a stop. The rest of a longer line is skipped; the lines after it
//! keep their numbers.

use std::fs::File;
use std::io::{self, Read};

use tokio_util::sync::CancellationToken;

/// Bytes read and searched at once.
const CHUNK_BYTES: usize = 64 * 1024;

/// The reader of one file.
pub(crate) struct BoundedReader<'a> {
    file: File,
    stop: &'a CancellationToken,
    /// How many bytes of a line are read.
    limit: usize,
    /// Bytes so far of the unfinished line.
    line: usize,
    is_cut: bool,
}

impl<'a> BoundedReader<'a> {
    pub(crate) fn new(file: File, limit: usize, stop: &'a CancellationToken) -> Self {
        Self { file, stop, limit, line: 0, is_cut: false }
    }

    /// Whether a part of a line was skipped.
    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Moves the kept bytes to the beginning of the chunk, and returns their number.
    fn keep(&mut self, piece: &mut [u8]) -> usize {
        if piece.len() <= self.limit.saturating_sub(self.line) {
            self.line = match piece.iter().rposition(|byte| *byte == b'\n') {
                Some(end) => piece.len() - end - 1,
                None => self.line + piece.len(),
            };
            return piece.len();
        }
        let mut kept = 0;
        for at in 0..piece.len() {
            let byte = piece[at];
            let is_end = byte == b'\n';
            if is_end || self.line < self.limit {
                piece[kept] = byte;
                kept += 1;
            } else {
                self.is_cut = true;
            }
            self.line = if is_end { 0 } else { self.line + 1 };
        }
        kept
    }
}

impl Read for BoundedReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let room = buffer.len().min(CHUNK_BYTES);
        loop {
            if self.stop.is_cancelled() {
                return Err(io::Error::other("stopped"));
            }
            let read = self.file.read(&mut buffer[..room])?;
            let kept = self.keep(&mut buffer[..read]);
            // A chunk without kept bytes is not the end.
            if read == 0 || kept > 0 {
                return Ok(kept);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Seek, Write};

    use super::*;

    fn read(text: &[u8], limit: usize) -> (Vec<u8>, bool) {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(text).expect("writes");
        file.rewind().expect("rewinds");
        let stop = CancellationToken::new();
        let mut pieces = BoundedReader::new(file, limit, &stop);
        let mut read = Vec::new();
        pieces.read_to_end(&mut read).expect("reads");
        (read, pieces.is_cut())
    }

    #[test]
    fn a_line_is_read_up_to_its_bound_and_the_next_one_from_its_beginning() {
        assert_eq!(read(b"abc\nabcd\n\nabcde\nab", 4), (b"abc\nabcd\n\nabcd\nab".to_vec(), true));
        assert_eq!(read(b"abc\nabcd\n", 4), (b"abc\nabcd\n".to_vec(), false));
        let long = [vec![b'x'; 5 * CHUNK_BYTES + 7], b"\nend".to_vec()].concat();
        assert_eq!(read(&long, 3 * CHUNK_BYTES), ([vec![b'x'; 3 * CHUNK_BYTES], b"\nend".to_vec()].concat(), true));
        assert_eq!(read(&long, usize::MAX), (long, false));
    }
}
