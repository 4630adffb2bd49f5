//! A device's events of a run, as they are stored and as callers see them: without arguments and paths.

use deskgate_protocol::control::DeviceEvent;
use deskgate_protocol::run::EventType;
use serde_json::json;

use crate::store::attempts::{Approval, AttemptUpdate};

/// The device's event `seq`.
pub(super) fn stored_update(seq: u64, event: DeviceEvent) -> AttemptUpdate {
    let (kind, data) = match event {
        DeviceEvent::ToolStarted { call_id, tool, kind } => {
            (EventType::ToolStarted, json!({ "call_id": call_id, "tool": tool, "kind": kind }))
        }
        DeviceEvent::ToolCompleted { call_id, tool, kind, status } => {
            (EventType::ToolCompleted, json!({ "call_id": call_id, "tool": tool, "kind": kind, "status": status }))
        }
        DeviceEvent::MessageCompleted { message_id, text, reasoning_summary: None } => {
            (EventType::MessageCompleted, json!({ "message_id": message_id, "text": text }))
        }
        DeviceEvent::MessageCompleted { message_id, text, reasoning_summary: Some(summary) } => (
            EventType::MessageCompleted,
            json!({ "message_id": message_id, "text": text, "reasoning_summary": summary }),
        ),
        DeviceEvent::UsageUpdated { usage, model_unavailable: false } => {
            (EventType::UsageUpdated, json!({ "usage": usage }))
        }
        DeviceEvent::UsageUpdated { usage, model_unavailable: true } => {
            (EventType::UsageUpdated, json!({ "usage": usage, "model_unavailable": true }))
        }
        DeviceEvent::ApprovalRequested { approval_id, tool, expires_at, .. } => {
            let data = json!({ "approval_id": approval_id, "tool": tool, "expires_at": expires_at });
            return AttemptUpdate::Approval {
                seq,
                approval: Approval { approval_id, open_until: Some(expires_at), data },
            };
        }
        DeviceEvent::ApprovalResolved { approval_id, resolution } => {
            let data = json!({ "approval_id": approval_id, "resolution": resolution });
            return AttemptUpdate::Approval { seq, approval: Approval { approval_id, open_until: None, data } };
        }
    };
    AttemptUpdate::Events { first: seq, events: vec![(kind, data)] }
}
