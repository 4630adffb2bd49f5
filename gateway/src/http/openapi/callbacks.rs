//! The events that callbacks bring, as the document's `webhooks`.
//!
//! Each event has an entry of its own with a named body, so that generators make a type for what a receiver reads.

use deskgate_protocol::Timestamp;
use deskgate_protocol::conversation::Conversation;
use deskgate_protocol::delivery::CallbackEvent;
use deskgate_protocol::run::Run;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::examples;

/// What a callback tells of a run.
#[derive(ToSchema)]
#[allow(dead_code, reason = "its schema is what it is for")]
pub(super) struct RunCallback {
    /// What happened: `run.accepted` to `run.expired`.
    r#type: CallbackEvent,
    /// When this attempt was made.
    timestamp: Timestamp,
    data: RunCallbackData,
}

/// The run that a callback tells of.
#[derive(ToSchema)]
#[allow(dead_code, reason = "its schema is what it is for")]
pub(super) struct RunCallbackData {
    /// The event's place in its run. Callbacks may come in another order.
    sequence: u64,
    /// The run as it is when this attempt is made, which may be later than the event.
    run: Run,
}

/// What a callback tells of a conversation.
#[derive(ToSchema)]
#[allow(dead_code, reason = "its schema is what it is for")]
pub(super) struct ConversationCallback {
    /// What happened: `conversation.reset`.
    r#type: CallbackEvent,
    /// When this attempt was made.
    timestamp: Timestamp,
    data: ConversationCallbackData,
}

/// The conversation that a callback tells of.
#[derive(ToSchema)]
#[allow(dead_code, reason = "its schema is what it is for")]
pub(super) struct ConversationCallbackData {
    /// The conversation as it is when this attempt is made.
    conversation: Conversation,
}

/// A callback that is only a test. Nothing happened.
#[derive(ToSchema)]
#[allow(dead_code, reason = "its schema is what it is for")]
pub(super) struct TestCallback {
    /// `webhook.test`.
    r#type: CallbackEvent,
    /// When this attempt was made.
    timestamp: Timestamp,
    data: TestCallbackData,
}

/// What a test says.
#[derive(ToSchema)]
#[allow(dead_code, reason = "its schema is what it is for")]
pub(super) struct TestCallbackData {
    /// A sentence for people.
    message: String,
}

/// The `webhooks` of the document.
pub(super) fn webhooks() -> Value {
    let all = CallbackEvent::ALL.iter().copied();
    all.map(|event| (event.as_str().to_owned(), json!({ "post": callback(event) })))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

fn callback(event: CallbackEvent) -> Value {
    let (body, data) = match event {
        CallbackEvent::ConversationReset => {
            ("ConversationCallback", json!({ "conversation": examples::conversation() }))
        }
        CallbackEvent::WebhookTest => ("TestCallback", json!({ "message": "This is a test. Nothing happened." })),
        CallbackEvent::RunAccepted => ("RunCallback", json!({ "sequence": 1, "run": examples::accepted() })),
        // As a receiver may read it: the run has gone on meanwhile.
        _ => ("RunCallback", json!({ "sequence": 9, "run": examples::succeeded() })),
    };
    let example = json!({ "type": event.as_str(), "timestamp": "2026-11-21T09:14:54.903Z", "data": data });
    let header = |name: &str, description: &str, example: &str| {
        json!({
            "name": name, "in": "header", "required": true, "description": description,
            "schema": { "type": "string" }, "example": example,
        })
    };
    json!({
        "operationId": format!("on_{}", event.as_str().replace('.', "_")),
        "summary": event.as_str(),
        "description": meaning(event),
        "tags": ["Callbacks"],
        "security": [],
        "parameters": [
            header("webhook-id", "The event, which may come more than once: remember it, and do nothing the second time.",
                "evt_01a1fdacd2a77c0e8c6e5d1f0b9a8c7d"),
            header("webhook-timestamp", "Seconds since 1970, when this attempt was made.", "1795252494"),
            header("webhook-signature", "`v1,` and the base64 of HMAC-SHA256 over `id.timestamp.body`; several with spaces \
                between while a secret rolls.", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
        ],
        "requestBody": {
            "required": true,
            "content": { "application/json": { "schema": { "$ref": format!("#/components/schemas/{body}") }, "example": example } },
        },
        "responses": {
            "2XX": { "description": "Delivered. Answer as soon as the event is stored; an attempt has 15 seconds." },
            "410": { "description": "Sending stops until the desktop's owner enables the callback again." },
            "default": { "description": "Attempted again: ten times in about three days." },
        },
    })
}

fn meaning(event: CallbackEvent) -> &'static str {
    match event {
        CallbackEvent::RunAccepted => "A run is stored durably.",
        CallbackEvent::RunStarted => "A device began to execute the run.",
        CallbackEvent::RunAwaitingApproval => "A person is asked about one of the run's tool calls.",
        CallbackEvent::RunApprovalResolved => "The person has decided, or nobody is asked any more.",
        CallbackEvent::RunAwaitingReconciliation => "What the run has done is not known at the moment.",
        CallbackEvent::RunReconciled => "What the run has done is known again.",
        CallbackEvent::RunRestarted => "The same device begins the run again.",
        CallbackEvent::RunCancelling => "A stop of the run was accepted.",
        CallbackEvent::RunSucceeded => "The run has ended: it succeeded.",
        CallbackEvent::RunFailed => "The run has ended: it failed.",
        CallbackEvent::RunCancelled => "The run has ended: it was cancelled.",
        CallbackEvent::RunExpired => "The run has ended: it never began in its time.",
        CallbackEvent::ConversationReset => "A conversation begins anew.",
        CallbackEvent::WebhookTest => "Somebody tries whether callbacks arrive. Nothing happened.",
    }
}
