//! Pages of lists: the request for one, and its answer.

use axum::Json;
use serde::Serialize;

use super::cursor::ListFingerprint;
use super::error::Error;
use super::query::QueryParameters;
use crate::domain::access::Caller;
use crate::store::{self, PagePosition};

/// Entries in a page: at most, and by default.
pub(super) const MAX_PAGE_ENTRIES: u32 = 100;
const DEFAULT_PAGE_ENTRIES: u32 = 20;

/// A page of a list.
#[derive(Debug, Serialize)]
pub(super) struct ListPage<T> {
    /// The entries, newest first. A filter may leave a page short, or empty, although there are more.
    data: Vec<T>,
    /// The `cursor` of the page after this one, while there may be one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
    /// Whether to go on with `next_cursor`.
    has_more: bool,
}

/// The page that a caller asks for.
pub(super) struct PageRequest {
    list: ListFingerprint,
    /// The page begins after this position; `None`: with the newest entry.
    pub(super) before: Option<PagePosition>,
    /// How many entries it has at most.
    pub(super) limit: u32,
}

impl PageRequest {
    /// Reads `limit` and `cursor`, which must come from the list of this name, for this caller and with these filters.
    pub(super) fn read(name: &str, caller: &Caller, query: &QueryParameters) -> Result<Self, Error> {
        let limit = query.number("limit", 1..=MAX_PAGE_ENTRIES, DEFAULT_PAGE_ENTRIES)?;
        let list = ListFingerprint::new(name, caller, query.filters());
        let before = query.text("cursor").map(|cursor| list.place(cursor)).transpose()?;
        Ok(Self { list, before, limit })
    }

    /// The answer with a page.
    pub(super) fn page<T>(&self, found: store::Page<T>) -> Json<ListPage<T>> {
        let next_cursor = found.next.map(|place| self.list.cursor(place));
        Json(ListPage { data: found.entries, has_more: next_cursor.is_some(), next_cursor })
    }
}
