//! The entries of a run's page, made of its events: what the assistant said, the tools that it called, and who let it, in
//! their order.

use deskgate_program::visible;
use deskgate_protocol::Timestamp;
use deskgate_protocol::control::{ApprovalResolution, ToolStatus};
use deskgate_protocol::run::{EventType, Run, RunEvent};
use serde::de::DeserializeOwned;

use super::approvals::ApprovalCard;
use super::labels::{Shape, SpanLabel};

/// One thing that happened.
pub(super) enum RunEntry {
    /// The assistant said something.
    Said { text: String, at: Timestamp },
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
}

enum CallStep {
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

impl CallRow {
    fn new(call_id: &str, tool: &str, at: Timestamp, step: CallStep, request: Option<ApprovalCard>) -> Self {
        Self { tool: visible::line(tool), call_id: call_id.to_owned(), at, step, request }
    }

    /// What became of it.
    pub(super) fn state(&self) -> (Shape, &'static str) {
        match self.step {
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

    /// What it was about, as far as a request tells.
    pub(super) fn place(&self) -> String {
        self.request.as_ref().map(ApprovalCard::place).unwrap_or_default()
    }

    /// How long it took.
    pub(super) fn took(&self) -> Option<SpanLabel> {
        match self.step {
            CallStep::Ended { at, .. } => Some(SpanLabel::between(self.at, at)),
            _ => None,
        }
    }
}

/// A member of an event's data; events of a newer gateway may have others.
fn member<T: DeserializeOwned>(event: &RunEvent, name: &str) -> Option<T> {
    event.data.get(name).and_then(|value| T::deserialize(value).ok())
}

/// The entries of a run, the first one first. `requests`: those about its calls.
pub(super) fn entries(run: &Run, events: &[RunEvent], mut requests: Vec<ApprovalCard>) -> Vec<RunEntry> {
    let mut entries: Vec<RunEntry> = Vec::new();
    for event in events {
        let at = event.created_at;
        let text = |name: &str| member::<String>(event, name).unwrap_or_default();
        match event.kind {
            EventType::MessageCompleted => entries.push(RunEntry::Said { text: visible::text(&text("text")), at }),
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
    if run.finished_at.is_some() {
        cut_off(&mut entries);
        // The result is shown by itself.
        let result = run.result.as_ref().map(|result| visible::text(&result.text));
        entries.pop_if(|last| matches!(last, RunEntry::Said { text, .. } if Some(&*text) == result.as_ref()));
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

    use super::super::run_samples::{ended, event, running};
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
            event(2, EventType::MessageCompleted, json!({ "text": "I look\u{202e}." })),
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
            "I look<U+202E>.",
            "Read: Failed, 3.0 s",
            "Grep: Done, 1.0 s",
            "Write: Done, 12 s",
            "Bash: Denied",
            "Edit: Needs your decision",
        ];
        assert_eq!(shown(&entries(&running(), &events, Vec::new())), expected);
        let behind = entries(&ended("Done."), &events, Vec::new());
        assert_eq!(shown(&behind)[5], "Edit: Not run", "nobody is asked behind the end");
    }

    #[test]
    fn of_a_call_of_a_lost_device_the_outcome_is_unknown_until_it_reports_one() {
        let call = json!({ "call_id": "1", "tool": "Bash" });
        let mut events =
            vec![event(3, EventType::ToolStarted, call), event(8, EventType::RunAwaitingReconciliation, json!({}))];
        assert_eq!(shown(&entries(&running(), &events, Vec::new())), ["Bash: Outcome unknown", "(Interrupted)"]);
        events.push(event(9, EventType::RunReconciled, json!({})));
        events.push(event(13, EventType::ToolCompleted, json!({ "call_id": "1", "status": "ok" })));
        let back = entries(&running(), &events, Vec::new());
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
        assert_eq!(shown(&entries(&ended("It is there."), &events, Vec::new())), expected);
        let other = entries(&ended("Another text."), &events, Vec::new());
        assert_eq!(shown(&other)[3], "It is there.");
    }
}
