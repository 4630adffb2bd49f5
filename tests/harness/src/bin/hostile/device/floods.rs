//! Much at once: requests whose answers nobody reads, room beyond all numbers, pings that are not answered.

use std::time::Duration;

use anyhow::Context;
use deskgate_protocol::{EndpointId, OperationId, RunId};
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;

use super::camp::{Camp, HOSTILE_MARK};
use super::line::{ANSWER_TIMEOUT, socket};
use crate::behaviour::{Behaviour, Evidence, NOTHING, effect};

const BOUNDED: &str = "what a device declares and asks is bounded";
const UNREAD: &str = "a device that does not read is left, and costs no other its place";

/// Sends frames in an open session; the gateway reads them, or hangs up.
async fn floods(camp: &mut Camp, frames: Vec<Value>) -> anyhow::Result<Evidence> {
    let line = camp.line().await?;
    for frame in frames {
        line.send(frame).await;
    }
    line.read_it().await
}

/// Sends frames, reads nothing, and waits until the gateway has hung up.
async fn unread(camp: &mut Camp, frame: fn(u64) -> Value, count: u64) -> anyhow::Result<Evidence> {
    camp.fresh_line().await?;
    let token = std::fs::read_to_string(camp.gateway.control_token_file())?;
    let mut socket = socket(&camp.gateway, "/control", Some(token.trim())).await?;
    let Some(Ok(Message::Text(challenge))) = socket.next().await else { anyhow::bail!("no challenge") };
    let frame_of_challenge: deskgate_protocol::control::GatewayFrame = serde_json::from_str(challenge.as_str())?;
    let deskgate_protocol::control::GatewayFrame::Challenge(challenge) = frame_of_challenge else {
        anyhow::bail!("no challenge")
    };
    let hello = serde_json::to_string(&camp.hostile.hello(&challenge, Vec::new()))?;
    socket.send(Message::text(hello)).await?;
    let mut sent = 0;
    for number in 0..count {
        match timeout(Duration::from_secs(5), socket.feed(Message::text(frame(number).to_string()))).await {
            Ok(Ok(())) => sent += 1,
            // Its queue is full, or it has hung up.
            _ => break,
        }
    }
    let _ = timeout(Duration::from_secs(5), socket.flush()).await;
    // Two heartbeats of the gateway, and a third.
    tokio::time::sleep(Duration::from_secs(6)).await;
    let rest = async {
        loop {
            match socket.next().await {
                Some(Ok(_)) => {}
                Some(Err(error)) => return error.to_string(),
                None => return "closed".to_owned(),
            }
        }
    };
    let how =
        timeout(ANSWER_TIMEOUT, rest).await.map_err(|_| effect("the gateway keeps a device that does not read"))?;
    Ok(Evidence::HungUp(format!("after {sent} frames: {how}")))
}

/// The behaviours of this family.
pub(super) fn behaviours() -> Vec<Behaviour<Camp>> {
    vec![
        Behaviour {
            name: "room for 2^32-1 runs, ten times",
            promise: BOUNDED,
            allowed: NOTHING,
            act: |camp| Box::pin(floods(camp, vec![json!({ "frame": "ready", "slots": u32::MAX }); 10])),
        },
        Behaviour {
            name: "twenty thousand times no room",
            promise: BOUNDED,
            allowed: NOTHING,
            act: |camp| Box::pin(floods(camp, vec![json!({ "frame": "ready", "slots": 0 }); 20_000])),
        },
        Behaviour {
            name: "five thousand services that are full",
            promise: BOUNDED,
            allowed: NOTHING,
            act: |camp| {
                Box::pin(async move {
                    let full: Vec<_> = (0..5000).map(|_| EndpointId::new()).collect();
                    floods(camp, vec![json!({ "frame": "ready", "slots": 1, "full": full })]).await
                })
            },
        },
        Behaviour {
            name: "a place for each of five thousand services that are not",
            promise: BOUNDED,
            allowed: NOTHING,
            act: |camp| {
                Box::pin(async move {
                    let place = |_| json!({ "endpoint_id": EndpointId::new(), "places": 1 });
                    let places: Vec<_> = (0..5000).map(place).collect();
                    floods(camp, vec![json!({ "frame": "ready", "slots": 1, "places": places })]).await
                })
            },
        },
        Behaviour {
            name: "runs that nobody asked about, never had, a thousand times",
            promise: BOUNDED,
            allowed: NOTHING,
            act: |camp| {
                Box::pin(async move {
                    let word = || json!({ "frame": "recalled", "never_had": [RunId::new()] });
                    floods(camp, (0..1000).map(|_| word()).collect()).await
                })
            },
        },
        Behaviour {
            name: "the honest device's service, declared full",
            promise: "a device speaks for its own services alone",
            allowed: NOTHING,
            act: |camp| {
                Box::pin(async move {
                    let full = [camp.known.endpoint_id.clone()];
                    floods(camp, vec![json!({ "frame": "ready", "slots": 1, "full": full })]).await
                })
            },
        },
        Behaviour {
            name: "asleep and awake, ten thousand times",
            promise: BOUNDED,
            allowed: NOTHING,
            act: |camp| {
                Box::pin(async move {
                    let turn = [json!({ "frame": "suspend" }), json!({ "frame": "resume" })];
                    floods(camp, turn.iter().cycle().take(20_000).cloned().collect()).await
                })
            },
        },
        Behaviour {
            name: "ten thousand pongs that nobody asked for",
            promise: BOUNDED,
            allowed: NOTHING,
            act: |camp| Box::pin(floods(camp, vec![json!({ "frame": "pong" }); 10_000])),
        },
        Behaviour {
            name: "ten thousand operations that nobody ordered, carried out",
            promise: BOUNDED,
            allowed: NOTHING,
            act: |camp| {
                Box::pin(async move {
                    let done =
                        || json!({ "frame": "control_done", "operation_id": OperationId::new(), "outcome": "reset" });
                    floods(camp, (0..10_000).map(|_| done()).collect()).await
                })
            },
        },
        Behaviour {
            name: "a thousand requests at once under one number",
            promise: BOUNDED,
            allowed: NOTHING,
            act: |camp| {
                Box::pin(async move {
                    let ask = json!({ "frame": "request", "request_id": 7, "by": "pages", "request": {
                        "call": "list_runs", "limit": 100 } });
                    floods(camp, vec![ask; 1000]).await
                })
            },
        },
        Behaviour {
            name: "five thousand requests, and no answer read",
            promise: UNREAD,
            allowed: NOTHING,
            act: |camp| {
                Box::pin(unread(
                    camp,
                    |number| {
                        json!({ "frame": "request", "request_id": number, "by": "agent", "request": {
                        "call": "list_runs", "limit": 100 } })
                    },
                    5000,
                ))
            },
        },
        Behaviour {
            name: "nothing said and nothing read any more",
            promise: UNREAD,
            allowed: NOTHING,
            act: |camp| Box::pin(unread(camp, |_| json!({ "frame": "ready", "slots": 1 }), 1)),
        },
        Behaviour {
            name: "pings that are never answered, and runs that are taken and never started",
            promise: UNREAD,
            allowed: NOTHING,
            act: |camp| {
                Box::pin(async move {
                    for _ in 0..5 {
                        camp.own_caller.submit(HOSTILE_MARK).await;
                    }
                    let mut line = camp.session_with(json!([])).await?;
                    line.send(json!({ "frame": "ready", "slots": 100 })).await;
                    let bye = line.awaited_unanswered(|frame| frame["frame"] == "bye").await?;
                    bye.context("closed without a word").map(|bye| Evidence::HungUp(bye["code"].to_string()))
                })
            },
        },
        Behaviour {
            name: "thirty sessions of one key, one after the other at once",
            promise: "a newer session replaces the older one",
            allowed: NOTHING,
            act: |camp| {
                Box::pin(async move {
                    let mut lines = Vec::new();
                    for _ in 0..30 {
                        lines.push(camp.session_with(json!([])).await?);
                    }
                    let mut first = lines.swap_remove(0);
                    match first.awaited(|frame| frame["frame"] == "bye").await? {
                        Some(bye) => Ok(Evidence::HungUp(bye["code"].to_string())),
                        None => Ok(Evidence::HungUp("the older ones".to_owned())),
                    }
                })
            },
        },
    ]
}
