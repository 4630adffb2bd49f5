//! Collects the assistant's text, so that it is sent in few frames.
//!
//! Text waits for at most [`FLUSH_INTERVAL`]. A message that is finished within that time is sent as a whole only. One
//! that was begun in pieces is also ended in pieces.

use std::time::Duration;

use deskgate_protocol::control::{MAX_DELTA_BYTES, MessageDelta};
use tokio::time::{Instant, sleep_until};

use super::outcome::cut;

const FLUSH_INTERVAL: Duration = Duration::from_millis(50);

/// The part of a message that was not sent yet.
#[derive(Debug, Default)]
pub(super) struct DeltaBuffer {
    gathered: Option<MessageDelta>,
    due: Option<Instant>,
    /// Whether the beginning of this message was sent.
    begun: bool,
}

impl DeltaBuffer {
    /// Adds a piece of text. Another message, or the same begun anew, replaces the waiting text.
    pub(super) fn add(&mut self, piece: MessageDelta) {
        self.due.get_or_insert_with(|| Instant::now() + FLUSH_INTERVAL);
        match &mut self.gathered {
            Some(gathered) if continues(gathered, &piece) => gathered.text.push_str(&piece.text),
            gathered => *gathered = Some(piece),
        }
    }

    /// Waits until text is due.
    pub(super) async fn due(&self) {
        match self.due {
            Some(due) => sleep_until(due).await,
            None => std::future::pending().await,
        }
    }

    /// The collected text, in pieces that fit into one frame each.
    pub(super) fn take(&mut self) -> Vec<MessageDelta> {
        self.due = None;
        self.begun |= self.gathered.is_some();
        self.gathered.take().map(split).unwrap_or_default()
    }

    /// The remaining pieces of a finished message.
    pub(super) fn finish(&mut self) -> Vec<MessageDelta> {
        let begun = std::mem::take(&mut self.begun);
        let rest = self.take();
        self.begun = false;
        if begun { rest } else { Vec::new() }
    }
}

fn continues(gathered: &MessageDelta, piece: &MessageDelta) -> bool {
    gathered.message_id == piece.message_id && gathered.offset + gathered.text.chars().count() as u64 == piece.offset
}

fn split(MessageDelta { message_id, mut offset, text }: MessageDelta) -> Vec<MessageDelta> {
    let mut rest = text.as_str();
    std::iter::from_fn(|| {
        let piece = cut(rest, MAX_DELTA_BYTES);
        rest = &rest[piece.len()..];
        let delta = MessageDelta { message_id: message_id.clone(), offset, text: piece.to_owned() };
        offset += piece.chars().count() as u64;
        (!piece.is_empty()).then_some(delta)
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(offset: u64, text: &str) -> MessageDelta {
        MessageDelta { message_id: "msg_1".to_owned(), offset, text: text.to_owned() }
    }

    #[tokio::test]
    async fn what_is_written_within_a_moment_is_said_together() {
        let mut pieces = DeltaBuffer::default();
        pieces.add(piece(0, "Grö"));
        pieces.add(piece(3, "ße"));
        let began = Instant::now();
        pieces.due().await;
        assert!(began.elapsed() >= FLUSH_INTERVAL / 2, "{:?}", began.elapsed());
        assert_eq!(pieces.take(), [piece(0, "Größe")]);
        pieces.add(piece(5, ": 3"));
        assert_eq!(pieces.finish(), [piece(5, ": 3")]);
    }

    #[test]
    fn a_message_that_is_finished_at_once_is_not_said_in_pieces() {
        let mut pieces = DeltaBuffer::default();
        pieces.add(piece(0, "yes"));
        assert_eq!(pieces.finish(), []);
        pieces.add(piece(0, "no"));
        assert_eq!(pieces.finish(), [], "nor is the next one");
    }

    #[test]
    fn a_message_that_is_begun_anew_replaces_what_waits() {
        let mut pieces = DeltaBuffer::default();
        pieces.add(piece(0, "Three"));
        pieces.add(piece(0, "Four"));
        assert_eq!(pieces.take(), [piece(0, "Four")]);
    }

    #[test]
    fn long_text_is_cut_between_characters_and_put_together_is_the_same() {
        let text = "ä".repeat(MAX_DELTA_BYTES) + "x";
        let mut pieces = DeltaBuffer::default();
        pieces.add(piece(7, &text));
        let said = pieces.take();
        assert!(said.len() > 2 && said.iter().all(|piece| piece.text.len() <= MAX_DELTA_BYTES));
        let together: String = said.iter().map(|piece| piece.text.as_str()).collect();
        assert_eq!(together, text);
        assert_eq!(said[1].offset, 7 + said[0].text.chars().count() as u64);
    }
}
