//! Deletes what the device remembers of a conversation's runs because it was forgotten.

use rusqlite::{Transaction, params};

use crate::{Error, calls};

/// The replacement for the answer.
pub(crate) const FORGOTTEN_TEXT: &str = "[This answer was forgotten with its conversation.]";

/// Deletes the answers of a conversation's settled runs, up to a generation, and their tool calls.
pub(crate) fn withdraw_content(tx: &Transaction<'_>, conversation: &str, generation: u32) -> Result<(), Error> {
    tx.prepare_cached(
        "UPDATE past_run SET outcome = json_remove(json_replace(outcome, '$.result.text', ?3), '$.result.data'),
                bytes = length(json_remove(json_replace(outcome, '$.result.text', ?3), '$.result.data'))
         WHERE conversation_id = ?1 AND generation <= ?2 AND outcome ->> '$.result.text' <> ?3",
    )?
    .execute(params![conversation, generation, FORGOTTEN_TEXT])?;
    calls::forget_conversation(tx, conversation, generation)
}
