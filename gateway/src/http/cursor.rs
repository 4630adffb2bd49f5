//! Cursors: the end of a list's page, as opaque text that callers send back.
//!
//! A cursor holds the position of the page's last entry and is bound to its list: name, caller and filters. With
//! another list it is refused, so that a caller cannot page through a list that quietly became another one. It gives no
//! right: each page is read as that caller.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use deskgate_protocol::canonical::Sha256Digest;

use super::error::Error;
use crate::domain::access::Caller;
use crate::store::PagePosition;

/// The version of the byte layout. A cursor of another version is refused, and the list begun again.
const CURSOR_VERSION: u8 = 1;

/// The identity of a list in its cursors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListFingerprint([u8; 8]);

impl ListFingerprint {
    /// The list of this name with these filters, as this caller sees it.
    pub(super) fn new<'a>(name: &str, caller: &Caller, filters: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let app_id = caller.app_id().to_string();
        let fixed = [name, &app_id, caller.subject()];
        Self::of(fixed.into_iter().chain(filters.into_iter().flat_map(|(name, value)| [name, value])))
    }

    /// The list of these parts: its name, its caller, and its filters.
    pub fn of<'a>(parts: impl Iterator<Item = &'a str>) -> Self {
        // Lengths stand before the parts, so that no two lists make the same text.
        let text = parts.fold(String::new(), |text, part| text + &format!("{}:{part}", part.len()));
        let [a, b, c, d, e, f, g, h, ..] = Sha256Digest::of(text.as_bytes()).0;
        Self([a, b, c, d, e, f, g, h])
    }

    /// The cursor of the page that ended here.
    pub fn cursor(self, place: PagePosition) -> String {
        let mut bytes = vec![CURSOR_VERSION];
        bytes.extend(self.0);
        bytes.extend(place.moment.as_microsecond().to_be_bytes());
        bytes.extend(place.id.as_bytes());
        BASE64_URL_SAFE_NO_PAD.encode(bytes)
    }

    /// The position at which the page of this cursor ended.
    pub(super) fn place(self, cursor: &str) -> Result<PagePosition, Error> {
        self.read(cursor).ok_or_else(Error::invalid_cursor)
    }

    /// The same; `None` if the text is not a cursor of this list.
    pub fn read(self, cursor: &str) -> Option<PagePosition> {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(cursor).ok()?;
        let (version, rest) = bytes.split_first()?;
        let (list, rest) = rest.split_first_chunk::<8>()?;
        let (moment, id) = rest.split_first_chunk::<8>()?;
        if *version != CURSOR_VERSION || *list != self.0 {
            return None;
        }
        let moment = jiff::Timestamp::from_microsecond(i64::from_be_bytes(*moment)).ok()?;
        // Our records are newer, and the database knows no year before 4713 BC.
        Some(PagePosition { moment, id: uuid::Uuid::from_slice(id).ok()? })
            .filter(|place| place.moment.as_second() >= 0)
    }
}

/// An event's number, which is the cursor of a run's events. Digits only: `+1` is refused.
pub fn sequence(text: &str) -> Option<u64> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn list(name: &str) -> ListFingerprint {
        ListFingerprint::of([name].into_iter())
    }

    proptest! {
        #[test]
        fn a_cursor_reads_back_in_its_own_list_only(microseconds in 0_i64..253_402_207_200_000_000, id: u128) {
            let moment = jiff::Timestamp::from_microsecond(microseconds).expect("in range");
            let place = PagePosition { moment, id: uuid::Uuid::from_u128(id) };
            let cursor = list("a").cursor(place);
            prop_assert_eq!(list("a").read(&cursor), Some(place));
            prop_assert_eq!(list("b").read(&cursor), None);
            prop_assert_eq!(list("a").read(&cursor[1..]), None);
        }

        #[test]
        fn arbitrary_text_is_no_cursor_and_never_panics(text: String, bytes: Vec<u8>) {
            prop_assert_eq!(list("a").read(&text), None);
            prop_assert_eq!(list("a").read(&BASE64_URL_SAFE_NO_PAD.encode(bytes)), None);
        }
    }

    #[test]
    fn parts_that_run_together_make_different_lists() {
        assert_ne!(ListFingerprint::of(["ab", "c"].into_iter()), ListFingerprint::of(["a", "bc"].into_iter()));
    }

    #[test]
    fn a_moment_that_no_entry_can_have_is_refused() {
        let place = PagePosition { moment: jiff::Timestamp::MIN, id: uuid::Uuid::nil() };
        assert_eq!(list("a").read(&list("a").cursor(place)), None);
    }
}
