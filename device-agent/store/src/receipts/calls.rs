//! The tool calls of a run, for its receipt: what was asked, what began, and what became of it. Digests, no arguments.

use deskgate_definition::tool::PlannedCall;
use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::ids::RunId;
use deskgate_protocol::receipt::{ApprovalDecision, ApprovalFacts, CallFacts, CallStatus, args_sha256, call_name};
use rusqlite::{Row, Transaction, params};

use super::{Error, uncanonical};
use crate::approvals::ApprovalState;
use crate::time::text_time;

/// A person is asked about a call. Until it begins, it was not run.
pub(crate) fn asked(
    tx: &Transaction<'_>,
    run_id: &str,
    attempt: u32,
    call: &PlannedCall,
    approval_id: &str,
) -> Result<(), Error> {
    add(tx, run_id, attempt, call, "not_run", Some(approval_id))
}

/// A call begins. Until it is ended, what became of it is not known.
pub(crate) fn begun(
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
    tx.prepare_cached(
        "INSERT INTO run_call (run_id, attempt, call_id, tool, args_sha256, status, approval_id)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
         ON CONFLICT (run_id, attempt, call_id) DO UPDATE SET tool = excluded.tool, args_sha256 = excluded.args_sha256,
             status = excluded.status, approval_id = coalesce(excluded.approval_id, approval_id)",
    )?
    .execute(params![run_id, attempt, call.call_id, call_name(&call.tool), args, status, approval_id])?;
    Ok(())
}

/// A call that began has its result.
pub(crate) fn ended(tx: &Transaction<'_>, run_id: RunId, attempt: u32, call_id: &str, ok: bool) -> Result<(), Error> {
    tx.prepare_cached(
        "UPDATE run_call SET status = ?4 WHERE run_id = ?1 AND attempt = ?2 AND call_id = ?3 AND status = 'unknown'",
    )?
    .execute(params![run_id.to_string(), attempt, call_id, if ok { "ok" } else { "error" }])?;
    Ok(())
}

/// The calls of a run in all attempts, in their order.
pub(super) fn list(tx: &Transaction<'_>, run_id: RunId) -> Result<Vec<CallFacts>, Error> {
    let sql = format!(
        "SELECT c.attempt, c.tool, c.args_sha256, c.status, a.approval_id, a.state, {}
         FROM run_call c LEFT JOIN approval a ON a.approval_id = c.approval_id WHERE c.run_id = ?1 ORDER BY c.n",
        text_time("a.decided_at")
    );
    let mut statement = tx.prepare_cached(&sql)?;
    let mut rows = statement.query([run_id.to_string()])?;
    let mut calls = Vec::new();
    while let Some(row) = rows.next()? {
        calls.push(call(row)?);
    }
    Ok(calls)
}

fn call(row: &Row<'_>) -> Result<CallFacts, Error> {
    let damaged = |what: &str| Error::damaged("a call")(what.to_owned());
    let digest: String = row.get(2)?;
    let args_sha256: Sha256Digest = digest.parse().map_err(|_| damaged("its digest"))?;
    let status = match row.get::<_, String>(3)?.as_str() {
        "ok" => CallStatus::Ok,
        "error" => CallStatus::Error,
        "not_run" => CallStatus::NotRun,
        _ => CallStatus::Unknown,
    };
    Ok(CallFacts { attempt: row.get(0)?, name: row.get(1)?, args_sha256, status, approval: approval(row)? })
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
