//! Text for a model that never exceeds its limit, with notices about what is missing.

/// The size limit of one tool result with its notices, in bytes.
pub(crate) const MAX_OUTPUT_BYTES: usize = 64 * 1024;
/// Bytes reserved for the notices at the end.
const NOTICE_RESERVE_BYTES: usize = 1024;
/// How many characters one line of a file may have.
pub(crate) const MAX_LINE_CHARS: usize = 2000;

/// A result: lines, then notices.
#[derive(Debug, Default)]
pub(crate) struct OutputBuffer {
    text: String,
    lines: usize,
}

impl OutputBuffer {
    /// Adds a line if it fits; `false` if it does not.
    #[must_use]
    pub(crate) fn push(&mut self, line: &str) -> bool {
        let fits = self.text.len() + line.len() < MAX_OUTPUT_BYTES - NOTICE_RESERVE_BYTES;
        if fits {
            self.text.push_str(line);
            self.text.push('\n');
            self.lines += 1;
        }
        fits
    }

    /// How many lines were added.
    pub(crate) fn lines(&self) -> usize {
        self.lines
    }

    /// The whole text. Notices stand in brackets after an empty line, so that they cannot be taken for contents.
    pub(crate) fn finish(mut self, notices: &[String]) -> String {
        for notice in notices {
            let start = self.text.len();
            self.text.push_str(if start == 0 { "(" } else { "\n(" });
            self.text.push_str(notice);
            self.text.push_str(")\n");
        }
        self.text.truncate(self.text.trim_end_matches('\n').len());
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_holds_with_notices_and_the_refused_line_is_not_half_there() {
        let mut output = OutputBuffer::default();
        while output.push(&"x".repeat(1000)) {}
        let lines = output.lines();
        let text = output.finish(&["something is missing".to_owned()]);
        assert!(text.len() <= MAX_OUTPUT_BYTES);
        assert!(text.len() > MAX_OUTPUT_BYTES - 3000);
        assert_eq!(text.lines().filter(|line| line.len() == 1000).count(), lines);
        assert!(text.ends_with("\n\n(something is missing)"));
    }
}
