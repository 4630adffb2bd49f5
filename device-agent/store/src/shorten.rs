//! Shortens texts that are too long to keep: the beginning and the end stay, with a note about the gap.

use std::borrow::Cow;

use deskgate_protocol::run::Input;
use serde_json::Value;

/// The text, shortened to about `limit` bytes plus the note.
pub(super) fn text(text: &str, limit: usize) -> Cow<'_, str> {
    if text.len() <= limit {
        return Cow::Borrowed(text);
    }
    let begin = boundary(text, limit / 2);
    let end = boundary(text, text.len() - limit / 2);
    let (begin, missing, end) = (&text[..begin], end - begin, &text[end..]);
    Cow::Owned(format!("{begin}\n[{missing} bytes were left out here.]\n{end}"))
}

/// A message with about `limit` bytes of text and as many of further members. Members that are too long are left out as
/// a whole: half a table would be misleading.
pub(super) fn input(mut input: Input, limit: usize) -> Input {
    input.text = text(&input.text, limit).into_owned();
    if Value::Object(input.more.clone()).to_string().len() > limit {
        let names = input.more.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        input.text += &format!("\n[Further members were left out here: {}.]", text(&names, limit / 8));
        input.more.clear();
    }
    input
}

/// The last character boundary at or before `place`.
fn boundary(text: &str, place: usize) -> usize {
    (0..=place).rev().find(|place| text.is_char_boundary(*place)).unwrap_or(0)
}
