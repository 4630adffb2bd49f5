//! Sample values that several files use.

use std::collections::BTreeMap;

use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::control::{RefusedCode, SessionRefusal};
use deskgate_protocol::conversation::{Conversation, ConversationState};
use deskgate_protocol::delivery::{CallbackEvent, Delivery, DeliveryErrorCode, DeliveryState};
use deskgate_protocol::file::{Artifact, ArtifactState, File, InputFile};
use deskgate_protocol::management::*;
use deskgate_protocol::operation::*;
use deskgate_protocol::run::*;
use deskgate_protocol::transfer::TransferTicket;
use deskgate_protocol::*;
use serde_json::json;
use uuid::Uuid;

pub(crate) fn id<T: From<Uuid>>(number: u128) -> T {
    Uuid::from_u128(0x0192_0000_0000_7000_8000_0000_0000_0000 + number).into()
}

pub(crate) fn app_id() -> ApplicationId {
    id(1)
}

pub(crate) fn key_id() -> KeyId {
    id(2)
}

pub(crate) fn endpoint_id() -> EndpointId {
    id(3)
}

pub(crate) fn run_id() -> RunId {
    id(4)
}

pub(crate) fn moment() -> Timestamp {
    "2026-11-21T09:14:50.123Z".parse().expect("valid")
}

pub(crate) fn digest() -> Sha256Digest {
    Sha256Digest::of(b"a definition")
}

pub(crate) fn signing_key() -> ed25519_dalek::SigningKey {
    ed25519_dalek::SigningKey::from_bytes(&[7; 32])
}

pub(crate) fn usage() -> Usage {
    Usage {
        input_tokens: 1200,
        cached_input_tokens: 900,
        cache_write_tokens: 100,
        output_tokens: 80,
        reasoning_tokens: 30,
        model_calls: 2,
        tool_calls: 1,
        active_seconds: 1.5,
        cost_usd: Some(0.0125),
    }
}

/// Data, the members of whose schema have an order of their own.
pub(crate) fn output() -> Output {
    let schema = json!({
        "type": "object",
        "properties": { "ids": { "type": "array", "items": { "type": "string" } }, "count": { "type": "integer" } },
        "required": ["ids", "count"],
        "additionalProperties": false,
    });
    Output { name: "open_invoices".to_owned(), schema }
}

pub(crate) fn typed_result() -> RunResult {
    RunResult { data: Some(Box::new(json!({ "ids": ["2026-102"], "count": 1 }))), ..result() }
}

pub(crate) fn result() -> RunResult {
    RunResult::completed("Drei Dateien.")
}

pub(crate) fn run_error() -> RunError {
    let message = "The model failed.".to_owned();
    RunError { code: RunErrorCode::ModelError, message, retryable: true, effects: Effects::None }
}

pub(crate) fn input() -> Input {
    let more = json!({ "order": 7, "nested": { "list": [1, null, true, "é\u{0}"] } });
    Input { text: "What stands in the folder?".to_owned(), more: more.as_object().expect("an object").clone() }
}

pub(crate) fn refused() -> SessionRefusal {
    SessionRefusal {
        code: RefusedCode::VersionMismatch,
        message: "Upgrade the device.".to_owned(),
        should_retry: true,
        retry_after_s: Some(30),
        gateway_version: "0.2.0".to_owned(),
        device_version: Some("0.1.0".to_owned()),
        upgrade: Some(Half::Device),
    }
}

pub(crate) fn refused_in_short() -> SessionRefusal {
    SessionRefusal { should_retry: false, retry_after_s: None, device_version: None, upgrade: None, ..refused() }
}

pub(crate) fn management_error() -> ManagementError {
    ManagementError { code: ManagementErrorCode::Conflict, message: "choose another name".to_owned() }
}

pub(crate) fn run_event() -> RunEvent {
    RunEvent {
        event_id: id(7),
        run_id: run_id(),
        sequence: 2,
        kind: EventType::RunStarted,
        created_at: moment(),
        data: json!({ "attempt": 1 }),
    }
}

pub(crate) fn ticket() -> TransferTicket {
    TransferTicket::new("c2VhbGVk")
}

pub(crate) fn uploaded_file() -> File {
    let InputFile { file_id, name, media_type, size, sha256 } = input_file();
    File { file_id, name, media_type, size, sha256, created_at: moment(), expires_at: Some(moment()) }
}

pub(crate) fn input_file() -> InputFile {
    InputFile {
        file_id: id(20),
        name: "invoice-17.pdf".to_owned(),
        media_type: "application/pdf".to_owned(),
        size: 81_234,
        sha256: Sha256Digest::of(b"an invoice"),
    }
}

pub(crate) fn artifact() -> Artifact {
    Artifact {
        artifact_id: id(21),
        name: "report.csv".to_owned(),
        media_type: "text/csv".to_owned(),
        description: Some("What is open.".to_owned()),
        size: 12,
        sha256: Sha256Digest::of(b"what is open"),
        state: ArtifactState::Stored,
    }
}

/// A run with only the members that every run has.
pub(crate) fn listed_run() -> ListedRun {
    ListedRun { run: young_run(), asked: Some("Summarise it.".to_owned()), answered: None }
}

pub(crate) fn young_run() -> Run {
    Run {
        run_id: run_id(),
        endpoint_id: endpoint_id(),
        endpoint_version: 3,
        conversation_id: None,
        generation: None,
        phase: Phase::Accepted,
        state: RunState::Queued,
        state_reason: None,
        attempt: 0,
        input: None,
        output: None,
        result: None,
        artifacts: Vec::new(),
        error: None,
        stop: None,
        usage: None,
        metadata: BTreeMap::new(),
        queue_position: None,
        conversation_position: None,
        last_sequence: 1,
        created_at: moment(),
        queue_expires_at: moment(),
        started_at: None,
        finished_at: None,
        receipt: None,
        purge_at: None,
        content_deleted_at: None,
        links: RunLinks::of(run_id()),
    }
}

/// A run with every member at once, which no real run has.
pub(crate) fn old_run() -> Run {
    Run {
        conversation_id: Some(id(8)),
        generation: Some(4),
        phase: Phase::Final,
        state: RunState::Succeeded,
        state_reason: Some(StateReasonCode::DeviceBusy.reason()),
        attempt: 2,
        input: Some(input()),
        output: Some(output()),
        result: Some(typed_result()),
        artifacts: vec![artifact()],
        error: Some(run_error()),
        stop: Some(Stop { requested_at: moment(), requested_by: RequestedBy::Application, operation_id: id(9) }),
        usage: Some(usage()),
        metadata: [("customer".to_owned(), "7".to_owned())].into(),
        queue_position: Some(3),
        conversation_position: Some(2),
        last_sequence: 17,
        started_at: Some(moment()),
        finished_at: Some(moment()),
        receipt: None,
        purge_at: Some(moment()),
        ..young_run()
    }
}

pub(crate) fn delivery() -> Delivery {
    Delivery {
        delivery_id: id(12),
        event_id: id(7),
        run_id: Some(run_id()),
        conversation_id: None,
        sequence: Some(4),
        kind: CallbackEvent::RunSucceeded,
        url_host: "hooks.example.com".to_owned(),
        state: DeliveryState::Pending,
        attempt: 2,
        status_code: None,
        duration_ms: Some(5001),
        error_code: Some(DeliveryErrorCode::ConnectTimeout),
        next_attempt_at: Some(moment()),
        created_at: moment(),
        finished_at: None,
    }
}

pub(crate) fn conversation() -> Conversation {
    Conversation {
        conversation_id: id(8),
        endpoint_id: endpoint_id(),
        conversation_key: "case 4711".to_owned(),
        generation: 4,
        state: ConversationState::Idle,
        active_run_id: None,
        created_at: moment(),
        updated_at: moment(),
    }
}

pub(crate) fn stop_operation() -> ControlOperation {
    ControlOperation {
        operation_id: id(9),
        kind: OperationKind::RunStop,
        target: OperationTarget { run_id: Some(run_id()), conversation_id: None },
        state: OperationState::Pending,
        outcome: None,
        error: None,
        created_at: moment(),
        delivered_at: None,
        completed_at: None,
    }
}

pub(crate) fn reset_operation() -> ControlOperation {
    ControlOperation {
        kind: OperationKind::ConversationReset,
        target: OperationTarget { run_id: None, conversation_id: Some(id(8)) },
        state: OperationState::Completed,
        outcome: Some(OperationOutcome { code: OutcomeCode::Reset, run_state: None, new_generation: Some(5) }),
        delivered_at: Some(moment()),
        completed_at: Some(moment()),
        ..stop_operation()
    }
}
