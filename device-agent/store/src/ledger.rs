//! The ledger: what one execution records before it acts, and its approval requests.
//!
//! | step | on disk when it returns |
//! |---|---|
//! | [`Ledger::ask`] | the request, with its exact arguments, before it is shown to anybody |
//! | [`Ledger::begin`] | the call that begins: a writing one durably, as an intent that recovery will find |
//! | [`Ledger::note`] | the result of a writing call |
//!
//! A call begins only if the database agrees, in the transaction that records it. With a request: it was approved for
//! exactly these arguments. Without one: no equal call asked in this run, and none is under way or ended with an
//! unknown effect.

use std::time::Duration;

pub use deskgate_definition::tool::{EndedCall, Plan, PlanPreview, PlannedCall};
use deskgate_protocol::Timestamp;
use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::control::ToolKind;
use deskgate_protocol::ids::{ApprovalId, EndpointId, RunId};
use deskgate_protocol::run::Effects;
use rusqlite::{Transaction, params};

use super::approvals::{self, Approval, ApprovalState, ExpiryCondition};
use super::calls;
use super::time::{NOW, text_time};
use super::{Error, Store, audit, intents, transcripts};

/// How often the clock is checked for a change.
const CLOCK_CHECK_INTERVAL: Duration = Duration::from_secs(30);

/// The details of a request beside its call.
#[derive(Clone, Debug)]
pub struct RequestDetails {
    /// The service's endpoint ...
    pub endpoint_id: EndpointId,
    /// ... and its name.
    pub service: String,
    /// The subject for whom the run was submitted.
    pub subject: Option<String>,
    /// The assistant's own words.
    pub why: String,
    /// The request by which the call was approved before; its plan has changed since.
    pub follows: Option<ApprovalId>,
    /// How long the request waits.
    pub expiry: Duration,
}

/// What earlier attempts of a run did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PriorEffects {
    /// What they changed.
    pub effects: Effects,
    /// The digests of writing calls whose effect is unknown. Only a person can allow such a call again.
    pub uncertain: Vec<Sha256Digest>,
}

impl Default for PriorEffects {
    /// No effects and no uncertain calls.
    fn default() -> Self {
        Self { effects: Effects::None, uncertain: Vec::new() }
    }
}

/// The permission by which a call begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntentBasis {
    /// The owner's rules allow it.
    Rules,
    /// A request that was approved for exactly this call.
    Approval(ApprovalId),
    /// A request that was approved for the rest of the run.
    Grant(ApprovalId),
}

/// The handle of one attempt of a run.
#[derive(Clone, Debug)]
pub struct Ledger {
    pub(super) store: Store,
    pub(super) run_id: RunId,
    attempt: u32,
}

impl Ledger {
    pub(super) fn new(store: Store, run_id: RunId, attempt: u32) -> Self {
        Self { store, run_id, attempt }
    }

    /// The effects of the run's earlier attempts.
    ///
    /// # Errors
    /// The database cannot be read, or the digest of a call is damaged.
    pub async fn before(&self) -> Result<PriorEffects, Error> {
        let run_id = self.run_id;
        self.store
            .lazily(move |tx| {
                Ok(PriorEffects { effects: intents::effects(tx, run_id)?, uncertain: intents::uncertain(tx, run_id)? })
            })
            .await
    }

    /// Puts a request on disk. Returns its identifier and when it expires.
    ///
    /// # Errors
    /// The database cannot be read or written.
    pub async fn ask(&self, call: PlannedCall, asking: RequestDetails) -> Result<(ApprovalId, Timestamp), Error> {
        let (run_id, attempt, approval_id) = (self.run_id.to_string(), self.attempt, ApprovalId::new());
        self.store
            .durably(move |tx| {
                let (id, digest) = (approval_id.to_string(), call.digest().to_string());
                tx.prepare_cached(&format!(
                    "INSERT INTO approval (approval_id, run_id, attempt, endpoint_id, service, call_id, tool, kind, digest,
                            arguments, plan, why, again, asked_at, expires_at, kept_from, state, subject, follows)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, {NOW}, {NOW} + ?14,
                            (SELECT now FROM transcript_clock), 'waiting', ?15, ?16)"
                ))?
                .execute(params![
                    id,
                    run_id,
                    attempt,
                    asking.endpoint_id.to_string(),
                    asking.service,
                    call.call_id,
                    call.tool,
                    if call.kind == ToolKind::Read { "read" } else { "write" },
                    digest,
                    call.arguments.to_string(),
                    intents::text(&call.plan),
                    asking.why,
                    asking.follows.is_some(),
                    i64::try_from(asking.expiry.as_millis()).unwrap_or(i64::MAX / 2),
                    asking.subject,
                    asking.follows.map(|id| id.to_string()),
                ])?;
                if let Some(former) = asking.follows {
                    approvals::set_followed(tx, former, &id)?;
                }
                calls::asked(tx, &run_id, attempt, &call, &id)?;
                let new = audit::NewAuditEntry { approval_id: Some(&id), ..row(&run_id, attempt, &call, &digest, "requested", "agent") };
                audit::add(tx, &new)?;
                let sql = format!("SELECT {} FROM approval WHERE approval_id = ?1", text_time("expires_at"));
                let expires_at: String = tx.query_row(&sql, [&id], |row| row.get(0))?;
                Ok((approval_id, expires_at.parse().map_err(|_| Error::damaged("a time")(expires_at))?))
            })
            .await
    }

    /// Waits for the answer, at most `longest` by a monotonic clock. The state is never `Waiting`.
    ///
    /// # Errors
    /// The database cannot be read or written, or the request is damaged or does not exist.
    pub async fn answer(&self, approval_id: ApprovalId, longest: Duration) -> Result<Approval, Error> {
        let mut requests = self.store.request_changes();
        let end = transcripts::moment() + longest;
        loop {
            requests.borrow_and_update();
            let is_over = transcripts::moment() >= end;
            let (approval, left) = self.store.durably(move |tx| look(tx, approval_id, is_over)).await?;
            if approval.state != ApprovalState::Waiting {
                return Ok(approval);
            }
            let pause = left.min(end.saturating_sub(transcripts::moment())).min(CLOCK_CHECK_INTERVAL);
            tokio::select! {
                _ = requests.changed() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Withdraws a request, unless it was answered. Returns how it ended.
    ///
    /// # Errors
    /// The database cannot be read or written, or the request's state is damaged.
    pub async fn withdraw(&self, approval_id: ApprovalId) -> Result<ApprovalState, Error> {
        self.end(approval_id, ApprovalState::Withdrawn, "agent").await
    }

    /// Lets a request expire early, unless it was answered: no execution waits for its answer any more. Returns how it
    /// ended.
    ///
    /// # Errors
    /// The database cannot be read or written, or the request's state is damaged.
    pub async fn expire(&self, approval_id: ApprovalId) -> Result<ApprovalState, Error> {
        self.end(approval_id, ApprovalState::Expired, "expiry").await
    }

    /// Records for the owner that an approved call was not carried out, and why.
    ///
    /// # Errors
    /// The database cannot be read or written.
    pub async fn not_done(&self, approval_id: ApprovalId, why: String) -> Result<(), Error> {
        self.store.durably(move |tx| approvals::set_not_done(tx, approval_id, &why)).await
    }

    async fn end(&self, id: ApprovalId, state: ApprovalState, who: &'static str) -> Result<ApprovalState, Error> {
        self.store
            .durably(move |tx| {
                approvals::end(tx, id, state, who, None, ExpiryCondition::Always)?;
                Ok(approvals::state_of(tx, id)?.unwrap_or(state))
            })
            .await
    }

    /// Records that a call begins. A writing call is on disk when this returns.
    ///
    /// # Errors
    /// [`Error::AsksFirst`]: the call needs a person's approval. [`Error::NotApproved`]: the named request does not
    /// allow this call. Nothing was written then. Otherwise the database cannot be read or written.
    pub async fn begin(&self, call: PlannedCall, by: IntentBasis) -> Result<(), Error> {
        let (run_id, attempt) = (self.run_id.to_string(), self.attempt);
        let writes = call.kind == ToolKind::Write;
        let work = move |tx: &Transaction<'_>| {
            let digest = call.digest().to_string();
            let who = basis(tx, &run_id, attempt, &call, &digest, by)?;
            if writes {
                intents::begin(tx, &run_id, attempt, &call, &digest)?;
            }
            let approval_id = match by {
                IntentBasis::Rules => None,
                IntentBasis::Approval(id) | IntentBasis::Grant(id) => Some(id.to_string()),
            };
            calls::begun(tx, &run_id, attempt, &call, approval_id.as_deref())?;
            audit::add(tx, &row(&run_id, attempt, &call, &digest, "executed", &who))
        };
        if writes { self.store.durably(work).await } else { self.store.lazily(work).await }
    }

    /// Records the result of a writing call. For an unknown effect nothing is written.
    ///
    /// # Errors
    /// [`Error::NoSuchEntry`]: this attempt recorded no such call, or its result is recorded already. Otherwise the
    /// database cannot be read or written.
    pub async fn note(&self, call_id: String, ok: bool) -> Result<(), Error> {
        let (run_id, attempt) = (self.run_id, self.attempt);
        self.store
            .durably(move |tx| {
                intents::end(tx, run_id, attempt, &call_id, ok)?;
                calls::noted(tx, run_id, attempt, &call_id, ok)
            })
            .await
    }

    /// Queues the end of a call, also of one that was refused before it began. If it is lost, the owner knows less, and
    /// the receipt says of a call that only read that its result is not known.
    pub async fn end_call(&self, call: EndedCall) {
        let (run_id, attempt) = (self.run_id, self.attempt);
        let work = move |tx: &Transaction<'_>| calls::ended(tx, run_id, attempt, &call);
        self.store.eventually("the end of a tool call", work).await;
    }
}

/// The request now, expired if its time is over, and how long it may still wait.
fn look(tx: &Transaction<'_>, approval_id: ApprovalId, is_over: bool) -> Result<(Approval, Duration), Error> {
    let when = if is_over { ExpiryCondition::Always } else { ExpiryCondition::AfterExpiry };
    approvals::end(tx, approval_id, ApprovalState::Expired, "expiry", None, when)?;
    let gone = || Error::damaged("a request for approval")("it is gone".to_owned());
    let approval = approvals::get(tx, approval_id)?.ok_or_else(gone)?;
    let sql = format!("SELECT max(0, expires_at - {NOW}) FROM approval WHERE approval_id = ?1");
    // After the clock was set back the number may be large; `answer` bounds the wait.
    let left: i64 = tx.query_row(&sql, [approval_id.to_string()], |row| row.get(0))?;
    // One millisecond more, so that the request has expired when the pause ends.
    Ok((approval, Duration::from_millis(u64::try_from(left).unwrap_or(0).saturating_add(1))))
}

/// The permission of a call, in words for the audit; an error if the database does not agree.
fn basis(
    tx: &Transaction<'_>,
    run_id: &str,
    attempt: u32,
    call: &PlannedCall,
    digest: &str,
    by: IntentBasis,
) -> Result<String, Error> {
    let agrees = |approval_id: ApprovalId, condition: &str| -> Result<String, Error> {
        let sql = format!(
            "SELECT 1 FROM approval WHERE approval_id = ?1 AND run_id = ?2 AND attempt = ?3 AND tool = ?4 AND {condition}"
        );
        let id = approval_id.to_string();
        match tx.prepare_cached(&sql)?.exists(params![id, run_id, attempt, call.tool, digest])? {
            true => Ok(id),
            false => Err(Error::NotApproved { approval_id }),
        }
    };
    let never = |sql: &str| match tx.prepare_cached(sql)?.exists(params![run_id, digest])? {
        true => Err(Error::AsksFirst),
        false => Ok(()),
    };
    match by {
        IntentBasis::Rules => {
            never(UNCERTAIN_CALL_SQL)?;
            never(ASKED_CALL_SQL)?;
            Ok("rules".to_owned())
        }
        IntentBasis::Approval(id) => agrees(id, "state IN ('approved', 'approved_for_run') AND digest = ?5"),
        IntentBasis::Grant(id) => {
            never(UNCERTAIN_CALL_SQL)?;
            agrees(id, "state = 'approved_for_run' AND ?5 IS NOT NULL")
        }
    }
}

/// An equal call that began in any attempt and whose effect is unknown.
pub(super) const UNCERTAIN_CALL_SQL: &str = "SELECT 1 FROM intent WHERE run_id = ?1 AND digest = ?2 AND ok IS NULL";
/// An equal call that asked in any attempt. The rules judge equal calls equally, so it asks again.
pub(super) const ASKED_CALL_SQL: &str = "SELECT 1 FROM approval WHERE run_id = ?1 AND digest = ?2";

fn row<'a>(
    run_id: &'a str,
    attempt: u32,
    call: &'a PlannedCall,
    digest: &'a str,
    what: &'static str,
    who: &'a str,
) -> audit::NewAuditEntry<'a> {
    let PlannedCall { call_id, tool, .. } = call;
    audit::NewAuditEntry { what, who, run_id, attempt, call_id, tool, digest, approval_id: None, answer: None }
}
