//! A run as the result of a call, and what is said of one that goes on.

use deskgate_protocol::Timestamp;
use deskgate_protocol::run::{EventType, Phase, Run, RunState, StateReason, StateReasonCode};
use serde_json::{Value, json};

use crate::domain::refusal::Flaw;
use crate::http::error::Error;
use crate::http::openai;

/// The result of a call: everything is in `structuredContent`, as some clients show their model nothing else of an answer that
/// has it.
pub(super) fn result(run: &Run) -> Value {
    let mut told = json!({ "run_id": run.run_id, "phase": run.phase, "state": run.state });
    let text = match run.phase {
        Phase::Final => ended(run, &mut told),
        Phase::Accepted | Phase::Started => going(run, &mut told),
    };
    let is_error = run.phase == Phase::Final && run.state != RunState::Succeeded;
    json!({ "content": [{ "type": "text", "text": text }], "structuredContent": told, "isError": is_error })
}

/// Adds what came of a run that has ended. Returns the same as a text.
fn ended(run: &Run, told: &mut Value) -> String {
    let why = openai::of_run(run.state, run.error.as_ref());
    match (&run.result, why) {
        (Some(result), None) => {
            let whole = result.whole_text().into_owned();
            match &result.data {
                None => told["text"] = json!(result.text),
                Some(data) => {
                    told["data"] = json!(data);
                    if result.text != data.to_string() {
                        told["text"] = json!(result.text);
                    }
                }
            }
            whole
        }
        (_, why) => {
            let why = why.unwrap_or_else(
                || json!({ "type": "content_deleted", "message": "The content of the run was deleted." }),
            );
            let mut error = json!({ "code": why["type"], "message": why["message"] });
            if let Some(own) = &run.error {
                error = json!({ "code": own.code, "message": own.message, "retryable": own.retryable, "effects": own.effects });
            }
            let text = format!(
                "{} ({})",
                error["message"].as_str().unwrap_or_default(),
                error["code"].as_str().unwrap_or_default()
            );
            told["error"] = error;
            text
        }
    }
}

/// Adds what is to be known of a run that goes on. Returns the same as a text.
fn going(run: &Run, told: &mut Value) -> String {
    const NEXT: &str = "Call deskgate_run with this run_id. The work goes on.";
    told["next"] = json!(NEXT);
    let reason = run.state_reason.as_ref();
    told["waiting_for"] = json!(reason.map_or("the assistant".to_owned(), |reason| code(reason.code)));
    let message = reason.map_or("The assistant works on it.", |reason| reason.message.as_str());
    format!("The work has not ended (run_id {}). {message} {NEXT}", run.run_id)
}

fn code(code: StateReasonCode) -> String {
    json!(code).as_str().unwrap_or_default().to_owned()
}

/// The result of a call whose arguments were not taken, so that the model that called can correct them.
pub(super) fn wrong(flaws: &[Flaw]) -> Value {
    let flaw = |flaw: &Flaw| format!("\n- {}: {}", flaw.pointer.trim_start_matches("/arguments/"), flaw.detail);
    let text = format!("Nothing was done: the arguments are not taken.{}", flaws.iter().map(flaw).collect::<String>());
    json!({ "content": [{ "type": "text", "text": text }], "isError": true })
}

/// How a run stands, in words.
pub(super) fn standing(run: &Run, last_seen_at: Option<Timestamp>) -> String {
    match (&run.state_reason, run.phase) {
        (Some(reason), _) => waiting(reason, last_seen_at),
        (None, Phase::Accepted) => "accepted".to_owned(),
        (None, Phase::Started | Phase::Final) => "the assistant works on it".to_owned(),
    }
}

/// The result of a call that made no run.
pub(super) fn refused(error: &Error) -> Value {
    let (code, again) = (
        error.code().as_str(),
        if error.is_retryable() { "it can be tried again" } else { "as it is, it will not be" },
    );
    let text = format!("Not accepted ({code}; {again}): {}", error.detail());
    json!({ "content": [{ "type": "text", "text": text }], "isError": true })
}

/// What an event says of a run, in words for people; `None`: nothing that they would wait to read.
pub(super) fn words(event: EventType) -> Option<&'static str> {
    Some(match event {
        EventType::RunAccepted => "accepted",
        EventType::RunStarted => "the assistant works on it",
        EventType::RunAwaitingApproval => "waiting for its owner to allow a step",
        EventType::RunApprovalResolved => "its owner has decided",
        EventType::RunAwaitingReconciliation => "its computer was lost; waiting to learn how it ended",
        EventType::RunReconciled => "its computer is back",
        EventType::RunRestarted => "the assistant begins again",
        EventType::ToolStarted => "the assistant uses a tool",
        EventType::MessageCompleted => "the assistant said something",
        EventType::ArtifactCreated => "a file was handed out",
        EventType::RunCancelling => "being stopped",
        EventType::ToolCompleted
        | EventType::UsageUpdated
        | EventType::RunSucceeded
        | EventType::RunFailed
        | EventType::RunCancelled
        | EventType::RunExpired => return None,
    })
}

/// What a run waits for, in words; `last_seen_at`: when its computer was last heard of.
pub(super) fn waiting(reason: &StateReason, last_seen_at: Option<Timestamp>) -> String {
    let since =
        last_seen_at.map(|at| format!(", last seen {}", at.0.strftime("%Y-%m-%d %H:%M UTC"))).unwrap_or_default();
    match reason.code {
        StateReasonCode::DeviceOffline => format!("waiting for the desktop (not connected{since})"),
        StateReasonCode::DeviceAsleep => format!("waiting for the desktop (asleep{since})"),
        StateReasonCode::DevicePaused => "waiting for its owner, who has paused access".to_owned(),
        StateReasonCode::DeviceBusy => "waiting for the desktop to begin".to_owned(),
        StateReasonCode::ConversationBusy => "waiting for earlier messages of the conversation".to_owned(),
        StateReasonCode::ApprovalPending => "waiting for its owner to allow a step".to_owned(),
        StateReasonCode::DeviceIncompatible
        | StateReasonCode::ModelUnavailable
        | StateReasonCode::OutcomeUnknown
        | StateReasonCode::StopRequested => reason.message.clone(),
    }
}

/// How often a client is to ask for a task.
const POLL_INTERVAL_MS: u32 = 2_000;

/// A run as a task.
pub(super) fn task(run: &Run) -> Value {
    let status = match (run.phase, run.state) {
        (Phase::Final, RunState::Cancelled) => "cancelled",
        (Phase::Final, _) => "completed",
        (Phase::Accepted | Phase::Started, _) => "working",
    };
    let message = match (run.phase, &run.state_reason) {
        (Phase::Final, _) => "The work has ended.",
        (_, Some(reason)) => &reason.message,
        (_, None) => "The assistant works on it.",
    };
    let time_to_live = run.purge_at.map(|end| end.0.as_millisecond() - run.created_at.0.as_millisecond());
    let updated = run.finished_at.or(run.started_at).unwrap_or(run.created_at);
    let mut task = json!({
        "taskId": run.run_id,
        "status": status,
        "statusMessage": message,
        "createdAt": run.created_at,
        "lastUpdatedAt": updated,
        "ttlMs": time_to_live,
        "pollIntervalMs": POLL_INTERVAL_MS,
    });
    if status == "completed" {
        task["result"] = result(run);
        task["result"]["resultType"] = json!("complete");
    }
    task
}

/// The answer to a call that became a task.
pub(super) fn created_task(run: &Run) -> Value {
    let mut task = task(run);
    if let Value::Object(members) = &mut task {
        // A repeated call may find a run that has ended: `tasks/get` has its result.
        members.remove("result");
    }
    task["resultType"] = json!("task");
    task
}
