//! Shows the text of an assistant or a caller as it is: control characters do not reach the terminal, and nothing is
//! reordered, joined or hidden.

/// One line: line breaks are made visible too.
pub fn line(text: &str) -> String {
    text.chars().map(|c| if hides(c) || c == '\n' { name(c) } else { c.to_string() }).collect()
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
    fn what_steers_a_terminal_or_turns_text_round_is_named() {
        assert_eq!(line("a\u{1b}[2Kb\rc\nd"), "a<U+001B>[2Kb<U+000D>c<U+000A>d");
        assert_eq!(line("safe\u{202e}txt.exe\u{2066}"), "safe<U+202E>txt.exe<U+2066>");
        assert_eq!(line("rm\u{200b} -rf\u{feff}\u{e0041}"), "rm<U+200B> -rf<U+FEFF><U+E0041>");
        assert_eq!(line("Größe\t漢字 😀"), "Größe\t漢字 😀");
        assert_eq!(block("one\r\ntwo\u{9b}", "| "), "| one\n| two<U+009B>\n");
    }
}
