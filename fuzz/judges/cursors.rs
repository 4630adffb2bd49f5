//! Cursors: each reads back as its own position, in its own list only, and each position has one text.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use deskgate_gateway::http::cursor::{ListFingerprint, sequence};

/// Judges a text as a cursor; and the same bytes as changes of a valid one.
pub fn judge(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (own, other) = (list("anna"), list("bert"));
    if let Some(place) = own.read(&text) {
        assert_eq!(own.cursor(place), text, "two texts of one place");
        assert_eq!(other.read(&text), None, "somebody else's cursor");
    }
    if let Some(number) = sequence(&text) {
        let digits = text.trim_start_matches('0');
        assert_eq!(number.to_string().trim_start_matches('0'), digits, "the number of an event");
    }
    assert_eq!(sequence(&text).is_some(), is_number(&text), "digits that fit, and nothing else");
    bent(own, other, bytes);
}

fn list(subject: &str) -> ListFingerprint {
    ListFingerprint::of(["runs", "app_1", subject, "state", "queued"].into_iter())
}

fn is_number(text: &str) -> bool {
    let digits = text.trim_start_matches('0');
    !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_digit())
        && (digits.len() < 20 || digits.len() == 20 && digits <= "18446744073709551615")
}

/// A cursor with some changed bytes: a wrong version or list is noticed, and a position belongs to this list.
fn bent(own: ListFingerprint, other: ListFingerprint, bytes: &[u8]) {
    let id = "018f3b6e-0000-7000-8000-000000000001".parse().expect("an identifier");
    let moment = "2026-11-21T09:00:00.123456Z".parse().expect("a moment");
    let cursor = own.cursor(deskgate_gateway::store::PagePosition { moment, id });
    let mut raw = BASE64_URL_SAFE_NO_PAD.decode(&cursor).expect("it was written so");
    raw.iter_mut().zip(bytes).for_each(|(own, change)| *own ^= change);
    raw.extend(bytes.get(raw.len()..).unwrap_or_default());
    let text = BASE64_URL_SAFE_NO_PAD.encode(&raw);
    let same_list = bytes.iter().take(9).all(|change| *change == 0);
    match own.read(&text) {
        Some(place) => {
            assert!(same_list, "a cursor of another version or list is read");
            assert!(place.moment.as_second() >= 0 && own.cursor(place) == text, "{place:?}");
        }
        None => assert!(text != cursor, "an untouched cursor is refused"),
    }
    assert_eq!(other.read(&cursor), None);
}
