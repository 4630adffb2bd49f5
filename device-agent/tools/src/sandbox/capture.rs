//! Captures a command's output in bounded memory: the beginning and the end are kept.

use std::collections::VecDeque;

/// How many bytes of the beginning, and of the end, are kept.
const KEPT_BYTES_PER_END: usize = 31 * 1024;

/// The output in order of arrival.
#[derive(Debug, Default)]
pub struct Capture {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    left_out: u64,
    notes: Vec<String>,
}

impl Capture {
    /// Adds output.
    pub(super) fn take(&mut self, bytes: &[u8]) {
        let (head, rest) = bytes.split_at(bytes.len().min(KEPT_BYTES_PER_END - self.head.len()));
        self.head.extend_from_slice(head);
        self.tail.extend(rest);
        let over = self.tail.len().saturating_sub(KEPT_BYTES_PER_END);
        self.tail.drain(..over);
        self.left_out += over as u64;
    }

    /// Adds a sentence behind the output.
    pub(super) fn note(&mut self, sentence: &str) {
        self.notes.push(format!("({sentence})"));
    }

    /// Text that is safe to show: UTF-8, with a question mark for each invalid byte and for each control character but
    /// tab and line feed. Carriage returns are left out. A notice gives the size of a gap.
    pub fn text(mut self) -> String {
        let mut text = safe(&self.head);
        if self.left_out > 0 {
            text.push_str(&format!("\n\n({} bytes of output are left out here)\n\n", self.left_out));
        }
        text.push_str(&safe(self.tail.make_contiguous()));
        for note in &self.notes {
            if !text.is_empty() {
                text.push_str("\n\n");
            }
            text.push_str(&safe(note.as_bytes()));
        }
        text
    }
}

fn safe(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        let shown = |character: char| match character {
            '\n' | '\t' => character,
            other if other.is_control() => '?',
            other => other,
        };
        text.extend(chunk.valid().chars().filter(|character| *character != '\r').map(shown));
        text.extend(chunk.invalid().iter().map(|_| '?'));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_leaves_its_beginning_its_end_and_how_much_is_missing() {
        let mut capture = Capture::default();
        capture.take(b"first ");
        for _ in 0..1000 {
            capture.take(&[b'x'; 1000]);
        }
        capture.take(b" last");
        assert!(capture.tail.capacity() < 4 * KEPT_BYTES_PER_END, "memory is bounded");
        let text = capture.text();
        assert!(text.len() < 64 * 1024 && text.starts_with("first x") && text.ends_with("x last"));
        let missing = 1_000_011 - 2 * KEPT_BYTES_PER_END;
        assert!(text.contains(&format!("({missing} bytes of output are left out here)")));
    }

    #[test]
    fn bytes_that_are_no_text_and_terminal_escapes_become_question_marks() {
        let mut capture = Capture::default();
        capture.take(b"a\0b\x1b[2J\xff\xc3\xa9\r\n\tc\xc2\x9b");
        assert_eq!(capture.text(), "a?b?[2J?é\n\tc?");
    }
}
