//! Characters that are not seen, or that change the text around them.

/// The characters of a text that are hidden where it is shown. What joins and colours an emoji is none.
pub fn hidden(text: &str) -> impl Iterator<Item = char> {
    let mut before = None;
    text.chars().filter(move |c| {
        let is_hidden = hides(*c) && !(joins(*c) && before.is_some_and(is_symbol));
        // A selector and a joiner follow each other: what they belong to stands before both.
        before = if joins(*c) { before } else { Some(*c) };
        is_hidden
    })
}

/// Whether a terminal would hide the character, or let it change the text around it: what Unicode calls a control or ignorable by
/// default (`Default_Ignorable_Code_Point`), line separators and annotations.
pub fn hides(c: char) -> bool {
    match c {
        '\t' => false,
        _ if c.is_control() => true,
        // Soft hyphen, grapheme joiner, Arabic letter mark, vowels of Khmer that are not written, selectors and separator of
        // Mongolian, fillers of Hangul.
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}' => true,
        '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}' => true,
        // Zero width and direction marks; line and paragraph separators, embeddings and overrides; invisible operators,
        // isolates.
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' => true,
        // Variation selectors, byte order mark, what is kept for such characters, annotations, tags.
        '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}' => true,
        // Marks of shorthand and of music.
        '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' => true,
        _ => false,
    }
}

/// Variation selectors of emoji, and the joiner between two (Unicode Technical Standard 51).
pub fn joins(c: char) -> bool {
    matches!(c, '\u{fe0e}' | '\u{fe0f}' | '\u{200d}')
}

/// Arrows, symbols and pictographs: no script, in which a joiner could change what is read.
pub fn is_symbol(c: char) -> bool {
    matches!(c, '\u{2190}'..='\u{2bff}' | '\u{3030}' | '\u{303d}' | '\u{3297}' | '\u{3299}' | '\u{1f000}'..='\u{1faff}')
}
