//! Attempts and starts: twice, in another order, of runs that ended, and more than there is room for.

use std::time::Duration;

use serde_json::json;

use super::offers::{is, revoke, run_id, start, taken, until_finished};
use super::siege::Siege;
use crate::behaviour::{Allowed, Behaviour, Evidence, NOTHING, holds};

const ONCE: &str = "a run executes once, whatever comes again";
const STARTED: &str = "nothing executes before its start, and nothing after it was taken back";
const BOUNDED: &str = "a desktop takes no more than it has room for";

/// A run that writes one line and answers.
const ONE_LINE: Allowed = Allowed { questions: 2, ledger_lines: 1 };

/// The behaviours of this family.
pub(super) fn behaviours() -> Vec<Behaviour<Siege>> {
    let mut all = attempts();
    all.extend(starts());
    all
}

fn attempts() -> Vec<Behaviour<Siege>> {
    vec![
        Behaviour {
            name: "attempt 0, the highest attempt, and back to 1",
            promise: ONCE,
            allowed: NOTHING,
            act: |siege| {
                Box::pin(async move {
                    let id = run_id();
                    let offers = [0, u64::from(u32::MAX), 1, 0].map(|attempt| siege.offer(&id, attempt, "counting"));
                    let line = siege.line().await?;
                    for offer in offers {
                        line.send(offer).await;
                    }
                    let evidence = line.must_stay().await?;
                    line.send(revoke(&id, u64::from(u32::MAX))).await;
                    line.send(revoke(&id, 0)).await;
                    Ok(evidence)
                })
            },
        },
        Behaviour {
            name: "one run in two attempts at once",
            promise: ONCE,
            allowed: ONE_LINE,
            act: |siege| {
                Box::pin(async move {
                    siege.model_works("twice", 1);
                    let id = run_id();
                    let (first, second) = (siege.offer(&id, 1, "x"), siege.offer(&id, 2, "x"));
                    let line = siege.line().await?;
                    taken(line, &first).await?;
                    line.send(start(&id, 1)).await;
                    line.awaited(|frame| is(frame, "event", &id)).await?;
                    line.send(second).await;
                    line.send(start(&id, 2)).await;
                    let refused = line.awaited(|frame| is(frame, "refuse", &id)).await?;
                    line.heard_for(Duration::from_secs(2)).await;
                    line.send(revoke(&id, 1)).await;
                    line.send(revoke(&id, 2)).await;
                    line.must_stay().await?;
                    Ok(Evidence::Answered(format!("{:?}", refused.map(|frame| frame["code"].clone()))))
                })
            },
        },
        Behaviour {
            name: "a run that ended, offered and started again",
            promise: ONCE,
            allowed: ONE_LINE,
            act: |siege| {
                Box::pin(async move {
                    siege.model_works("once", 0);
                    let id = run_id();
                    let offers = [1, 1, 2].map(|attempt| siege.offer(&id, attempt, "x"));
                    let line = siege.line().await?;
                    taken(line, &offers[0]).await?;
                    line.send(start(&id, 1)).await;
                    until_finished(line, &id).await?;
                    for (offer, attempt) in offers[1..].iter().zip([1, 2]) {
                        line.send(offer.clone()).await;
                        line.send(start(&id, attempt)).await;
                    }
                    let again = line.awaited(|frame| is(frame, "finish", &id) || is(frame, "refuse", &id)).await?;
                    line.must_stay().await?;
                    Ok(Evidence::Answered(format!("{:?} again", again.map(|frame| frame["frame"].clone()))))
                })
            },
        },
        Behaviour {
            name: "a run of the real gateway that ended, offered again",
            promise: ONCE,
            allowed: NOTHING,
            act: |siege| {
                Box::pin(async move {
                    let id = siege.ended_run.clone();
                    let again = siege.offer(&id, 1, "an honest run");
                    let line = siege.line().await?;
                    line.send(again).await;
                    line.send(start(&id, 1)).await;
                    line.must_stay().await
                })
            },
        },
        Behaviour {
            name: "a run that ended, offered again after 1,100 others",
            promise: ONCE,
            allowed: Allowed { questions: 0, ledger_lines: 0 },
            act: |siege| {
                Box::pin(async move {
                    let others: Vec<_> = (0..1100).map(|_| run_id()).collect();
                    let endings: Vec<_> = others.iter().map(|id| siege.offer(id, 1, "x")).collect();
                    let id = siege.ended_run.clone();
                    let again = siege.offer(&id, 1, "an honest run");
                    let line = siege.line().await?;
                    for (offer, other) in endings.iter().zip(&others) {
                        taken(line, offer).await?;
                        let operation_id = deskgate_protocol::OperationId::new();
                        line.send(json!({ "frame": "control", "operation_id": operation_id, "kind": "run.stop",
                            "run_id": other }))
                            .await;
                        line.send(start(other, 1)).await;
                        until_finished(line, other).await?;
                    }
                    line.send(again).await;
                    line.send(start(&id, 1)).await;
                    line.must_stay().await
                })
            },
        },
        Behaviour {
            name: "five thousand offers at once",
            promise: BOUNDED,
            allowed: NOTHING,
            act: |siege| {
                Box::pin(async move {
                    let ids: Vec<_> = (0..5000).map(|_| run_id()).collect();
                    let offers: Vec<_> = ids.iter().map(|id| siege.offer(id, 1, "much")).collect();
                    let line = siege.line().await?;
                    for offer in offers {
                        line.send(offer).await;
                    }
                    let heard = line.heard_for(Duration::from_secs(3)).await;
                    let taken = heard.iter().filter(|frame| frame["frame"] == "accept").count();
                    let refused = heard.iter().filter(|frame| frame["frame"] == "refuse").count();
                    for frame in heard.iter().filter(|frame| frame["frame"] == "accept") {
                        line.send(revoke(frame["run_id"].as_str().unwrap_or_default(), 1)).await;
                    }
                    line.must_stay().await?;
                    holds!(taken <= 16 && refused > 0, "{taken} taken, {refused} refused");
                    Ok(Evidence::Answered(format!("{taken} taken, {refused} refused")))
                })
            },
        },
    ]
}

fn starts() -> Vec<Behaviour<Siege>> {
    vec![
        Behaviour {
            name: "a start without an offer",
            promise: STARTED,
            allowed: NOTHING,
            act: |siege| {
                Box::pin(async move {
                    let line = siege.line().await?;
                    line.send(start(&run_id(), 1)).await;
                    line.must_stay().await
                })
            },
        },
        Behaviour {
            name: "a start of another attempt than the one that was taken",
            promise: STARTED,
            allowed: NOTHING,
            act: |siege| {
                Box::pin(async move {
                    let id = run_id();
                    let offer = siege.offer(&id, 1, "x");
                    let line = siege.line().await?;
                    taken(line, &offer).await?;
                    line.send(start(&id, 2)).await;
                    line.send(start(&id, 0)).await;
                    let evidence = line.must_stay().await?;
                    line.send(revoke(&id, 1)).await;
                    Ok(evidence)
                })
            },
        },
        Behaviour {
            name: "a start, a hundred times",
            promise: ONCE,
            allowed: ONE_LINE,
            act: |siege| {
                Box::pin(async move {
                    siege.model_works("hundred", 0);
                    let id = run_id();
                    let offer = siege.offer(&id, 1, "x");
                    let line = siege.line().await?;
                    taken(line, &offer).await?;
                    for _ in 0..100 {
                        line.send(start(&id, 1)).await;
                    }
                    let end = until_finished(line, &id).await?;
                    line.must_stay().await?;
                    Ok(Evidence::Answered(end["outcome"]["state"].to_string()))
                })
            },
        },
        Behaviour {
            name: "a run that is revoked, and then started",
            promise: STARTED,
            allowed: NOTHING,
            act: |siege| {
                Box::pin(async move {
                    let id = run_id();
                    let offer = siege.offer(&id, 1, "x");
                    let line = siege.line().await?;
                    taken(line, &offer).await?;
                    line.send(revoke(&id, 1)).await;
                    line.send(start(&id, 1)).await;
                    line.must_stay().await
                })
            },
        },
    ]
}
