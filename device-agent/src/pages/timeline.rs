//! The timeline of a run: spans from its events, for the picture and for the table below it.

use std::collections::HashMap;

use deskgate_program::visible;
use deskgate_protocol::Timestamp;
use deskgate_protocol::run::{EventType, Run, RunEvent};

use super::labels::DurationText;

/// How many spans are drawn; the table has them all.
const MAX_SPANS_DRAWN: usize = 200;
/// The picture's width, in its own units.
const TIMELINE_WIDTH: f64 = 248.0;
/// A shorter bar could not be seen.
const MIN_BAR_WIDTH: f64 = 2.0;
const LANE_HEIGHT: usize = 33;
const TEXT_HEIGHT: usize = 13;
const AXIS_GAP: usize = 4;
/// The kinds of spans, and whose time each is.
const LANES: [(&str, &str); 4] = [("waiting", "Waiting"), ("model", "Model"), ("call", "Tools"), ("approval", "You")];
/// The key of the model's spans.
const MODEL_SPAN: &str = "model";
/// Shorter model spans are left out.
const MIN_SPAN_MS: i64 = 50;

/// One span of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) name: String,
    /// The class for the style sheet.
    pub(super) kind: &'static str,
    pub(super) from: Timestamp,
    /// `None`: it goes on.
    pub(super) to: Option<Timestamp>,
}

impl Span {
    /// The span's duration so far.
    pub(super) fn length(&self) -> DurationText {
        let to = self.to.unwrap_or_else(Timestamp::now);
        DurationText(to.0.as_second() - self.from.0.as_second())
    }
}

/// The spans of a run, in order of their start.
pub(super) struct Timeline {
    pub(super) spans: Vec<Span>,
    from: Timestamp,
    to: Timestamp,
}

/// Builds the spans, event by event.
#[derive(Default)]
struct TimelineBuilder {
    ended: Vec<Span>,
    /// By the key that their end will name.
    open: HashMap<String, Span>,
}

impl TimelineBuilder {
    fn see(&mut self, event: &RunEvent) {
        let at = event.created_at;
        let about = |member: &str| event.data.get(member).and_then(|value| value.as_str()).unwrap_or_default();
        match event.kind {
            EventType::RunStarted | EventType::RunRestarted => {
                // Activities that a restart of the device cut off have no end event.
                for key in self.open.keys().cloned().collect::<Vec<_>>() {
                    self.end(&key, at);
                }
                self.begin(MODEL_SPAN, "Model".to_owned(), "model", at);
            }
            EventType::ToolStarted => self.lend(about("call_id"), visible::line(about("tool")), "call", at),
            EventType::RunAwaitingApproval => {
                let name = format!("Approval of {}", visible::line(about("tool")));
                self.lend(about("approval_id"), name, "approval", at);
            }
            EventType::RunAwaitingReconciliation => self.lend("", "Interrupted".to_owned(), "approval", at),
            EventType::ToolCompleted => self.give_back(about("call_id"), at),
            EventType::RunApprovalResolved => self.give_back(about("approval_id"), at),
            EventType::RunReconciled => self.give_back("", at),
            _ => {}
        }
    }

    /// The model continues when no other party is active.
    fn lend(&mut self, key: &str, name: String, kind: &'static str, at: Timestamp) {
        self.end(MODEL_SPAN, at);
        self.begin(key, name, kind, at);
    }

    fn give_back(&mut self, key: &str, at: Timestamp) {
        self.end(key, at);
        if self.open.is_empty() {
            self.begin(MODEL_SPAN, "Model".to_owned(), "model", at);
        }
    }

    fn begin(&mut self, key: &str, name: String, kind: &'static str, at: Timestamp) {
        self.open.insert(key.to_owned(), Span { name, kind, from: at, to: None });
    }

    fn end(&mut self, key: &str, at: Timestamp) {
        let span = self.open.remove(key).map(|span| Span { to: Some(at), ..span });
        // Between two calls of one turn the model is idle.
        self.ended.extend(
            span.filter(|span| {
                span.kind != "model" || at.0.as_millisecond() - span.from.0.as_millisecond() > MIN_SPAN_MS
            }),
        );
    }
}

/// The spans of one kind, in a line of their own.
pub(super) struct Lane<'a> {
    pub(super) name: &'static str,
    /// Where its name stands; its bars are below.
    pub(super) y: usize,
    pub(super) bars: Vec<Bar<'a>>,
}

/// A span as it is drawn.
pub(super) struct Bar<'a> {
    pub(super) span: &'a Span,
    pub(super) x: f64,
    pub(super) width: f64,
}

impl Timeline {
    /// From a run and its known events.
    pub(super) fn new(run: &Run, events: &[RunEvent]) -> Self {
        let mut hands = TimelineBuilder::default();
        let waited_until = run.started_at.or(run.finished_at);
        hands.begin("waiting", "Waiting".to_owned(), "waiting", run.created_at);
        if let Some(at) = waited_until {
            hands.end("waiting", at);
        }
        for event in events {
            hands.see(event);
        }
        let mut spans = hands.ended;
        spans.extend(hands.open.into_values().map(|span| Span { to: run.finished_at, ..span }));
        spans.sort_by_key(|span| (span.from.0, span.to.map(|to| to.0)));
        Self { spans, from: run.created_at, to: run.finished_at.unwrap_or_else(Timestamp::now) }
    }

    /// The lanes that have spans, from the top.
    pub(super) fn lanes(&self) -> Vec<Lane<'_>> {
        let used = LANES.iter().filter(|(kind, _)| self.drawn().any(|span| span.kind == *kind));
        let lanes = used.enumerate().map(|(row, (kind, name))| {
            let spans = self.drawn().filter(|span| span.kind == *kind);
            Lane { name, y: row * LANE_HEIGHT + TEXT_HEIGHT, bars: spans.map(|span| self.bar(span)).collect() }
        });
        lanes.collect()
    }

    fn drawn(&self) -> impl Iterator<Item = &Span> {
        self.spans.iter().take(MAX_SPANS_DRAWN)
    }

    fn bar<'a>(&self, span: &'a Span) -> Bar<'a> {
        let whole = (self.to.0.as_millisecond() - self.from.0.as_millisecond()).max(1) as f64;
        let place = |at: Timestamp| {
            let since = (at.0.as_millisecond() - self.from.0.as_millisecond()) as f64;
            ((since / whole).clamp(0.0, 1.0) * TIMELINE_WIDTH * 10.0).round() / 10.0
        };
        let x = place(span.from).min(TIMELINE_WIDTH - MIN_BAR_WIDTH);
        Bar { span, x, width: (place(span.to.unwrap_or(self.to)) - x).max(MIN_BAR_WIDTH) }
    }

    /// Where the time axis is.
    pub(super) fn axis(&self) -> usize {
        self.lanes().len() * LANE_HEIGHT + AXIS_GAP
    }

    /// The picture's height, in its own units.
    pub(super) fn height(&self) -> usize {
        self.axis() + LANE_HEIGHT
    }

    /// How long it is.
    pub(super) fn length(&self) -> DurationText {
        DurationText(self.to.0.as_second() - self.from.0.as_second())
    }

    /// How many spans the picture leaves out.
    pub(super) fn left_out(&self) -> usize {
        self.spans.len().saturating_sub(MAX_SPANS_DRAWN)
    }

    /// The picture's description, in a sentence.
    pub(super) fn sentence(&self) -> String {
        let spans = self.spans.iter().map(|span| format!("{} {}", span.name, span.length()));
        format!("Timeline over {}: {}", self.length(), spans.collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::run_samples::{at, ended, event, running};
    use super::*;

    fn drawn(timeline: &Timeline) -> Vec<(&str, Timestamp, Option<Timestamp>)> {
        timeline.spans.iter().map(|span| (span.name.as_str(), span.from, span.to)).collect()
    }

    #[test]
    fn the_model_has_the_word_whenever_nobody_else_has_it() {
        let asked = json!({ "approval_id": "apr_1", "tool": "Write" });
        let called = json!({ "call_id": "1", "tool": "Write" });
        let events = [
            event(0, EventType::RunAccepted, json!({})),
            event(2, EventType::RunStarted, json!({})),
            event(5, EventType::RunAwaitingApproval, asked.clone()),
            event(9, EventType::RunApprovalResolved, asked),
            event(9, EventType::ToolStarted, called.clone()),
            event(10, EventType::ToolCompleted, called),
        ];
        let timeline = Timeline::new(&running(), &events);
        let expected = vec![
            ("Waiting", at(0), Some(at(2))),
            ("Model", at(2), Some(at(5))),
            ("Approval of Write", at(5), Some(at(9))),
            ("Write", at(9), Some(at(10))),
            ("Model", at(10), None),
        ];
        assert_eq!(drawn(&timeline), expected);
        let lanes: Vec<_> = timeline.lanes().iter().map(|lane| (lane.name, lane.bars.len())).collect();
        assert_eq!(lanes, [("Waiting", 1), ("Model", 2), ("Tools", 1), ("You", 1)]);
    }

    #[test]
    fn every_bar_is_seen_and_none_is_longer_than_the_picture() {
        let call = |id: &str| json!({ "call_id": id, "tool": "Read" });
        let events = [
            event(39, EventType::ToolStarted, call("1")),
            event(40, EventType::ToolStarted, call("2")),
            event(40, EventType::ToolCompleted, call("2")),
        ];
        let timeline = Timeline::new(&ended("done"), &events);
        let bars: Vec<_> = timeline.lanes().into_iter().flat_map(|lane| lane.bars).collect();
        assert!(bars.iter().all(|bar| bar.width >= MIN_BAR_WIDTH && bar.x + bar.width <= TIMELINE_WIDTH));
    }
}
