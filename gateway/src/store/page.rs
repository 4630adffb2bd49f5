//! Pages of lists that are read newest first: each begins where the one before ended.

/// A position in a list that is sorted by time, and by identifier where the time is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PagePosition {
    /// The entry's `created_at`.
    pub moment: jiff::Timestamp,
    /// The bits of its identifier.
    pub id: uuid::Uuid,
}

impl PagePosition {
    /// The position before the newest entry, where a list begins.
    pub(super) const LIST_START: Self = Self { moment: jiff::Timestamp::MAX, id: uuid::Uuid::max() };
}

/// A part of a list.
#[derive(Clone, Debug)]
pub struct Page<T> {
    /// Newest first.
    pub entries: Vec<T>,
    /// Where the next page begins; `None` at the end of the list.
    pub next: Option<PagePosition>,
}

impl<T> Page<T> {
    /// An empty list.
    pub const EMPTY_PAGE: Self = Self { entries: Vec::new(), next: None };

    /// The first `limit` entries. One more was read, which shows whether there are more.
    pub(super) fn of(mut entries: Vec<T>, limit: u32, place: impl Fn(&T) -> PagePosition) -> Self {
        let limit = limit as usize;
        let is_full = entries.len() > limit;
        entries.truncate(limit);
        let next = entries.last().filter(|_| is_full).map(place);
        Self { entries, next }
    }

    /// The same page with converted entries.
    pub fn map<U>(self, change: impl FnMut(T) -> U) -> Page<U> {
        Page { entries: self.entries.into_iter().map(change).collect(), next: self.next }
    }
}
