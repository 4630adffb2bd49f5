//! Transcripts: the messages of each generation of a conversation, for the messages that follow.
//!
//! A message and its answer are written in the same commit as the end of its run. A reset closes a generation, and a
//! closed one never grows.
//!
//! Only what the next message sees is kept, because it is other people's data: of a generation the newest
//! `MAX_GENERATION_BYTES`, of one message or answer `MAX_PART_BYTES`, with a note in place of the middle. A
//! conversation without messages for as many days as its owner chose ([`RetentionSettings`]) is forgotten; its next
//! message starts anew. A message is kept for no longer than the gateway keeps its run.
//!
//! A conversation belongs to one service and one subject (`Participant`): whatever a gateway says, no other sees it or
//! adds to it.

mod clock;
pub(super) use clock::moment;

use std::time::Duration;

use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::control::Offer;
use deskgate_protocol::ids::{ConversationId, EndpointId, RunId};
use deskgate_protocol::run::{Input, Outcome};
use rusqlite::{OptionalExtension, Transaction, params};
use serde::de::DeserializeOwned;

use super::settings::{GATEWAY_KEPT_SECONDS_SQL, kept_seconds};
use super::{Error, Store, shorten, withdrawal};
use crate::RetentionSettings;

/// How many stored bytes of a generation are kept and seen: the newest, and always the newest exchange.
const MAX_GENERATION_BYTES: i64 = 512 * 1024;
/// How many bytes of one message's text, of its further members, and of one answer are kept.
const MAX_PART_BYTES: usize = 128 * 1024;

/// The transcripts' handle.
#[derive(Clone, Debug)]
pub struct Transcripts {
    store: Store,
    /// When this handle last advanced the time, by [`clock::moment`].
    moved_on: Option<Duration>,
}

/// What a message sees of its conversation.
#[derive(Clone, Debug, PartialEq)]
pub enum Earlier {
    /// The exchanges of its generation so far, oldest first.
    Exchanges(Vec<TranscriptEntry>),
    /// The conversation belongs to another service or subject. The message must not be executed.
    OfAnother,
}

/// The service and the subject that a conversation belongs to, as a digest. A service is of one application.
struct Participant(String);

impl Participant {
    fn of(endpoint_id: EndpointId, subject: Option<&str>) -> Self {
        let parts = serde_json::to_vec(&(endpoint_id, subject)).expect("texts are JSON");
        Self(Sha256Digest::of(&parts).to_string())
    }
}

/// One message and its answer.
#[derive(Clone, Debug, PartialEq)]
pub struct TranscriptEntry {
    /// The message.
    pub input: Input,
    /// The answer, or in brackets why there is none.
    pub answer: String,
    /// Its position in the transcript.
    pub place: TranscriptPosition,
}

/// A position in a conversation's transcript.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TranscriptPosition {
    n: i64,
}

impl Transcripts {
    pub(super) fn new(store: Store) -> Self {
        Self { store, moved_on: None }
    }

    /// What an offered message sees of its conversation.
    ///
    /// # Errors
    /// The database cannot be read, or a message is damaged.
    pub async fn seen_by(&self, offer: &Offer) -> Result<Earlier, Error> {
        let (Some(conversation), Some(generation)) = (offer.conversation, offer.generation) else {
            return Ok(Earlier::Exchanges(Vec::new()));
        };
        let participant = Participant::of(offer.endpoint_id, offer.subject.as_deref());
        self.store
            .lazily(move |tx| {
                if belongs_to_another(tx, &conversation.to_string(), &participant)? {
                    return Ok(Earlier::OfAnother);
                }
                said(tx, conversation, generation).map(Earlier::Exchanges)
            })
            .await
    }

    /// Replaces every exchange up to a position by one exchange with their summary. A conversation that was reset or
    /// forgotten meanwhile stays unchanged.
    ///
    /// # Errors
    /// The database cannot be read or written.
    pub async fn sum_up(&self, through: TranscriptPosition, input: Input, answer: String) -> Result<(), Error> {
        let input = write(input);
        self.store
            .lazily(move |tx| {
                tx.execute(
                    "DELETE FROM transcript WHERE n < ?1 AND (conversation_id, generation) =
                         (SELECT conversation_id, generation FROM transcript WHERE n = ?1)",
                    [through.n],
                )?;
                tx.execute(
                    "UPDATE transcript SET input = ?2, answer = ?3 WHERE n = ?1",
                    params![through.n, input, answer],
                )?;
                Ok(())
            })
            .await
    }

    /// Deletes conversations without messages for longer than the retention time. Call regularly and on the same
    /// handle: the time between two calls counts in full.
    ///
    /// # Errors
    /// The database cannot be read or written.
    pub async fn forget_silent(&mut self) -> Result<(), Error> {
        let now = clock::moment();
        let most = self.moved_on.map_or(clock::MAX_UNOBSERVED_TIME, |last| now.saturating_sub(last));
        self.store
            .lazily(move |tx| {
                clock::move_on(tx, most)?;
                forget_silent(tx)
            })
            .await?;
        self.moved_on = Some(now);
        Ok(())
    }

    /// The same now, without advancing the time: for a person who has shortened the retention time.
    ///
    /// # Errors
    /// The database cannot be read or written.
    pub async fn forget_now(&self) -> Result<(), Error> {
        self.store.durably(forget_silent).await
    }

    /// How many conversations are stored, and how many had no message for `days` days.
    ///
    /// # Errors
    /// The database cannot be read.
    pub async fn silent_for(&self, days: u32) -> Result<(u64, u64), Error> {
        self.store
            .lazily(move |tx| {
                let sql =
                    "SELECT count(*), count(*) FILTER (WHERE last < (SELECT now FROM transcript_clock) - ?1 * 86400)
                           FROM (SELECT max(said_at) AS last FROM transcript GROUP BY conversation_id)";
                Ok(tx.query_row(sql, [days], |row| Ok((row.get::<_, i64>(0)? as u64, row.get::<_, i64>(1)? as u64)))?)
            })
            .await
    }

    /// Deletes everything up to a generation, for good, also in the journal. May be repeated. It is noted as long as the
    /// journal knows a run of the conversation; of an unknown conversation nothing is noted.
    ///
    /// # Errors
    /// The database cannot be read or written.
    pub async fn close(&self, conversation: ConversationId, generation: u32) -> Result<(), Error> {
        self.store
            .durably(move |tx| {
                let key = params![conversation.to_string(), generation];
                tx.execute("DELETE FROM transcript WHERE conversation_id = ?1 AND generation <= ?2", key)?;
                tx.execute(
                    &format!(
                        "INSERT INTO closed_generation (conversation_id, generation)
                         SELECT c.conversation_id, c.generation FROM (SELECT ?1 AS conversation_id, ?2 AS generation) c
                         WHERE {IS_KNOWN_SQL}
                         ON CONFLICT (conversation_id) DO UPDATE SET generation = max(generation, excluded.generation)"
                    ),
                    key,
                )?;
                withdrawal::withdraw_content(tx, &conversation.to_string(), generation)
            })
            .await
    }
}

/// Whether the journal knows a run of a closed generation `c`, as SQL.
const IS_KNOWN_SQL: &str = "(EXISTS (SELECT 1 FROM past_run p WHERE p.conversation_id = c.conversation_id)
    OR EXISTS (SELECT 1 FROM run_journal j WHERE j.offer ->> '$.conversation' = c.conversation_id))";

/// Forgets the closed generations of conversations that the journal knows no more.
pub(super) fn forget_closed(tx: &Transaction<'_>) -> Result<(), Error> {
    tx.execute(&format!("DELETE FROM closed_generation AS c WHERE NOT {IS_KNOWN_SQL}"), [])?;
    Ok(())
}

/// Records the result of a message, which its entry in the journal identifies. An unknown run is skipped, and a message
/// of no generation, which no honest gateway offers: nothing could follow it.
pub(super) fn note(tx: &Transaction<'_>, run_id: RunId, outcome: &Outcome) -> Result<(), Error> {
    let message = tx
        .prepare_cached(
            "SELECT offer ->> '$.conversation', offer ->> '$.generation', offer
             FROM run_journal WHERE run_id = ?1 AND offer ->> '$.conversation' IS NOT NULL
                 AND offer ->> '$.generation' > 0 AND NOT EXISTS (
                 SELECT 1 FROM closed_generation c
                 WHERE c.conversation_id = offer ->> '$.conversation' AND c.generation >= offer ->> '$.generation')",
        )?
        .query_row([run_id.to_string()], |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, u32>(1)?, row.get::<_, String>(2)?))
        })
        .optional()?;
    let Some((conversation, generation, offer)) = message else { return Ok(()) };
    let Offer { input, endpoint_id, subject, .. } = read(&offer)?;
    let (input, participant) = (write(input), Participant::of(endpoint_id, subject.as_deref()));
    if belongs_to_another(tx, &conversation, &participant)? {
        return Ok(());
    }
    tx.prepare_cached("UPDATE transcript SET participant = ?2 WHERE conversation_id = ?1 AND participant IS NULL")?
        .execute([&conversation, &participant.0])?;
    let answer = match outcome {
        Outcome::Succeeded { result, .. } => shorten::text(&result.whole_text(), MAX_PART_BYTES).into_owned(),
        Outcome::Failed { .. } => "[This request failed and has no answer.]".to_owned(),
        Outcome::Cancelled { .. } => "[This request was stopped and has no answer.]".to_owned(),
    };
    tx.prepare_cached(
        "INSERT INTO transcript (run_id, conversation_id, generation, input, answer, participant, said_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, (SELECT now FROM transcript_clock))
         ON CONFLICT (run_id) DO UPDATE SET answer = excluded.answer",
    )?
    .execute(params![run_id.to_string(), conversation, generation, input, answer, participant.0])?;
    trim(tx, &conversation, generation)
}

fn belongs_to_another(tx: &Transaction<'_>, conversation: &str, participant: &Participant) -> Result<bool, Error> {
    let sql = "SELECT 1 FROM transcript WHERE conversation_id = ?1 AND participant <> ?2";
    Ok(tx.prepare_cached(sql)?.exists([conversation, &participant.0])?)
}

/// Deletes what no later message will see.
fn trim(tx: &Transaction<'_>, conversation: &str, generation: u32) -> Result<(), Error> {
    tx.prepare_cached(
        "DELETE FROM transcript WHERE n IN (
             SELECT n FROM (
                 SELECT n, octet_length(input) + octet_length(answer) AS own, sum(octet_length(input) + octet_length(answer))
                     OVER (ORDER BY n DESC) AS total
                 FROM transcript WHERE conversation_id = ?1 AND generation = ?2)
             WHERE total > ?3 AND total > own)",
    )?
    .execute(params![conversation, generation, MAX_GENERATION_BYTES])?;
    Ok(())
}

/// The retention time of a silent conversation, in seconds, as SQL.
fn silence() -> String {
    kept_seconds("conversations", RetentionSettings::DEFAULT.conversations)
}

fn forget_silent(tx: &Transaction<'_>) -> Result<(), Error> {
    tx.execute(
        &format!(
            "DELETE FROM transcript WHERE said_at < (SELECT now FROM transcript_clock) - {GATEWAY_KEPT_SECONDS_SQL}"
        ),
        [],
    )?;
    let silent: Vec<String> = tx
        .prepare(&format!(
            "SELECT conversation_id FROM transcript GROUP BY conversation_id
             HAVING max(said_at) < (SELECT now FROM transcript_clock) - {}",
            silence()
        ))?
        .query_map([], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    for conversation in silent {
        tx.execute("DELETE FROM transcript WHERE conversation_id = ?1", [&conversation])?;
        withdrawal::withdraw_content(tx, &conversation, u32::MAX)?;
    }
    Ok(())
}

fn said(tx: &Transaction<'_>, conversation: ConversationId, generation: u32) -> Result<Vec<TranscriptEntry>, Error> {
    let mut statement = tx.prepare_cached(&format!(
        "SELECT input, answer, n FROM transcript WHERE conversation_id = ?1 AND generation = ?2
             AND (SELECT max(said_at) FROM transcript WHERE conversation_id = ?1)
                 >= (SELECT now FROM transcript_clock) - {}
             AND said_at >= (SELECT now FROM transcript_clock) - {GATEWAY_KEPT_SECONDS_SQL}
         ORDER BY n",
        silence()
    ))?;
    let mut rows = statement.query(params![conversation.to_string(), generation])?;
    let mut said = Vec::new();
    while let Some(row) = rows.next()? {
        said.push(TranscriptEntry {
            input: read(&row.get::<_, String>(0)?)?,
            answer: row.get(1)?,
            place: TranscriptPosition { n: row.get(2)? },
        });
    }
    Ok(said)
}

fn write(input: Input) -> String {
    serde_json::to_string(&shorten::input(input, MAX_PART_BYTES))
        .expect("a message is text and JSON, and is cut between characters")
}

fn read<T: DeserializeOwned>(message: &str) -> Result<T, Error> {
    serde_json::from_str(message).map_err(|error| Error::damaged("a message of a transcript")(error.to_string()))
}

#[cfg(test)]
mod tests;
