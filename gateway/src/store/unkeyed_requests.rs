//! Requests for work without an Idempotency-Key: which of them a repetition belongs to.

use std::time::Duration;

use deskgate_protocol::canonical::Sha256Digest;

use super::{Error, Store};

/// How long a request can be repeated.
const REPETITION_TIME: Duration = Duration::from_secs(600);
/// How long after its answer was written a request may be repeated by a client that says so: longer than SDKs pause.
const LOST_ANSWER_TIME: Duration = Duration::from_secs(30);

impl Store {
    /// The key for a request: that of an equal one of the last ten minutes whose client did not get its answer,
    /// or `fresh`. A request counts as cut off, too, if no gateway has said for `silence` that it is under way. A client
    /// that says that it repeats, `is_retry`, did not get an answer that was written a moment ago, either.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn key_of_unkeyed(
        &self,
        digest: Sha256Digest,
        fresh: &str,
        is_retry: bool,
        silence: Duration,
    ) -> Result<String, Error> {
        let sql = "-- unkeyed_requests::key
            WITH cut AS (
                SELECT idempotency_key FROM unkeyed_requests
                WHERE digest = $1 AND greatest(made_at, seen_at) > now() - make_interval(secs => $4)
                    AND ($3 AND (is_answered IS NOT TRUE OR seen_at > now() - make_interval(secs => $6))
                        OR is_answered IS FALSE OR is_answered IS NULL AND seen_at < now() - make_interval(secs => $5))
                ORDER BY made_at DESC LIMIT 1
            ), repeated AS (
                UPDATE unkeyed_requests SET is_answered = NULL, seen_at = now()
                WHERE idempotency_key = (SELECT idempotency_key FROM cut) RETURNING idempotency_key
            ), made AS (
                INSERT INTO unkeyed_requests (idempotency_key, digest)
                SELECT $2, $1 WHERE NOT EXISTS (SELECT FROM cut) RETURNING idempotency_key)
            SELECT idempotency_key FROM repeated UNION ALL SELECT idempotency_key FROM made";
        let digest = digest.0.as_slice();
        let [kept, silence, lost] = [REPETITION_TIME, silence, LOST_ANSWER_TIME].map(|time| time.as_secs_f64());
        let row = self.durable_opt(sql, &[&digest, &fresh, &is_retry, &kept, &silence, &lost]).await?;
        // One that was forgotten in this moment is another request.
        row.map_or_else(|| Ok(fresh.to_owned()), |row| Ok(row.try_get(0)?))
    }

    /// These requests are under way.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn see_unkeyed(&self, keys: &[String]) -> Result<(), Error> {
        let sql = "-- unkeyed_requests::see
            UPDATE unkeyed_requests SET seen_at = now() WHERE idempotency_key = ANY($1) AND is_answered IS NULL";
        self.relaxed_rows(sql, &[&keys]).await.map(drop)
    }

    /// How requests ended: whether each was answered.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn end_unkeyed(&self, keys: &[String], answered: &[bool]) -> Result<(), Error> {
        let sql = "-- unkeyed_requests::end
            UPDATE unkeyed_requests u SET is_answered = u.is_answered IS TRUE OR e.is_answered, seen_at = now()
            -- One key may have had several connections.
            FROM (SELECT idempotency_key, bool_or(is_answered) AS is_answered
                FROM unnest($1::text[], $2::boolean[]) AS e (idempotency_key, is_answered) GROUP BY idempotency_key) e
            WHERE u.idempotency_key = e.idempotency_key";
        self.relaxed_rows(sql, &[&keys, &answered]).await.map(drop)
    }

    /// Forgets requests that can no longer be repeated. Returns how many.
    ///
    /// # Errors
    /// The database does not answer, or refuses the statement.
    pub async fn forget_unkeyed(&self) -> Result<usize, Error> {
        let sql = "-- unkeyed_requests::forget
            DELETE FROM unkeyed_requests WHERE greatest(made_at, seen_at) < now() - make_interval(secs => $1) RETURNING 1";
        Ok(self.relaxed_rows(sql, &[&REPETITION_TIME.as_secs_f64()]).await?.len())
    }
}
