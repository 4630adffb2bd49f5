//! Looks records up by the end of their identifier, as lists on a terminal and on the pages show it.

use serde::{Deserialize, Serialize};

crate::words! {
    /// The kinds of records that are looked up by the end of their identifier.
    pub enum RecordKind {
        /// Applications, removed or not.
        Application = "application",
        /// Runs.
        Run = "run",
        /// Conversations.
        Conversation = "conversation",
        /// Stops and resets.
        Operation = "operation",
        /// Deliveries.
        Delivery = "delivery",
    }
}

/// At most so many identifiers are found.
pub const MAX_FOUND_BY_END: usize = 10;

/// Finds records of one kind by the end of their identifier.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FindByEnd {
    /// The kind.
    pub kind: RecordKind,
    /// The last hexadecimal digits, 4 to 31.
    pub end: String,
}

/// The reply to [`FindByEnd`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundByEnd {
    /// Their whole identifiers, newest first; at most [`MAX_FOUND_BY_END`].
    pub ids: Vec<String>,
}

impl FoundByEnd {
    /// The identifiers as those of one kind; another kind's are left out.
    pub fn parsed<I: std::str::FromStr>(&self) -> impl Iterator<Item = I> {
        self.ids.iter().filter_map(|id| id.parse().ok())
    }
}
