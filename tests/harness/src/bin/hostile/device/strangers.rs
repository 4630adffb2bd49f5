//! Frames of a welcomed session about runs, operations and approvals that are the honest device's.

use deskgate_protocol::{ApprovalId, OperationId};
use serde_json::{Value, json};

use super::camp::{Camp, HOSTILE_MARK};
use super::results::succeeded;
use crate::behaviour::{Behaviour, Evidence, NOTHING};

const OWN: &str = "a frame changes only runs that were offered to its own device";

/// Sends a frame about the honest device's working run in every attempt; it must be read.
async fn about_running(camp: &mut Camp, frame: Value) -> anyhow::Result<Evidence> {
    let run_id = camp.known.running_run.clone();
    about(camp, &run_id, frame).await
}

async fn about(camp: &mut Camp, run_id: &str, frame: Value) -> anyhow::Result<Evidence> {
    let line = camp.line().await?;
    for attempt in [1, 0, 2, u32::MAX] {
        let mut frame = frame.clone();
        frame["run_id"] = run_id.into();
        frame["attempt"] = attempt.into();
        line.send(frame).await;
    }
    line.read_it().await
}

fn event(event: Value) -> Value {
    json!({ "frame": "event", "seq": 1, "event": event })
}

/// The behaviours of this family.
pub(super) fn behaviours() -> Vec<Behaviour<Camp>> {
    vec![
        Behaviour {
            name: "an accept of the honest device's run",
            promise: OWN,
            allowed: NOTHING,
            act: |camp| Box::pin(about_running(camp, json!({ "frame": "accept" }))),
        },
        Behaviour {
            name: "a refusal of the honest device's run",
            promise: OWN,
            allowed: NOTHING,
            act: |camp| Box::pin(about_running(camp, json!({ "frame": "refuse", "code": "definition_mismatch" }))),
        },
        Behaviour {
            name: "a message in the honest device's run",
            promise: OWN,
            allowed: NOTHING,
            act: |camp| {
                Box::pin(about_running(
                    camp,
                    event(json!({ "type": "message_completed", "message_id": "m", "text": HOSTILE_MARK })),
                ))
            },
        },
        Behaviour {
            name: "a request for approval in the honest device's run",
            promise: OWN,
            allowed: NOTHING,
            act: |camp| {
                Box::pin(about_running(
                    camp,
                    event(json!({ "type": "approval_requested", "approval_id": ApprovalId::new(), "call_id": "c",
                        "tool": HOSTILE_MARK, "kind": "write", "expires_at": "9999-12-31T23:59:59Z" })),
                ))
            },
        },
        Behaviour {
            name: "pieces of a message in the honest device's run",
            promise: OWN,
            allowed: NOTHING,
            act: |camp| {
                Box::pin(about_running(
                    camp,
                    json!({ "frame": "delta", "message_id": "m", "offset": 0, "text": HOSTILE_MARK }),
                ))
            },
        },
        Behaviour {
            name: "the end of the honest device's run",
            promise: OWN,
            allowed: NOTHING,
            act: |camp| {
                Box::pin(about_running(
                    camp,
                    json!({ "frame": "finish", "seq": 1, "outcome": succeeded(HOSTILE_MARK) }),
                ))
            },
        },
        Behaviour {
            name: "another end of a run of the honest device that ended",
            promise: OWN,
            allowed: NOTHING,
            act: |camp| {
                Box::pin(async move {
                    let run_id = camp.known.ended_run.clone();
                    about(camp, &run_id, json!({ "frame": "finish", "seq": 9, "outcome": succeeded(HOSTILE_MARK) }))
                        .await
                })
            },
        },
        Behaviour {
            name: "a settlement of the honest device's run",
            promise: OWN,
            allowed: NOTHING,
            act: |camp| Box::pin(about_running(camp, json!({ "frame": "reconciled" }))),
        },
        Behaviour {
            name: "operations of the honest device, and of nobody, carried out",
            promise: OWN,
            allowed: NOTHING,
            act: |camp| {
                Box::pin(async move {
                    let theirs = camp.known.operation_id.clone();
                    let line = camp.line().await?;
                    for operation_id in [theirs, OperationId::new().to_string()] {
                        for outcome in ["stopped", "reset", "already_final"] {
                            line.send(
                                json!({ "frame": "control_done", "operation_id": operation_id, "outcome": outcome }),
                            )
                            .await;
                        }
                    }
                    line.read_it().await
                })
            },
        },
        Behaviour {
            name: "an accept of a thousand runs that are nobody's",
            promise: OWN,
            allowed: NOTHING,
            act: |camp| {
                Box::pin(async move {
                    let line = camp.line().await?;
                    for _ in 0..1000 {
                        let run_id = deskgate_protocol::RunId::new();
                        line.send(json!({ "frame": "accept", "run_id": run_id, "attempt": 1 })).await;
                    }
                    line.read_it().await
                })
            },
        },
    ]
}
