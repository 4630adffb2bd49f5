//! Deletes answers from the journal because their conversation was forgotten or their retention time is over.
//!
//! The journal keeps the fact that the run ended: offered again, it is answered and never executed.

use deskgate_protocol::ids::RunId;
use rusqlite::{OptionalExtension, Row, Transaction, params};

use super::{MAX_REMEMBERED_OUTCOMES, REMEMBERED_SECONDS};
use crate::settings::{GATEWAY_KEPT_SECONDS_SQL, kept_seconds};
use crate::transcripts;
use crate::withdrawal::{FORGOTTEN_TEXT, withdraw_content};
use crate::{Error, Journal, RetentionSettings};

/// The replacement for an answer whose retention time is over.
const EXPIRED_TEXT: &str = "[This answer was forgotten: its time was over.]";

impl Journal {
    /// Deletes the answers of runs that were settled before the retention time, and the runs that no gateway offers any
    /// more. Call regularly.
    ///
    /// # Errors
    /// The database cannot be read or written.
    pub async fn forget_old_answers(&self) -> Result<(), Error> {
        let own = kept_seconds("journal", RetentionSettings::DEFAULT.journal);
        let kept = format!("min({own}, {GATEWAY_KEPT_SECONDS_SQL})");
        self.store
            .durably(move |tx| {
                tx.execute(
                    &format!(
                        "UPDATE past_run SET outcome = json_remove(json_replace(outcome, '$.result.text', ?1), '$.result.data'),
                                bytes = length(json_remove(json_replace(outcome, '$.result.text', ?1), '$.result.data'))
                         WHERE settled_at < (SELECT now FROM transcript_clock) - {kept} AND {HOLDS_ANSWER_SQL}"
                    ),
                    params![EXPIRED_TEXT, FORGOTTEN_TEXT],
                )?;
                tx.execute(
                    "DELETE FROM past_run WHERE n <= (SELECT max(n) FROM past_run) - ?1
                         AND settled_at < (SELECT now FROM transcript_clock) - ?2
                         AND NOT EXISTS (SELECT 1 FROM run_call c WHERE c.run_id = past_run.run_id)",
                    [MAX_REMEMBERED_OUTCOMES, REMEMBERED_SECONDS],
                )?;
                transcripts::forget_closed(tx)
            })
            .await
    }

    /// How many answers are stored, and how many of them belong to runs settled more than `days` days ago.
    ///
    /// # Errors
    /// The database cannot be read.
    pub async fn answers_older_than(&self, days: u32) -> Result<(u64, u64), Error> {
        self.store
            .lazily(move |tx| {
                let sql = format!(
                    "SELECT count(*), count(*) FILTER (WHERE settled_at < (SELECT now FROM transcript_clock) - ?3 * 86400)
                     FROM past_run WHERE {HOLDS_ANSWER_SQL}"
                );
                let counts = |row: &Row<'_>| Ok((row.get::<_, i64>(0)? as u64, row.get::<_, i64>(1)? as u64));
                Ok(tx.query_row(&sql, params![EXPIRED_TEXT, FORGOTTEN_TEXT, days], counts)?)
            })
            .await
    }
}

/// Whether a row still holds an answer, as SQL.
const HOLDS_ANSWER_SQL: &str = "outcome ->> '$.result.text' NOT IN (?1, ?2)";

/// Deletes the answer of a run that was settled after its conversation was forgotten.
pub(super) fn withdraw_late(tx: &Transaction<'_>, run_id: RunId) -> Result<(), Error> {
    let closed = tx
        .prepare_cached(
            "SELECT c.conversation_id, c.generation FROM past_run p JOIN closed_generation c USING (conversation_id)
             WHERE p.run_id = ?1 AND p.generation <= c.generation",
        )?
        .query_row([run_id.to_string()], |row| Ok((row.get::<_, String>(0)?, row.get(1)?)))
        .optional()?;
    closed.map_or(Ok(()), |(conversation, generation)| withdraw_content(tx, &conversation, generation))
}
