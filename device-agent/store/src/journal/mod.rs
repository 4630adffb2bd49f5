//! The journal: every run this device has taken, until the gateway has settled it.
//!
//! ```text
//! take ──► taken ──start──► running ──finish──► finished ──forget──► (remembered)
//!            ▲                 │                    ▲
//!            │                 ├─ recover ──► unknown, when it had begun to write
//!            │                 │                │ its owner says "run it again"
//!            └── next attempt ─┴─ recover ──► interrupted
//!                               give_back ──┘
//! ```
//!
//! Only its owner decides how an `unknown` run ended ([`reconcile`]). An attempt that had begun to write becomes
//! `interrupted` only by the owner's decision.
//!
//! The journal also remembers settled runs for as long as a gateway may offer them: a run that ended here and is offered
//! again is never executed again. It is answered with its outcome, or, if newer outcomes have taken that one's place, with
//! the fact that it ended here before.

pub mod reconcile;
mod withdrawn;

use deskgate_protocol::control::{DeviceEvent, InFlightRun, InFlightStatus, Offer};
use deskgate_protocol::ids::{JournalId, RunId};
use deskgate_protocol::receipt::jws::ReceiptSigner;
use deskgate_protocol::receipt::{OfferAnswer, OutcomeDecider};
use deskgate_protocol::run::{Effects, Outcome, RunError, RunErrorCode, Usage};
use rusqlite::{OptionalExtension, Row, Transaction, params};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::receipts::{self, Chain};
use super::time::NOW;
use super::worker::Durability;
use super::{Error, Store, approvals, intents, transcripts};
use reconcile::Settlement;

/// How many restarts of the device may cut off an execution before it fails.
pub const MAX_CUT_OFFS: u32 = 2;
/// The outcomes of at most this many settled runs are remembered, newest first, ...
const MAX_REMEMBERED_OUTCOMES: i64 = 1_000;
/// ... with at most this many bytes.
const MAX_REMEMBERED_BYTES: i64 = 64 << 20;
/// For how many seconds a settled run is remembered at least: a gateway offers a run for at most seven days.
const REMEMBERED_SECONDS: i64 = 8 * 24 * 3600;
/// The bounds are enforced once per this many runs.
const TRIM_INTERVAL_RUNS: i64 = 32;

/// The journal's handle.
#[derive(Clone, Debug)]
pub struct Journal {
    store: Store,
}

/// The result of taking an offer.
#[derive(Clone, Debug, PartialEq)]
pub enum TakeOutcome {
    /// Recorded as taken; an older attempt was replaced.
    Fresh,
    /// The same attempt has ended here already, settled or not: with this ending, without its events.
    Ended(EndedAttempt),
    /// This attempt, or a later one, is known already: the offer is a duplicate.
    Stale,
}

/// The result of a confirmed start.
#[derive(Clone, Debug, PartialEq)]
pub enum StartOutcome {
    /// The entry is `running`: execute now.
    Execute,
    /// The run ended here in an earlier attempt, was cut off too often, or was revoked after it had begun to write. The
    /// entry is `finished` with this outcome as number 1; it must not be executed.
    Ended {
        /// How it ended.
        outcome: Outcome,
        /// What the device signed about it.
        receipt: Option<String>,
    },
}

/// How an attempt ended, and the part that the gateway may not have yet.
#[derive(Clone, Debug, PartialEq)]
pub struct EndedAttempt {
    /// The number of the `finish`.
    pub seq: u64,
    /// How it ended.
    pub outcome: Outcome,
    /// What the device signed about that; absent if it signed nothing, or something else that is no longer known here.
    pub receipt: Option<String>,
    /// The last events before the `finish`, numbered up to `seq - 1`.
    pub events: Vec<DeviceEvent>,
}

/// One open entry.
#[derive(Clone, Debug, PartialEq)]
pub struct JournalEntry {
    /// The offer; it names run and attempt.
    pub offer: Offer,
    /// The entry's state.
    pub status: InFlightStatus,
    /// The ending; present exactly when the entry is finished.
    pub ended: Option<EndedAttempt>,
    /// The owner's settlement of an unknown run that the gateway has not answered yet.
    pub settled: Option<Settlement>,
}

impl Journal {
    pub(super) fn new(store: Store) -> Self {
        Self { store }
    }

    /// Records that an offer is taken, or why not, also as a receipt. Durable before `accept` is sent.
    ///
    /// # Errors
    /// The database cannot be read or written, or the outcome that this attempt ended with is damaged.
    pub async fn take(&self, offer: &Offer) -> Result<TakeOutcome, Error> {
        let (offer, signer) = (offer.clone(), self.store.signer()?);
        self.store
            .step(Durability::Full, move |tx| {
                let taken = take(tx, offer.run_id, offer.attempt, &text(&offer))?;
                let answer = match &taken {
                    TakeOutcome::Fresh => OfferAnswer::Taken,
                    TakeOutcome::Ended(_) => OfferAnswer::EndedBefore,
                    TakeOutcome::Stale => OfferAnswer::Stale,
                };
                Chain::new(tx, &signer).add_offer(&offer, answer, 0)?;
                Ok(taken)
            })
            .await
    }

    /// Signs what was answered to an offer that changes nothing here. `unlisted`: how many offers before it were
    /// refused and not signed. The same answer to the same offer is signed once.
    ///
    /// # Errors
    /// The database cannot be read or written.
    pub async fn answered(&self, offer: &Offer, answer: OfferAnswer, unlisted: u64) -> Result<(), Error> {
        let (offer, signer) = (offer.clone(), self.store.signer()?);
        self.store.lazily(move |tx| Chain::new(tx, &signer).add_offer(&offer, answer, unlisted)).await
    }

    /// Records that execution begins. Durable before anything is executed: an attempt that a power cut took back to `taken`
    /// would be begun again as itself, and its events numbered again. May be repeated after an error, which leaves
    /// open whether the write happened; so may [`Self::finish`].
    ///
    /// # Errors
    /// [`Error::NoSuchEntry`]: the attempt is not in the journal, or is `interrupted` or `unknown`. Otherwise the
    /// database cannot be read or written, or what the entry holds is damaged.
    pub async fn start(&self, run_id: RunId, attempt: u32) -> Result<StartOutcome, Error> {
        let signer = self.store.signer()?;
        self.store.step(Durability::Full, move |tx| start(tx, &signer, run_id, attempt)).await
    }

    /// Records the end of an execution that only waited for a person when the agent was stopped: the next attempt
    /// begins again, and it does not count as cut off. Changes nothing if it had begun to write.
    ///
    /// # Errors
    /// The database cannot be read or written.
    pub async fn give_back(&self, run_id: RunId, attempt: u32) -> Result<(), Error> {
        self.store
            .durably(move |tx| {
                tx.execute(
                    "UPDATE run_journal SET status = 'interrupted'
                     WHERE run_id = ?1 AND attempt = ?2 AND status = 'running' AND NOT EXISTS
                         (SELECT 1 FROM intent i WHERE i.run_id = run_journal.run_id AND i.attempt = run_journal.attempt)",
                    params![run_id.to_string(), attempt],
                )?;
                Ok(())
            })
            .await
    }

    /// Records how an attempt ended, and its message in the transcript, with the events the gateway has not
    /// acknowledged. Durable before `finish` is sent. Returns what the device signed about it, which a repetition does not
    /// sign again.
    ///
    /// # Errors
    /// [`Error::NoSuchEntry`]: the attempt is not in the journal, or is `taken` or `interrupted`. Otherwise the
    /// database cannot be read or written, or a waiting request or the message of the run is damaged.
    pub async fn finish(
        &self,
        run_id: RunId,
        attempt: u32,
        seq: u64,
        outcome: &Outcome,
        unacknowledged: &[DeviceEvent],
    ) -> Result<Option<String>, Error> {
        let (ended, outcome, events) = (outcome.clone(), text(outcome), text(&unacknowledged));
        let signer = self.store.signer()?;
        self.store
            .step(Durability::Full, move |tx| {
                let changed = tx
                    .prepare_cached(
                        "UPDATE run_journal SET status = 'finished', finish_seq = ?3, outcome = ?4, events = ?5
                         WHERE run_id = ?1 AND attempt = ?2 AND status IN ('running', 'unknown', 'finished')",
                    )?
                    .execute(params![run_id.to_string(), attempt, seq as i64, outcome, events])?;
                found(changed, run_id, attempt, "finished")?;
                approvals::withdraw_all(tx, Some(run_id))?;
                transcripts::note(tx, run_id, &ended)?;
                Chain::new(tx, &signer).add_outcome(run_id, attempt, &ended, OutcomeDecider::Device)
            })
            .await
    }

    /// Settles an entry: its finish is acknowledged, or the attempt was revoked. Not durable: after a power cut the
    /// entry is sent and settled again.
    ///
    /// # Errors
    /// The database cannot be read or written, or a waiting request of the run is damaged.
    pub async fn forget(&self, run_id: RunId, attempt: u32) -> Result<(), Error> {
        self.store.step(Durability::Normal, move |tx| forget(tx, run_id, attempt)).await
    }

    /// The offer of an open entry.
    ///
    /// # Errors
    /// The database cannot be read, or the offer is damaged.
    pub async fn offer(&self, run_id: RunId) -> Result<Option<Offer>, Error> {
        self.store
            .lazily(move |tx| {
                let sql = "SELECT offer FROM run_journal WHERE run_id = ?1";
                let found: Option<String> =
                    tx.prepare_cached(sql)?.query_row([run_id.to_string()], |row| row.get(0)).optional()?;
                found.map(|json| read(&json, "an offer")).transpose()
            })
            .await
    }

    /// Whether a settled run ended here, as far as it is remembered.
    ///
    /// # Errors
    /// The database cannot be read.
    pub async fn has_ended(&self, run_id: RunId) -> Result<bool, Error> {
        self.store
            .lazily(move |tx| {
                let sql = "SELECT 1 FROM past_run WHERE run_id = ?1 AND finish_seq IS NOT NULL";
                Ok(tx.prepare_cached(sql)?.exists([run_id.to_string()])?)
            })
            .await
    }

    /// The journal's identifier, which is as old as the database.
    ///
    /// # Errors
    /// The database cannot be read or written, or the identifier is damaged.
    pub async fn id(&self) -> Result<JournalId, Error> {
        self.store
            .durably(|tx| {
                let new = JournalId::new().to_string();
                tx.execute("INSERT OR IGNORE INTO setting (key, value) VALUES ('journal_id', json_quote(?1))", [new])?;
                let sql = "SELECT value ->> '$' FROM setting WHERE key = 'journal_id'";
                let id: String = tx.query_row(sql, [], |row| row.get(0))?;
                id.parse().map_err(|_| Error::damaged("the journal's identifier")(id))
            })
            .await
    }

    /// Those of the runs that were never taken here, in any attempt, as far as they are remembered: see
    /// `REMEMBERED_SECONDS`.
    ///
    /// # Errors
    /// The database cannot be read.
    pub async fn never_had(&self, runs: Vec<RunId>) -> Result<Vec<RunId>, Error> {
        self.store
            .lazily(move |tx| {
                let sql = "SELECT EXISTS (SELECT 1 FROM run_journal WHERE run_id = ?1)
                    OR EXISTS (SELECT 1 FROM past_run WHERE run_id = ?1) OR EXISTS (SELECT 1 FROM intent WHERE run_id = ?1)";
                let mut statement = tx.prepare_cached(sql)?;
                let mut never_had = Vec::new();
                for run_id in runs {
                    if !statement.query_row([run_id.to_string()], |row| row.get(0))? {
                        never_had.push(run_id);
                    }
                }
                Ok(never_had)
            })
            .await
    }

    /// Tests that as much as an offer needs can be written durably. Leaves no data behind.
    ///
    /// # Errors
    /// The database cannot be written.
    pub async fn probe(&self) -> Result<(), Error> {
        self.store
            .durably(|tx| {
                tx.execute_batch(
                    "INSERT OR REPLACE INTO setting (key, value) VALUES ('journal_probe', printf('%.*c', 65536, '0'));
                     DELETE FROM setting WHERE key = 'journal_probe';",
                )?;
                Ok(())
            })
            .await
    }

    /// Every open entry, in the form that the next `hello` reports.
    ///
    /// # Errors
    /// The database cannot be read, or an entry is damaged.
    pub async fn in_flight(&self) -> Result<Vec<InFlightRun>, Error> {
        let entries = self.store.lazily(entries).await?;
        Ok(entries
            .iter()
            .map(|JournalEntry { offer, status, .. }| InFlightRun {
                run_id: offer.run_id,
                attempt: offer.attempt,
                status: *status,
            })
            .collect())
    }

    /// What the writing calls of a run changed, over all of its attempts. If that cannot be read, changes count as
    /// possible.
    pub async fn effects(&self, run_id: RunId) -> Effects {
        let read = self.store.lazily(move |tx| intents::effects(tx, run_id)).await;
        read.unwrap_or_else(|error| {
            tracing::error!(%run_id, %error, "what a run changed cannot be read");
            Effects::Possible
        })
    }

    /// Call once, before anything executes: the end of the previous process cut off every running entry. An entry
    /// without a writing call becomes `interrupted`. With one it becomes `unknown`: the model turn that knew what was
    /// done is lost. Returns every open entry.
    ///
    /// An entry that was cut off [`MAX_CUT_OFFS`] times keeps a failure as its outcome: the next attempt ends with it
    /// at its start.
    ///
    /// # Errors
    /// [`Error::Damaged`]: SQLite finds a fault in the tables that decide about runs, or an entry or a waiting request
    /// is damaged. Otherwise the database cannot be read or written.
    pub async fn recover(&self) -> Result<Vec<JournalEntry>, Error> {
        self.store
            .durably(|tx| {
                sound(tx)?;
                tx.execute(
                    "UPDATE run_journal SET status = 'unknown' WHERE status = 'running' AND EXISTS
                         (SELECT 1 FROM intent i WHERE i.run_id = run_journal.run_id AND i.attempt = run_journal.attempt)",
                    [],
                )?;
                tx.execute(
                    "UPDATE run_journal SET status = 'interrupted', cut_off = cut_off + 1,
                            outcome = CASE WHEN cut_off + 1 >= ?1 THEN
                                iif(EXISTS (SELECT 1 FROM intent i WHERE i.run_id = run_journal.run_id), ?3, ?2) END
                     WHERE status = 'running'",
                    params![MAX_CUT_OFFS, text(&cut_off_too_often(Effects::None)), text(&cut_off_too_often(Effects::Possible))],
                )?;
                // No execution waits for their answers any more.
                approvals::withdraw_all(tx, None)?;
                entries(tx)
            })
            .await
    }
}

/// The outcome of a run that was cut off in each of its executions. `effects`: of the attempts before those.
fn cut_off_too_often(effects: Effects) -> Outcome {
    let message = match effects {
        Effects::None => "The device stopped twice while it was executing this run. Nothing was changed.",
        _ => "The device stopped twice while it was executing this run again.",
    };
    let (code, message) = (RunErrorCode::Internal, message.to_owned());
    Outcome::Failed { error: RunError { code, message, retryable: true, effects }, usage: Usage::default() }
}

/// The remembered outcome of a run whose attempt was revoked after it had begun to write: a next attempt ends with it,
/// because nobody has decided that it may write again.
fn revoked_after_writing(effects: Effects) -> Outcome {
    let message =
        "The device had begun to change something in this run when the run was taken away from it.".to_owned();
    let error = RunError { code: RunErrorCode::Interrupted, message, retryable: false, effects };
    Outcome::Failed { error, usage: Usage::default() }
}

/// The outcome of a run that ended here, and whose own outcome is remembered no longer.
fn ended_before() -> Outcome {
    let message = "This run ended on the device before, and how is no longer known there.".to_owned();
    let error = RunError { code: RunErrorCode::Interrupted, message, retryable: false, effects: Effects::Possible };
    Outcome::Failed { error, usage: Usage::default() }
}

/// The journal's knowledge of a run, open or settled.
struct KnownRun {
    attempt: u32,
    cut_off: u32,
    outcome: Option<String>,
    finish_seq: Option<i64>,
}

impl KnownRun {
    fn from_row(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self { attempt: row.get(0)?, cut_off: row.get(1)?, outcome: row.get(2)?, finish_seq: row.get(3)? })
    }
}

fn take(tx: &Transaction<'_>, run_id: RunId, attempt: u32, offer: &str) -> Result<TakeOutcome, Error> {
    let known = |table| {
        let sql = format!("SELECT attempt, cut_off, outcome, finish_seq FROM {table} WHERE run_id = ?1");
        tx.prepare_cached(&sql)?.query_row([run_id.to_string()], KnownRun::from_row).optional()
    };
    let known = match known("run_journal")? {
        Some(open) => Some(open),
        None => known("past_run")?,
    };
    let (mut cut_off, mut outcome) = (0, None);
    if let Some(known) = known {
        match known {
            KnownRun { attempt: same, outcome: Some(json), finish_seq: Some(seq), .. } if same == attempt => {
                let outcome = read(&json, "an outcome")?;
                let receipt = receipts::of_outcome(tx, run_id, attempt, &outcome)?;
                return Ok(TakeOutcome::Ended(EndedAttempt {
                    seq: number(seq, 0)?,
                    outcome,
                    receipt,
                    events: Vec::new(),
                }));
            }
            KnownRun { attempt: same, outcome: None, finish_seq: Some(seq), .. } if same == attempt => {
                let outcome = ended_before();
                return Ok(TakeOutcome::Ended(EndedAttempt {
                    seq: number(seq, 0)?,
                    outcome,
                    receipt: None,
                    events: Vec::new(),
                }));
            }
            KnownRun { attempt: newest, .. } if newest >= attempt => return Ok(TakeOutcome::Stale),
            // The result of an earlier attempt applies to this one.
            older => {
                let forgotten = older.finish_seq.map(|_| text(&ended_before()));
                (cut_off, outcome) = (older.cut_off, older.outcome.or(forgotten));
            }
        }
    }
    tx.prepare_cached(
        "INSERT OR REPLACE INTO run_journal (run_id, attempt, status, cut_off, offer, outcome)
         VALUES (?1, ?2, 'taken', ?3, ?4, ?5)",
    )?
    .execute(params![run_id.to_string(), attempt, cut_off, offer, outcome])?;
    Ok(TakeOutcome::Fresh)
}

fn start(tx: &Transaction<'_>, signer: &ReceiptSigner, run_id: RunId, attempt: u32) -> Result<StartOutcome, Error> {
    let known: Option<Option<String>> = tx
        .prepare_cached(
            "SELECT outcome FROM run_journal
             WHERE run_id = ?1 AND attempt = ?2 AND status NOT IN ('interrupted', 'unknown')",
        )?
        .query_row(params![run_id.to_string(), attempt], |row| row.get(0))
        .optional()?;
    let key = params![run_id.to_string(), attempt];
    match known {
        None => found(0, run_id, attempt, "running").map(|()| StartOutcome::Execute),
        Some(None) => {
            let sql = format!(
                "UPDATE run_journal SET status = 'running', started_at = {NOW} WHERE run_id = ?1 AND attempt = ?2"
            );
            tx.prepare_cached(&sql)?.execute(key)?;
            Ok(StartOutcome::Execute)
        }
        Some(Some(outcome)) => {
            tx.execute(
                "UPDATE run_journal SET status = 'finished', finish_seq = 1, events = '[]'
                 WHERE run_id = ?1 AND attempt = ?2",
                key,
            )?;
            let outcome = read(&outcome, "an outcome")?;
            transcripts::note(tx, run_id, &outcome)?;
            let receipt = Chain::new(tx, signer).add_outcome(run_id, attempt, &outcome, OutcomeDecider::Device)?;
            Ok(StartOutcome::Ended { outcome, receipt })
        }
    }
}

fn forget(tx: &Transaction<'_>, run_id: RunId, attempt: u32) -> Result<(), Error> {
    let key = params![run_id.to_string(), attempt];
    // Its evidence is deleted with the entry. A run that may have written therefore counts as ended.
    let torn = match intents::effects(tx, run_id)? {
        Effects::None => None,
        effects => Some(text(&revoked_after_writing(effects))),
    };
    tx.prepare_cached(
        "INSERT OR REPLACE INTO past_run (run_id, attempt, cut_off, finish_seq, outcome, bytes, conversation_id, generation,
             settled_at)
         SELECT run_id, attempt, cut_off, finish_seq, coalesce(outcome, ?3), coalesce(length(coalesce(outcome, ?3)), 0),
                offer ->> '$.conversation', offer ->> '$.generation', (SELECT now FROM transcript_clock)
         FROM run_journal WHERE run_id = ?1 AND attempt = ?2",
    )?
    .execute(params![run_id.to_string(), attempt, torn])?;
    let n = tx.last_insert_rowid();
    approvals::withdraw_all(tx, Some(run_id))?;
    intents::forget(tx, run_id)?;
    let gone = tx.prepare_cached("DELETE FROM run_journal WHERE run_id = ?1 AND attempt = ?2")?.execute(key)?;
    // Last: of an open run, and of a request that waits, nothing is withdrawn.
    withdrawn::withdraw_late(tx, run_id)?;
    if gone > 0 && n % TRIM_INTERVAL_RUNS == 0 {
        tx.execute(
            "UPDATE past_run SET outcome = NULL, bytes = 0 WHERE bytes > 0 AND finish_seq IS NOT NULL AND (n <= ?1 OR n IN
                 (SELECT n FROM (SELECT n, sum(bytes) OVER (ORDER BY n DESC) AS total FROM past_run WHERE bytes > 0)
                  WHERE total > ?2))",
            params![n - MAX_REMEMBERED_OUTCOMES, MAX_REMEMBERED_BYTES],
        )?;
    }
    Ok(())
}

fn entries(tx: &Transaction<'_>) -> Result<Vec<JournalEntry>, Error> {
    let mut statement = tx.prepare_cached(
        "SELECT offer, status, finish_seq, outcome, events, EXISTS
             (SELECT 1 FROM intent i WHERE i.run_id = j.run_id AND i.attempt = j.attempt), run_id, attempt
         FROM run_journal j ORDER BY run_id",
    )?;
    let mut rows = statement.query([])?;
    let mut entries = Vec::new();
    while let Some(row) = rows.next()? {
        let offer: Offer = read(&row.get::<_, String>(0)?, "an offer")?;
        // A run's journal row is found by run and attempt; what is executed and reported comes from the offer. Both
        // must agree.
        if (offer.run_id.to_string(), offer.attempt) != (row.get(6)?, row.get(7)?) {
            return Err(Error::damaged("an offer")("it is of another run or attempt than its entry".to_owned()));
        }
        let (status, wrote): (String, bool) = (row.get(1)?, row.get(5)?);
        let runs_again = status == "interrupted" && wrote;
        let status = match status.as_str() {
            "taken" => InFlightStatus::Taken,
            "running" => InFlightStatus::Running,
            // The gateway may not know yet that the run is unknown: reported first, it shows who decided.
            _ if runs_again => InFlightStatus::Unknown,
            "interrupted" => InFlightStatus::Interrupted,
            "unknown" => InFlightStatus::Unknown,
            "finished" => InFlightStatus::Finished,
            other => return Err(Error::damaged("where a run stands")(other.to_owned())),
        };
        let ended = match status {
            InFlightStatus::Finished => {
                let events: Vec<_> = read(&row.get::<_, String>(4)?, "the events of a run")?;
                let seq = number(row.get(2)?, events.len())?;
                let outcome: Outcome = read(&row.get::<_, String>(3)?, "an outcome")?;
                let receipt = receipts::of_outcome(tx, offer.run_id, offer.attempt, &outcome)?;
                Some(EndedAttempt { seq, outcome, receipt, events })
            }
            _ => None,
        };
        let settled = match (status, row.get::<_, Option<String>>(3)?) {
            (InFlightStatus::Unknown, Some(json)) => Some(Settlement::Ends(Box::new(read(&json, "an outcome")?))),
            _ if runs_again => Some(Settlement::RunsAgain),
            _ => None,
        };
        entries.push(JournalEntry { offer, status, ended, settled });
    }
    Ok(entries)
}

/// Whether SQLite's check passes for the tables that decide about runs: with an index that lost a row, a run that ended
/// here would be taken as a new one.
fn sound(tx: &Transaction<'_>) -> Result<(), Error> {
    for table in ["run_journal", "past_run", "intent"] {
        let found: String = tx.query_row(&format!("PRAGMA integrity_check({table})"), [], |row| row.get(0))?;
        if found != "ok" {
            return Err(Error::damaged("the journal")(found));
        }
    }
    Ok(())
}

/// The number of a `finish` that follows this many events.
fn number(seq: i64, events: usize) -> Result<u64, Error> {
    let number = u64::try_from(seq).ok().filter(|number| *number > events as u64);
    number.ok_or_else(|| Error::damaged("the number of an end")(seq.to_string()))
}

fn found(changed: usize, run_id: RunId, attempt: u32, wanted: &'static str) -> Result<(), Error> {
    if changed == 0 { Err(Error::NoSuchEntry { run_id, attempt, wanted }) } else { Ok(()) }
}

fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("offers, outcomes and events are frames, which are JSON")
}

fn read<T: DeserializeOwned>(json: &str, what: &'static str) -> Result<T, Error> {
    serde_json::from_str(json).map_err(|error| Error::damaged(what)(error.to_string()))
}

#[cfg(test)]
mod tests;
