//! How the pages write text: as HTML, in which nothing hides, reorders or steers what stands around it.
//!
//! Every `{{ value }}` of a template goes through here (`askama.toml`). A form's values are written with `|e("form")`
//! instead: they go back to the agent as they are, so nothing in them is replaced. Line breaks stay; a name that others
//! chose and that stands in one line goes through [`visible::line`] besides, which names those too.

use std::fmt::{self, Write};

use askama::filters::{Escaper, Html};
use deskgate_program::visible;

/// HTML with hidden characters shown by their names.
#[derive(Clone, Copy, Debug)]
pub(super) struct VisibleHtml;

impl Escaper for VisibleHtml {
    fn write_escaped_str<W: Write>(&self, dest: W, text: &str) -> fmt::Result {
        // The usual text has nothing to show.
        if text.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\n')) {
            return Html.write_escaped_str(dest, text);
        }
        // A browser reads this pair as one line break.
        Html.write_escaped_str(dest, &visible::text(&text.replace("\r\n", "\n")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_and_what_hides_in_it_is_named() {
        let mut shown = String::new();
        VisibleHtml.write_escaped_str(&mut shown, "<b>\u{202e}txt.exe\r\n\u{1b}[2J ü").expect("written");
        assert_eq!(shown, "&#60;b&#62;&#60;U+202E&#62;txt.exe\n&#60;U+001B&#62;[2J ü");
    }

    /// Names of files that somebody chose to do harm, and whether they are taken.
    const NAMES: &[(&str, bool)] = &include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../protocol/tests/names/list.rs"));

    #[test]
    fn no_name_of_a_file_begins_or_ends_a_tag_or_an_attribute() {
        for (name, _) in NAMES {
            let mut shown = String::new();
            VisibleHtml.write_escaped_str(&mut shown, &visible::line(name)).expect("written");
            assert!(!shown.contains(['<', '>', '"', '\'', '\n', '\r', '\0']), "{shown:?}");
            assert!(shown.split('&').skip(1).all(|rest| rest.starts_with('#')), "{shown:?}");
        }
    }
}
