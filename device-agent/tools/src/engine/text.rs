//! Text as models see it and as the file has it: models send line feeds and no byte-order mark.
//!
//! A file keeps its byte-order mark and the line ends of every line that is not replaced; new text gets the line ends
//! of the text it replaces.

const BYTE_ORDER_MARK: &str = "\u{feff}";

/// The text of a file, with line ends as a model sees them.
#[derive(Debug)]
pub(crate) struct FileText<'a> {
    original: &'a str,
    /// The length of the byte-order mark.
    mark: usize,
    /// The text with line feeds only.
    plain: String,
    /// The positions in `plain` of line feeds after a carriage return, ascending.
    returns: Vec<usize>,
}

/// Why a replacement was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplaceError {
    /// The text is not in the file.
    Absent,
    /// The text occurs this often, and one occurrence was asked for.
    Several(usize),
    /// The result would be larger than this many bytes.
    TooLarge(usize),
}

impl<'a> FileText<'a> {
    pub(crate) fn new(original: &'a str) -> Self {
        let body = original.strip_prefix(BYTE_ORDER_MARK).unwrap_or(original);
        let mut plain = String::with_capacity(body.len());
        let mut returns = Vec::new();
        let mut rest = body;
        while let Some(at) = rest.find("\r\n") {
            plain.push_str(&rest[..at]);
            returns.push(plain.len());
            plain.push('\n');
            rest = &rest[at + 2..];
        }
        plain.push_str(rest);
        Self { original, mark: original.len() - body.len(), plain, returns }
    }

    /// Replaces one occurrence, or all; returns their number and the line of the first one. Refuses a result of more
    /// than `limit` bytes.
    pub(crate) fn replace(
        &self,
        old: &str,
        new: &str,
        all: bool,
        limit: usize,
    ) -> Result<(String, usize, usize), ReplaceError> {
        let old = plain(old);
        let new = plain(new);
        if old.is_empty() {
            return Err(ReplaceError::Absent);
        }
        let places: Vec<usize> = self.plain.match_indices(old.as_str()).map(|(at, _)| at).collect();
        let first = *places.first().ok_or(ReplaceError::Absent)?;
        let found = if all { places.len() } else { self.count(&old) };
        if !all && found > 1 {
            return Err(ReplaceError::Several(found));
        }
        // Line ends count once: carriage returns add at most half of the size.
        if places.len().saturating_mul(new.len()) > limit {
            return Err(ReplaceError::TooLarge(limit));
        }
        let mut text = self.original[..self.mark].to_owned();
        let mut from = 0;
        for start in &places {
            let end = start + old.len();
            text.push_str(self.slice(from, *start));
            text.push_str(&with_ends(&new, self.has_returns(*start, end)));
            from = end;
        }
        text.push_str(self.slice(from, self.plain.len()));
        let line = self.plain[..first].matches('\n').count() + 1;
        Ok((text, places.len(), line))
    }

    /// The file with its whole content replaced by the model's.
    pub(crate) fn exchange(&self, new: &str) -> String {
        // A model that writes carriage returns means them.
        let ends = if new.contains('\r') { new.to_owned() } else { with_ends(new, self.has_returns(0, 0)) };
        let marked = self.mark > 0 && !new.starts_with(BYTE_ORDER_MARK);
        if marked { format!("{BYTE_ORDER_MARK}{ends}") } else { ends }
    }

    /// The number of occurrences, overlapping ones included: each could be the one that was meant.
    fn count(&self, old: &str) -> usize {
        let step = old.chars().next().map_or(1, char::len_utf8);
        let (mut count, mut from) = (0, 0);
        while let Some(at) = self.plain[from..].find(old) {
            count += 1;
            from += at + step;
        }
        count
    }

    /// A part of the plain text as it is in the file.
    fn slice(&self, from: usize, to: usize) -> &'a str {
        let place = |at: usize| self.mark + at + self.returns.partition_point(|other| *other < at);
        &self.original[place(from)..place(to)]
    }

    /// Whether lines in this part end with a carriage return; if the part has no line end, most of the file decides.
    fn has_returns(&self, from: usize, to: usize) -> bool {
        let ends = self.plain[from..to].matches('\n').count();
        let returns =
            |from, to| self.returns.partition_point(|at| *at < to) - self.returns.partition_point(|at| *at < from);
        match ends {
            0 => self.returns.len() * 2 > self.plain.matches('\n').count(),
            _ => returns(from, to) > 0,
        }
    }
}

/// The model's text with line feeds only.
fn plain(sent: &str) -> String {
    sent.strip_prefix(BYTE_ORDER_MARK).unwrap_or(sent).replace("\r\n", "\n")
}

fn with_ends(text: &str, returns: bool) -> String {
    if returns { text.replace('\n', "\r\n") } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replaced(original: &str, old: &str, new: &str) -> String {
        FileText::new(original).replace(old, new, false, 1 << 20).expect("replaced").0
    }

    #[test]
    fn what_is_not_replaced_keeps_every_byte_and_what_is_gets_the_ends_of_its_place() {
        assert_eq!(replaced("\u{feff}a\r\nb\r\nc\r\n", "a\nb", "1\n2\n3"), "\u{feff}1\r\n2\r\n3\r\nc\r\n");
        // Both kinds of line ends, a lone carriage return, and a missing line end.
        assert_eq!(replaced("a\r\nb\nc\rd\r\ne", "b\nc", "x\ny"), "a\r\nx\ny\rd\r\ne");
        assert_eq!(replaced("a\r\nb\nc", "a\nb", "q"), "q\nc");
        assert_eq!(replaced("a\r\nb\r\n", "\nb", "\nB"), "a\r\nB\r\n");
        assert_eq!(replaced("a\r\nb\r\n", "a", "1\n2"), "1\r\n2\r\nb\r\n");
        assert_eq!(replaced("a\nb\n", "a\r\nb", "1\r\n2"), "1\n2\n");
        assert_eq!(replaced("é\r\nü", "ü", "ä"), "é\r\nä");
    }

    #[test]
    fn what_would_be_larger_than_a_file_may_be_is_never_made() {
        let (many, long) = ("a".repeat(1 << 20), "b".repeat(1 << 20));
        assert_eq!(FileText::new(&many).replace("a", &long, true, 8 << 20), Err(ReplaceError::TooLarge(8 << 20)));
        assert_eq!(FileText::new("aa").replace("a", "bbbb", true, 8), Ok(("bbbbbbbb".to_owned(), 2, 1)));
    }

    #[test]
    fn one_place_must_be_the_only_one_also_where_places_overlap() {
        let told =
            |original: &str, old: &str| FileText::new(original).replace(old, "x", false, 99).map(|(text, ..)| text);
        assert_eq!(told("aaa", "aa"), Err(ReplaceError::Several(2)));
        assert_eq!(told("éé", "é"), Err(ReplaceError::Several(2)));
        assert_eq!(told("b", "a"), Err(ReplaceError::Absent));
        // A byte-order mark is no text.
        assert_eq!(told("é", "\u{feff}"), Err(ReplaceError::Absent));
        assert_eq!(FileText::new("a\nb\na").replace("a", "x", true, 99), Ok(("x\nb\nx".to_owned(), 2, 1)));
        assert_eq!(FileText::new("a\nb\nc").replace("c", "x", true, 99), Ok(("a\nb\nx".to_owned(), 1, 3)));
    }

    #[test]
    fn a_whole_new_content_takes_over_the_mark_and_the_ends_unless_it_has_its_own() {
        let windows = FileText::new("\u{feff}a\r\nb\r\n");
        assert_eq!(windows.exchange("1\n2\n"), "\u{feff}1\r\n2\r\n");
        assert_eq!(windows.exchange("\u{feff}1\r\n2\n"), "\u{feff}1\r\n2\n");
        assert_eq!(FileText::new("a\nb\n").exchange("1\r\n2\r\n"), "1\r\n2\r\n");
        assert_eq!(FileText::new("").exchange("1\n"), "1\n");
    }
}
