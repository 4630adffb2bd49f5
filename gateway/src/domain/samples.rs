//! Sample events of a run and a conversation that never existed: for developers to try a receiver.

use std::collections::BTreeMap;

use deskgate_protocol::conversation::{Conversation, ConversationState};
use deskgate_protocol::delivery::CallbackEvent;
use deskgate_protocol::run::{Effects, Input, Run, RunError, RunErrorCode, RunLinks, RunResult, RunState, Usage};
use deskgate_protocol::{ConversationId, EndpointId, RunId, Timestamp};
use serde_json::json;

/// The `data` of a sample, as JSON.
pub(super) fn data(kind: CallbackEvent) -> String {
    match (kind, state(kind)) {
        (CallbackEvent::ConversationReset, _) => json!({ "conversation": conversation() }),
        (_, Some(state)) => {
            let run = run(state);
            json!({ "sequence": run.last_sequence, "run": run })
        }
        (_, None) => json!({ "message": "This is a test. Nothing happened." }),
    }
    .to_string()
}

/// The state in which such an event leaves its run.
fn state(kind: CallbackEvent) -> Option<RunState> {
    use CallbackEvent::*;
    Some(match kind {
        RunAccepted => RunState::Queued,
        RunStarted | RunApprovalResolved | RunReconciled | RunRestarted => RunState::Running,
        RunAwaitingApproval => RunState::AwaitingApproval,
        RunAwaitingReconciliation => RunState::AwaitingReconciliation,
        RunCancelling => RunState::Cancelling,
        RunSucceeded => RunState::Succeeded,
        RunFailed => RunState::Failed,
        RunCancelled => RunState::Cancelled,
        RunExpired => RunState::Expired,
        ConversationReset | WebhookTest => return None,
    })
}

fn run(state: RunState) -> Run {
    let (run_id, now) = (RunId::new(), Timestamp::now());
    let started = !matches!(state, RunState::Queued | RunState::Expired);
    let ended = state.successors().is_empty();
    let result = RunResult::completed("Invoice 2026-118 is open: 1,240.00 EUR.");
    let error = RunError {
        code: RunErrorCode::ModelError,
        message: "The model did not answer.".to_owned(),
        retryable: true,
        effects: Effects::None,
    };
    let usage = Usage {
        input_tokens: 1480,
        output_tokens: 96,
        model_calls: 2,
        tool_calls: 1,
        active_seconds: 8.4,
        ..Usage::default()
    };
    Run {
        run_id,
        endpoint_id: EndpointId::new(),
        endpoint_version: 1,
        conversation_id: None,
        generation: None,
        phase: state.phase(),
        state,
        state_reason: None,
        attempt: u32::from(started),
        input: Some(Input { text: "Which invoices are open?".to_owned(), more: serde_json::Map::new() }),
        output: None,
        result: (state == RunState::Succeeded).then_some(result),
        artifacts: Vec::new(),
        error: (state == RunState::Failed).then_some(error),
        stop: None,
        usage: (started && ended).then_some(usage),
        metadata: BTreeMap::from([("sample".to_owned(), "true".to_owned())]),
        queue_position: None,
        conversation_position: None,
        last_sequence: 1 + u64::from(started) + u64::from(ended),
        created_at: now,
        queue_expires_at: now,
        started_at: started.then_some(now),
        finished_at: ended.then_some(now),
        receipt: None,
        purge_at: ended.then_some(now),
        content_deleted_at: None,
        links: RunLinks::of(run_id),
    }
}

fn conversation() -> Conversation {
    let now = Timestamp::now();
    Conversation {
        conversation_id: ConversationId::new(),
        endpoint_id: EndpointId::new(),
        conversation_key: "sample".to_owned(),
        generation: 2,
        state: ConversationState::Idle,
        active_run_id: None,
        created_at: now,
        updated_at: now,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_has_a_sample_whose_run_is_in_the_state_that_the_event_ends_in() {
        for kind in CallbackEvent::ALL {
            let data: serde_json::Value = serde_json::from_str(&data(kind)).unwrap();
            match kind.of_run() {
                Some(event) => {
                    let run: Run = serde_json::from_value(data["run"].clone()).unwrap();
                    let ending = deskgate_protocol::run::EventType::ending(run.state);
                    assert_eq!(ending.is_some(), event.is_final(), "{kind}");
                    assert!(ending.is_none_or(|ending| ending == event), "{kind}");
                    assert!(data["sequence"].is_u64());
                }
                None => assert!(data.get("run").is_none()),
            }
        }
    }
}
