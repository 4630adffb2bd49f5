//! One example for each answer, as the gateway would write it.

use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::receipt::jws::ReceiptSigner;
use deskgate_protocol::receipt::{OutcomeDecider, OutcomeFacts, RECEIPT_VERSION, Receipt, ReceiptEntry, RunFacts};
use deskgate_protocol::run::{Effects, Outcome};
use serde_json::{Value, json};

const RUN_ID: &str = "run_01a1fdacce837753badf368b3b8b6a04";
const CONVERSATION_ID: &str = "conv_01a1fdacce8377c1b2d3e4f5a6b7c8d9";
const OPERATION_ID: &str = "op_01a1fdacce8377d0a8e1b3a0c5d9e6f7";
const ENDPOINT_ID: &str = "ep_01a1fd9b2f7c7a10b5d2f0a9c3e4d5f6";

/// The directory of services.
pub(in crate::http) fn directory() -> Value {
    json!({
        "endpoints": [{
            "id": ENDPOINT_ID,
            "name": "Invoices",
            "description": "Answers questions about our invoices.",
            "version": 3,
            "caller_schema": true,
            "takes_files": true,
            "tool_name": "ask_invoices",
            "read_only": false,
            "device": { "connected": true, "last_seen_at": "2026-11-21T09:14:48.907Z" },
        }],
    })
}

/// The capabilities of a gateway with the default settings.
pub(in crate::http) fn capabilities() -> Value {
    json!(super::super::capabilities::capabilities(&Default::default(), &Default::default()))
}

/// The body of a submission.
pub(in crate::http) fn submission() -> Value {
    json!({
        "input": { "text": "Which invoices are open?", "customer": 4711 },
        "output": output(),
        "metadata": { "ticket": "T-1880" },
        "queue_ttl_s": 3600,
    })
}

/// The data that a caller asks for.
fn output() -> Value {
    json!({
        "name": "open_invoices",
        "schema": {
            "type": "object",
            "properties": {
                "ids": { "type": "array", "items": { "type": "string" } },
                "count": { "type": "integer" },
            },
            "required": ["ids", "count"],
            "additionalProperties": false,
        },
    })
}

/// A file that was uploaded.
pub(in crate::http) fn file() -> Value {
    json!({
        "file_id": "file_01a1fdacce837a12b3c4d5e6f7a8b9c0",
        "name": "invoice-17.pdf",
        "media_type": "application/pdf",
        "size": 81234,
        "sha256": "5f8f04f6a3a892aaabbddb6cf273894493773960d4a325b105fee46eef4304f1",
        "created_at": "2026-11-21T09:14:49.801Z",
        "expires_at": "2026-11-22T09:14:49.801Z",
    })
}

/// A page of files.
pub(in crate::http) fn files() -> Value {
    json!({ "data": [file()], "has_more": false })
}

/// A run that was just accepted.
pub(in crate::http) fn accepted() -> Value {
    json!({
        "run_id": RUN_ID,
        "endpoint_id": ENDPOINT_ID,
        "endpoint_version": 3,
        "phase": "accepted",
        "state": "queued",
        "state_reason": {
            "code": "device_busy",
            "message": "The device is connected and starts this run as soon as it has room.",
        },
        "attempt": 0,
        "input": { "text": "Which invoices are open?", "customer": 4711 },
        "output": output(),
        "metadata": { "ticket": "T-1880" },
        "queue_position": 0,
        "last_sequence": 1,
        "created_at": "2026-11-21T09:14:50.123Z",
        "queue_expires_at": "2026-11-21T10:14:50.123Z",
        "links": links(),
    })
}

/// The same run after it succeeded.
pub(in crate::http) fn succeeded() -> Value {
    let mut run = ended();
    run["receipt"] = receipt(&run).into();
    run
}

/// What a device signed about it. Everybody knows the key of the example.
fn receipt(run: &Value) -> String {
    let read = "an example has what a receipt needs";
    let at = "2026-11-21T09:14:54.503Z".parse().expect(read);
    let outcome: Outcome = serde_json::from_value(json!({
        "state": "succeeded",
        "result": run["result"],
        "usage": run["usage"],
    }))
    .expect(read);
    let facts = OutcomeFacts::of(&outcome, Effects::None, OutcomeDecider::Device, Vec::new(), None, at);
    let receipt = Receipt {
        v: RECEIPT_VERSION,
        device_seq: 42,
        prev: Some(Sha256Digest::of(b"the receipt before it")),
        run: RunFacts {
            run_id: RUN_ID.parse().expect(read),
            attempt: 1,
            endpoint_id: ENDPOINT_ID.parse().expect(read),
            endpoint_version: 3,
            definition_sha256: Sha256Digest::of(b"a definition"),
            input_sha256: Sha256Digest::of_json(&run["input"]).expect(read),
            app_id: None,
            subject_tag: None,
            conversation_id: None,
            generation: None,
        },
        entry: ReceiptEntry::Outcome(facts.expect(read)),
    };
    ReceiptSigner::from_seed([1; 32]).sign(&receipt)
}

fn ended() -> Value {
    json!({
        "run_id": RUN_ID,
        "endpoint_id": ENDPOINT_ID,
        "endpoint_version": 3,
        "phase": "final",
        "state": "succeeded",
        "attempt": 1,
        "input": { "text": "Which invoices are open?", "customer": 4711 },
        "output": output(),
        "result": {
            "text": "Two are open: 2026-102 and 2026-103.",
            "data": { "ids": ["2026-102", "2026-103"], "count": 2 },
            "finish_reason": "completed",
        },
        "usage": {
            "input_tokens": 1412,
            "cached_input_tokens": 1024,
            "cache_write_tokens": 0,
            "output_tokens": 63,
            "reasoning_tokens": 0,
            "model_calls": 2,
            "tool_calls": 1,
            "active_seconds": 4.2,
        },
        "metadata": { "ticket": "T-1880" },
        "last_sequence": 9,
        "created_at": "2026-11-21T09:14:50.123Z",
        "queue_expires_at": "2026-11-21T10:14:50.123Z",
        "started_at": "2026-11-21T09:14:50.411Z",
        "finished_at": "2026-11-21T09:14:54.617Z",
        "purge_at": "2026-12-21T09:14:54.617Z",
        "links": links(),
    })
}

/// A conversation that is ready for a message.
pub(in crate::http) fn conversation() -> Value {
    json!({
        "conversation_id": CONVERSATION_ID,
        "endpoint_id": ENDPOINT_ID,
        "conversation_key": "ticket T-1880",
        "generation": 1,
        "state": "idle",
        "created_at": "2026-11-21T09:14:50.123Z",
        "updated_at": "2026-11-21T09:14:50.123Z",
    })
}

/// A page of conversations.
pub(in crate::http) fn conversations() -> Value {
    json!({ "data": [conversation()], "has_more": false })
}

/// The body that opens it.
pub(in crate::http) fn new_conversation() -> Value {
    json!({ "endpoint_id": ENDPOINT_ID, "conversation_key": "ticket T-1880" })
}

/// The body of a message.
pub(in crate::http) fn message() -> Value {
    json!({ "expected_generation": 1, "input": { "text": "And which of them are overdue?" } })
}

/// The run of a message that was just accepted.
pub(in crate::http) fn said() -> Value {
    let mut run = accepted();
    let members = run.as_object_mut().expect("a run is an object");
    members.insert("conversation_id".to_owned(), CONVERSATION_ID.into());
    members.insert("generation".to_owned(), 1.into());
    run
}

/// A stop that waits for the device.
pub(in crate::http) fn stop() -> Value {
    json!({
        "operation_id": OPERATION_ID,
        "kind": "run.stop",
        "target": { "run_id": RUN_ID },
        "state": "pending",
        "created_at": "2026-11-21T09:14:52.002Z",
    })
}

/// A reset that waits for the device.
pub(in crate::http) fn reset() -> Value {
    json!({
        "operation_id": OPERATION_ID,
        "kind": "conversation.reset",
        "target": { "conversation_id": CONVERSATION_ID },
        "state": "pending",
        "created_at": "2026-11-21T09:14:52.002Z",
    })
}

/// A stop that the executor confirmed.
pub(in crate::http) fn stopped() -> Value {
    json!({
        "operation_id": OPERATION_ID,
        "kind": "run.stop",
        "target": { "run_id": RUN_ID },
        "state": "completed",
        "outcome": { "code": "stopped", "run_state": "cancelled" },
        "created_at": "2026-11-21T09:14:52.002Z",
        "delivered_at": "2026-11-21T09:14:52.009Z",
        "completed_at": "2026-11-21T09:14:52.117Z",
    })
}

/// A page of a list of runs.
pub(in crate::http) fn runs() -> Value {
    let mut run = succeeded();
    for member in ["input", "result", "receipt"] {
        run.as_object_mut().expect("a run is an object").remove(member);
    }
    json!({ "data": [run], "next_cursor": "AQAAAAAAAAAABkQ", "has_more": true })
}

/// A page of a conversation's messages.
pub(in crate::http) fn messages() -> Value {
    let mut run = succeeded();
    let members = run.as_object_mut().expect("a run is an object");
    members.remove("receipt");
    members.insert("conversation_id".to_owned(), CONVERSATION_ID.into());
    members.insert("generation".to_owned(), 1.into());
    json!({ "data": [run], "next_cursor": "AQAAAAAAAAAABkQ", "has_more": true })
}

/// A page of deliveries: one that waits for its next attempt.
pub(in crate::http) fn deliveries() -> Value {
    json!({
        "data": [{
            "delivery_id": "dlv_01a1fdacd3b17e21a0b1c2d3e4f5a6b7",
            "event_id": "evt_01a1fdacd2a77c0e8c6e5d1f0b9a8c7d",
            "run_id": RUN_ID,
            "sequence": 4,
            "type": "run.succeeded",
            "url_host": "hooks.example.com",
            "state": "pending",
            "attempt": 1,
            "status_code": 503,
            "duration_ms": 212,
            "next_attempt_at": "2026-11-21T09:15:04.310Z",
            "created_at": "2026-11-21T09:14:58.907Z",
        }],
        "has_more": false,
    })
}

fn links() -> Value {
    json!({ "self": format!("/api/v1/runs/{RUN_ID}"), "events": format!("/api/v1/runs/{RUN_ID}/events") })
}

/// A page of a run's events.
pub(in crate::http) fn events() -> Value {
    json!({ "data": [started()], "next_cursor": "2", "has_more": false })
}

fn started() -> Value {
    json!({
        "event_id": "evt_01a1fdacd2a77c0e8c6e5d1f0b9a8c7d",
        "run_id": RUN_ID,
        "sequence": 2,
        "type": "run.started",
        "created_at": "2026-11-21T09:14:50.411Z",
        "data": { "attempt": 1 },
    })
}

/// One event of a stream, field by field.
pub(in crate::http) fn server_sent_event() -> Value {
    json!({ "id": "2", "event": "run.started", "data": started().to_string() })
}

/// An event of another system.
pub(in crate::http) fn event() -> Value {
    json!({ "type": "ticket.created", "data": { "id": 1880, "customer": "customer-4711", "title": "The printer is on fire" } })
}

/// An event that is stored as a run.
pub(in crate::http) fn accepted_event() -> Value {
    json!({ "run_id": RUN_ID })
}

/// An event that is ignored.
pub(in crate::http) fn ignored_event() -> Value {
    json!({ "ignored": true, "reason": "the filter does not have the type \"ticket.closed\"" })
}

#[cfg(test)]
mod tests {
    use deskgate_protocol::conversation::Conversation;
    use deskgate_protocol::operation::ControlOperation;
    use deskgate_protocol::receipt::check::{Expected, check_record};
    use deskgate_protocol::run::{Run, RunEvent};
    use deskgate_protocol::service::Endpoint;
    use serde::Serialize;
    use serde::de::DeserializeOwned;

    use super::*;

    #[test]
    fn the_receipt_of_the_example_is_the_one_of_its_record() {
        let fingerprints = [ReceiptSigner::from_seed([1; 32]).public_key().fingerprint()];
        let expected = Expected { fingerprints: &fingerprints, ..Expected::default() };
        assert_eq!(check_record(&succeeded(), expected), []);
    }

    #[track_caller]
    fn reads_back<T: Serialize + DeserializeOwned>(example: Value) {
        let read: T = serde_json::from_value(example.clone()).expect("it is such a record");
        assert_eq!(serde_json::to_value(read).expect("serialises"), example);
    }

    #[test]
    fn every_example_is_what_its_type_writes() {
        reads_back::<Run>(accepted());
        reads_back::<Run>(succeeded());
        reads_back::<Run>(said());
        reads_back::<Conversation>(conversation());
        for operation in [stop(), reset(), stopped()] {
            reads_back::<ControlOperation>(operation);
        }
        reads_back::<Vec<Run>>(runs()["data"].clone());
        reads_back::<Vec<RunEvent>>(events()["data"].clone());
        reads_back::<Vec<Endpoint>>(directory()["endpoints"].clone());
    }
}
