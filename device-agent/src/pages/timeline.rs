//! When a run waited, and when who was at work: spans from its events, for the picture and for the table below it.

use std::collections::HashMap;

use deskgate_protocol::Timestamp;
use deskgate_protocol::run::{EventType, Run, RunEvent};

use super::words::Length;
use crate::visible;

/// Spans that are drawn; the table has them all.
const DRAWN: usize = 40;
/// The picture's measures, in its own units.
const LABELS: f64 = 190.0;
const WIDTH: f64 = 1000.0;
const ROW: usize = 22;

/// One stretch of time.
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
    /// How long, or how long so far.
    pub(super) fn length(&self) -> Length {
        let to = self.to.unwrap_or_else(Timestamp::now);
        Length(to.0.as_second() - self.from.0.as_second())
    }
}

/// The spans of a run, in the order in which they began.
pub(super) struct Timeline {
    pub(super) spans: Vec<Span>,
    from: Timestamp,
    to: Timestamp,
}

/// A span as it is drawn.
pub(super) struct Bar<'a> {
    pub(super) span: &'a Span,
    pub(super) x: f64,
    pub(super) y: usize,
    pub(super) width: f64,
}

impl Timeline {
    /// Of a run and those of its events that are known.
    pub(super) fn new(run: &Run, events: &[RunEvent]) -> Self {
        let mut spans = Vec::new();
        let waited_until = run.started_at.or(run.finished_at);
        spans.push(Span { name: "Waiting".to_owned(), kind: "waiting", from: run.created_at, to: waited_until });
        let mut open: HashMap<String, Span> = HashMap::new();
        for event in events {
            let about = |member: &str| event.data.get(member).and_then(|value| value.as_str()).unwrap_or_default();
            let begin = |name: String, kind| Span { name, kind, from: event.created_at, to: None };
            let ended = match event.kind {
                EventType::ToolStarted => {
                    open.insert(about("call_id").to_owned(), begin(visible::line(about("tool")), "tool"));
                    None
                }
                EventType::RunAwaitingApproval => {
                    let name = format!("Approval of {}", visible::line(about("tool")));
                    open.insert(about("approval_id").to_owned(), begin(name, "approval"));
                    None
                }
                EventType::RunAwaitingReconciliation => {
                    open.insert(String::new(), begin("Reconciliation".to_owned(), "approval"));
                    None
                }
                EventType::ToolCompleted => open.remove(about("call_id")),
                EventType::RunApprovalResolved => open.remove(about("approval_id")),
                EventType::RunReconciled => open.remove(""),
                _ => None,
            };
            spans.extend(ended.map(|span| Span { to: Some(event.created_at), ..span }));
        }
        spans.extend(open.into_values().map(|span| Span { to: run.finished_at, ..span }));
        spans.sort_by_key(|span| (span.from.0, span.to.map(|to| to.0)));
        Self { spans, from: run.created_at, to: run.finished_at.unwrap_or_else(Timestamp::now) }
    }

    /// What is drawn.
    pub(super) fn bars(&self) -> impl Iterator<Item = Bar<'_>> {
        let whole = (self.to.0.as_millisecond() - self.from.0.as_millisecond()).max(1) as f64;
        let place = move |at: Timestamp| {
            let since = (at.0.as_millisecond() - self.from.0.as_millisecond()) as f64;
            LABELS + (since / whole).clamp(0.0, 1.0) * (WIDTH - LABELS)
        };
        self.spans.iter().take(DRAWN).enumerate().map(move |(row, span)| {
            let x = place(span.from);
            Bar { span, x, y: row * ROW, width: (place(span.to.unwrap_or(self.to)) - x).max(2.0) }
        })
    }

    /// The picture's height, in its own units.
    pub(super) fn height(&self) -> usize {
        self.spans.len().min(DRAWN) * ROW
    }

    /// How many spans the picture leaves out.
    pub(super) fn left_out(&self) -> usize {
        self.spans.len().saturating_sub(DRAWN)
    }

    /// The picture in a sentence.
    pub(super) fn sentence(&self) -> String {
        let spans = self.spans.iter().map(|span| format!("{} {}", span.name, span.length()));
        format!(
            "Timeline over {}: {}",
            Length(self.to.0.as_second() - self.from.0.as_second()),
            spans.collect::<Vec<_>>().join(", ")
        )
    }
}
