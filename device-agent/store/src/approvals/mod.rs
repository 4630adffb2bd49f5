//! Approval requests, and the one decision that ends each.
//!
//! ```text
//! waiting ──► approved | approved_for_run | denied      a person, on this device's private socket
//!         ──► expired                                   nobody, in time
//!         ──► withdrawn                                 the run ended first
//! ```
//!
//! Each step is one statement with `waiting` and the time in its condition: of two concurrent decisions, one takes
//! effect and the other reports that it came too late. The time is the computer's clock, because people see it. A clock
//! set forward lets a request expire early: that is a denial, never an approval. A clock set back would keep it open
//! longer: the waiting execution ends that by a monotonic clock (see [`super::ledger`]).

use deskgate_definition::tool::Plan;
use deskgate_protocol::Timestamp;
use deskgate_protocol::control::ToolKind;
use deskgate_protocol::ids::{ApprovalId, EndpointId, RunId};
use rusqlite::{OptionalExtension, Row, Transaction, params};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::time::{NOW, text_time};
use super::{Error, Store, audit};

/// At most this many requests in one list.
const MAX_LISTED_REQUESTS: u32 = 500;
/// At most so many requests are found by the end of their identifier.
const MAX_FOUND_BY_END: u32 = 10;
/// Identifiers by their end: all of them are read, which are as many as are kept.
const BY_END_SQL: &str =
    "SELECT approval_id FROM approval WHERE substr(approval_id, -length(?1)) = ?1 ORDER BY rowid DESC LIMIT ?2";

/// The waiting requests. This and the next text repeat the index's condition literally, so that SQLite uses the index.
pub(super) const WAITING_SQL: &str = "SELECT approval_id FROM approval WHERE state = 'waiting'";
pub(super) const WAITING_OF_RUN_SQL: &str = "SELECT approval_id FROM approval WHERE state = 'waiting' AND run_id = ?1";

/// The state of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalState {
    /// A decision is outstanding.
    Waiting,
    /// A person allowed this call.
    Approved,
    /// A person allowed this call, and further ones of its scope in this run.
    ApprovedForRun,
    /// A person denied the call.
    Denied,
    /// The time for a decision is over.
    Expired,
    /// The run ended, or was cut off, before a decision.
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

    /// The word for the state in the database and in output.
    pub fn as_str(self) -> &'static str {
        Self::ALL.iter().find(|(state, _)| *state == self).map_or("waiting", |(_, text)| text)
    }

    pub(crate) fn read(text: &str) -> Result<Self, Error> {
        let found = Self::ALL.iter().find(|(_, known)| *known == text);
        found.map(|(state, _)| *state).ok_or_else(|| Error::damaged("the state of a request")(text.to_owned()))
    }
}

/// A person's decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "decision", rename_all = "snake_case")]
pub enum Decision {
    /// This call may run.
    Once,
    /// This call, and further ones of its scope for the rest of the run.
    ForRun,
    /// This call may not run.
    Deny {
        /// The owner's words for the assistant.
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

/// The result of submitting a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecisionOutcome {
    /// The decision took effect.
    Counts,
    /// The request had ended before: by another decision, or by time.
    TooLate(ApprovalState),
    /// There is no such request.
    Unknown,
}

/// An approval request as a person sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Approval {
    /// The request's identifier.
    pub approval_id: ApprovalId,
    /// The run whose call it is about.
    pub run_id: RunId,
    /// The run's attempt.
    pub attempt: u32,
    /// The service that the run was submitted to ...
    pub endpoint_id: EndpointId,
    /// ... and its name.
    pub service: String,
    /// The subject for whom the application submitted it; absent once its time is over.
    #[serde(default)]
    pub subject: Option<String>,
    /// The call's identifier within the run.
    pub call_id: String,
    /// The tool.
    pub tool: String,
    /// What kind of effect the call can have.
    pub kind: ToolKind,
    /// The digest that the decision is bound to.
    pub digest: String,
    /// The exact arguments for the tool; absent once their time is over.
    pub arguments: Option<Value>,
    /// The call's plan; absent likewise.
    pub plan: Option<Plan>,
    /// The assistant's text before the call, not verified.
    pub why: String,
    /// Whether the call was approved before and its plan has changed since.
    pub again: bool,
    /// The request by which it was approved before.
    #[serde(default)]
    pub follows: Option<ApprovalId>,
    /// The request that asked anew, because what this one showed had changed: this call was not carried out.
    #[serde(default)]
    pub followed_by: Option<ApprovalId>,
    /// Why the approved call was not carried out, nor asked about anew.
    #[serde(default)]
    pub not_done: Option<String>,
    /// When the request was made.
    pub asked_at: Timestamp,
    /// When the request expires.
    pub expires_at: Timestamp,
    /// The request's state.
    pub state: ApprovalState,
    /// When it was decided.
    pub decided_at: Option<Timestamp>,
    /// Who decided: a local user, `expiry`, or `agent`.
    pub decided_by: Option<String>,
    /// The reason that the assistant got with a denial.
    pub reason: Option<String>,
}

/// The handle for showing requests and submitting decisions.
#[derive(Clone, Debug)]
pub struct Approvals {
    store: Store,
}

impl Approvals {
    pub(super) fn new(store: Store) -> Self {
        Self { store }
    }

    /// Waiting requests, the next to expire first; with `all`, answered ones follow, the newest first.
    ///
    /// # Errors
    /// The database cannot be read, or a listed request is damaged.
    pub async fn list(&self, all: bool) -> Result<Vec<Approval>, Error> {
        self.store
            .lazily(move |tx| {
                let mut found = read_all(tx, &waiting(), MAX_LISTED_REQUESTS)?;
                if all {
                    // Each run waits for at most one request, so answered ones fit too.
                    found.extend(read_all(tx, &answered(), MAX_LISTED_REQUESTS.saturating_sub(found.len() as u32))?);
                }
                Ok(found)
            })
            .await
    }

    /// The requests of a run, in the order in which they were made.
    ///
    /// # Errors
    /// The database cannot be read, or a listed request is damaged.
    pub async fn of_run(&self, run_id: RunId) -> Result<Vec<Approval>, Error> {
        self.store
            .lazily(move |tx| {
                let mut statement = tx.prepare_cached(&of_run())?;
                let mut rows = statement.query(params![run_id.to_string(), MAX_LISTED_REQUESTS])?;
                let mut found = Vec::new();
                while let Some(row) = rows.next()? {
                    found.push(read(row)?);
                }
                Ok(found)
            })
            .await
    }

    /// The requests whose identifiers end like this, newest first: a few, also of several.
    ///
    /// # Errors
    /// The database cannot be read.
    pub async fn ids_by_end(&self, end: String) -> Result<Vec<ApprovalId>, Error> {
        self.store
            .lazily(move |tx| {
                let mut statement = tx.prepare_cached(BY_END_SQL)?;
                let ids = statement.query_map(params![end, MAX_FOUND_BY_END], |row| row.get::<_, String>(0))?;
                Ok(ids.filter_map(|id| id.map(|id| id.parse().ok()).transpose()).collect::<Result<_, _>>()?)
            })
            .await
    }

    /// One request.
    ///
    /// # Errors
    /// The database cannot be read, or the request is damaged.
    pub async fn get(&self, approval_id: ApprovalId) -> Result<Option<Approval>, Error> {
        self.store.lazily(move |tx| get(tx, approval_id)).await
    }

    /// Submits a person's decision. `who`: the local user, for the audit. Takes effect once, and only in time.
    ///
    /// # Errors
    /// The database failed.
    pub async fn decide(
        &self,
        approval_id: ApprovalId,
        decision: Decision,
        who: &str,
    ) -> Result<DecisionOutcome, Error> {
        let who = who.to_owned();
        self.store
            .durably(move |tx| {
                let reason = match &decision {
                    Decision::Deny { reason } => reason.as_deref(),
                    _ => None,
                };
                let counts = end(tx, approval_id, decision.state(), &who, reason, ExpiryCondition::BeforeExpiry)?;
                match (counts, state_of(tx, approval_id)?) {
                    (true, _) => Ok(DecisionOutcome::Counts),
                    // The request is past its time, and its execution has not noticed yet.
                    (false, Some(ApprovalState::Waiting)) => Ok(DecisionOutcome::TooLate(ApprovalState::Expired)),
                    (false, Some(state)) => Ok(DecisionOutcome::TooLate(state)),
                    (false, None) => Ok(DecisionOutcome::Unknown),
                }
            })
            .await
    }
}

/// The condition on the time for a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExpiryCondition {
    /// Only before it expires.
    BeforeExpiry,
    /// Only after it expired.
    AfterExpiry,
    /// At any time: the run is over, or a monotonic clock has measured the expiry.
    Always,
}

/// The one step out of `waiting`; true if it was taken.
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

/// Withdraws every waiting request; of one run if one is named.
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

/// Names the request that asked anew about the call of this one.
pub(super) fn set_followed(tx: &Transaction<'_>, approval_id: ApprovalId, by: &str) -> Result<(), Error> {
    tx.prepare_cached("UPDATE approval SET followed_by = ?2 WHERE approval_id = ?1")?
        .execute(params![approval_id.to_string(), by])?;
    Ok(())
}

/// Keeps why an approved call was not carried out.
pub(super) fn set_not_done(tx: &Transaction<'_>, approval_id: ApprovalId, why: &str) -> Result<(), Error> {
    tx.prepare_cached("UPDATE approval SET not_done = ?2 WHERE approval_id = ?1")?
        .execute(params![approval_id.to_string(), why])?;
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

/// The waiting requests, the next to expire first.
pub(super) fn waiting() -> String {
    format!("{} WHERE state = 'waiting' ORDER BY expires_at, approval_id LIMIT ?1", select())
}

/// The answered requests, the newest answer first.
pub(super) fn answered() -> String {
    format!("{} WHERE state <> 'waiting' ORDER BY decided_at DESC, approval_id LIMIT ?1", select())
}

/// The requests of a run, the oldest first.
pub(super) fn of_run() -> String {
    format!("{} WHERE run_id = ?1 ORDER BY rowid LIMIT ?2", select())
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
                again, {}, {}, state, {}, decided_by, reason, subject, follows, followed_by,
                not_done FROM approval",
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
    let other = |column: usize| -> Result<Option<ApprovalId>, Error> {
        let text: Option<String> = row.get(column)?;
        text.map(|text| text.parse().map_err(|_| damaged("a request beside it"))).transpose()
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
        follows: other(20)?,
        followed_by: other(21)?,
        not_done: row.get(22)?,
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
