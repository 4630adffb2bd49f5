//! Names of what a person configures: each is a part of a file's name and of an address of the management pages.

/// Whether a text of so many characters at most can be the name of a file here and of something in a definition.
pub fn is_short_name(text: &str, most: usize) -> bool {
    (1..=most).contains(&text.len()) && text.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'))
}

/// The one name that nothing can have: `/…/new` is the page for a new one.
pub const RESERVED_NAME: &str = "new";
