//! A file as it is searched: in pieces, so that a stop is heard between them, and of each line no more than a bound.
//!
//! A pattern is tried on a whole line at once, and a hostile one is slow: the bound keeps a file that is one endless line
//! from keeping a thread busy long after a stop. What is left out of a line is as if it were not there; the lines after
//! it keep their numbers.

use std::fs::File;
use std::io::{self, Read};

use tokio_util::sync::CancellationToken;

/// Bytes read, and searched, at once.
const CHUNK_BYTES: usize = 64 * 1024;

/// The reader of one file.
pub(crate) struct BoundedReader<'a> {
    file: File,
    stop: &'a CancellationToken,
    /// Bytes of a line that are read.
    limit: usize,
    /// Bytes of the line that has no end yet.
    line: usize,
    is_cut: bool,
}

impl<'a> BoundedReader<'a> {
    pub(crate) fn new(file: File, limit: usize, stop: &'a CancellationToken) -> Self {
        Self { file, stop, limit, line: 0, is_cut: false }
    }

    /// Whether something was left out of a line.
    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Moves what is kept to the beginning of the piece, and says how much that is.
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
            // A piece of which nothing is kept is not the end.
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
