//! Pages of lists: which one is asked for, and how it is answered.

use axum::Json;
use serde::Serialize;

use super::cursor::List;
use super::error::Error;
use super::query::Query;
use crate::domain::access::Caller;
use crate::store::{self, Place};

/// Entries in a page: at most, and when nothing is said.
pub(super) const LONGEST_PAGE: u32 = 100;
const USUAL_PAGE: u32 = 20;

/// A page of a list.
#[derive(Debug, Serialize)]
pub(super) struct Page<T> {
    /// The entries, newest first. A filter may leave a page short, or empty, although there are more.
    data: Vec<T>,
    /// The `cursor` of the page after this one, while there may be one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
    /// Whether to go on with `next_cursor`.
    has_more: bool,
}

/// The page that a caller asks for.
pub(super) struct Paging {
    list: List,
    /// It begins after this place; `None`: with the newest entry.
    pub(super) before: Option<Place>,
    /// How many entries it has at most.
    pub(super) limit: u32,
}

impl Paging {
    /// Reads `limit` and `cursor`, which must come from the list of this name, for this caller and with these filters.
    pub(super) fn read(name: &str, caller: &Caller, query: &Query) -> Result<Self, Error> {
        let limit = query.number("limit", 1..=LONGEST_PAGE, USUAL_PAGE)?;
        let list = List::new(name, caller, query.filters());
        let before = query.text("cursor").map(|cursor| list.place(cursor)).transpose()?;
        Ok(Self { list, before, limit })
    }

    /// The answer.
    pub(super) fn page<T>(&self, found: store::Page<T>) -> Json<Page<T>> {
        let next_cursor = found.next.map(|place| self.list.cursor(place));
        Json(Page { data: found.entries, has_more: next_cursor.is_some(), next_cursor })
    }
}
