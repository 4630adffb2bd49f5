//! Text in the manner of Markdown, as it grows: words, the gaps between them, and the marks in front of them.

/// What separates the next word from what stands before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Gap {
    #[default]
    None,
    Space,
    Line,
    Blank,
}

/// The text as it grows.
#[derive(Default)]
pub(super) struct MarkdownText {
    pub(super) text: String,
    pub(super) gap: Gap,
    /// Stands before the next word: the mark of a heading or of an item.
    pub(super) prefix: String,
    /// Where the text of an open link begins.
    pub(super) link: Option<usize>,
}

impl MarkdownText {
    /// At least this gap before what follows.
    pub(super) fn separate(&mut self, gap: Gap) {
        self.gap = self.gap.max(gap);
    }

    /// Writes the gap and the prefix.
    fn settle(&mut self) {
        let gap = std::mem::take(&mut self.gap);
        if !self.text.is_empty() && self.link != Some(self.text.len()) {
            self.text.push_str(match gap {
                Gap::None => "",
                Gap::Space if self.text.ends_with([' ', '\n']) => "",
                Gap::Space => " ",
                Gap::Line => "\n",
                Gap::Blank => "\n\n",
            });
        }
        self.text.push_str(&std::mem::take(&mut self.prefix));
    }

    /// Writes a piece as it is, behind the gap.
    pub(super) fn mark(&mut self, mark: &str) {
        self.settle();
        self.text.push_str(mark);
    }

    /// Writes words. Every white space between them is one blank.
    pub(super) fn words(&mut self, text: &str) {
        for piece in text.split_inclusive(|c: char| c.is_ascii_whitespace()) {
            let word = piece.trim_end_matches(|c: char| c.is_ascii_whitespace());
            if !word.is_empty() {
                self.mark(word);
            }
            if word.len() < piece.len() {
                self.separate(Gap::Space);
            }
        }
    }
}
