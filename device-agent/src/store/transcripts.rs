//! Transcripts: what was said in each generation of a conversation, for the messages that follow.
//!
//! A message and what became of it are written down in the same commit as the end of its run. A reset
//! closes a generation, and nothing is added to a closed one.

use deskgate_protocol::ids::{ConversationId, RunId};
use deskgate_protocol::run::{Input, Outcome};
use rusqlite::{Transaction, params};

use super::{Error, Store};

/// Bytes of earlier messages and answers that a new message sees; the newest count.
const SEEN_BYTES: i64 = 512 * 1024;

/// The transcripts' handle.
#[derive(Clone, Debug)]
pub struct Transcripts {
    store: Store,
}

/// One message and what was answered.
#[derive(Clone, Debug, PartialEq)]
pub struct Said {
    /// The message.
    pub input: Input,
    /// The answer, or in brackets why there was none.
    pub answer: String,
}

impl Transcripts {
    pub(super) fn new(store: Store) -> Self {
        Self { store }
    }

    /// What was said in a generation so far, oldest first.
    pub async fn of(&self, conversation: ConversationId, generation: u32) -> Result<Vec<Said>, Error> {
        self.store.lazily(move |tx| said(tx, conversation, generation)).await
    }

    /// Forgets everything up to a generation, for good. May be repeated.
    pub async fn close(&self, conversation: ConversationId, generation: u32) -> Result<(), Error> {
        self.store
            .durably(move |tx| {
                let key = params![conversation.to_string(), generation];
                tx.execute("DELETE FROM transcript WHERE conversation_id = ?1 AND generation <= ?2", key)?;
                tx.execute(
                    "INSERT INTO closed_generation (conversation_id, generation) VALUES (?1, ?2)
                     ON CONFLICT (conversation_id) DO UPDATE SET generation = max(generation, excluded.generation)",
                    key,
                )?;
                Ok(())
            })
            .await
    }
}

/// Writes down what became of a message, whose entry in the journal says which it was. A run that is none is left out.
pub(super) fn note(tx: &Transaction<'_>, run_id: RunId, outcome: &Outcome) -> Result<(), Error> {
    let answer = match outcome {
        Outcome::Succeeded { result, .. } => &result.text,
        Outcome::Failed { .. } => "[This request failed and has no answer.]",
        Outcome::Cancelled { .. } => "[This request was stopped and has no answer.]",
    };
    tx.prepare_cached(
        "INSERT INTO transcript (run_id, conversation_id, generation, input, answer)
         SELECT run_id, offer ->> '$.conversation', offer ->> '$.generation', offer -> '$.input', ?2
         FROM run_journal WHERE run_id = ?1 AND offer ->> '$.conversation' IS NOT NULL AND NOT EXISTS (
             SELECT 1 FROM closed_generation c
             WHERE c.conversation_id = offer ->> '$.conversation' AND c.generation >= offer ->> '$.generation')
         ON CONFLICT (run_id) DO UPDATE SET answer = excluded.answer",
    )?
    .execute(params![run_id.to_string(), answer])?;
    Ok(())
}

fn said(tx: &Transaction<'_>, conversation: ConversationId, generation: u32) -> Result<Vec<Said>, Error> {
    let mut statement = tx.prepare_cached(
        "SELECT input, answer FROM (
             SELECT n, input, answer, sum(length(input) + length(answer)) OVER (ORDER BY n DESC) AS total
             FROM transcript WHERE conversation_id = ?1 AND generation = ?2)
         WHERE total <= ?3 ORDER BY n",
    )?;
    let mut rows = statement.query(params![conversation.to_string(), generation, SEEN_BYTES])?;
    let mut said = Vec::new();
    while let Some(row) = rows.next()? {
        let input = serde_json::from_str(&row.get::<_, String>(0)?)
            .map_err(|error| Error::damaged("a message of a transcript")(error.to_string()))?;
        said.push(Said { input, answer: row.get(1)? });
    }
    Ok(said)
}

#[cfg(test)]
mod tests {
    use deskgate_protocol::canonical::Sha256Digest;
    use deskgate_protocol::control::Offer;
    use deskgate_protocol::ids::EndpointId;
    use deskgate_protocol::run::{Effects, FinishReason, RunResult, Usage};

    use super::*;

    fn message(conversation: ConversationId, generation: u32, text: &str) -> Offer {
        Offer {
            run_id: RunId::new(),
            attempt: 1,
            endpoint_id: EndpointId::new(),
            endpoint_version: 1,
            definition_sha256: Sha256Digest::of(b"definition"),
            input: Input { text: text.to_owned(), more: serde_json::Map::new() },
            conversation: Some(conversation),
            generation: Some(generation),
            max_duration_s: 60,
            traceparent: None,
        }
    }

    fn answered(text: &str) -> Outcome {
        let result = RunResult { text: text.to_owned(), finish_reason: FinishReason::Completed };
        Outcome::Succeeded { result, usage: Usage::default() }
    }

    async fn finished(store: &Store, offer: &Offer, outcome: &Outcome) {
        let journal = store.journal();
        journal.take(offer).await.expect("taken");
        journal.start(offer.run_id, 1).await.expect("started");
        // A write that failed without saying whether it happened is repeated.
        for _ in 0..2 {
            journal.finish(offer.run_id, 1, 1, outcome, &[]).await.expect("finished");
        }
    }

    async fn lines(store: &Store, conversation: ConversationId, generation: u32) -> Vec<String> {
        let said = store.transcripts().of(conversation, generation).await.expect("readable");
        said.into_iter().map(|said| format!("{} -> {}", said.input.text, said.answer)).collect()
    }

    #[tokio::test]
    async fn a_generation_sees_its_own_messages_in_their_order_until_it_is_closed() {
        let home = tempfile::tempdir().expect("temporary folder");
        let store = Store::open(home.path().join("deskgate.db")).await.expect("opens");
        let (ours, other) = (ConversationId::new(), ConversationId::new());
        finished(&store, &message(ours, 1, "one"), &answered("1")).await;
        finished(&store, &message(other, 1, "elsewhere"), &answered("x")).await;
        let stopped = Outcome::Cancelled { effects: Effects::None, usage: Usage::default() };
        finished(&store, &message(ours, 1, "two"), &stopped).await;
        let expected = ["one -> 1", "two -> [This request was stopped and has no answer.]"];
        assert_eq!(lines(&store, ours, 1).await, expected);

        for _ in 0..2 {
            store.transcripts().close(ours, 1).await.expect("closed");
        }
        finished(&store, &message(ours, 1, "late"), &answered("never seen")).await;
        finished(&store, &message(ours, 2, "anew"), &answered("2")).await;
        assert_eq!(lines(&store, ours, 1).await, [""; 0]);
        assert_eq!(lines(&store, ours, 2).await, ["anew -> 2"]);
        assert_eq!(lines(&store, other, 1).await, ["elsewhere -> x"]);
    }

    #[tokio::test]
    async fn of_a_long_conversation_the_newest_messages_are_seen() {
        let home = tempfile::tempdir().expect("temporary folder");
        let store = Store::open(home.path().join("deskgate.db")).await.expect("opens");
        let conversation = ConversationId::new();
        for text in ["a", "b", "c"] {
            finished(&store, &message(conversation, 1, text), &answered(&text.repeat(200 * 1024))).await;
        }
        let said = store.transcripts().of(conversation, 1).await.expect("readable");
        assert_eq!(said.iter().map(|said| said.input.text.as_str()).collect::<Vec<_>>(), ["b", "c"]);
    }
}
