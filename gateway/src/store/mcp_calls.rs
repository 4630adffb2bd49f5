//! The calls of MCP that are under way, by what their clients call them.

use std::time::Duration;

use deskgate_protocol::RunId;
use deskgate_protocol::canonical::Sha256Digest;

use super::{Error, Store};

/// How long a call is remembered: longer than any answer is waited for.
const CALL_TIME: Duration = Duration::from_secs(600);

impl Store {
    /// Remembers which run a call made. `call`: of key, subject, session and number.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn note_mcp_call(&self, call: Sha256Digest, run_id: RunId) -> Result<(), Error> {
        let sql = "-- mcp_calls::note
            INSERT INTO mcp_calls (call_digest, run_id) VALUES ($1, $2)
            ON CONFLICT (call_digest) DO UPDATE SET run_id = $2, made_at = now()";
        self.relaxed_rows(sql, &[&call.0.as_slice(), &run_id.uuid()]).await.map(drop)
    }

    /// The run that a call of the last ten minutes made.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn run_of_mcp_call(&self, call: Sha256Digest) -> Result<Option<RunId>, Error> {
        let sql = "-- mcp_calls::run
            SELECT run_id FROM mcp_calls WHERE call_digest = $1";
        let row = self.durable_opt(sql, &[&call.0.as_slice()]).await?;
        row.map(|row| Ok(row.try_get::<_, uuid::Uuid>(0)?.into())).transpose()
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
