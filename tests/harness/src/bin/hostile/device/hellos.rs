//! Lies before the session: proofs, keys, tokens, versions, runs in flight that are another's.

use anyhow::Context;
use deskgate_protocol::RunId;
use deskgate_tests::raw::RawIdentity;
use serde_json::{Value, json};

use super::camp::{Camp, HOSTILE_MARK};
use super::line::{ANSWER_TIMEOUT, Line, socket};
use crate::behaviour::{Behaviour, Evidence, NOTHING, effect, holds};

const PROOF: &str = "only who proves a paired key is welcomed";
const TOKEN: &str = "only who has the control token is asked for a proof";
const FLIGHT: &str = "a hello claims no run but the device's own";
const BOUNDED: &str = "a hello has a bound";

/// Says hello with another member; it must be refused.
async fn with_member(camp: &mut Camp, name: &str, value: Value) -> anyhow::Result<Evidence> {
    let (mut line, mut hello) = camp.challenged().await?;
    hello[name] = value;
    line.must_refuse(hello).await
}

/// Opens the socket in a way that must be refused.
async fn shut(camp: &mut Camp, path: &str, token: Option<&str>) -> anyhow::Result<Evidence> {
    match socket(&camp.gateway, path, token).await {
        Ok(_) => Err(effect("the socket opened")),
        Err(error) => Ok(Evidence::Answered(error.to_string())),
    }
}

/// Claims runs in the hello, and waits until the session works or is ended.
async fn claims(camp: &mut Camp, in_flight: Value) -> anyhow::Result<Evidence> {
    let mut line = camp.session_with(in_flight).await?;
    let heard = line.awaited(|frame| frame["frame"] == "revoke" || frame["frame"] == "ack").await?;
    match heard {
        Some(frame) if frame["frame"] == "ack" => Err(effect(format!("the gateway acknowledged {frame}"))),
        Some(frame) => Ok(Evidence::Answered(format!("revoked as {}", frame["code"]))),
        None => Ok(Evidence::HungUp("the session".to_owned())),
    }
}

fn claim(run_id: &str, status: &str) -> Value {
    json!({ "run_id": run_id, "attempt": 1, "status": status })
}

/// The behaviours of this family.
pub(super) fn behaviours() -> Vec<Behaviour<Camp>> {
    let mut all = proofs();
    all.extend(flights());
    all
}

fn proofs() -> Vec<Behaviour<Camp>> {
    vec![
        Behaviour {
            name: "a control token that is wrong",
            promise: TOKEN,
            allowed: NOTHING,
            act: |camp| Box::pin(shut(camp, "/control", Some("dgc_0000000000000000000000000000000000000000000"))),
        },
        Behaviour {
            name: "no control token",
            promise: TOKEN,
            allowed: NOTHING,
            act: |camp| Box::pin(shut(camp, "/control", None)),
        },
        Behaviour {
            name: "the administrator's paths on the devices' socket",
            promise: TOKEN,
            allowed: NOTHING,
            act: |camp| {
                Box::pin(async move {
                    let token = std::fs::read_to_string(camp.gateway.control_token_file())?;
                    shut(camp, "/admin/devices", Some(token.trim())).await?;
                    shut(camp, "/control/../admin", Some(token.trim())).await
                })
            },
        },
        Behaviour {
            name: "a hello signed for another challenge",
            promise: PROOF,
            allowed: NOTHING,
            act: |camp| {
                Box::pin(async move {
                    let (_, replayed) = camp.challenged().await?;
                    let (mut line, _) = camp.challenged().await?;
                    line.must_refuse(replayed).await
                })
            },
        },
        Behaviour {
            name: "a hello without a signature",
            promise: PROOF,
            allowed: NOTHING,
            act: |camp| Box::pin(with_member(camp, "signature", "".into())),
        },
        Behaviour {
            name: "a hello with a megabyte as its signature",
            promise: BOUNDED,
            allowed: NOTHING,
            act: |camp| Box::pin(async move { with_member(camp, "signature", "A".repeat(1 << 20).into()).await }),
        },
        Behaviour {
            name: "a hello as the honest device",
            promise: PROOF,
            allowed: NOTHING,
            act: |camp| {
                Box::pin(async move {
                    let file = std::fs::read_to_string(camp.honest.folder().join("identity.json"))?;
                    let identity: Value = serde_json::from_str(&file)?;
                    with_member(camp, "public_key", identity["public_key"].clone()).await
                })
            },
        },
        Behaviour {
            name: "a hello of a key that is not paired",
            promise: PROOF,
            allowed: NOTHING,
            act: |camp| {
                Box::pin(async move {
                    let (mut line, challenge) = Line::challenged(&camp.gateway, &camp.heard).await?;
                    let hello = RawIdentity::new(200).hello(&challenge, Vec::new());
                    line.must_refuse(serde_json::to_value(hello)?).await
                })
            },
        },
        Behaviour {
            name: "a hello of version 99.0.0",
            promise: "versions must match",
            allowed: NOTHING,
            act: |camp| {
                Box::pin(async move {
                    let (mut line, challenge) = Line::challenged(&camp.gateway, &camp.heard).await?;
                    let other = RawIdentity { version: "99.0.0".to_owned(), ..camp.hostile.clone() };
                    line.must_refuse(serde_json::to_value(other.hello(&challenge, Vec::new()))?).await
                })
            },
        },
        Behaviour {
            name: "a hello whose version is escapes and NUL",
            promise: BOUNDED,
            allowed: NOTHING,
            act: |camp| Box::pin(with_member(camp, "device_version", "0.1.\u{1b}[2J\0\u{202e}".into())),
        },
        Behaviour {
            name: "a hello of protocols that nobody speaks",
            promise: "versions must match",
            allowed: NOTHING,
            act: |camp| Box::pin(with_member(camp, "protocol", json!({ "min": 4_000_000_000_u32, "max": 1 }))),
        },
        Behaviour {
            name: "a ready instead of the hello",
            promise: PROOF,
            allowed: NOTHING,
            act: |camp| {
                Box::pin(async move {
                    let (mut line, _) = camp.challenged().await?;
                    line.must_refuse(json!({ "frame": "ready", "slots": 10 })).await
                })
            },
        },
        Behaviour {
            name: "no hello at all",
            promise: "silence ends the attempt",
            allowed: NOTHING,
            act: |camp| {
                Box::pin(async move {
                    let (mut line, _) = camp.challenged().await?;
                    let answer = tokio::time::timeout(ANSWER_TIMEOUT * 2, line.next()).await;
                    match answer.context("the gateway waits for ever")?? {
                        Some(frame) if frame["frame"] == "refused" => Ok(Evidence::Answered(frame["code"].to_string())),
                        None => Ok(Evidence::HungUp("after its own time".to_owned())),
                        Some(other) => Err(effect(format!("the gateway sent {other}"))),
                    }
                })
            },
        },
        Behaviour {
            name: "a second hello within the session, as the honest device",
            promise: PROOF,
            allowed: NOTHING,
            act: |camp| {
                Box::pin(async move {
                    let (_, hello) = camp.challenged().await?;
                    let line = camp.line().await?;
                    line.send(hello).await;
                    line.must_hang_up().await
                })
            },
        },
        Behaviour {
            name: "frames of a session that a newer one has replaced",
            promise: "only the newest session of a device changes anything",
            allowed: NOTHING,
            act: |camp| {
                Box::pin(async move {
                    let (run_id, attempt) = camp.own_run().await?;
                    let _newer = camp.session_with(json!([claim(&run_id, "running")])).await?;
                    let old = camp.line().await?;
                    old.send(json!({ "frame": "finish", "run_id": run_id, "attempt": attempt, "seq": 1,
                        "outcome": super::results::succeeded(HOSTILE_MARK) }))
                        .await;
                    let evidence = old.read_it().await?;
                    let run = camp.own_caller.run(&run_id).await;
                    holds!(run["phase"] != "final", "the older session ended the run");
                    Ok(evidence)
                })
            },
        },
    ]
}

fn flights() -> Vec<Behaviour<Camp>> {
    vec![
        Behaviour {
            name: "the honest device's working run, claimed as running",
            promise: FLIGHT,
            allowed: NOTHING,
            act: |camp| {
                Box::pin(async move {
                    let run = camp.known.running_run.clone();
                    claims(camp, json!([claim(&run, "running")])).await
                })
            },
        },
        Behaviour {
            name: "the honest device's working run, claimed as finished, unknown and interrupted",
            promise: FLIGHT,
            allowed: NOTHING,
            act: |camp| {
                Box::pin(async move {
                    let run = camp.known.running_run.clone();
                    for status in ["finished", "unknown", "interrupted", "taken"] {
                        claims(camp, json!([claim(&run, status)])).await?;
                    }
                    Ok(Evidence::Answered("revoked four times".to_owned()))
                })
            },
        },
        Behaviour {
            name: "the honest device's ended run, claimed as running",
            promise: FLIGHT,
            allowed: NOTHING,
            act: |camp| {
                Box::pin(async move {
                    let run = camp.known.ended_run.clone();
                    claims(camp, json!([claim(&run, "running")])).await
                })
            },
        },
        Behaviour {
            name: "twenty thousand runs in flight that are nobody's",
            promise: BOUNDED,
            allowed: NOTHING,
            act: |camp| {
                Box::pin(async move {
                    let many = (0..20_000).map(|_| claim(&RunId::new().to_string(), "running")).collect();
                    let (mut line, mut hello) = camp.challenged().await?;
                    hello["in_flight"] = Value::Array(many);
                    line.send(hello).await;
                    match line.next().await? {
                        Some(frame) => Ok(Evidence::Answered(frame["frame"].to_string())),
                        None => Ok(Evidence::HungUp("at the hello".to_owned())),
                    }
                })
            },
        },
        Behaviour {
            name: "a million runs in flight",
            promise: BOUNDED,
            allowed: NOTHING,
            act: |camp| {
                Box::pin(async move {
                    let one = claim(&RunId::new().to_string(), "running");
                    with_member(camp, "in_flight", Value::Array(vec![one; 1_000_000])).await
                })
            },
        },
    ]
}
