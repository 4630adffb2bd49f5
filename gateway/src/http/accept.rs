//! The form of an answer that a caller wants: the Accept header (RFC 9110, section 12.5.1).

use axum::http::{HeaderMap, header};

/// The forms in which events are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventFormat {
    /// `text/event-stream`.
    Stream,
    /// `application/json`.
    Json,
}

/// The form that a caller asks for. A stream is only for those who name it: clients that are made from the document send
/// no Accept, or one that takes anything, and would wait for the end of an answer that has none. `None`: neither is
/// accepted.
pub(super) fn form(headers: &HeaderMap) -> Option<EventFormat> {
    let ranges: Vec<_> = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
    let ranges = ranges.join(",");
    if ranges.trim().is_empty() {
        return Some(EventFormat::Json);
    }
    let ((exactness, stream), (_, json)) =
        (weight(&ranges, "text", "event-stream"), weight(&ranges, "application", "json"));
    match (stream, json) {
        (0, 0) => None,
        (_, 0) => Some(EventFormat::Stream),
        _ if exactness == EXACT && stream >= json => Some(EventFormat::Stream),
        _ => Some(EventFormat::Json),
    }
}

/// A range that names one type.
const EXACT: u8 = 2;

/// How exactly a type is named, and how much it is wanted, in thousandths: by the range that names it most exactly.
fn weight(ranges: &str, kind: &str, subtype: &str) -> (u8, u16) {
    let fitting = ranges.split(',').filter_map(|range| {
        let mut parts = range.split(';').map(str::trim);
        let (named, sub) = parts.next()?.split_once('/')?;
        let exactness = match (named.eq_ignore_ascii_case(kind), sub.eq_ignore_ascii_case(subtype), named, sub) {
            (true, true, ..) => EXACT,
            (true, _, _, "*") => 1,
            (_, _, "*", "*") => 0,
            _ => return None,
        };
        let quality = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
        Some((exactness, thousandths(quality.unwrap_or("1"))))
    });
    fitting.max().unwrap_or_default()
}

/// A quality value; an invalid one counts as 0.
fn thousandths(quality: &str) -> u16 {
    let number = quality.trim().parse::<f32>().ok().filter(|number| (0.0..=1.0).contains(number));
    number.map_or(0, |number| (number * 1000.0).round() as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_is_what_the_caller_wants_most() {
        for (accept, expected) in [
            ("", Some(EventFormat::Json)),
            ("*/*", Some(EventFormat::Json)),
            ("text/event-stream", Some(EventFormat::Stream)),
            ("Text/Event-Stream; charset=utf-8", Some(EventFormat::Stream)),
            ("text/event-stream, */*", Some(EventFormat::Stream)),
            ("text/event-stream;q=0.9, */*", Some(EventFormat::Json)),
            ("application/json, text/event-stream", Some(EventFormat::Stream)),
            ("Text/*", Some(EventFormat::Stream)),
            ("text/*, */*", Some(EventFormat::Json)),
            ("application/json", Some(EventFormat::Json)),
            ("application/json; charset=utf-8", Some(EventFormat::Json)),
            ("application/*", Some(EventFormat::Json)),
            ("application/json, text/plain, */*", Some(EventFormat::Json)),
            ("application/json, */*;q=0.5", Some(EventFormat::Json)),
            ("text/event-stream;q=0.4, application/json;q=0.5", Some(EventFormat::Json)),
            ("*/*, text/event-stream;q=0", Some(EventFormat::Json)),
            ("application/json;q=0", None),
            ("application/json;q=2", None),
            ("text/html", None),
            ("nonsense", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, accept.parse().expect("visible"));
            assert_eq!(form(&headers), expected, "{accept}");
        }
        assert_eq!(form(&HeaderMap::new()), Some(EventFormat::Json));
    }
}
