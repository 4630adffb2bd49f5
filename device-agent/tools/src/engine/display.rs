//! File names as a model sees them: one line each, whatever bytes they contain.

use std::path::Path;

/// A path as text. Control characters are escaped, so that no name can look like two lines; bytes that are not UTF-8
/// become the replacement character. Such a name cannot be converted back.
pub(crate) fn name(path: &Path) -> String {
    let mut text = String::new();
    for character in path.to_string_lossy().chars() {
        if character.is_control() {
            text.extend(character.escape_default());
        } else {
            text.push(character);
        }
    }
    text
}

/// A line of a file for a person: characters that a terminal interprets, or that reorder others, are escaped. Tabs
/// stay.
pub(crate) fn visible(line: &str) -> String {
    let mut text = String::with_capacity(line.len());
    for c in line.chars() {
        let acts = c.is_control() && c != '\t';
        if acts || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}') {
            text.extend(c.escape_default());
        } else {
            text.push(c);
        }
    }
    text
}

/// At most `limit` characters of a line, with a mark where it was cut.
pub(crate) fn line(text: &str, limit: usize) -> std::borrow::Cow<'_, str> {
    match text.char_indices().nth(limit) {
        Some((end, _)) => format!("{}… [line cut]", &text[..end]).into(),
        None => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_a_line_break_stays_on_one_line() {
        assert_eq!(name(Path::new("a\nb\u{1b}[31m")), "a\\nb\\u{1b}[31m");
    }

    #[test]
    fn a_long_line_is_cut_between_characters_and_says_so() {
        assert_eq!(line("ééé", 3), "ééé");
        assert_eq!(line("éééé", 3), "ééé… [line cut]");
    }
}
