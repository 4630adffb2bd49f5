//! Requests for approval, and their one answer each.
//!
//! ```text
//! waiting ──► approved | approved_for_run | denied      a person, on this device's private socket
//!         ──► expired                                   nobody, in time
//!         ──► withdrawn                                 the run ended first
//! ```
//!
//! Each step is one statement that names `waiting` and holds the time inside it, so that of two at once one has
//! happened and the other learns that it came too late. The time is the computer's clock, because people see it. Set
//! forward, it makes a request expire early: a no, never a yes. Set back, it would make it live longer: whoever waits
//! for the answer ends that by a clock that nobody sets (see [`super::ledger`]).

use deskgate_definition::tool::Plan;
use deskgate_protocol::Timestamp;
use deskgate_protocol::control::ToolKind;
use deskgate_protocol::ids::{ApprovalId, EndpointId, RunId};
use rusqlite::{OptionalExtension, Row, Transaction, params};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::time::{NOW, text_time};
use super::{Error, Store, audit};

/// Requests that are listed at once.
const MAX_LISTED_REQUESTS: u32 = 500;

/// Requests that wait. This and the next text name the condition as the index does, which makes it apply.
pub(super) const WAITING_SQL: &str = "SELECT approval_id FROM approval WHERE state = 'waiting'";
pub(super) const WAITING_OF_RUN_SQL: &str = "SELECT approval_id FROM approval WHERE state = 'waiting' AND run_id = ?1";

/// Where a request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalState {
    /// Nobody decided yet.
    Waiting,
    /// A person allowed this call.
    Approved,
    /// A person allowed this call, and further ones of its scope in this run.
    ApprovedForRun,
    /// A person refused.
    Denied,
    /// Nobody decided in time.
    Expired,
    /// The run ended, or was cut off, before anybody decided.
    Withdrawn,
}

impl ApprovalState {
    const ALL: [(Self, &'static str); 6] = [
        (Self::Waiting, "waiting"),
        (Self::Approved, "approved"),
        (Self::ApprovedForRun, "approved_for_run"),
        (Self::Denied, "denied"),
        (Self::Expired, "expired"),
        (Self::Withdrawn, "withdrawn"),
    ];

    /// As it is stored and shown.
    pub fn as_str(self) -> &'static str {
        Self::ALL.iter().find(|(state, _)| *state == self).map_or("waiting", |(_, text)| text)
    }

    pub(super) fn read(text: &str) -> Result<Self, Error> {
        let found = Self::ALL.iter().find(|(_, known)| *known == text);
        found.map(|(state, _)| *state).ok_or_else(|| Error::damaged("the state of a request")(text.to_owned()))
    }
}

/// What a person decides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "decision", rename_all = "snake_case")]
pub enum Decision {
    /// This call may run.
    Once,
    /// This call, and further ones of its scope for the rest of the run.
    ForRun,
    /// It may not.
    Deny {
        /// What the assistant is told, as the owner's words.
        reason: Option<String>,
    },
}

impl Decision {
    fn state(&self) -> ApprovalState {
        match self {
            Self::Once => ApprovalState::Approved,
            Self::ForRun => ApprovalState::ApprovedForRun,
            Self::Deny { .. } => ApprovalState::Denied,
        }
    }
}

/// What became of a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecisionOutcome {
    /// It counts.
    Counts,
    /// Another came first, or time did.
    TooLate(ApprovalState),
    /// There is no such request.
    Unknown,
}

/// A request as a person sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Approval {
    /// Which.
    pub approval_id: ApprovalId,
    /// The run whose call it is about.
    pub run_id: RunId,
    /// Which attempt of it.
    pub attempt: u32,
    /// The service that the run was submitted to ...
    pub endpoint_id: EndpointId,
    /// ... and its name.
    pub service: String,
    /// For whom the application submitted it; absent once the run is settled.
    #[serde(default)]
    pub subject: Option<String>,
    /// Which call of the run.
    pub call_id: String,
    /// The tool.
    pub tool: String,
    /// What kind of effect it can have.
    pub kind: ToolKind,
    /// What the decision is bound to.
    pub digest: String,
    /// Exactly what the tool gets; absent once the run is settled.
    pub arguments: Option<Value>,
    /// What it would do; absent likewise.
    pub plan: Option<Plan>,
    /// What the assistant said before it, which nobody verified.
    pub why: String,
    /// It was approved before, and what it would do has changed since.
    pub again: bool,
    /// When it was asked.
    pub asked_at: Timestamp,
    /// When nobody's decision counts any more.
    pub expires_at: Timestamp,
    /// Where it stands.
    pub state: ApprovalState,
    /// When it was answered.
    pub decided_at: Option<Timestamp>,
    /// Who answered: a local user, `expiry`, or `agent`.
    pub decided_by: Option<String>,
    /// What the assistant was told with a no.
    pub reason: Option<String>,
}

/// The handle of those who show requests and pass decisions on.
#[derive(Clone, Debug)]
pub struct Approvals {
    store: Store,
}

impl Approvals {
    pub(super) fn new(store: Store) -> Self {
        Self { store }
    }

    /// Requests, those that expire first at the top; with `all` the newest answered ones behind them.
    pub async fn list(&self, all: bool) -> Result<Vec<Approval>, Error> {
        self.store
            .lazily(move |tx| {
                let mut found = read_all(tx, &waiting(), MAX_LISTED_REQUESTS)?;
                if all {
                    // Each run waits for one at most, so that there is room for answered ones.
                    found.extend(read_all(tx, &answered(), MAX_LISTED_REQUESTS.saturating_sub(found.len() as u32))?);
                }
                Ok(found)
            })
            .await
    }

    /// One request.
    pub async fn get(&self, approval_id: ApprovalId) -> Result<Option<Approval>, Error> {
        self.store.lazily(move |tx| get(tx, approval_id)).await
    }

    /// A person decides. `who`: the local user, for the audit. Counts once, and only in time.
    pub async fn decide(
        &self,
        approval_id: ApprovalId,
        decision: Decision,
        who: &str,
    ) -> Result<DecisionOutcome, Error> {
        let who = who.to_owned();
        let decided = self
            .store
            .durably(move |tx| {
                let reason = match &decision {
                    Decision::Deny { reason } => reason.as_deref(),
                    _ => None,
                };
                let counts = end(tx, approval_id, decision.state(), &who, reason, ExpiryCondition::BeforeExpiry)?;
                match (counts, state_of(tx, approval_id)?) {
                    (true, _) => Ok(DecisionOutcome::Counts),
                    // Its time is over, and whoever waits for it has not noticed yet.
                    (false, Some(ApprovalState::Waiting)) => Ok(DecisionOutcome::TooLate(ApprovalState::Expired)),
                    (false, Some(state)) => Ok(DecisionOutcome::TooLate(state)),
                    (false, None) => Ok(DecisionOutcome::Unknown),
                }
            })
            .await?;
        self.store.tell_of_decisions();
        Ok(decided)
    }
}

/// What a step says about the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExpiryCondition {
    /// Only before it expires.
    BeforeExpiry,
    /// Only after it expired.
    AfterExpiry,
    /// Whenever: the run is over, or a clock that nobody sets says that time is.
    Always,
}

/// The one step out of `waiting`; says whether it was taken.
pub(super) fn end(
    tx: &Transaction<'_>,
    approval_id: ApprovalId,
    state: ApprovalState,
    who: &str,
    reason: Option<&str>,
    when: ExpiryCondition,
) -> Result<bool, Error> {
    let condition = match when {
        ExpiryCondition::BeforeExpiry => format!("AND expires_at > {NOW}"),
        ExpiryCondition::AfterExpiry => format!("AND expires_at <= {NOW}"),
        ExpiryCondition::Always => String::new(),
    };
    let sql = format!(
        "UPDATE approval SET state = ?2, decided_at = {NOW}, decided_by = ?3, reason = ?4
         WHERE approval_id = ?1 AND state = 'waiting' {condition}
         RETURNING run_id, attempt, call_id, tool, digest"
    );
    let id = approval_id.to_string();
    let about = tx
        .prepare_cached(&sql)?
        .query_row(params![id, state.as_str(), who, reason], |row| {
            Ok((
                row.get::<_, String>(0)?,
                row.get(1)?,
                row.get::<_, String>(2)?,
                row.get::<_, String>(3)?,
                row.get::<_, String>(4)?,
            ))
        })
        .optional()?;
    let Some((run_id, attempt, call_id, tool, digest)) = about else { return Ok(false) };
    audit::add(
        tx,
        &audit::NewAuditEntry {
            what: "decided",
            who,
            run_id: &run_id,
            attempt,
            call_id: &call_id,
            tool: &tool,
            digest: &digest,
            approval_id: Some(&id),
            answer: Some(state.as_str()),
        },
    )?;
    Ok(true)
}

/// Takes every waiting request back; of one run if one is named.
pub(super) fn withdraw_all(tx: &Transaction<'_>, run_id: Option<RunId>) -> Result<(), Error> {
    let mut statement = tx.prepare_cached(if run_id.is_some() { WAITING_OF_RUN_SQL } else { WAITING_SQL })?;
    let run_id = run_id.map(|id| id.to_string());
    let waiting = statement.query_map(rusqlite::params_from_iter(run_id), |row| row.get::<_, String>(0))?;
    for approval_id in waiting.collect::<Result<Vec<_>, _>>()? {
        let approval_id = approval_id.parse().map_err(|_| Error::damaged("a request")(approval_id))?;
        end(tx, approval_id, ApprovalState::Withdrawn, "agent", None, ExpiryCondition::Always)?;
    }
    Ok(())
}

/// What a settled run's requests were about leaves the disk.
pub(super) fn forget_content(tx: &Transaction<'_>, run_id: RunId) -> Result<(), Error> {
    tx.prepare_cached("UPDATE approval SET arguments = NULL, plan = NULL, why = '', subject = NULL WHERE run_id = ?1")?
        .execute([run_id.to_string()])?;
    Ok(())
}

pub(super) fn state_of(tx: &Transaction<'_>, approval_id: ApprovalId) -> Result<Option<ApprovalState>, Error> {
    let state: Option<String> = tx
        .prepare_cached("SELECT state FROM approval WHERE approval_id = ?1")?
        .query_row([approval_id.to_string()], |row| row.get(0))
        .optional()?;
    state.map(|text| ApprovalState::read(&text)).transpose()
}

pub(super) fn get(tx: &Transaction<'_>, approval_id: ApprovalId) -> Result<Option<Approval>, Error> {
    let mut statement = tx.prepare_cached(&format!("{} WHERE approval_id = ?1", select()))?;
    let mut rows = statement.query([approval_id.to_string()])?;
    rows.next()?.map(read).transpose()
}

/// Requests that wait, those that expire first at the top.
pub(super) fn waiting() -> String {
    format!("{} WHERE state = 'waiting' ORDER BY expires_at, approval_id LIMIT ?1", select())
}

/// Requests that were answered, the newest answers at the top.
pub(super) fn answered() -> String {
    format!("{} WHERE state <> 'waiting' ORDER BY decided_at DESC, approval_id LIMIT ?1", select())
}

fn read_all(tx: &Transaction<'_>, sql: &str, limit: u32) -> Result<Vec<Approval>, Error> {
    let mut statement = tx.prepare_cached(sql)?;
    let mut rows = statement.query([limit])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(read(row)?);
    }
    Ok(found)
}

fn select() -> String {
    format!(
        "SELECT approval_id, run_id, attempt, endpoint_id, service, call_id, tool, kind, digest, arguments, plan, why,
                again, {}, {}, state, {}, decided_by, reason, subject FROM approval",
        text_time("asked_at"),
        text_time("expires_at"),
        text_time("decided_at")
    )
}

fn read(row: &Row<'_>) -> Result<Approval, Error> {
    let damaged = |what: &str| Error::damaged("a request for approval")(what.to_owned());
    let text = |column: usize| row.get::<_, String>(column);
    let time = |column: usize| -> Result<Option<Timestamp>, Error> {
        let text: Option<String> = row.get(column)?;
        text.map(|text| text.parse().map_err(|_| damaged("a time"))).transpose()
    };
    let json = |column: usize| -> Result<Option<String>, Error> { Ok(row.get(column)?) };
    Ok(Approval {
        approval_id: text(0)?.parse().map_err(|_| damaged("its identifier"))?,
        run_id: text(1)?.parse().map_err(|_| damaged("its run"))?,
        attempt: row.get(2)?,
        endpoint_id: text(3)?.parse().map_err(|_| damaged("its service"))?,
        service: row.get(4)?,
        subject: row.get(19)?,
        call_id: row.get(5)?,
        tool: row.get(6)?,
        kind: if text(7)? == "read" { ToolKind::Read } else { ToolKind::Write },
        digest: row.get(8)?,
        arguments: json(9)?.map(|json| serde_json::from_str(&json)).transpose().map_err(|_| damaged("arguments"))?,
        plan: json(10)?.map(|json| serde_json::from_str(&json)).transpose().map_err(|_| damaged("a plan"))?,
        why: row.get(11)?,
        again: row.get(12)?,
        asked_at: time(13)?.ok_or_else(|| damaged("a time"))?,
        expires_at: time(14)?.ok_or_else(|| damaged("a time"))?,
        state: ApprovalState::read(&text(15)?)?,
        decided_at: time(16)?,
        decided_by: row.get(17)?,
        reason: row.get(18)?,
    })
}

#[cfg(test)]
mod tests;
