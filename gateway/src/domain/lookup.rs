//! Looks records up by the end of their identifier.

use deskgate_protocol::management::{FindByEnd, FoundByEnd, RecordKind};
use deskgate_protocol::{ApplicationId, ConversationId, DeliveryId, DeviceId, OperationId, RunId};

use crate::store::{self, Store};

/// The records of one device, or of all, whose identifiers end like this. `None`: this is not the end of an identifier.
///
/// # Errors
/// The database does not answer, or refuses the statement.
pub async fn by_end(
    store: &Store,
    device_id: Option<DeviceId>,
    sought: &FindByEnd,
) -> Result<Option<FoundByEnd>, store::Error> {
    let FindByEnd { kind, end } = sought;
    let is_end = (4..32).contains(&end.len()) && end.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if !is_end {
        return Ok(None);
    }
    let found = store.ids_by_end(device_id, *kind, end).await?.into_iter();
    let ids = found.map(|id| match kind {
        RecordKind::Application => ApplicationId::from(id).to_string(),
        RecordKind::Run => RunId::from(id).to_string(),
        RecordKind::Conversation => ConversationId::from(id).to_string(),
        RecordKind::Operation => OperationId::from(id).to_string(),
        RecordKind::Delivery => DeliveryId::from(id).to_string(),
    });
    Ok(Some(FoundByEnd { ids: ids.collect() }))
}

/// Why [`by_end`] finds nothing in another text.
pub const NO_END: &str = "the end of an identifier is 4 to 31 of its last characters: digits, and a to f";
