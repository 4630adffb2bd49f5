//! Stops, revocations, resets and acknowledgements: of runs and events that are not, and while a run works.

use std::time::Duration;

use anyhow::Context;
use deskgate_protocol::{ConversationId, OperationId};
use serde_json::{Value, json};

use super::offers::{is, revoke, run_id, start, taken, until_finished};
use super::siege::{Siege, say};
use crate::behaviour::{Allowed, Behaviour, Evidence, NOTHING, holds};

const UNKNOWN: &str = "an order for what the desktop does not hold changes nothing";
const ENDS: &str = "a run that is stopped or revoked writes nothing more";
const KEPT: &str = "an outcome is kept until it is acknowledged as it is";

/// A run that asked once, and was ended before its tool had worked.
const ONE_QUESTION: Allowed = Allowed { questions: 1, ledger_lines: 0 };

fn stop(run_id: &str) -> Value {
    json!({ "frame": "control", "operation_id": OperationId::new(), "kind": "run.stop", "run_id": run_id })
}

fn reset(generation: u32) -> Value {
    json!({ "frame": "control", "operation_id": OperationId::new(), "kind": "conversation.reset",
        "conversation": ConversationId::new(), "generation": generation })
}

fn ack(run_id: &str, attempt: u64, through: u64) -> Value {
    json!({ "frame": "ack", "run_id": run_id, "attempt": attempt, "through": through })
}

/// Sends orders; the desktop must stay.
async fn stays_after(siege: &mut Siege, orders: Vec<Value>) -> anyhow::Result<Evidence> {
    let line = siege.line().await?;
    for order in orders {
        line.send(order).await;
    }
    line.must_stay().await
}

/// A run whose tool works for three seconds before it writes; it has begun when this returns.
async fn working(siege: &mut Siege) -> anyhow::Result<String> {
    siege.model_works("too-late", 3);
    let id = run_id();
    let offer = siege.offer(&id, 1, "work");
    let line = siege.line().await?;
    taken(line, &offer).await?;
    line.send(start(&id, 1)).await;
    let began = line.awaited(|frame| is(frame, "event", &id) && frame["event"]["type"] == "tool_started").await?;
    began.context("the desktop hung up before its tool began")?;
    Ok(id)
}

/// The behaviours of this family.
pub(super) fn behaviours() -> Vec<Behaviour<Siege>> {
    let mut all = vec![
        Behaviour {
            name: "stops of a thousand runs that are not",
            promise: UNKNOWN,
            allowed: NOTHING,
            act: |siege| Box::pin(stays_after(siege, (0..1000).map(|_| stop(&run_id())).collect())),
        },
        Behaviour {
            name: "a stop of a run that ended long ago",
            promise: UNKNOWN,
            allowed: NOTHING,
            act: |siege| {
                Box::pin(async move {
                    let order = stop(&siege.ended_run);
                    stays_after(siege, vec![order]).await
                })
            },
        },
        Behaviour {
            name: "asked whether it never had a run that ended here",
            promise: "the desktop says of no run that it took that it never had it",
            allowed: NOTHING,
            act: |siege| {
                Box::pin(async move {
                    let (ended, other) = (siege.ended_run.clone(), run_id());
                    let line = siege.line().await?;
                    line.send(json!({ "frame": "recall", "runs": [ended, other] })).await;
                    let said = line.awaited(|frame| frame["frame"] == "recalled").await?;
                    let said = said.context("the desktop hung up when it was asked")?;
                    holds!(said["never_had"] == json!([other]), "the desktop said {said}");
                    line.must_stay().await
                })
            },
        },
        Behaviour {
            name: "revocations of a thousand runs of others",
            promise: UNKNOWN,
            allowed: NOTHING,
            act: |siege| Box::pin(stays_after(siege, (0..1000).map(|_| revoke(&run_id(), 1)).collect())),
        },
        Behaviour {
            name: "resets of five thousand conversations that are not",
            promise: UNKNOWN,
            allowed: NOTHING,
            act: |siege| {
                Box::pin(async move {
                    let home = siege.device.home();
                    let size = || {
                        let names = ["deskgate.db", "deskgate.db-wal"].map(|name| home.join(name));
                        names.iter().filter_map(|name| std::fs::metadata(name).ok()).map(|file| file.len()).sum::<u64>()
                    };
                    let before = size();
                    let line = siege.line().await?;
                    for _ in 0..5000 {
                        line.send(reset(u32::MAX)).await;
                    }
                    let evidence = line.must_stay().await?;
                    let grown = size().saturating_sub(before);
                    holds!(grown < 8 << 20, "the desktop's store grew by {grown} bytes");
                    Ok(evidence)
                })
            },
        },
        Behaviour {
            name: "acknowledgements of events that were never sent",
            promise: KEPT,
            allowed: NOTHING,
            act: |siege| {
                Box::pin(async move {
                    let ended = siege.ended_run.clone();
                    stays_after(
                        siege,
                        vec![ack(&run_id(), 1, u64::MAX), ack(&ended, 1, 0), ack(&ended, u64::from(u32::MAX), 7)],
                    )
                    .await
                })
            },
        },
    ];
    all.extend(running());
    all
}

/// While a run works.
fn running() -> Vec<Behaviour<Siege>> {
    vec![
        Behaviour {
            name: "a stop while the tool works, and then a start",
            promise: ENDS,
            allowed: ONE_QUESTION,
            act: |siege| {
                Box::pin(async move {
                    let id = working(siege).await?;
                    let line = siege.line().await?;
                    line.send(stop(&id)).await;
                    let end = until_finished(line, &id).await?;
                    line.send(start(&id, 1)).await;
                    line.heard_for(Duration::from_secs(3)).await;
                    line.must_stay().await?;
                    Ok(Evidence::Answered(end["outcome"]["state"].to_string()))
                })
            },
        },
        Behaviour {
            name: "a revocation while the tool works",
            promise: ENDS,
            allowed: ONE_QUESTION,
            act: |siege| {
                Box::pin(async move {
                    let id = working(siege).await?;
                    let line = siege.line().await?;
                    line.send(revoke(&id, 1)).await;
                    line.heard_for(Duration::from_secs(4)).await;
                    line.must_stay().await
                })
            },
        },
        Behaviour {
            name: "a revocation of another attempt while the tool works",
            promise: "a frame of another attempt changes nothing",
            allowed: Allowed { questions: 2, ledger_lines: 1 },
            act: |siege| {
                Box::pin(async move {
                    let id = working(siege).await?;
                    let line = siege.line().await?;
                    line.send(revoke(&id, 0)).await;
                    line.send(revoke(&id, 2)).await;
                    let end = until_finished(line, &id).await?;
                    holds!(end["outcome"]["state"] == "succeeded", "it ended as {end}");
                    Ok(Evidence::Answered("it ran to its end".to_owned()))
                })
            },
        },
        Behaviour {
            name: "an acknowledgement of the future while the tool works",
            promise: KEPT,
            allowed: Allowed { questions: 2, ledger_lines: 1 },
            act: |siege| {
                Box::pin(async move {
                    let id = working(siege).await?;
                    let line = siege.line().await?;
                    line.send(ack(&id, 1, u64::MAX)).await;
                    let end = until_finished(line, &id).await?;
                    Ok(Evidence::Answered(end["outcome"]["state"].to_string()))
                })
            },
        },
        Behaviour {
            name: "a finish that is never acknowledged",
            promise: KEPT,
            allowed: Allowed { questions: 1, ledger_lines: 0 },
            act: |siege| {
                Box::pin(async move {
                    siege.model.then(vec![say("done")]);
                    let id = run_id();
                    let offer = siege.offer(&id, 1, "x");
                    let line = siege.line().await?;
                    taken(line, &offer).await?;
                    line.send(start(&id, 1)).await;
                    line.awaited(|frame| is(frame, "finish", &id)).await?.context("no finish")?;
                    // It comes again in the next session.
                    let line = siege.unread_line().await?;
                    let again = line.awaited(|frame| is(frame, "finish", &id)).await?.context("it is lost")?;
                    line.send(ack(&id, 1, again["seq"].as_u64().unwrap_or(u64::MAX))).await;
                    line.must_stay().await?;
                    Ok(Evidence::Answered("it came again in the next session".to_owned()))
                })
            },
        },
        Behaviour {
            name: "the line cut while the tool works, and the run never claimed again",
            promise: ENDS,
            allowed: Allowed { questions: 2, ledger_lines: 1 },
            act: |siege| {
                Box::pin(async move {
                    let id = working(siege).await?;
                    let line = siege.unread_line().await?;
                    let end = until_finished(line, &id).await?;
                    Ok(Evidence::Answered(end["outcome"]["state"].to_string()))
                })
            },
        },
    ]
}
