//! What kind of text a page is, and its characters.

use encoding_rs::{Encoding, UTF_8, WINDOWS_1252};

/// How many bytes of a page are searched for the name of its charset (HTML, section 4.2.5.4).
const CHARSET_PROBE_BYTES: usize = 1024;
/// The length limit of a type, in bytes.
const MAX_TYPE_BYTES: usize = 100;
/// Types that are text although their names do not begin with `text/`.
const TEXT_TYPES: [&str; 16] = [
    "application/json",
    "application/jsonl",
    "application/x-ndjson",
    "application/ndjson",
    "application/json-seq",
    "application/xml",
    "application/xml-dtd",
    "application/csv",
    "application/yaml",
    "application/x-yaml",
    "application/toml",
    "application/sql",
    "application/graphql",
    "application/javascript",
    "application/x-javascript",
    "application/x-sh",
];

/// How a page becomes text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageKind {
    /// It is HTML.
    Html,
    /// It is text as it is.
    Text,
    /// The server did not say.
    Unknown,
    /// It is no text.
    Other,
}

/// The type of a page, as its server named it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PageType {
    /// In lower case, without parameters; empty if there is none.
    pub(super) name: String,
    /// The charset in its parameters.
    charset: Option<&'static Encoding>,
}

impl PageType {
    /// Reads the value of `Content-Type`.
    pub(super) fn parse(header: &str) -> Self {
        let mut parts = header.split(';').map(str::trim);
        let is_token = |c: char| c.is_ascii_alphanumeric() || "/+-._".contains(c);
        let name = parts.next().filter(|name| name.len() <= MAX_TYPE_BYTES && name.chars().all(is_token));
        let charset = parts.find_map(|part| {
            let (key, value) = part.split_once('=')?;
            let label = value.trim().trim_matches(['"', '\'']);
            key.trim().eq_ignore_ascii_case("charset").then(|| Encoding::for_label(label.as_bytes()))?
        });
        Self { name: name.unwrap_or_default().to_ascii_lowercase(), charset }
    }

    /// How a page of this type becomes text.
    pub(super) fn kind(&self) -> PageKind {
        match self.name.as_str() {
            "" => PageKind::Unknown,
            "text/html" | "application/xhtml+xml" => PageKind::Html,
            name if name.starts_with("text/") || TEXT_TYPES.contains(&name) => PageKind::Text,
            name => match name.strip_prefix("application/").and_then(|name| name.rsplit_once('+')) {
                Some((_, "json" | "xml" | "yaml")) => PageKind::Text,
                _ => PageKind::Other,
            },
        }
    }

    /// The characters of a page, by its byte-order mark, by what the server said, by what the page says, or by what its
    /// bytes look like. Bytes that are no character become the replacement character. `is_cut`: the page went on.
    /// `None`: it is no text.
    pub(super) fn decode(&self, bytes: &[u8], is_cut: bool) -> Option<String> {
        let guessed = || if is_utf8(bytes, is_cut) { UTF_8 } else { WINDOWS_1252 };
        let charset = self.charset.or_else(|| named_within(bytes)).unwrap_or_else(guessed);
        let (text, ..) = charset.decode(bytes);
        (!text.contains('\0')).then(|| text.into_owned())
    }
}

/// Whether bytes are UTF-8. Where the page was cut, a character may have been cut too.
fn is_utf8(bytes: &[u8], is_cut: bool) -> bool {
    std::str::from_utf8(bytes).map_or_else(|error| is_cut && error.error_len().is_none(), |_| true)
}

/// Whether a page of an unknown type begins as HTML does.
pub(super) fn begins_as_html(text: &str) -> bool {
    let begin: String = text.trim_start().chars().take(14).collect::<String>().to_ascii_lowercase();
    begin.starts_with("<!doctype html") || begin.starts_with("<html") || begin.starts_with("<head")
}

/// The charset that HTML or XML names near its beginning.
fn named_within(bytes: &[u8]) -> Option<&'static Encoding> {
    let probe = String::from_utf8_lossy(&bytes[..bytes.len().min(CHARSET_PROBE_BYTES)]).to_ascii_lowercase();
    let is_markup = probe.trim_start().starts_with('<');
    let key = if probe.trim_start().starts_with("<?xml") { "encoding" } else { "charset" };
    let (_, rest) = probe.split_once(key).filter(|_| is_markup)?;
    let value = rest.trim_start().strip_prefix('=')?.trim_start().trim_start_matches(['"', '\'']);
    let label = value.split(['"', '\'', ' ', ';', '>', '/', '?']).next()?;
    // What could be read up to here is not UTF-16.
    Encoding::for_label(label.as_bytes()).map(Encoding::output_encoding)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(header: &str, bytes: &[u8]) -> Option<String> {
        PageType::parse(header).decode(bytes, false)
    }

    #[test]
    fn text_is_read_and_other_types_are_not() {
        for (header, kind) in [
            ("text/html; charset=utf-8", PageKind::Html),
            ("Application/XHTML+xml", PageKind::Html),
            ("text/plain", PageKind::Text),
            ("text/markdown", PageKind::Text),
            ("text/csv", PageKind::Text),
            ("application/json", PageKind::Text),
            ("application/problem+json", PageKind::Text),
            ("application/atom+xml; x=y", PageKind::Text),
            ("", PageKind::Unknown),
            ("text/html, text/plain", PageKind::Unknown),
            ("image/png", PageKind::Other),
            ("image/svg+xml", PageKind::Other),
            ("application/pdf", PageKind::Other),
            ("application/octet-stream", PageKind::Other),
            ("video/mp4", PageKind::Other),
        ] {
            assert_eq!(PageType::parse(header).kind(), kind, "{header}");
        }
        assert!(begins_as_html(" \n<!DOCTYPE HTML>") && begins_as_html("<html lang=de>") && !begins_as_html("<a>"));
    }

    #[test]
    fn the_mark_the_header_the_page_and_the_bytes_say_the_charset_in_this_order() {
        let latin = b"caf\xe9";
        for (header, bytes, text) in [
            ("text/plain; charset=iso-8859-1", &latin[..], "café"),
            ("text/plain; Charset=\"windows-1252\"", latin, "café"),
            ("text/plain", latin, "café"),
            ("text/plain", "café".as_bytes(), "café"),
            ("text/plain; charset=utf-8", latin, "caf\u{fffd}"),
            ("text/plain; charset=nonsense", latin, "café"),
            ("text/plain; charset=utf-16le", b"c\0a\0", "ca"),
            ("text/plain; charset=iso-8859-1", b"\xef\xbb\xbfcaf\xc3\xa9", "café"),
            ("text/html", b"<meta charset=koi8-r>\xc6", "<meta charset=koi8-r>ф"),
            ("text/html; charset=utf-8", "<meta charset=koi8-r>é".as_bytes(), "<meta charset=koi8-r>é"),
            ("text/html", "<meta charset='utf-16'>é".as_bytes(), "<meta charset='utf-16'>é"),
            (
                "text/xml",
                b"<?xml version='1.0' encoding='ISO-8859-1'?>\xe9",
                "<?xml version='1.0' encoding='ISO-8859-1'?>é",
            ),
            ("text/plain", b"charset=koi8-r \xe9", "charset=koi8-r é"),
        ] {
            assert_eq!(decoded(header, bytes).as_deref(), Some(text), "{header} {bytes:?}");
        }
        let cut = PageType::parse("text/plain").decode(&"éé".as_bytes()[..3], true);
        assert_eq!(cut.as_deref(), Some("é\u{fffd}"));
        assert_eq!(decoded("text/plain", b"\x7fELF\0\0"), None, "what calls itself text and is none");
    }
}
