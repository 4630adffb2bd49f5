//! A run's events as those of a response.
//!
//! Each event's `sequence_number` is made of the number of the newest stored event of the run, shifted, and a place behind
//! it. So the numbers only grow, are the same at every gateway and in every repetition, and nothing is stored for them: a
//! reader that comes again says by its last number what it has, to the byte of a message that is being written.

use std::fmt::Write as _;

use deskgate_protocol::RunId;
use deskgate_protocol::control::MessageDelta;
use deskgate_protocol::run::{EventType, Run, RunEvent};
use serde_json::{Value, json};

use super::message_id;
use super::response::{RequestEcho, last_text, message, message_text, response, text_part};
use super::run_stream::RunWriter;

/// The bits of a number that are the place behind a stored event.
const PLACE_BITS: u32 = 22;
/// The place where a message begins, and the one where its text does.
const ITEM_PLACE: u64 = 8;
const PART_PLACE: u64 = 9;
/// The place of the text that ends at byte 0 of a message. No message is so long that it would reach [`END_PLACES`].
const TEXT_PLACE: u64 = 16;
/// The places of a last message's three ends, whose text stands at the same event.
const END_PLACES: u64 = 1 << 21;
/// The place of a response's end.
const LAST_PLACE: u64 = (1 << PLACE_BITS) - 1;

/// The place of a reader, as the last number that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    sequence: u64,
    place: u64,
}

impl Position {
    /// The position of a number.
    pub(super) fn of(number: u64) -> Self {
        Self { sequence: number >> PLACE_BITS, place: number & LAST_PLACE }
    }
}

/// A message that is being written.
#[derive(Debug)]
struct OpenMessage {
    id: String,
    /// The text that was sent.
    sent: String,
}

/// Makes a response's events of a run's.
#[derive(Debug)]
pub(super) struct ResponseEvents {
    run_id: RunId,
    echo: RequestEcho,
    /// Only what is behind this is sent.
    after: Option<Position>,
    /// The newest stored event.
    sequence: u64,
    /// The event that ended the message before: behind it the present one begins.
    begins: u64,
    /// The completed messages.
    messages: Vec<String>,
    open: Option<OpenMessage>,
    /// Whether only the data of the result is sent.
    is_typed: bool,
    /// The event behind which the device began anew: what a reader has from before is of another try.
    begun_anew: u64,
    has_ended: bool,
    /// Whether the present message is sent only once it is complete: the reader came in the middle of it, or has another
    /// beginning of it.
    is_silent: bool,
    out: String,
}

impl ResponseEvents {
    /// The events behind a number, or all.
    pub(super) fn new(run_id: RunId, echo: RequestEcho, after: Option<u64>) -> Self {
        Self {
            run_id,
            echo,
            after: after.map(Position::of),
            sequence: 0,
            begins: 0,
            messages: Vec::new(),
            open: None,
            is_typed: false,
            begun_anew: 0,
            has_ended: false,
            is_silent: false,
            out: String::new(),
        }
    }

    /// The response as it was in that moment.
    fn accepted(&self, run: &Run, status: &str) -> Value {
        let bare = Run { result: None, error: None, usage: None, ..run.clone() };
        let mut response = response(&bare, Vec::new(), &self.echo);
        response["status"] = json!(status);
        response["error"] = Value::Null;
        response["completed_at"] = Value::Null;
        response["incomplete_details"] = Value::Null;
        response
    }

    /// Where the reader is in the present message, if it is inside of it.
    fn position_inside(&self) -> Option<Position> {
        self.after.filter(|after| {
            (self.begins..=self.sequence).contains(&after.sequence) && (ITEM_PLACE..END_PLACES).contains(&after.place)
        })
    }

    fn begin(&mut self) {
        let index = self.messages.len();
        let id = message_id(self.run_id, index);
        let item = json!({ "id": id, "type": "message", "status": "in_progress", "role": "assistant", "content": [] });
        self.send(ITEM_PLACE, "response.output_item.added", json!({ "output_index": index, "item": item }));
        self.begin_text();
    }

    fn begin_text(&mut self) {
        self.send(PART_PLACE, "response.content_part.added", self.of_part("part", text_part("")));
    }

    fn send_text(&mut self, place: u64, text: &str) {
        let mut delta = self.of_part("delta", json!(text));
        delta["logprobs"] = json!([]);
        self.send(place, "response.output_text.delta", delta);
    }

    /// What an event says of the text of the present message.
    fn of_part(&self, name: &str, value: Value) -> Value {
        let index = self.messages.len();
        json!({ "item_id": message_id(self.run_id, index), "output_index": index, "content_index": 0, name: value })
    }

    /// The end of a message, with what the reader lacks of it. Its text is numbered behind the event before, as its pieces
    /// were.
    fn complete(&mut self, text: String) {
        let own = self.sequence;
        self.sequence = own - 1;
        let had = match (self.position_inside(), self.open.take()) {
            (Some(inside), _) => {
                if inside.place < PART_PLACE {
                    self.begin_text();
                }
                match inside.sequence < self.begun_anew {
                    true => text.len(),
                    false => usize::try_from(inside.place.saturating_sub(TEXT_PLACE)).unwrap_or(usize::MAX),
                }
            }
            (None, Some(open)) if text.starts_with(&open.sent) => open.sent.len(),
            (None, Some(_)) => text.len(),
            (None, None) => {
                self.begin();
                0
            }
        };
        if let Some(rest) = text.get(had..).filter(|rest| !rest.is_empty()) {
            self.send_text(TEXT_PLACE + text.len() as u64, rest);
        }
        self.sequence = own;
        self.finish(0, text);
        (self.begins, self.is_silent) = (own, false);
    }

    /// The three ends of a message.
    fn finish(&mut self, place: u64, text: String) {
        let index = self.messages.len();
        let mut done = self.of_part("text", json!(text));
        done["logprobs"] = json!([]);
        self.send(place, "response.output_text.done", done);
        self.send(place + 1, "response.content_part.done", self.of_part("part", text_part(&text)));
        let item = message(self.run_id, index, &text);
        self.send(place + 2, "response.output_item.done", json!({ "output_index": index, "item": item }));
        self.messages.push(text);
    }

    /// The end of the response.
    fn end(&mut self, run: Option<&Run>) {
        let Some(run) = run else { return };
        self.has_ended = true;
        if let Some(text) = last_text(run, self.messages.last().map(String::as_str)) {
            // It stands at this event, whatever piece the reader had before.
            (self.open, self.begins) = (None, self.sequence);
            self.begin();
            self.send_text(TEXT_PLACE + text.len() as u64, &text);
            self.finish(END_PLACES, text.clone());
            self.messages.pop();
        }
        let end = response(run, std::mem::take(&mut self.messages), &self.echo);
        // Cancelled and expired runs too: only this is told as an error by every SDK.
        let name = match end["status"].as_str() {
            Some("completed") => "response.completed",
            Some("incomplete") => "response.incomplete",
            _ => "response.failed",
        };
        self.send(LAST_PLACE, name, json!({ "response": end }));
    }

    fn send(&mut self, place: u64, name: &str, mut data: Value) {
        let number = (self.sequence << PLACE_BITS) | place;
        if self.after.is_some_and(|after| Position::of(number).is_within(after)) {
            return;
        }
        data["type"] = json!(name);
        data["sequence_number"] = json!(number);
        let _ = write!(self.out, "event: {name}\ndata: {data}\n\n");
    }
}

impl RunWriter for ResponseEvents {
    fn shows_run(&self, kind: EventType) -> bool {
        kind.is_final() || matches!(kind, EventType::RunAccepted | EventType::RunStarted)
    }

    fn event(&mut self, event: &RunEvent, run: Option<&Run>) {
        self.sequence = event.sequence;
        match event.kind {
            EventType::RunAccepted => {
                self.is_typed = run.is_some_and(|run| run.output.is_some());
                let accepted = run.map(|run| self.accepted(run, "queued"));
                self.send(0, "response.created", json!({ "response": accepted }));
                self.send(1, "response.queued", json!({ "response": accepted }));
            }
            EventType::RunStarted => {
                let started = run.map(|run| self.accepted(run, "in_progress"));
                self.send(0, "response.in_progress", json!({ "response": started }));
            }
            EventType::MessageCompleted => {
                if let Some(text) = message_text(event).filter(|_| !self.is_typed) {
                    self.complete(text);
                }
            }
            EventType::RunAwaitingApproval => {
                let id = event.data["approval_id"].as_str().unwrap_or_default();
                self.comment(&format!("run.awaiting_approval {id}"));
            }
            EventType::RunRestarted => {
                self.begun_anew = event.sequence;
                self.comment(event.kind.as_str());
            }
            kind if kind.is_final() => self.end(run),
            kind => self.comment(kind.as_str()),
        }
    }

    fn piece(&mut self, delta: &MessageDelta) {
        if self.is_typed || self.is_silent || self.position_inside().is_some() {
            return;
        }
        let known = self.open.as_ref().map_or(0, |open| open.sent.chars().count() as u64);
        let is_other = self.open.as_ref().is_some_and(|open| open.id != delta.message_id);
        if is_other || delta.offset != known {
            // What was sent cannot be taken back.
            self.is_silent = true;
            return;
        }
        if self.open.is_none() {
            self.begin();
            self.open = Some(OpenMessage { id: delta.message_id.clone(), sent: String::new() });
        }
        let Some(open) = &mut self.open else { return };
        open.sent.push_str(&delta.text);
        let place = TEXT_PLACE + open.sent.len() as u64;
        self.send_text(place, &delta.text);
    }

    fn out(&mut self) -> &mut String {
        &mut self.out
    }

    fn has_ended(&self) -> bool {
        self.has_ended
    }
}

impl Position {
    /// Whether a reader that is at `reader` has this.
    fn is_within(self, reader: Self) -> bool {
        (self.sequence, self.place) <= (reader.sequence, reader.place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use deskgate_protocol::{EventId, Timestamp};

    fn event(sequence: u64, kind: EventType, data: Value) -> RunEvent {
        let (event_id, run_id, created_at) = (EventId::new(), RunId::new(), Timestamp::now());
        RunEvent { event_id, run_id, sequence, kind, created_at, data }
    }

    /// What a reader has been told, with the number of each event.
    fn told(text: &str) -> Vec<(u64, String)> {
        let lines = text.lines().filter_map(|line| line.strip_prefix("data: "));
        let value = |line: &str| serde_json::from_str::<Value>(line).expect("JSON");
        let text = |value: &Value| value["delta"].as_str().unwrap_or_default().to_owned();
        lines.map(value).map(|value| (value["sequence_number"].as_u64().expect("a number"), text(&value))).collect()
    }

    fn play(after: Option<u64>, pieces: &[(u64, &str)], whole: &str, is_restarted: bool) -> Vec<(u64, String)> {
        let mut events = ResponseEvents::new(RunId::new(), RequestEcho::default(), after);
        events.event(&event(1, EventType::RunStarted, json!({})), None);
        for (offset, text) in pieces {
            let text = (*text).to_owned();
            events.piece(&MessageDelta { message_id: "m".to_owned(), offset: *offset, text });
        }
        let mut next = 2;
        if is_restarted {
            events.event(&event(next, EventType::RunRestarted, json!({})), None);
            next += 1;
        }
        events.event(&event(next, EventType::UsageUpdated, json!({})), None);
        events.event(&event(next + 1, EventType::MessageCompleted, json!({ "text": whole })), None);
        told(&std::mem::take(&mut events.out))
    }

    fn text(told: &[(u64, String)]) -> String {
        told.iter().map(|(_, text)| text.as_str()).collect()
    }

    #[test]
    fn a_reader_goes_on_behind_each_number_without_a_gap_or_a_repetition() {
        let pieces = [(0, "Grü"), (3, "ße, "), (7, "Frau ")];
        let whole = play(None, &pieces, "Grüße, Frau Grün", false);
        assert_eq!(text(&whole), "Grüße, Frau Grün");
        assert!(whole.windows(2).all(|pair| pair[0].0 < pair[1].0), "{whole:?}");
        for (place, (number, _)) in whole.iter().enumerate() {
            // Whether the pieces come again or not.
            for pieces in [&pieces[..], &[]] {
                let rest = play(Some(*number), pieces, "Grüße, Frau Grün", false);
                assert_eq!(text(&whole[..=place]) + &text(&rest), "Grüße, Frau Grün", "behind {number}");
                assert!(rest.iter().all(|(later, _)| later > number), "{rest:?} behind {number}");
            }
        }
    }

    #[test]
    fn a_message_that_is_begun_anew_is_not_joined_with_what_was_sent_of_it() {
        assert_eq!(text(&play(None, &[(0, "Three"), (0, "Four")], "Four apples", false)), "Three");
        let before = play(None, &[(0, "Three")], "Four apples", true);
        let piece = before.iter().find(|(_, text)| text == "Three").expect("sent").0;
        assert_eq!(text(&play(Some(piece), &[], "Four apples", true)), "", "its end has the text that counts");
    }
}
