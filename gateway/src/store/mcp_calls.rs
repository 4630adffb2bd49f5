//! The calls of MCP that are under way, by what their clients call them.

use std::time::Duration;

use deskgate_protocol::RunId;
use deskgate_protocol::canonical::Sha256Digest;

use super::{Error, Store};

/// How long a call is remembered: longer than any answer is waited for.
const CALL_TIME: Duration = Duration::from_secs(600);

impl Store {
    /// Remembers which run a call is for, and the key that it was given if it has no name of its own. Returns whether its client
    /// cancelled it before. `call`: of key, subject, session and number.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn note_mcp_call(&self, call: Sha256Digest, run_id: RunId, key: Option<&str>) -> Result<bool, Error> {
        let sql = "-- mcp_calls::note
            INSERT INTO mcp_calls (call_digest, run_id, idempotency_key) VALUES ($1, $2, $3)
            ON CONFLICT (call_digest) DO UPDATE SET run_id = $2, idempotency_key = $3, made_at = now()
            RETURNING is_cancelled";
        let rows = self.relaxed_rows(sql, &[&call.0.as_slice(), &run_id.uuid(), &key]).await?;
        Ok(rows.first().map(|row| row.try_get(0)).transpose()?.unwrap_or_default())
    }

    /// Remembers that a call was cancelled. Returns its run, if it is there already. Who asks the same again is not given that run.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn cancel_mcp_call(&self, call: Sha256Digest) -> Result<Option<RunId>, Error> {
        let sql = "-- mcp_calls::cancel
            WITH cancelled AS (
                INSERT INTO mcp_calls (call_digest, is_cancelled) VALUES ($1, true)
                ON CONFLICT (call_digest) DO UPDATE SET is_cancelled = true RETURNING run_id, idempotency_key
            ), closed AS (
                UPDATE unkeyed_requests SET is_answered = true
                WHERE idempotency_key = (SELECT idempotency_key FROM cancelled))
            SELECT run_id FROM cancelled";
        let rows = self.relaxed_rows(sql, &[&call.0.as_slice()]).await?;
        let run_id: Option<uuid::Uuid> = rows.first().map(|row| row.try_get(0)).transpose()?.flatten();
        Ok(run_id.map(Into::into))
    }

    /// Forgets calls that are over. Returns how many.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn forget_mcp_calls(&self) -> Result<usize, Error> {
        let sql = "-- mcp_calls::forget
            DELETE FROM mcp_calls WHERE made_at < now() - make_interval(secs => $1) RETURNING 1";
        Ok(self.relaxed_rows(sql, &[&CALL_TIME.as_secs_f64()]).await?.len())
    }
}
