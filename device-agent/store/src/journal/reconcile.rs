//! The owner's settlement of a run whose end is unknown.
//!
//! | answer | effect |
//! |---|---|
//! | it finished | the run ends; its caller learns that something was changed |
//! | it did not | the run ends; its caller learns what earlier calls had changed |
//! | run it again | the gateway offers its next attempt to this device |
//!
//! The first two store an outcome, which is sent once the gateway has reported which number it takes.

use deskgate_protocol::ids::RunId;
use deskgate_protocol::receipt::OutcomeDecider;
use deskgate_protocol::receipt::jws::ReceiptSigner;
use deskgate_protocol::run::{Effects, Outcome, RunError, RunErrorCode, Usage};
use rusqlite::{Transaction, params};

use super::{Journal, found, text};
use crate::intents::{self, Intent};
use crate::receipts::Chain;
use crate::{Error, audit};

deskgate_protocol::words! {
    /// What the owner found.
    pub enum OwnerFinding {
        /// The call under way did what it was to do.
        Finished = "finished",
        /// The call under way did not happen.
        NotDone = "not_done",
        /// The run is to be executed again, whatever the call did.
        RunAgain = "run_again",
        /// The run was to be stopped, without a look at what it did.
        Stopped = "stopped",
    }
}

/// What follows from the owner's finding.
#[derive(Clone, Debug, PartialEq)]
pub enum Settlement {
    /// The run ends with this outcome.
    Ends(Box<Outcome>),
    /// Its next attempt is executed.
    RunsAgain,
}

impl Journal {
    /// The writing calls of a run that is not settled, in order of their start: the evidence for the owner's decision.
    ///
    /// # Errors
    /// The database cannot be read, or a recorded call is damaged.
    pub async fn evidence(&self, run_id: RunId) -> Result<Vec<Intent>, Error> {
        self.store.lazily(move |tx| intents::list(tx, run_id)).await
    }

    /// Records the owner's finding about an unknown run, and signs the outcome that follows from it. `who`: the local user. A run that is to run again becomes
    /// `interrupted`.
    ///
    /// # Errors
    /// [`Error::NoSuchEntry`]: the attempt is not unknown, or is settled already. Otherwise the database cannot be read
    /// or written.
    pub async fn reconcile(
        &self,
        run_id: RunId,
        attempt: u32,
        finding: OwnerFinding,
        who: &str,
    ) -> Result<Settlement, Error> {
        let (who, signer) = (who.to_owned(), self.store.signer()?);
        self.store.durably(move |tx| reconcile(tx, &signer, run_id, attempt, finding, &who)).await
    }
}

fn reconcile(
    tx: &Transaction<'_>,
    signer: &ReceiptSigner,
    run_id: RunId,
    attempt: u32,
    finding: OwnerFinding,
    who: &str,
) -> Result<Settlement, Error> {
    let outcome = match finding {
        OwnerFinding::NotDone => outcome_of(finding, intents::effects_before_the_last(tx, run_id)?),
        _ => outcome_of(finding, intents::effects(tx, run_id)?),
    };
    let id = run_id.to_string();
    let changed = tx.execute(
        "UPDATE run_journal SET status = iif(?3 IS NULL, 'interrupted', 'unknown'), outcome = ?3
         WHERE run_id = ?1 AND attempt = ?2 AND status = 'unknown' AND outcome IS NULL",
        params![id, attempt, outcome.as_ref().map(text)],
    )?;
    found(changed, run_id, attempt, "settled")?;
    audit::add(
        tx,
        &audit::NewAuditEntry {
            what: "reconciled",
            who,
            run_id: &id,
            attempt,
            call_id: "",
            tool: "",
            digest: "",
            approval_id: None,
            answer: Some(finding.as_str()),
        },
    )?;
    if let Some(outcome) = &outcome {
        let decided_by = match finding {
            OwnerFinding::Stopped => OutcomeDecider::Device,
            _ => OutcomeDecider::Owner,
        };
        Chain::new(tx, signer).add_outcome(run_id, attempt, outcome, decided_by)?;
    }
    Ok(outcome.map_or(Settlement::RunsAgain, |outcome| Settlement::Ends(Box::new(outcome))))
}

/// The words are for the caller, and name no tool and no path. `effects`: of the calls that count.
fn outcome_of(finding: OwnerFinding, effects: Effects) -> Option<Outcome> {
    let usage = Usage::default();
    let (message, effects) = match finding {
        OwnerFinding::RunAgain => return None,
        OwnerFinding::Stopped => return Some(Outcome::Cancelled { effects, usage }),
        OwnerFinding::Finished => (
            "The device stopped while it executed this run. Its owner found that the step under way was done.",
            Effects::Known,
        ),
        OwnerFinding::NotDone if effects == Effects::None => (
            "The device stopped while it executed this run. Its owner found that the step under way was not done.",
            effects,
        ),
        OwnerFinding::NotDone => (
            "The device stopped while it executed this run. Its owner found that the step under way was not done; there \
             were steps before it.",
            effects,
        ),
    };
    let (code, message, retryable) = (RunErrorCode::Interrupted, message.to_owned(), effects == Effects::None);
    Some(Outcome::Failed { error: RunError { code, message, retryable, effects }, usage })
}
