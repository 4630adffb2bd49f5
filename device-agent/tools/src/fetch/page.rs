//! What a model reads of a page: which page it is, its text from an offset on, and what is missing.

use deskgate_definition::tool::{RESULT_LIMIT, ToolOutput};

/// Bytes reserved for the notices at the end.
const NOTICE_RESERVE_BYTES: usize = 512;
/// How many bytes of the text of an error are shown.
const MAX_ERROR_TEXT_BYTES: usize = 4096;

/// A page that is ready to be shown.
pub(super) struct PageView {
    /// Which page it is.
    pub(super) head: String,
    /// Its whole text.
    pub(super) text: String,
    /// Whether the page went on, and was not read to its end.
    pub(super) is_cut: bool,
    /// Whether the server reported an error.
    pub(super) is_error: bool,
}

impl PageView {
    /// The result from a character of the text on, counted from 0.
    pub(super) fn shown_from(&self, offset: usize) -> ToolOutput {
        let text = clean(&self.text);
        if self.is_error {
            return ToolOutput::error(joined(&self.head, at_most(&text, MAX_ERROR_TEXT_BYTES), &[]));
        }
        let total = text.chars().count();
        if offset > 0 && offset >= total {
            return ToolOutput::error(format!(
                "The text of the page has {total} characters; none is at offset {offset}."
            ));
        }
        let begin = text.char_indices().nth(offset).map_or(0, |(place, _)| place);
        let shown = at_most(&text[begin..], RESULT_LIMIT - self.head.len() - NOTICE_RESERVE_BYTES);
        let end = offset + shown.chars().count();
        let mut notices = Vec::new();
        if total == 0 {
            notices.push("no text was found in the page; Fetch runs no scripts".to_owned());
        }
        if end < total {
            notices.push(format!("characters {offset} to {end} of {total} are shown: go on with offset {end}"));
        }
        if self.is_cut {
            notices.push("the page is too large: only its beginning was read".to_owned());
        }
        ToolOutput::ok(joined(&self.head, shown, &notices))
    }
}

/// Notices stand in brackets behind an empty line, so that they cannot be taken for the page's text.
fn joined(head: &str, text: &str, notices: &[String]) -> String {
    let notices = notices.iter().map(|notice| format!("({notice})"));
    let parts = [head.to_owned(), text.trim_matches('\n').to_owned()].into_iter().chain(notices);
    parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n\n")
}

/// Line feeds only, and a question mark for every other control character but a tab, as in the output of commands.
fn clean(text: &str) -> String {
    let shown = |c: char| if c.is_control() && !matches!(c, '\n' | '\t') { '?' } else { c };
    text.replace("\r\n", "\n").replace('\r', "\n").chars().map(shown).collect()
}

/// The beginning of a text, cut between characters, with at most this many bytes.
pub(super) fn at_most(text: &str, bytes: usize) -> &str {
    let mut end = bytes.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(text: &str) -> PageView {
        let head = "https://a.example/ (status 200, text/plain)".to_owned();
        PageView { head, text: text.to_owned(), is_cut: false, is_error: false }
    }

    #[test]
    fn a_long_text_is_read_on_from_where_it_was_cut() {
        let whole: String = (0..40_000).map(|n| format!("{n} é\n")).collect();
        let view = view(&whole);
        let (mut read, mut offset) = (String::new(), 0);
        loop {
            let output = view.shown_from(offset);
            assert!(!output.is_error && output.text.len() <= RESULT_LIMIT);
            let body = output.text.strip_prefix(&view.head).expect("the head").trim_start_matches('\n').to_owned();
            let Some((text, notice)) = body.rsplit_once("\n\n(characters ") else {
                read.push_str(&body);
                break;
            };
            let next = notice.trim_end_matches(')').rsplit(' ').next().expect("an offset").parse().expect("a number");
            assert!(next > offset);
            read.push_str(text);
            offset = next;
        }
        let letters = |text: &str| text.replace('\n', "");
        assert_eq!(letters(&read), letters(&whole));
        let beyond = view.shown_from(whole.chars().count());
        assert!(beyond.is_error && beyond.text.contains("none is at offset"), "{}", beyond.text);
    }

    #[test]
    fn what_is_missing_or_steers_a_terminal_is_told() {
        assert!(view("").shown_from(0).text.ends_with("\n\n(no text was found in the page; Fetch runs no scripts)"));
        assert!(view("a\r\nb\rc\u{1b}[31m\u{9b}\td").shown_from(0).text.ends_with("\n\na\nb\nc?[31m?\td"));
        let cut = PageView { is_cut: true, ..view("a") }.shown_from(0);
        assert!(cut.text.ends_with("a\n\n(the page is too large: only its beginning was read)"), "{}", cut.text);
        let error = PageView { is_error: true, ..view(&"é".repeat(5000)) }.shown_from(7);
        assert!(error.is_error && error.text.len() < 5000);
    }
}
