//! A run and its events, for the tests of what its page makes of them.

use deskgate_protocol::receipt::CallStatus;
use deskgate_protocol::run::{EventType, Run, RunEvent};
use deskgate_protocol::{EventId, RunId, Timestamp};
use serde_json::{Value, json};

use crate::local::CallRecord;

const RUN_ID: &str = "run_01920000000070008000000000000001";

/// A moment of the run's minute.
pub(super) fn at(second: u32) -> Timestamp {
    format!("2026-01-01T00:00:{second:02}.000Z").parse().expect("a time")
}

/// An event in that second.
pub(super) fn event(second: u32, kind: EventType, data: Value) -> RunEvent {
    let run_id: RunId = RUN_ID.parse().expect("an identifier");
    RunEvent { event_id: EventId::new(), run_id, sequence: 1, kind, created_at: at(second), data }
}

/// A run that was accepted in second 0 and started in second 2.
pub(super) fn running() -> Run {
    let run = json!({
        "run_id": RUN_ID, "endpoint_id": "ep_01920000000070008000000000000002", "endpoint_version": 1,
        "phase": "started", "state": "running", "attempt": 1, "metadata": {}, "last_sequence": 6,
        "created_at": at(0), "queue_expires_at": at(50), "started_at": at(2), "links": { "self": "", "events": "" },
    });
    serde_json::from_value(run).expect("a run")
}

/// The same once it ended with a result.
pub(super) fn ended(result: &str) -> Run {
    let result = serde_json::from_value(json!({ "text": result, "finish_reason": "completed" })).expect("a result");
    Run { finished_at: Some(at(40)), result: Some(result), ..running() }
}

/// A call that began in second 2, took half a second and succeeded.
pub(super) fn call(call_id: &str, tool: &str) -> CallRecord {
    CallRecord {
        attempt: 1,
        call_id: call_id.to_owned(),
        tool: tool.to_owned(),
        arguments: Some("{}".to_owned()),
        plan: None,
        approval_id: None,
        begun_at: Some(at(2)),
        ended_at: Some("2026-01-01T00:00:02.500Z".parse().expect("a time")),
        status: CallStatus::Ok,
        output: None,
    }
}
