//! The schemas of lists' pages and of a stream's events.
//!
//! One named schema for each list: from a generic one, generators would make nameless entries.

use deskgate_protocol::conversation::Conversation;
use deskgate_protocol::delivery::Delivery;
use deskgate_protocol::file::File;
use deskgate_protocol::run::Run;
use utoipa::ToSchema;

macro_rules! pages {
    ($($(#[$doc:meta])* $name:ident of $entry:ty;)*) => {$(
        $(#[$doc])*
        #[derive(ToSchema)]
        #[allow(dead_code, reason = "its schema is what it is for")]
        pub(in crate::http) struct $name {
            /// The entries. A filter may leave a page short, or empty, although there are more.
            data: Vec<$entry>,
            /// The `cursor` of the page after this one.
            next_cursor: Option<String>,
            /// Whether there may be more.
            has_more: bool,
        }
    )*};
}

pages! {
    /// A page of a list of runs, newest first.
    RunPage of Run;
    /// A page of a list of conversations, newest first.
    ConversationPage of Conversation;
    /// A page of a list of files, newest first.
    FilePage of File;
    /// A page of a list of deliveries, newest first.
    DeliveryPage of Delivery;
}

/// One event of a stream; a stream is a sequence of these (HTML, section 9.2).
#[derive(ToSchema)]
#[allow(dead_code, reason = "its schema is what it is for")]
pub(in crate::http) struct ServerSentEvent {
    /// The number of a stored event in its run; absent from what is not stored.
    id: Option<String>,
    /// The type of the event.
    event: String,
    /// JSON: a `RunEvent`; of an event that is not stored, its `run_id`, `type` and `data` only.
    data: String,
    /// Milliseconds after which to connect again when the line broke.
    retry: Option<u32>,
}
