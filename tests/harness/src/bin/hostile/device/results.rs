//! What a device says of a run that is its own: out of order, twice, without an end, with text that means harm.

use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use super::camp::{Camp, HOSTILE_MARK};
use crate::behaviour::{Behaviour, Evidence, NOTHING, holds};

const ORDER: &str = "a run has one order of events and one end";
const BOUNDED: &str = "what a device reports has a bound";
const TEXT: &str = "a device's text is data wherever it is read";

/// Text for browsers, terminals and databases.
const HARM: &str = "<script>alert(1)</script>\u{1b}[2J\u{202e}'; DROP TABLE runs; -- {{7*7}}";

/// A good outcome with this text.
pub(super) fn succeeded(text: &str) -> Value {
    json!({ "state": "succeeded", "result": { "text": text, "finish_reason": "completed" }, "usage": usage() })
}

fn usage() -> Value {
    json!({ "input_tokens": 1, "output_tokens": 1, "model_calls": 1, "tool_calls": 0, "active_seconds": 0.1 })
}

fn message(text: &str) -> Value {
    json!({ "type": "message_completed", "message_id": "m", "text": text })
}

/// Frames for a run of its own that has started.
struct Reports {
    run_id: String,
    attempt: u64,
}

impl Reports {
    fn event(&self, seq: u64, event: Value) -> Value {
        json!({ "frame": "event", "run_id": self.run_id, "attempt": self.attempt, "seq": seq, "event": event })
    }

    fn finish(&self, seq: u64, outcome: Value) -> Value {
        json!({ "frame": "finish", "run_id": self.run_id, "attempt": self.attempt, "seq": seq, "outcome": outcome })
    }
}

/// Starts a run of its own and reports these frames; they must be read.
async fn reports(camp: &mut Camp, frames: fn(&Reports) -> Vec<Value>) -> anyhow::Result<(Evidence, String)> {
    let (run_id, attempt) = camp.own_run().await?;
    let run = Reports { run_id, attempt };
    let line = camp.line().await?;
    for frame in frames(&run) {
        line.send(frame).await;
    }
    Ok((line.read_it().await?, run.run_id))
}

/// As [`reports`], and the run must not have ended as it was told.
async fn is_not_the_end(camp: &mut Camp, frames: fn(&Reports) -> Vec<Value>) -> anyhow::Result<Evidence> {
    let (evidence, run_id) = reports(camp, frames).await?;
    let run = camp.own_caller.run(&run_id).await;
    holds!(run["state"] != "succeeded", "the run ended as {run}");
    Ok(evidence)
}

/// The behaviours of this family.
pub(super) fn behaviours() -> Vec<Behaviour<Camp>> {
    let mut all = orders();
    all.extend(sizes());
    all
}

fn orders() -> Vec<Behaviour<Camp>> {
    vec![
        Behaviour {
            name: "an end twice, with another outcome",
            promise: ORDER,
            allowed: NOTHING,
            act: |camp| {
                Box::pin(async move {
                    let (evidence, run_id) = reports(camp, |run| {
                        vec![run.finish(1, succeeded("first")), run.finish(1, succeeded("second"))]
                    })
                    .await?;
                    let run = camp.own_caller.wait_for_end(&run_id).await;
                    holds!(run["result"]["text"] == "first", "the second end counts: {run}");
                    Ok(evidence)
                })
            },
        },
        Behaviour {
            name: "an end before the start",
            promise: ORDER,
            allowed: NOTHING,
            act: |camp| {
                Box::pin(async move {
                    let run_id = camp.own_caller.submit(HOSTILE_MARK).await;
                    let line = camp.line().await?;
                    line.send(json!({ "frame": "finish", "run_id": run_id, "attempt": 1, "seq": 1,
                        "outcome": succeeded("early") }))
                        .await;
                    let evidence = line.read_it().await?;
                    let run = camp.own_caller.run(&run_id).await;
                    holds!(run["state"] != "succeeded", "it ended before it was offered: {run}");
                    Ok(evidence)
                })
            },
        },
        Behaviour {
            name: "an event after the end",
            promise: ORDER,
            allowed: NOTHING,
            act: |camp| {
                Box::pin(async move {
                    let frames =
                        |run: &Reports| vec![run.finish(1, succeeded("end")), run.event(2, message(HOSTILE_MARK))];
                    let (evidence, run_id) = reports(camp, frames).await?;
                    let run = camp.own_caller.wait_for_end(&run_id).await;
                    holds!(run["result"]["text"] == "end", "{run}");
                    Ok(evidence)
                })
            },
        },
        Behaviour {
            name: "events with gaps",
            promise: ORDER,
            allowed: NOTHING,
            act: |camp| {
                Box::pin(is_not_the_end(camp, |run| vec![run.event(5, message("x")), run.finish(9, succeeded("x"))]))
            },
        },
        Behaviour {
            name: "events with the same number and other contents",
            promise: ORDER,
            allowed: NOTHING,
            act: |camp| {
                Box::pin(is_not_the_end(camp, |run| {
                    vec![run.event(1, message("one")), run.event(1, message("two")), run.event(0, message("zero"))]
                }))
            },
        },
        Behaviour {
            name: "an event with the highest number",
            promise: ORDER,
            allowed: NOTHING,
            act: |camp| {
                Box::pin(is_not_the_end(camp, |run| {
                    vec![run.event(u64::MAX, message("x")), run.event(1 << 53, message("x"))]
                }))
            },
        },
        Behaviour {
            name: "an approval that was never asked for",
            promise: ORDER,
            allowed: NOTHING,
            act: |camp| {
                Box::pin(is_not_the_end(camp, |run| {
                    vec![run.event(
                        1,
                        json!({ "type": "approval_resolved",
                        "approval_id": deskgate_protocol::ApprovalId::new(), "resolution": "approved" }),
                    )]
                }))
            },
        },
        Behaviour {
            name: "a settlement of a run whose outcome was never unknown",
            promise: ORDER,
            allowed: NOTHING,
            act: |camp| {
                Box::pin(is_not_the_end(camp, |run| {
                    vec![json!({ "frame": "reconciled", "run_id": run.run_id, "attempt": run.attempt })]
                }))
            },
        },
    ]
}

fn sizes() -> Vec<Behaviour<Camp>> {
    vec![
        Behaviour {
            name: "a result of three megabytes",
            promise: BOUNDED,
            allowed: NOTHING,
            act: |camp| {
                Box::pin(async move {
                    Ok(reports(camp, |run| vec![run.finish(1, succeeded(&"x".repeat(3 << 20)))]).await?.0)
                })
            },
        },
        Behaviour {
            name: "a result of scripts, escapes and statements",
            promise: TEXT,
            allowed: NOTHING,
            act: |camp| {
                Box::pin(async move {
                    let (evidence, run_id) = reports(camp, |run| vec![run.finish(1, succeeded(HARM))]).await?;
                    let run = camp.own_caller.wait_for_end(&run_id).await;
                    holds!(run["state"] != "succeeded" || run["result"]["text"] == HARM, "it was changed: {run}");
                    Ok(evidence)
                })
            },
        },
        Behaviour {
            name: "a result and a message with NUL",
            promise: TEXT,
            allowed: NOTHING,
            act: |camp| {
                Box::pin(async move {
                    Ok(reports(camp, |run| vec![run.event(1, message("a\0b")), run.finish(2, succeeded("a\0b"))])
                        .await?
                        .0)
                })
            },
        },
        Behaviour {
            name: "an outcome with usage below zero and beyond all numbers",
            promise: TEXT,
            allowed: NOTHING,
            act: |camp| {
                Box::pin(is_not_the_end(camp, |run| {
                    let mut worse = succeeded("x");
                    worse["usage"]["input_tokens"] = u64::MAX.into();
                    worse["usage"]["active_seconds"] = (-1e300).into();
                    worse["usage"]["cost_usd"] = (-5).into();
                    let mut below = succeeded("x");
                    below["usage"]["input_tokens"] = (-1).into();
                    vec![run.finish(0, worse), run.finish(1, below)]
                }))
            },
        },
        Behaviour {
            name: "an error that names a path and a code nobody knows",
            promise: TEXT,
            allowed: NOTHING,
            act: |camp| {
                Box::pin(is_not_the_end(camp, |run| {
                    let error =
                        json!({ "code": "root_shell", "message": "/etc/shadow", "retryable": true, "effects": "none" });
                    vec![run.finish(1, json!({ "state": "failed", "error": error, "usage": usage() }))]
                }))
            },
        },
        Behaviour {
            name: "two thousand events that nobody waits for",
            promise: BOUNDED,
            allowed: NOTHING,
            act: |camp| {
                Box::pin(async move {
                    let frames = |run: &Reports| (1..=2000).map(|seq| run.event(seq, message(HOSTILE_MARK))).collect();
                    Ok(reports(camp, frames).await?.0)
                })
            },
        },
        Behaviour {
            name: "twenty thousand pieces of a message",
            promise: BOUNDED,
            allowed: NOTHING,
            act: |camp| {
                Box::pin(async move {
                    let frames = |run: &Reports| {
                        let piece = |n: u64| {
                            json!({ "frame": "delta", "run_id": run.run_id, "attempt": run.attempt, "message_id": "m",
                                "offset": n * 1000, "text": "x".repeat(1000) })
                        };
                        (0..20_000).map(piece).collect()
                    };
                    Ok(reports(camp, frames).await?.0)
                })
            },
        },
        Behaviour {
            name: "a piece of a message beyond its bound, at the highest place",
            promise: BOUNDED,
            allowed: NOTHING,
            act: |camp| {
                Box::pin(async move {
                    let frames = |run: &Reports| {
                        vec![json!({ "frame": "delta", "run_id": run.run_id, "attempt": run.attempt,
                            "message_id": "m".repeat(5000), "offset": u64::MAX, "text": "x".repeat(2 << 20) })]
                    };
                    Ok(reports(camp, frames).await?.0)
                })
            },
        },
        Behaviour {
            name: "a report that is cut in the middle of a run",
            promise: BOUNDED,
            allowed: NOTHING,
            act: |camp| {
                Box::pin(async move {
                    let (run_id, _) = camp.own_run().await?;
                    let line = camp.line().await?;
                    line.send_message(Message::text(format!(r#"{{"frame":"finish","run_id":"{run_id}","#))).await;
                    line.must_hang_up().await
                })
            },
        },
    ]
}
