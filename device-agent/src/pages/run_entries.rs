//! The entries of a run's page: what the assistant said, the tools that it called, and who let it, in their order.
//!
//! The order is that of the gateway's events. What the device kept of each call stands beside its event; a call without
//! events, such as one that the rules denied, follows the call before it.

use deskgate_program::visible;
use deskgate_protocol::Timestamp;
use deskgate_protocol::control::{ApprovalResolution, ToolStatus};
use deskgate_protocol::receipt::CallStatus;
use deskgate_protocol::run::{EventType, Run, RunEvent};
use serde::de::DeserializeOwned;

use super::approvals::ApprovalCard;
use super::labels::{Shape, SpanLabel, tool_icon};
use super::run_calls::CallContent;
use crate::local::calls::{CallRecord, about, reason};

/// How many bytes of a page the contents of its calls take together: what a page has beside them is small.
const CONTENT_BYTES: usize = 48 * 1024;

/// Characters of what a call was about, and of why it failed, that its row shows.
const MAX_LINE_CHARS: usize = 200;

/// One thing that happened.
pub(super) enum RunEntry {
    /// The assistant said something, in Markdown.
    Said { message_id: String, text: String, at: Timestamp },
    /// It called a tool, or was to be allowed to.
    Called(Box<CallRow>),
    /// Something happened to the run.
    Noted { text: &'static str, at: Timestamp },
}

/// A tool call.
pub(super) struct CallRow {
    pub(super) tool: String,
    call_id: String,
    at: Timestamp,
    step: CallStep,
    /// The request by which a person was asked about it, if one was.
    pub(super) request: Option<ApprovalCard>,
    /// What the device kept of it.
    record: Option<CallRecord>,
    /// What it was to do and what it gave back, as far as it has room in the page.
    pub(super) content: Option<CallContent>,
}

enum CallStep {
    /// It was refused before anybody was asked.
    Refused,
    /// A person is asked.
    Asked,
    /// A person was asked, and it was not run.
    NotRun(ApprovalResolution),
    Running,
    Ended {
        status: ToolStatus,
        at: Timestamp,
    },
    /// The device was lost, or the run cut off or ended, before anybody knew.
    Unknown,
}

impl CallStep {
    /// How far a call is, by what the device kept of it.
    fn of(record: &CallRecord) -> Self {
        match (record.status, record.begun_at, record.ended_at) {
            (CallStatus::Ok, _, Some(at)) => Self::Ended { status: ToolStatus::Ok, at },
            (CallStatus::Error, _, Some(at)) => Self::Ended { status: ToolStatus::Error, at },
            (CallStatus::NotRun, None, Some(_)) if record.approval_id.is_some() => {
                Self::NotRun(ApprovalResolution::Denied)
            }
            (CallStatus::NotRun, None, None) => Self::Asked,
            (CallStatus::NotRun, ..) => Self::Refused,
            (_, Some(_), None) => Self::Running,
            _ => Self::Unknown,
        }
    }
}

impl CallRow {
    fn new(call_id: &str, tool: &str, at: Timestamp, step: CallStep, request: Option<ApprovalCard>) -> Self {
        let (record, content) = (None, None);
        Self { tool: visible::line(tool), call_id: call_id.to_owned(), at, step, request, record, content }
    }

    /// What became of it.
    pub(super) fn state(&self) -> (Shape, &'static str) {
        match self.step {
            CallStep::Refused => (Shape::Bad, "Not allowed"),
            CallStep::Asked => (Shape::Paused, "Needs your decision"),
            CallStep::NotRun(ApprovalResolution::Denied) => (Shape::Over, "Denied"),
            CallStep::NotRun(ApprovalResolution::Expired) => (Shape::Over, "Expired, which counts as denied"),
            CallStep::NotRun(ApprovalResolution::Approved) => (Shape::Over, "Allowed, not run"),
            CallStep::NotRun(ApprovalResolution::Withdrawn) => (Shape::Over, "Not run"),
            CallStep::Running => (Shape::Active, "Running"),
            CallStep::Ended { status: ToolStatus::Ok, .. } => (Shape::Good, "Done"),
            CallStep::Ended { status: ToolStatus::Error, .. } => (Shape::Bad, "Failed"),
            CallStep::Unknown => (Shape::Unknown, "Outcome unknown"),
        }
    }

    /// The identifier in the run, if the device kept the call.
    pub(super) fn kept_as(&self) -> Option<&str> {
        self.record.as_ref().map(|record| record.call_id.as_str())
    }

    /// What it was about: its file, pattern, command or page.
    pub(super) fn about(&self) -> String {
        let kept = self.record.as_ref().map(|record| visible::first_words(&about(record), MAX_LINE_CHARS));
        kept.or_else(|| self.request.as_ref().map(ApprovalCard::place)).unwrap_or_default()
    }

    /// The icon of its tool.
    pub(super) fn icon(&self) -> &'static str {
        tool_icon(&self.tool)
    }

    /// How long it took, by this computer's clock if the device kept it.
    pub(super) fn took(&self) -> Option<SpanLabel> {
        let kept = self.record.as_ref().and_then(|record| record.begun_at.zip(record.ended_at));
        match (kept, &self.step) {
            (Some((from, to)), _) => Some(SpanLabel::between(from, to)),
            (None, CallStep::Ended { at, .. }) => Some(SpanLabel::between(self.at, *at)),
            _ => None,
        }
    }

    /// Why it failed or was not run, as the model was told.
    pub(super) fn reason(&self) -> Option<String> {
        self.record.as_ref().and_then(reason).map(|why| visible::first_words(why, MAX_LINE_CHARS))
    }
}

/// What stands together in the page.
pub(super) enum RunTurn<'a> {
    /// What the assistant said and did then.
    Assistant {
        message_id: &'a str,
        said: Option<&'a str>,
        at: Timestamp,
        /// The tool calls that wait for nobody.
        calls: Vec<&'a CallRow>,
        /// The requests that wait for a decision: each stands for its call, which is not told twice.
        asked: Vec<&'a ApprovalCard>,
    },
    /// Something happened to the run.
    Noted { text: &'static str, at: Timestamp },
}

/// The entries with the calls beside what was said before them.
pub(super) fn turns(entries: &[RunEntry]) -> Vec<RunTurn<'_>> {
    let mut turns = Vec::new();
    let turn = |message_id, said, at| RunTurn::Assistant { message_id, said, at, calls: Vec::new(), asked: Vec::new() };
    for entry in entries {
        match entry {
            RunEntry::Said { message_id, text, at } => turns.push(turn(message_id.as_str(), Some(text.as_str()), *at)),
            RunEntry::Noted { text, at } => turns.push(RunTurn::Noted { text, at: *at }),
            RunEntry::Called(call) => {
                if !matches!(turns.last(), Some(RunTurn::Assistant { .. })) {
                    turns.push(turn("", None, call.at));
                }
                let Some(RunTurn::Assistant { calls, asked, .. }) = turns.last_mut() else { continue };
                match call.request.as_ref().filter(|card| card.waits()) {
                    Some(card) => asked.push(card),
                    None => calls.push(call),
                }
            }
        }
    }
    turns
}

/// Whether a message is among the entries.
pub(super) fn has_said(entries: &[RunEntry], wanted: &str) -> bool {
    entries.iter().any(|entry| matches!(entry, RunEntry::Said { message_id, .. } if message_id == wanted))
}

/// A member of an event's data; events of a newer gateway may have others.
fn member<T: DeserializeOwned>(event: &RunEvent, name: &str) -> Option<T> {
    event.data.get(name).and_then(|value| T::deserialize(value).ok())
}

/// The entries of a run, the first one first. `requests`: those about its calls; `records`: what the device kept of them.
pub(super) fn entries(
    run: &Run,
    events: &[RunEvent],
    mut requests: Vec<ApprovalCard>,
    records: Vec<CallRecord>,
) -> Vec<RunEntry> {
    let mut entries: Vec<RunEntry> = Vec::new();
    for event in events {
        let at = event.created_at;
        let text = |name: &str| member::<String>(event, name).unwrap_or_default();
        match event.kind {
            EventType::MessageCompleted => {
                entries.push(RunEntry::Said { message_id: text("message_id"), text: text("text"), at });
            }
            EventType::RunAwaitingApproval => {
                let wanted = text("approval_id");
                let found = requests.iter().position(|card| card.view.approval.approval_id.to_string() == wanted);
                let card = found.map(|place| requests.remove(place));
                let call_id = card.as_ref().map(|card| card.view.approval.call_id.clone()).unwrap_or_default();
                entries.push(RunEntry::Called(Box::new(CallRow::new(
                    &call_id,
                    &text("tool"),
                    at,
                    CallStep::Asked,
                    card,
                ))));
            }
            EventType::RunApprovalResolved => {
                let resolution = member(event, "resolution").unwrap_or(ApprovalResolution::Withdrawn);
                let asked = |call: &&mut CallRow| matches!(call.step, CallStep::Asked);
                if let Some(call) = calls(&mut entries).find(asked) {
                    call.step = CallStep::NotRun(resolution);
                }
            }
            EventType::ToolStarted => {
                let started = CallRow::new(&text("call_id"), &text("tool"), at, CallStep::Running, None);
                // Of a request that is not kept any more only the tool is known.
                let allowed = |call: &&mut CallRow| {
                    matches!(call.step, CallStep::NotRun(ApprovalResolution::Approved))
                        && (call.call_id == started.call_id || (call.call_id.is_empty() && call.tool == started.tool))
                };
                if let Some(call) = calls(&mut entries).find(allowed) {
                    *call = CallRow { request: call.request.take(), ..started };
                    continue;
                }
                entries.push(RunEntry::Called(Box::new(started)));
            }
            EventType::ToolCompleted => {
                let (call_id, status) = (text("call_id"), member(event, "status").unwrap_or(ToolStatus::Error));
                // A device that comes back may have gone on with it.
                let open = |call: &&mut CallRow| {
                    call.call_id == call_id && matches!(call.step, CallStep::Running | CallStep::Unknown)
                };
                if let Some(call) = calls(&mut entries).find(open) {
                    call.step = CallStep::Ended { status, at };
                }
            }
            EventType::RunAwaitingReconciliation => {
                lose(&mut entries);
                entries.push(RunEntry::Noted { text: "Interrupted", at });
            }
            EventType::RunReconciled => entries.push(RunEntry::Noted { text: "The outcome was confirmed", at }),
            EventType::RunRestarted => {
                cut_off(&mut entries);
                entries.push(RunEntry::Noted { text: "Begun again", at });
            }
            EventType::RunCancelling => entries.push(RunEntry::Noted { text: "A stop was asked for", at }),
            _ => {}
        }
    }
    let mut room = CONTENT_BYTES;
    let mut before = None;
    for record in records {
        let place =
            entries.iter().position(|entry| matches!(entry, RunEntry::Called(call) if call.call_id == record.call_id));
        let place = place.unwrap_or_else(|| {
            let place = before.map_or(0, |place: usize| place + 1);
            let at = record.begun_at.or(record.ended_at).unwrap_or(run.created_at);
            let call = CallRow::new(&record.call_id, &record.tool, at, CallStep::of(&record), None);
            entries.insert(place, RunEntry::Called(Box::new(call)));
            place
        });
        if let RunEntry::Called(call) = &mut entries[place] {
            // The device's own word counts, where it has one.
            call.tool = visible::line(&record.tool);
            if record.begun_at.is_some() && record.ended_at.is_some() {
                call.step = CallStep::of(&record);
            }
            call.content = CallContent::preview(&record, &mut room);
            call.record = Some(record);
        }
        before = Some(place);
    }
    if run.finished_at.is_some() {
        cut_off(&mut entries);
        // The result is shown by itself.
        let result = run.result.as_ref().map(|result| &result.text);
        entries.pop_if(|last| matches!(last, RunEntry::Said { text, .. } if Some(&*text) == result));
    }
    entries
}

/// The calls, the newest first.
fn calls(entries: &mut [RunEntry]) -> impl Iterator<Item = &mut CallRow> {
    entries.iter_mut().rev().filter_map(|entry| match entry {
        RunEntry::Called(call) => Some(&mut **call),
        _ => None,
    })
}

/// Of what runs nobody knows what comes of it.
fn lose(entries: &mut [RunEntry]) {
    for call in calls(entries).filter(|call| matches!(call.step, CallStep::Running)) {
        call.step = CallStep::Unknown;
    }
}

/// What runs has no end any more, and nobody is asked.
fn cut_off(entries: &mut [RunEntry]) {
    lose(entries);
    for call in calls(entries).filter(|call| matches!(call.step, CallStep::Asked)) {
        call.step = CallStep::NotRun(ApprovalResolution::Withdrawn);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::run_samples::{call, ended, event, running};
    use super::*;

    fn shown(entries: &[RunEntry]) -> Vec<String> {
        let line = |entry: &RunEntry| match entry {
            RunEntry::Said { text, .. } => text.clone(),
            RunEntry::Noted { text, .. } => format!("({text})"),
            RunEntry::Called(call) => {
                let took = call.took().map(|took| format!(", {took}")).unwrap_or_default();
                format!("{}: {}{took}", call.tool, call.state().1)
            }
        };
        entries.iter().map(line).collect()
    }

    #[test]
    fn calls_are_shown_with_what_became_of_them_in_the_order_in_which_they_began() {
        let call = |id: &str, tool: &str| json!({ "call_id": id, "tool": tool, "kind": "read" });
        let done = |id: &str, status: &str| json!({ "call_id": id, "tool": "", "status": status });
        let asked = |tool: &str| json!({ "approval_id": "apr_1", "tool": tool });
        let resolved = |how: &str| json!({ "approval_id": "apr_1", "resolution": how });
        let events = [
            event(2, EventType::MessageCompleted, json!({ "text": "I look." })),
            event(3, EventType::ToolStarted, call("1", "Read")),
            event(3, EventType::ToolStarted, call("2", "Grep")),
            event(4, EventType::ToolCompleted, done("2", "ok")),
            event(6, EventType::ToolCompleted, done("1", "error")),
            event(7, EventType::RunAwaitingApproval, asked("Write")),
            event(9, EventType::RunApprovalResolved, resolved("approved")),
            event(9, EventType::ToolStarted, call("3", "Write")),
            event(21, EventType::ToolCompleted, done("3", "ok")),
            event(22, EventType::RunAwaitingApproval, asked("Bash")),
            event(23, EventType::RunApprovalResolved, resolved("denied")),
            event(24, EventType::RunAwaitingApproval, asked("Edit")),
        ];
        let expected = [
            "I look.",
            "Read: Failed, 3.0 s",
            "Grep: Done, 1.0 s",
            "Write: Done, 12 s",
            "Bash: Denied",
            "Edit: Needs your decision",
        ];
        assert_eq!(shown(&entries(&running(), &events, Vec::new(), Vec::new())), expected);
        let behind = entries(&ended("Done."), &events, Vec::new(), Vec::new());
        assert_eq!(shown(&behind)[5], "Edit: Not run", "nobody is asked behind the end");
    }

    #[test]
    fn what_the_device_kept_stands_beside_its_event_and_a_refused_call_behind_the_one_before_it() {
        let started = |id: &str| json!({ "call_id": id, "tool": "Read", "kind": "read" });
        let events = [
            event(3, EventType::ToolStarted, started("call_1_1")),
            event(6, EventType::ToolCompleted, json!({ "call_id": "call_1_1", "status": "error" })),
            event(7, EventType::MessageCompleted, json!({ "text": "Then not." })),
        ];
        let failed = CallRecord {
            output: Some("No such file.\nLook.".to_owned()),
            status: CallStatus::Error,
            ..call("call_1_1", "Read")
        };
        let refused = CallRecord { begun_at: None, status: CallStatus::NotRun, ..call("call_1_2", "Bash") };
        let entries = entries(&running(), &events, Vec::new(), vec![failed, refused]);
        assert_eq!(shown(&entries), ["Read: Failed, 0.5 s", "Bash: Not allowed", "Then not."]);
        let RunEntry::Called(first) = &entries[0] else { panic!("a call") };
        assert_eq!((first.reason().as_deref(), first.kept_as()), (Some("No such file."), Some("call_1_1")));
        assert!(
            first.content.as_ref().is_some_and(|content| content.output.as_deref() == Some("No such file.\nLook.\n"))
        );
    }

    #[test]
    fn of_a_call_of_a_lost_device_the_outcome_is_unknown_until_it_reports_one() {
        let call = json!({ "call_id": "1", "tool": "Bash" });
        let mut events =
            vec![event(3, EventType::ToolStarted, call), event(8, EventType::RunAwaitingReconciliation, json!({}))];
        assert_eq!(
            shown(&entries(&running(), &events, Vec::new(), Vec::new())),
            ["Bash: Outcome unknown", "(Interrupted)"]
        );
        events.push(event(9, EventType::RunReconciled, json!({})));
        events.push(event(13, EventType::ToolCompleted, json!({ "call_id": "1", "status": "ok" })));
        let back = entries(&running(), &events, Vec::new(), Vec::new());
        assert_eq!(shown(&back), ["Bash: Done, 10 s", "(Interrupted)", "(The outcome was confirmed)"]);
    }

    #[test]
    fn a_restart_leaves_no_call_running_and_the_answer_is_not_said_twice() {
        let call = json!({ "call_id": "1", "tool": "Read" });
        let events = [
            event(3, EventType::ToolStarted, call.clone()),
            event(8, EventType::RunRestarted, json!({})),
            event(9, EventType::ToolStarted, call.clone()),
            event(10, EventType::ToolCompleted, json!({ "call_id": "1", "status": "ok" })),
            event(11, EventType::MessageCompleted, json!({ "text": "It is there." })),
        ];
        let expected = ["Read: Outcome unknown", "(Begun again)", "Read: Done, 1.0 s"];
        assert_eq!(shown(&entries(&ended("It is there."), &events, Vec::new(), Vec::new())), expected);
        let other = entries(&ended("Another text."), &events, Vec::new(), Vec::new());
        assert_eq!(shown(&other)[3], "It is there.");
    }
}
