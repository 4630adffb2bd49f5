//! Shows the text of an assistant or a caller as it is: control characters do not reach the terminal, and nothing is
//! reordered, joined or hidden.

use deskgate_protocol::hidden::{hides, is_symbol, joins};

/// Text of several lines, as it is printed: line breaks and tabs stay.
pub fn text(text: &str) -> String {
    named(text, |c| hides(c) && c != '\n')
}

/// JSON whose strings steer no terminal: what would is escaped (RFC 8259, section 7), so that its value stays the same.
pub fn json(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if hides(c) {
            let mut units = [0; 2];
            c.encode_utf16(&mut units).iter().for_each(|unit| shown.push_str(&format!("\\u{unit:04x}")));
        } else {
            shown.push(c);
        }
    }
    shown
}

/// How a text begins, in one line of at most so many characters: white space is one blank, and what is left out ends in "…",
/// behind a whole word if there is one.
pub fn first_words(text: &str, max_chars: usize) -> String {
    let mut words = String::new();
    for word in text.split_whitespace() {
        if words.chars().count() > max_chars {
            break;
        }
        if !words.is_empty() {
            words.push(' ');
        }
        words += &line(word);
    }
    if words.chars().count() <= max_chars {
        return words;
    }
    let beginning: String = words.chars().take(max_chars.saturating_sub(1)).collect();
    let cut_word = words.chars().nth(beginning.chars().count()) != Some(' ');
    let whole = beginning.rsplit_once(' ').map(|(whole, _)| whole).filter(|_| cut_word);
    format!("{}…", whole.unwrap_or(&beginning))
}

/// One line: line breaks are made visible too.
pub fn line(text: &str) -> String {
    named(text, hides)
}

/// A log on its way to a terminal or a file: what would steer, reorder, hide or break a line is named, whoever wrote it.
/// One write is one line, as `tracing_subscriber` makes them. Escape characters pass only as a log's own colours.
#[derive(Debug)]
pub struct LogWriter<W> {
    to: W,
    colours: bool,
}

impl<W> LogWriter<W> {
    /// A writer to a place that shows colours, or does not.
    pub fn new(to: W, colours: bool) -> Self {
        Self { to, colours }
    }
}

impl<W: std::io::Write> std::io::Write for LogWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let line = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        if line.iter().all(|byte| matches!(byte, b' '..=b'~' | b'\t')) {
            self.to.write_all(bytes)?;
        } else {
            let mut shown = coloured(&String::from_utf8_lossy(line), self.colours).into_bytes();
            shown.extend_from_slice(&bytes[line.len()..]);
            self.to.write_all(&shown)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.to.flush()
    }
}

/// One line, in which only escape sequences that choose colours stay, if there are any.
fn coloured(text: &str, colours: bool) -> String {
    let mut parts = text.split('\u{1b}');
    let mut shown = line(parts.next().unwrap_or_default());
    for part in parts {
        let is_colour = part
            .strip_prefix('[')
            .is_some_and(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';').starts_with('m'));
        shown.push_str(if colours && is_colour { "\u{1b}" } else { "<U+001B>" });
        shown.push_str(&line(part));
    }
    shown
}

/// The text with some characters replaced by their names. What joins and colours an emoji stays where it does that.
fn named(text: &str, is_named: impl Fn(char) -> bool) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut before = None;
    for c in text.chars() {
        match is_named(c) && !(joins(c) && before.is_some_and(is_symbol)) {
            true => shown.push_str(&name(c)),
            false => shown.push(c),
        }
        // A selector and a joiner follow each other: what they belong to stands before both.
        before = if joins(c) { before } else { Some(c) };
    }
    shown
}

/// A block, each line after `margin`, so that no text can look like a line of the program's own.
pub fn block(text: &str, margin: &str) -> String {
    text.split('\n').map(|part| format!("{margin}{}\n", line(part.strip_suffix('\r').unwrap_or(part)))).collect()
}

fn name(c: char) -> String {
    format!("<U+{:04X}>", u32::from(c))
}

#[cfg(test)]
mod tests {
    use super::*;
    use deskgate_protocol::hidden::hidden;

    #[test]
    fn json_that_is_shown_has_the_value_it_had() {
        let value = serde_json::json!({ "a\u{202e}": "x\u{9b}2K\u{e0041}\u{7f}", "b": "Größe\t漢字 😀\n" });
        let shown = json(&value.to_string());
        assert!(shown.chars().all(|c| !hides(c)) && shown.contains("\\udb40\\udc41"), "{shown}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).expect("JSON"), value);
    }

    fn logged(text: &str, colours: bool) -> String {
        let mut log = Vec::new();
        std::io::Write::write_all(&mut LogWriter::new(&mut log, colours), text.as_bytes()).expect("written");
        String::from_utf8(log).expect("text")
    }

    #[test]
    fn a_log_names_what_reorders_it_and_keeps_its_colours() {
        let line = "\u{1b}[32m INFO\u{1b}[0m run of \u{202e}txt.exe, Größe 😀\n";
        assert_eq!(logged(line, true), line.replace('\u{202e}', "<U+202E>"));
        assert_eq!(logged("a plain line\n", false), "a plain line\n");
    }

    #[test]
    fn no_value_in_a_log_steers_a_terminal_or_forges_a_line() {
        let line = "WARN why=\u{1b}[2J\u{1b}]52;c;eA==\u{7}\n2026 INFO all is well\n";
        let named = "WARN why=<U+001B>[2J<U+001B>]52;c;eA==<U+0007><U+000A>2026 INFO all is well\n";
        for colours in [true, false] {
            assert_eq!(logged(line, colours), named);
        }
        assert_eq!(logged("a \u{1b}[31mred\n", false), "a <U+001B>[31mred\n", "a file has no colours");
    }

    #[test]
    fn the_first_words_are_one_line_and_end_behind_a_whole_word() {
        assert_eq!(first_words("  Which invoices\n\tare overdue? ", 30), "Which invoices are overdue?");
        assert_eq!(first_words("Which invoices are overdue?", 26), "Which invoices are…");
        assert_eq!(first_words("Which invoices are overdue?", 19), "Which invoices are…");
        assert_eq!(first_words("Which invoices are overdue?", 18), "Which invoices…");
        assert_eq!(first_words("Donaudampfschiff", 8), "Donauda…", "one long word is cut");
        assert_eq!(first_words("漢字 漢字", 5), "漢字 漢字");
        assert_eq!(first_words("a\u{1b}[2K\u{202e}b", 40), "a<U+001B>[2K<U+202E>b");
        assert_eq!(first_words(&"x".repeat(1_000_000), 8), "xxxxxxx…");
        assert_eq!((first_words("", 8), first_words(" \n", 8)), (String::new(), String::new()));
    }

    #[test]
    fn what_steers_a_terminal_or_turns_text_round_is_named() {
        assert_eq!(line("a\u{1b}[2Kb\rc\nd"), "a<U+001B>[2Kb<U+000D>c<U+000A>d");
        assert_eq!(line("safe\u{202e}txt.exe\u{2066}"), "safe<U+202E>txt.exe<U+2066>");
        assert_eq!(line("rm\u{200b} -rf\u{feff}\u{e0041}"), "rm<U+200B> -rf<U+FEFF><U+E0041>");
        assert_eq!(line("Größe\t漢字 😀"), "Größe\t漢字 😀");
        assert_eq!(line("👩\u{200d}💻 ❤\u{fe0f}"), "👩\u{200d}💻 ❤\u{fe0f}");
        assert_eq!(line("a\u{200d}b\u{fe0f}"), "a<U+200D>b<U+FE0F>");
        assert_eq!(text("a\u{1b}[2K\n\tb\u{202e}"), "a<U+001B>[2K\n\tb<U+202E>");
        assert_eq!(block("one\r\ntwo\u{9b}", "| "), "| one\n| two<U+009B>\n");
    }

    /// Names of files that somebody chose to do harm, and whether they are taken.
    const NAMES: &[(&str, bool)] = &include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../protocol/tests/names/list.rs"));

    #[test]
    fn a_name_that_is_taken_is_shown_as_it_is_and_any_other_steers_nothing() {
        for (name, is_taken) in NAMES {
            let shown = line(name);
            assert!(hidden(&shown).all(|c| c == '\t') && shown.lines().count() <= 1, "{shown:?}");
            assert!(!is_taken || shown == *name, "{name:?} is shown as {shown:?}");
        }
    }
}
