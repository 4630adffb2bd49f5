//! What assistants are writing at this moment, for the owner's pages. It is kept nowhere else, and ends with its run.

use std::collections::BTreeMap;

use deskgate_protocol::control::MessageDelta;
use deskgate_protocol::ids::RunId;

/// A message that is being written, or was written last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnfinishedMessage {
    /// As in the event that reports the whole message.
    pub message_id: String,
    /// Its text so far.
    pub text: String,
    /// How many characters that is, with those that are missing in it.
    chars: u64,
}

impl UnfinishedMessage {
    /// Adds a piece at its place. Pieces that were dropped on the way leave a mark.
    fn add(&mut self, piece: MessageDelta) {
        if self.message_id != piece.message_id {
            *self = Self { message_id: piece.message_id.clone(), ..Self::default() };
        }
        if piece.offset < self.chars {
            let keep = usize::try_from(piece.offset).unwrap_or(usize::MAX);
            let end = self.text.char_indices().nth(keep).map_or(self.text.len(), |(place, _)| place);
            self.text.truncate(end);
        } else if piece.offset > self.chars {
            self.text.push_str(" … ");
        }
        self.chars = piece.offset + piece.text.chars().count() as u64;
        self.text.push_str(&piece.text);
    }
}

/// The messages that are being written, by their runs.
#[derive(Clone, Debug, Default)]
pub struct Writing(BTreeMap<RunId, UnfinishedMessage>);

impl Writing {
    /// The message of a run.
    pub fn of(&self, run_id: RunId) -> Option<&UnfinishedMessage> {
        self.0.get(&run_id)
    }

    pub(super) fn add(&mut self, run_id: RunId, piece: MessageDelta) {
        self.0.entry(run_id).or_default().add(piece);
    }

    /// Forgets a run's message. Returns whether there was one.
    pub(super) fn end(&mut self, run_id: RunId) -> bool {
        self.0.remove(&run_id).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_make_the_message_and_what_is_missing_is_marked() {
        let (mut writing, run_id) = (Writing::default(), RunId::new());
        let mut add = |message: &str, offset: u64, text: &str| {
            writing.add(run_id, MessageDelta { message_id: message.to_owned(), offset, text: text.to_owned() });
            writing.of(run_id).expect("there").text.clone()
        };
        assert_eq!(add("msg_1_1", 0, "Größe: "), "Größe: ");
        assert_eq!(add("msg_1_1", 7, "3"), "Größe: 3");
        assert_eq!(add("msg_1_1", 20, "end"), "Größe: 3 … end");
        assert_eq!(add("msg_1_1", 23, "."), "Größe: 3 … end.");
        assert_eq!(add("msg_1_1", 0, "Again"), "Again", "a model that is asked again starts over");
        assert_eq!(add("msg_1_2", 0, "Next"), "Next");
        assert!(writing.end(run_id) && !writing.end(run_id));
    }
}
