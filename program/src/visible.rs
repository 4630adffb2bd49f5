//! Shows the text of an assistant or a caller as it is: control characters do not reach the terminal, and nothing is
//! reordered, joined or hidden.

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

/// One line: line breaks are made visible too.
pub fn line(text: &str) -> String {
    named(text, hides)
}

/// A log on its way to a terminal or a file: what would steer, reorder or hide is named, whoever wrote it. Escape
/// characters pass, because a log's own colours are made of them; `tracing_subscriber` escapes those in values.
#[derive(Debug)]
pub struct LogWriter<W>(pub W);

impl<W: std::io::Write> std::io::Write for LogWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if bytes.iter().all(|byte| matches!(byte, b' '..=b'~' | b'\n' | b'\t' | 0x1b)) {
            return self.0.write(bytes);
        }
        let shown = named(&String::from_utf8_lossy(bytes), |c| hides(c) && !matches!(c, '\n' | '\u{1b}'));
        self.0.write_all(shown.as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
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

/// Variation selectors of emoji, and the joiner between two (Unicode Technical Standard 51).
fn joins(c: char) -> bool {
    matches!(c, '\u{fe0e}' | '\u{fe0f}' | '\u{200d}')
}

/// Arrows, symbols and pictographs: no script, in which a joiner could change what is read.
fn is_symbol(c: char) -> bool {
    matches!(c, '\u{2190}'..='\u{2bff}' | '\u{3030}' | '\u{303d}' | '\u{3297}' | '\u{3299}' | '\u{1f000}'..='\u{1faff}')
}

/// A block, each line after `margin`, so that no text can look like a line of the program's own.
pub fn block(text: &str, margin: &str) -> String {
    text.split('\n').map(|part| format!("{margin}{}\n", line(part.strip_suffix('\r').unwrap_or(part)))).collect()
}

fn name(c: char) -> String {
    format!("<U+{:04X}>", u32::from(c))
}

/// Whether a terminal would hide the character, or let it change the text around it.
fn hides(c: char) -> bool {
    match c {
        '\t' => false,
        _ if c.is_control() => true,
        // Soft hyphen, Arabic letter mark, Mongolian vowel separator, fillers of Hangul.
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}' => true,
        // Zero width and direction marks; line and paragraph separators, embeddings and overrides; invisible operators,
        // isolates.
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' => true,
        // Variation selectors, byte order mark, annotations, tags.
        '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}' => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_that_is_shown_has_the_value_it_had() {
        let value = serde_json::json!({ "a\u{202e}": "x\u{9b}2K\u{e0041}\u{7f}", "b": "Größe\t漢字 😀\n" });
        let shown = json(&value.to_string());
        assert!(shown.chars().all(|c| !hides(c)) && shown.contains("\\udb40\\udc41"), "{shown}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).expect("JSON"), value);
    }

    #[test]
    fn a_log_names_what_reorders_it_and_keeps_its_colours() {
        let mut log = Vec::new();
        let line = "\u{1b}[32m INFO\u{1b}[0m run of \u{202e}txt.exe, Größe 😀\n";
        std::io::Write::write_all(&mut LogWriter(&mut log), line.as_bytes()).expect("written");
        assert_eq!(String::from_utf8(log).expect("text"), line.replace('\u{202e}', "<U+202E>"));
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
}
