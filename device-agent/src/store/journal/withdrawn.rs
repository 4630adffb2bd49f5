//! Answers that are taken out of what the journal remembers, because their conversation was forgotten.
//!
//! That the run ended here stays known: offered again, it is answered and never executed.

use deskgate_protocol::ids::RunId;
use rusqlite::{OptionalExtension, Transaction, params};

use crate::store::Error;

/// What stands in the place of the answer.
const FORGOTTEN: &str = "[This answer was forgotten with its conversation.]";

/// Takes away the answers of a conversation's settled runs, up to a generation.
pub(in crate::store) fn withdraw_answers(
    tx: &Transaction<'_>,
    conversation: &str,
    generation: u32,
) -> Result<(), Error> {
    tx.prepare_cached(
        "UPDATE past_run SET outcome = json_replace(outcome, '$.result.text', ?3),
                bytes = length(json_replace(outcome, '$.result.text', ?3))
         WHERE conversation_id = ?1 AND generation <= ?2 AND outcome ->> '$.result.text' <> ?3",
    )?
    .execute(params![conversation, generation, FORGOTTEN])?;
    Ok(())
}

/// Takes away the answer of a run that was settled only after its conversation was forgotten.
pub(super) fn withdraw_late(tx: &Transaction<'_>, run_id: RunId) -> Result<(), Error> {
    let closed = tx
        .prepare_cached(
            "SELECT c.conversation_id, c.generation FROM past_run p JOIN closed_generation c USING (conversation_id)
             WHERE p.run_id = ?1 AND p.generation <= c.generation",
        )?
        .query_row([run_id.to_string()], |row| Ok((row.get::<_, String>(0)?, row.get(1)?)))
        .optional()?;
    closed.map_or(Ok(()), |(conversation, generation)| withdraw_answers(tx, &conversation, generation))
}
