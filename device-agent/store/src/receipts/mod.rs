//! Receipts: what the device signs about each offer and each outcome, as a chain.
//!
//! A receipt is written in the transaction of the step that it is about. So no crash leaves a gap, or two receipts of one
//! outcome. Rows never change: triggers of the database refuse it, and refuse to delete the newest and those younger than
//! [`AUDIT_RETENTION`](super::audit::AUDIT_RETENTION).

#[cfg(test)]
mod tests;

use deskgate_protocol::Timestamp;
use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::control::Offer;
use deskgate_protocol::ids::{ApplicationId, EndpointId, RunId};
use deskgate_protocol::receipt::jws::{ReceiptSigner, SignedReceipt};
use deskgate_protocol::receipt::{
    OfferAnswer, OfferFacts, OutcomeDecider, OutcomeFacts, RECEIPT_VERSION, Receipt, ReceiptEntry, RunFacts,
};
use deskgate_protocol::run::Outcome;
use rusqlite::{OptionalExtension, Transaction, params};

use super::time::text_time;
use super::{Error, Store, calls, intents};

pub(super) const DELETE_OLD_RECEIPTS_SQL: &str =
    "DELETE FROM receipt WHERE kept_from < (SELECT now FROM transcript_clock) - ?1
         AND device_seq < (SELECT max(device_seq) FROM receipt)";
pub(super) const LAST_RECEIPT_SQL: &str = "SELECT device_seq, sha256 FROM receipt ORDER BY device_seq DESC LIMIT 1";
pub(super) const RECEIPT_PAGE_SQL: &str = "SELECT jws FROM receipt WHERE device_seq > ?1 ORDER BY device_seq LIMIT ?2";

/// The receipts' handle.
#[derive(Clone, Debug)]
pub struct Receipts {
    store: Store,
}

impl Receipts {
    pub(super) fn new(store: Store) -> Self {
        Self { store }
    }

    /// At most `limit` receipts after the number `after`, in their compact form and in order.
    ///
    /// # Errors
    /// The database cannot be read.
    pub async fn after(&self, after: u64, limit: u32) -> Result<Vec<String>, Error> {
        let after = i64::try_from(after).unwrap_or(i64::MAX);
        self.store
            .lazily(move |tx| {
                let mut statement = tx.prepare_cached(RECEIPT_PAGE_SQL)?;
                let rows = statement.query_map(params![after, limit], |row| row.get(0))?;
                Ok(rows.collect::<Result<_, _>>()?)
            })
            .await
    }
}

/// The chain, open for the next receipt.
pub(super) struct Chain<'a> {
    tx: &'a Transaction<'a>,
    signer: &'a ReceiptSigner,
}

impl<'a> Chain<'a> {
    pub(super) fn new(tx: &'a Transaction<'a>, signer: &'a ReceiptSigner) -> Self {
        Self { tx, signer }
    }

    /// Adds an offer with its answer, unless the same answer was signed to the same offer.
    pub(super) fn add_offer(&self, offer: &Offer, answer: OfferAnswer, unlisted: u64) -> Result<(), Error> {
        let run = self.facts(offer)?;
        let said = Sha256Digest::of_json(&(&run, answer)).map_err(uncanonical)?.to_string();
        let sql = "SELECT 1 FROM receipt WHERE run_id = ?1 AND attempt = ?2 AND kind = 'offer' AND said = ?3";
        if self.tx.prepare_cached(sql)?.exists(params![run.run_id.to_string(), run.attempt, said])? {
            return Ok(());
        }
        let offer = OfferFacts { offered_at: Timestamp::now(), answer, unlisted };
        self.add(run, ReceiptEntry::Offer(offer), "offer", &said).map(drop)
    }

    /// Adds how an attempt ended, once, and returns the receipt; none if another end of it was signed before.
    pub(super) fn add_outcome(
        &self,
        run_id: RunId,
        attempt: u32,
        outcome: &Outcome,
        decided_by: OutcomeDecider,
    ) -> Result<Option<String>, Error> {
        if signed_outcome(self.tx, run_id, attempt)?.is_some() {
            return of_outcome(self.tx, run_id, attempt, outcome);
        }
        let sql =
            format!("SELECT offer, {} FROM run_journal WHERE run_id = ?1 AND attempt = ?2", text_time("started_at"));
        let columns = |row: &rusqlite::Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, Option<String>>(1)?));
        let (offer, started_at) =
            self.tx.prepare_cached(&sql)?.query_row(params![run_id.to_string(), attempt], columns)?;
        let offer: Offer = serde_json::from_str(&offer).map_err(uncanonical)?;
        let started_at = started_at.map(|text| text.parse().map_err(|_| Error::damaged("a time")(text))).transpose()?;
        let effects = intents::effects(self.tx, run_id)?;
        let calls = calls::facts(self.tx, run_id)?;
        let facts = OutcomeFacts::of(outcome, effects, decided_by, calls, started_at, Timestamp::now());
        let entry = ReceiptEntry::Outcome(facts.map_err(uncanonical)?);
        self.add(self.facts(&offer)?, entry, "outcome", "").map(Some)
    }

    fn facts(&self, offer: &Offer) -> Result<RunFacts, Error> {
        RunFacts::of(offer, application(self.tx, offer.endpoint_id)?).map_err(uncanonical)
    }

    fn add(&self, run: RunFacts, entry: ReceiptEntry, kind: &str, said: &str) -> Result<String, Error> {
        let columns = |row: &rusqlite::Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?));
        let last = self.tx.prepare_cached(LAST_RECEIPT_SQL)?.query_row([], columns).optional()?;
        let (seq, prev) = match last {
            Some((seq, sha256)) => {
                (seq + 1, Some(sha256.parse().map_err(|_| Error::damaged("a receipt")("its digest".to_owned()))?))
            }
            None => (1, None),
        };
        let receipt = Receipt { v: RECEIPT_VERSION, device_seq: seq.unsigned_abs(), prev, run, entry };
        let jws = self.signer.sign(&receipt);
        let sha256 = Sha256Digest::of(jws.as_bytes()).to_string();
        self.tx
            .prepare_cached(
                "INSERT INTO receipt (device_seq, kept_from, run_id, attempt, kind, said, sha256, jws)
                 VALUES (?1, (SELECT now FROM transcript_clock), ?2, ?3, ?4, ?5, ?6, ?7)",
            )?
            .execute(params![seq, receipt.run.run_id.to_string(), receipt.run.attempt, kind, said, sha256, jws])?;
        Ok(jws)
    }
}

/// The receipt of this outcome. None if the device signed another one, as when the answer was forgotten since.
pub(super) fn of_outcome(
    tx: &Transaction<'_>,
    run_id: RunId,
    attempt: u32,
    outcome: &Outcome,
) -> Result<Option<String>, Error> {
    let Some(jws) = signed_outcome(tx, run_id, attempt)? else { return Ok(None) };
    let fits = match SignedReceipt::read(&jws).map(|signed| signed.receipt.entry) {
        Ok(ReceiptEntry::Outcome(facts)) => facts.fits(outcome),
        _ => false,
    };
    Ok(fits.then_some(jws))
}

fn signed_outcome(tx: &Transaction<'_>, run_id: RunId, attempt: u32) -> Result<Option<String>, Error> {
    let sql = "SELECT jws FROM receipt WHERE run_id = ?1 AND attempt = ?2 AND kind = 'outcome'";
    Ok(tx.prepare_cached(sql)?.query_row(params![run_id.to_string(), attempt], |row| row.get(0)).optional()?)
}

/// The application of a service, as this device knows it.
fn application(tx: &Transaction<'_>, endpoint_id: EndpointId) -> Result<Option<ApplicationId>, Error> {
    let sql = "SELECT app_id FROM service WHERE endpoint_id = ?1";
    let app_id: Option<String> =
        tx.prepare_cached(sql)?.query_row([endpoint_id.to_string()], |row| row.get(0)).optional()?;
    app_id.map(|text| text.parse().map_err(|_| Error::damaged("a service")("its application".to_owned()))).transpose()
}

pub(super) fn uncanonical(error: serde_json::Error) -> Error {
    Error::damaged("an offer or an outcome")(error.to_string())
}
