//! Intents: each writing call that began, and its result. Recovery and reconciliation read them.

use deskgate_definition::tool::{Plan, PlannedCall};
use deskgate_protocol::Timestamp;
use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::ids::RunId;
use deskgate_protocol::run::Effects;
use rusqlite::{Transaction, params};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Error;
use super::time::{NOW, text_time};

/// A writing call that began.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Intent {
    /// The run's attempt.
    pub attempt: u32,
    /// The call's identifier.
    pub call_id: String,
    /// The tool.
    pub tool: String,
    /// The exact arguments of the tool.
    pub arguments: Value,
    /// The call's plan.
    pub plan: Plan,
    /// When it began.
    pub begun_at: Timestamp,
    /// Whether it reported success; `None`: the effect is unknown.
    pub ok: Option<bool>,
}

pub(super) fn begin(
    tx: &Transaction<'_>,
    run_id: &str,
    attempt: u32,
    call: &PlannedCall,
    digest: &str,
) -> Result<(), Error> {
    tx.prepare_cached(&format!(
        "INSERT INTO intent (run_id, attempt, call_id, tool, digest, arguments, plan, begun_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, {NOW})"
    ))?
    .execute(params![
        run_id,
        attempt,
        call.call_id,
        call.tool,
        digest,
        call.arguments.to_string(),
        text(&call.plan)
    ])?;
    Ok(())
}

pub(super) fn end(tx: &Transaction<'_>, run_id: RunId, attempt: u32, call_id: &str, ok: bool) -> Result<(), Error> {
    let changed = tx
        .prepare_cached("UPDATE intent SET ok = ?4 WHERE run_id = ?1 AND attempt = ?2 AND call_id = ?3 AND ok IS NULL")?
        .execute(params![run_id.to_string(), attempt, call_id, ok])?;
    if changed == 0 { Err(Error::NoSuchEntry { run_id, attempt, wanted: "noted" }) } else { Ok(()) }
}

/// What the writing calls of a run changed, over all of its attempts.
pub(super) fn effects(tx: &Transaction<'_>, run_id: RunId) -> Result<Effects, Error> {
    count(tx, run_id, "1")
}

/// The same without the last call, if it has no result.
pub(super) fn effects_before_the_last(tx: &Transaction<'_>, run_id: RunId) -> Result<Effects, Error> {
    count(tx, run_id, "(ok IS NOT NULL OR n < (SELECT max(n) FROM intent WHERE run_id = ?1))")
}

/// The digests of the writing calls whose effect is unknown.
pub(super) fn uncertain(tx: &Transaction<'_>, run_id: RunId) -> Result<Vec<Sha256Digest>, Error> {
    let mut statement = tx.prepare_cached("SELECT DISTINCT digest FROM intent WHERE run_id = ?1 AND ok IS NULL")?;
    let digests = statement.query_map([run_id.to_string()], |row| row.get::<_, String>(0))?;
    digests.map(|text| text?.parse().map_err(|_| Error::damaged("an intent")("its digest".to_owned()))).collect()
}

fn count(tx: &Transaction<'_>, run_id: RunId, which: &str) -> Result<Effects, Error> {
    let sql = format!("SELECT count(*), coalesce(max(ok), 0) FROM intent WHERE run_id = ?1 AND {which}");
    let (began, succeeded): (i64, bool) =
        tx.prepare_cached(&sql)?.query_row([run_id.to_string()], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(match (began, succeeded) {
        (0, _) => Effects::None,
        (_, false) => Effects::Possible,
        (_, true) => Effects::Known,
    })
}

/// The writing calls of a run, in order of their start.
pub(super) fn list(tx: &Transaction<'_>, run_id: RunId) -> Result<Vec<Intent>, Error> {
    let mut statement = tx.prepare_cached(&format!(
        "SELECT attempt, call_id, tool, arguments, plan, {}, ok FROM intent WHERE run_id = ?1 ORDER BY n",
        text_time("begun_at")
    ))?;
    let mut rows = statement.query([run_id.to_string()])?;
    let mut intents = Vec::new();
    while let Some(row) = rows.next()? {
        let damaged = |_| Error::damaged("an intent")("it is not JSON".to_owned());
        let begun_at: String = row.get(5)?;
        intents.push(Intent {
            attempt: row.get(0)?,
            call_id: row.get(1)?,
            tool: row.get(2)?,
            arguments: serde_json::from_str(&row.get::<_, String>(3)?).map_err(damaged)?,
            plan: serde_json::from_str(&row.get::<_, String>(4)?).map_err(damaged)?,
            begun_at: begun_at.parse().map_err(|_| Error::damaged("an intent")(begun_at))?,
            ok: row.get(6)?,
        });
    }
    Ok(intents)
}

pub(super) fn forget(tx: &Transaction<'_>, run_id: RunId) -> Result<(), Error> {
    tx.prepare_cached("DELETE FROM intent WHERE run_id = ?1")?.execute([run_id.to_string()])?;
    tx.prepare_cached("UPDATE run_call SET settled = 1 WHERE run_id = ?1")?.execute([run_id.to_string()])?;
    Ok(())
}

pub(super) fn text(plan: &Plan) -> String {
    serde_json::to_string(plan).expect("a plan is text and digests")
}
