//! The audit: an append-only list of approval requests, decisions, and calls that ran.
//!
//! Rows never change, not even by this program: triggers of the database refuse it, and refuse to delete rows younger
//! than [`AUDIT_RETENTION`]. The audit holds digests, never arguments: those are kept for days only ([`super::calls`]).

use std::time::Duration;

use deskgate_protocol::Timestamp;
use deskgate_protocol::ids::RunId;
use rusqlite::{Transaction, params};
use serde::{Deserialize, Serialize};

use super::time::{NOW, text_time};
use super::{Error, Store, receipts};

/// How long the rows are kept, by the clock that a wrong date does not advance; the triggers in `schema` use the same
/// value.
pub const AUDIT_RETENTION: Duration = Duration::from_secs(400 * 24 * 3600);

pub(super) const DELETE_OLD_ROWS_SQL: &str =
    "DELETE FROM audit WHERE kept_from < (SELECT now FROM transcript_clock) - ?1";
pub(super) const DELETE_OLD_REQUESTS_SQL: &str =
    "DELETE FROM approval WHERE kept_from < (SELECT now FROM transcript_clock) - ?1 AND state <> 'waiting'";

/// One row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// The row's number; only the oldest numbers are ever missing.
    pub n: u64,
    /// When it happened, by the computer's clock.
    pub at: Timestamp,
    /// The kind of row: `requested`, `decided`, `executed` or `reconciled`.
    pub what: String,
    /// What caused it: a local user, `rules`, `expiry`, `agent`, or the approval that a call ran by.
    pub who: String,
    /// The run's identifier.
    pub run_id: RunId,
    /// The run's attempt.
    pub attempt: u32,
    /// The call within the run; empty where the whole run was settled.
    pub call_id: String,
    /// The tool; empty likewise.
    pub tool: String,
    /// The digest of tool, exact arguments and plan; empty likewise.
    pub digest: String,
    /// The approval request it belongs to.
    pub approval_id: Option<String>,
    /// The decision.
    pub answer: Option<String>,
}

/// A row to add.
pub(super) struct NewAuditEntry<'a> {
    pub(super) what: &'static str,
    pub(super) who: &'a str,
    pub(super) run_id: &'a str,
    pub(super) attempt: u32,
    pub(super) call_id: &'a str,
    pub(super) tool: &'a str,
    pub(super) digest: &'a str,
    pub(super) approval_id: Option<&'a str>,
    pub(super) answer: Option<&'a str>,
}

/// Adds a row, in the same transaction as the step it records.
pub(super) fn add(tx: &Transaction<'_>, new: &NewAuditEntry<'_>) -> Result<(), Error> {
    tx.prepare_cached(&format!(
        "INSERT INTO audit (at, kept_from, what, who, run_id, attempt, call_id, tool, digest, approval_id, answer)
         VALUES ({NOW}, (SELECT now FROM transcript_clock), ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)"
    ))?
    .execute(params![
        new.what,
        new.who,
        new.run_id,
        new.attempt,
        new.call_id,
        new.tool,
        new.digest,
        new.approval_id,
        new.answer
    ])?;
    Ok(())
}

/// The newest rows, at most `?1`: of all runs, or of the run `?2`.
pub(super) fn newest(of_one_run: bool) -> String {
    let filter = if of_one_run { "WHERE run_id = ?2" } else { "" };
    format!(
        "SELECT n, {}, what, who, run_id, attempt, call_id, tool, digest, approval_id, answer FROM audit
         {filter} ORDER BY n DESC LIMIT ?1",
        text_time("at")
    )
}

/// The audit's handle.
#[derive(Clone, Debug)]
pub struct Audit {
    store: Store,
}

impl Audit {
    pub(super) fn new(store: Store) -> Self {
        Self { store }
    }

    /// The newest rows, newest first; of one run if one is named.
    ///
    /// # Errors
    /// The database cannot be read, or a listed row is damaged.
    pub async fn list(&self, run_id: Option<RunId>, limit: u32) -> Result<Vec<AuditEntry>, Error> {
        self.store
            .lazily(move |tx| {
                let mut statement = tx.prepare_cached(&newest(run_id.is_some()))?;
                let mut rows = match run_id {
                    Some(run_id) => statement.query(params![limit, run_id.to_string()])?,
                    None => statement.query([limit])?,
                };
                let mut entries = Vec::new();
                while let Some(row) = rows.next()? {
                    let parse = |error: String| Error::damaged("the audit")(error);
                    entries.push(AuditEntry {
                        n: row.get::<_, i64>(0)? as u64,
                        at: row.get::<_, String>(1)?.parse().map_err(|_| parse("a time".to_owned()))?,
                        what: row.get(2)?,
                        who: row.get(3)?,
                        run_id: row.get::<_, String>(4)?.parse().map_err(|_| parse("a run".to_owned()))?,
                        attempt: row.get(5)?,
                        call_id: row.get(6)?,
                        tool: row.get(7)?,
                        digest: row.get(8)?,
                        approval_id: row.get(9)?,
                        answer: row.get(10)?,
                    });
                }
                Ok(entries)
            })
            .await
    }

    /// Deletes rows older than [`AUDIT_RETENTION`], requests answered as long ago, and receipts as old.
    ///
    /// # Errors
    /// The database cannot be read or written.
    pub async fn forget_old(&self) -> Result<(), Error> {
        self.store
            .lazily(|tx| {
                let kept = AUDIT_RETENTION.as_secs() as i64;
                tx.execute(DELETE_OLD_ROWS_SQL, [kept])?;
                tx.execute(DELETE_OLD_REQUESTS_SQL, [kept])?;
                tx.execute(receipts::DELETE_OLD_RECEIPTS_SQL, [kept])?;
                Ok(())
            })
            .await
    }
}
