//! The tool calls of runs: what was asked, what began, and what came of it.
//!
//! Receipts name them by digests. The owner reads them whole: arguments, what each would do, and its output, for as many
//! days as the owner chose ([`RetentionSettings`]), and no longer than the gateway keeps their runs. They never leave this
//! computer. A conversation that is forgotten takes the calls of its runs along.

use deskgate_definition::tool::{EndedCall, Plan, PlannedCall};
use deskgate_protocol::Timestamp;
use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::ids::{ApprovalId, RunId};
use deskgate_protocol::receipt::{ApprovalDecision, ApprovalFacts, CallFacts, CallStatus, args_sha256, call_name};
use rusqlite::{OptionalExtension, Row, Transaction, params};
use serde::{Deserialize, Serialize};

use super::approvals::ApprovalState;
use super::receipts::uncanonical;
use super::settings::{GATEWAY_KEPT_SECONDS_SQL, kept_seconds};
use super::time::{NOW, text_time};

use super::{Error, RetentionSettings, Store, artifacts, intents, shorten};

/// How many bytes of a call's arguments, and of its output, are kept.
const MAX_PART_BYTES: usize = 16 * 1024;
/// How many calls of ended runs are kept.
const MAX_KEPT_CALLS: i64 = 20_000;
/// The most calls of a run that are read: the newest.
const MAX_LISTED_CALLS: u32 = 500;

/// A tool call as it was kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallRecord {
    /// The run's attempt.
    pub attempt: u32,
    /// The call's identifier, unique within the run.
    pub call_id: String,
    /// The tool.
    pub tool: String,
    /// Its arguments as JSON, or the beginning and the end of them.
    pub arguments: Option<String>,
    /// What it would do; absent if that could not be worked out.
    pub plan: Option<Plan>,
    /// The request that a person answered, if one was asked.
    pub approval_id: Option<ApprovalId>,
    /// When it began; absent if it did not.
    pub begun_at: Option<Timestamp>,
    /// When it ended, or was refused.
    pub ended_at: Option<Timestamp>,
    /// What came of it. `Unknown` while it runs.
    pub status: CallStatus,
    /// What the model was told of it, or the beginning and the end of that.
    pub output: Option<String>,
}

impl Store {
    /// The tool calls of a run in all its attempts, in their order.
    ///
    /// # Errors
    /// The database cannot be read, or an entry is damaged.
    pub async fn calls_of_run(&self, run_id: RunId) -> Result<Vec<CallRecord>, Error> {
        self.lazily(move |tx| {
            let mut statement = tx.prepare_cached(&of_run())?;
            let mut rows = statement.query(params![run_id.to_string(), MAX_LISTED_CALLS])?;
            let mut calls = Vec::new();
            while let Some(row) = rows.next()? {
                calls.push(record(row)?);
            }
            calls.reverse();
            Ok(calls)
        })
        .await
    }

    /// One call of a run.
    ///
    /// # Errors
    /// The database cannot be read, or the entry is damaged.
    pub async fn call_of_run(&self, run_id: RunId, call_id: String) -> Result<Option<CallRecord>, Error> {
        self.lazily(move |tx| {
            let mut statement = tx.prepare_cached(&format!("{} WHERE run_id = ?1 AND call_id = ?2", select()))?;
            let mut rows = statement.query(params![run_id.to_string(), call_id])?;
            rows.next()?.map(record).transpose()
        })
        .await
    }

    /// Deletes calls of ended runs, and what requests were about, once their time is over. Call regularly.
    ///
    /// # Errors
    /// The database cannot be written.
    pub async fn forget_old_calls(&self) -> Result<(), Error> {
        self.lazily(|tx| {
            for sql in [delete_old_calls(), forget_old_requests(), artifacts::delete_old(&kept(), IS_OPEN_SQL)] {
                tx.execute(&sql, [])?;
            }
            Ok(())
        })
        .await
    }

    /// How many calls are kept, and how many of them are older than `days` days.
    ///
    /// # Errors
    /// The database cannot be read.
    pub async fn calls_older_than(&self, days: u32) -> Result<(u64, u64), Error> {
        let sql = "SELECT count(*), count(*) FILTER (WHERE kept_from < (SELECT now FROM transcript_clock) - ?1 * 86400)
                   FROM run_call";
        self.lazily(move |tx| {
            Ok(tx.query_row(sql, [days], |row| Ok((row.get::<_, i64>(0)? as u64, row.get::<_, i64>(1)? as u64)))?)
        })
        .await
    }
}

/// For how long calls are kept: an SQL expression, in seconds.
fn kept() -> String {
    format!("min({}, {GATEWAY_KEPT_SECONDS_SQL})", kept_seconds("calls", RetentionSettings::DEFAULT.calls))
}

/// Whether the run of a row is not settled, as SQL.
const IS_OPEN_SQL: &str = "EXISTS (SELECT 1 FROM run_journal j WHERE j.run_id = o.run_id)";

pub(super) fn delete_old_calls() -> String {
    format!(
        "DELETE FROM run_call AS o WHERE kept_from < (SELECT now FROM transcript_clock) - {} AND NOT {IS_OPEN_SQL}",
        kept()
    )
}

pub(super) fn forget_old_requests() -> String {
    format!(
        "UPDATE approval AS o SET arguments = NULL, plan = NULL, why = '', subject = NULL
         WHERE arguments IS NOT NULL AND state <> 'waiting'
             AND kept_from < (SELECT now FROM transcript_clock) - {} AND NOT {IS_OPEN_SQL}",
        kept()
    )
}

/// A person is asked about a call. Until it begins, it was not run.
pub(super) fn asked(
    tx: &Transaction<'_>,
    run_id: &str,
    attempt: u32,
    call: &PlannedCall,
    approval_id: &str,
) -> Result<(), Error> {
    add(tx, run_id, attempt, call, "not_run", Some(approval_id))
}

/// A call begins. Until it is ended, what became of it is not known.
pub(super) fn begun(
    tx: &Transaction<'_>,
    run_id: &str,
    attempt: u32,
    call: &PlannedCall,
    approval_id: Option<&str>,
) -> Result<(), Error> {
    add(tx, run_id, attempt, call, "unknown", approval_id)
}

fn add(
    tx: &Transaction<'_>,
    run_id: &str,
    attempt: u32,
    call: &PlannedCall,
    status: &str,
    approval_id: Option<&str>,
) -> Result<(), Error> {
    let args = args_sha256(&call.arguments).map_err(uncanonical)?.to_string();
    tx.prepare_cached(&format!(
        "INSERT INTO run_call
             (run_id, attempt, call_id, tool, args_sha256, status, approval_id, arguments, plan, begun_at, kept_from)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, iif(?6 = 'not_run', NULL, {NOW}), (SELECT now FROM transcript_clock))
         ON CONFLICT (run_id, attempt, call_id) DO UPDATE SET tool = excluded.tool, args_sha256 = excluded.args_sha256,
             status = excluded.status, approval_id = coalesce(excluded.approval_id, approval_id),
             arguments = excluded.arguments, plan = excluded.plan, begun_at = excluded.begun_at"
    ))?
    .execute(params![
        run_id,
        attempt,
        call.call_id,
        call_name(&call.tool),
        args,
        status,
        approval_id,
        shorten::text(&call.arguments.to_string(), MAX_PART_BYTES),
        intents::text(&call.plan),
    ])?;
    Ok(())
}

/// A call that began has its result; its output follows.
pub(super) fn noted(tx: &Transaction<'_>, run_id: RunId, attempt: u32, call_id: &str, ok: bool) -> Result<(), Error> {
    tx.prepare_cached(
        "UPDATE run_call SET status = ?4 WHERE run_id = ?1 AND attempt = ?2 AND call_id = ?3 AND status = 'unknown'",
    )?
    .execute(params![run_id.to_string(), attempt, call_id, if ok { "ok" } else { "error" }])?;
    Ok(())
}

/// A call has ended, or was refused before it began.
pub(super) fn ended(tx: &Transaction<'_>, run_id: RunId, attempt: u32, call: &EndedCall) -> Result<(), Error> {
    let status = match (call.is_unknown, call.is_error) {
        (true, _) => "unknown",
        (_, true) => "error",
        (_, false) => "ok",
    };
    let args = args_sha256(&call.arguments).map_err(uncanonical)?.to_string();
    let new: Option<i64> = tx
        .prepare_cached(&format!(
            "INSERT INTO run_call (run_id, attempt, call_id, tool, args_sha256, status, arguments, output, ended_at, kept_from)
             VALUES (?1, ?2, ?3, ?4, ?5, ?9, ?6, ?7, {NOW}, (SELECT now FROM transcript_clock))
             ON CONFLICT (run_id, attempt, call_id) DO UPDATE SET output = excluded.output, ended_at = excluded.ended_at,
                 status = iif(begun_at IS NULL, status, ?8)
             RETURNING n"
        ))?
        .query_row(
            params![
                run_id.to_string(),
                attempt,
                call.call_id,
                call_name(&call.tool),
                args,
                shorten::text(&call.arguments.to_string(), MAX_PART_BYTES),
                shorten::text(&call.output, MAX_PART_BYTES),
                status,
                if call.is_refused { "not_run" } else { status },
            ],
            |row| row.get(0),
        )
        .optional()?;
    let sql = format!("DELETE FROM run_call AS o WHERE n <= ?1 AND NOT {IS_OPEN_SQL}");
    tx.prepare_cached(&sql)?.execute([new.unwrap_or_default() - MAX_KEPT_CALLS])?;
    Ok(())
}

/// Deletes the calls of a conversation's settled runs, up to a generation, and what its requests were about.
pub(super) fn forget_conversation(tx: &Transaction<'_>, conversation: &str, generation: u32) -> Result<(), Error> {
    let runs = "(SELECT run_id FROM past_run WHERE conversation_id = ?1 AND generation <= ?2)";
    for sql in [
        format!("DELETE FROM run_call AS o WHERE run_id IN {runs} AND NOT {IS_OPEN_SQL}"),
        format!(
            "UPDATE approval AS o SET arguments = NULL, plan = NULL, why = '', subject = NULL
             WHERE run_id IN {runs} AND state <> 'waiting' AND NOT {IS_OPEN_SQL}"
        ),
    ] {
        tx.prepare_cached(&sql)?.execute(params![conversation, generation])?;
    }
    Ok(())
}

/// The calls of an open run in all attempts, in their order, for its receipt: those that a person was asked about, and those
/// that began.
pub(super) fn facts(tx: &Transaction<'_>, run_id: RunId) -> Result<Vec<CallFacts>, Error> {
    let sql = format!(
        "SELECT c.attempt, c.tool, c.args_sha256, c.status, a.approval_id, a.state, {}
         FROM run_call c LEFT JOIN approval a ON a.approval_id = c.approval_id
         WHERE c.run_id = ?1 AND NOT c.settled AND (c.begun_at IS NOT NULL OR c.approval_id IS NOT NULL)
         ORDER BY c.n",
        text_time("a.decided_at")
    );
    let mut statement = tx.prepare_cached(&sql)?;
    let mut rows = statement.query([run_id.to_string()])?;
    let mut calls = Vec::new();
    while let Some(row) = rows.next()? {
        calls.push(call_facts(row)?);
    }
    Ok(calls)
}

fn call_facts(row: &Row<'_>) -> Result<CallFacts, Error> {
    let digest: String = row.get(2)?;
    let args_sha256: Sha256Digest = digest.parse().map_err(|_| damaged("its digest"))?;
    let status = status(&row.get::<_, String>(3)?);
    Ok(CallFacts { attempt: row.get(0)?, name: row.get(1)?, args_sha256, status, approval: approval(row)? })
}

fn status(text: &str) -> CallStatus {
    match text {
        "ok" => CallStatus::Ok,
        "error" => CallStatus::Error,
        "not_run" => CallStatus::NotRun,
        _ => CallStatus::Unknown,
    }
}

fn damaged(what: &str) -> Error {
    Error::damaged("a tool call")(what.to_owned())
}

/// The request that decided about a call, once it has ended.
fn approval(row: &Row<'_>) -> Result<Option<ApprovalFacts>, Error> {
    let damaged = |what: &str| Error::damaged("a request")(what.to_owned());
    let (Some(id), Some(state), Some(decided_at)) =
        (row.get::<_, Option<String>>(4)?, row.get::<_, Option<String>>(5)?, row.get::<_, Option<String>>(6)?)
    else {
        return Ok(None);
    };
    let decision = match ApprovalState::read(&state)? {
        ApprovalState::Waiting => return Ok(None),
        ApprovalState::Approved => ApprovalDecision::Approved,
        ApprovalState::ApprovedForRun => ApprovalDecision::ApprovedForRun,
        ApprovalState::Denied => ApprovalDecision::Denied,
        ApprovalState::Expired => ApprovalDecision::Expired,
        ApprovalState::Withdrawn => ApprovalDecision::Withdrawn,
    };
    let id = id.parse().map_err(|_| damaged("its identifier"))?;
    let decided_at = decided_at.parse().map_err(|_| damaged("its time"))?;
    Ok(Some(ApprovalFacts { id, decision, decided_at }))
}

fn select() -> String {
    format!(
        "SELECT attempt, call_id, tool, arguments, plan, approval_id, {}, {}, status, output FROM run_call",
        text_time("begun_at"),
        text_time("ended_at")
    )
}

/// The newest calls of a run, the newest first.
pub(super) fn of_run() -> String {
    format!("{} WHERE run_id = ?1 ORDER BY n DESC LIMIT ?2", select())
}

fn record(row: &Row<'_>) -> Result<CallRecord, Error> {
    let time = |column: usize| -> Result<Option<Timestamp>, Error> {
        let text: Option<String> = row.get(column)?;
        text.map(|text| text.parse().map_err(|_| damaged("a time"))).transpose()
    };
    let plan: Option<String> = row.get(4)?;
    let approval_id: Option<String> = row.get(5)?;
    Ok(CallRecord {
        attempt: row.get(0)?,
        call_id: row.get(1)?,
        tool: row.get(2)?,
        arguments: row.get(3)?,
        plan: plan.map(|json| serde_json::from_str(&json)).transpose().map_err(|_| damaged("its plan"))?,
        approval_id: approval_id.map(|id| id.parse()).transpose().map_err(|_| damaged("its request"))?,
        begun_at: time(6)?,
        ended_at: time(7)?,
        status: status(&row.get::<_, String>(8)?),
        output: row.get(9)?,
    })
}

#[cfg(test)]
mod tests;
