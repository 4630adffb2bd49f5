//! Valid names of configured things: each is a part of a file's name and of an address of the management pages.

/// Whether a text of at most `most` characters can name a file here and a part of a definition.
pub fn is_short_name(text: &str, most: usize) -> bool {
    (1..=most).contains(&text.len()) && text.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'))
}

/// The one reserved name: `/…/new` is the page for a new one.
pub const RESERVED_NAME: &str = "new";
