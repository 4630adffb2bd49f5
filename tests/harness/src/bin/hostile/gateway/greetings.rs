//! Lies before the session: challenges, welcomes, refusals, announced keys.

use anyhow::Context;
use serde_json::{Value, json};

use super::line::{challenge, welcome};
use super::siege::Siege;
use crate::behaviour::{Behaviour, Evidence, NOTHING, effect, holds};

const VERSIONS: &str = "a gateway of another version is left, and the desktop says which half to upgrade";
const HANDSHAKE: &str = "only a welcome after a challenge and a hello begins a session";
const WAITS: &str = "a gateway decides neither for how long nor how often the desktop tries";
const RAW: &str = "what a gateway writes reaches no terminal raw";
const KEYS: &str = "a host key that is not proven is not followed";

/// Text that a terminal would obey: clears it, sets the clipboard, rings, turns the reading direction, hides.
pub(super) const ESCAPES: &str =
    "\u{1b}[2J\u{1b}]52;c;ZXZpbA==\u{7}\u{9b}31m\u{202e}live\u{202c}\u{200b}\u{7f}\r\nforged: all is well";

/// A refusal.
pub(super) fn refusal(code: &str, message: &str, retry_after_s: Option<u64>) -> Value {
    json!({ "frame": "refused", "code": code, "message": message, "should_retry": true,
        "retry_after_s": retry_after_s, "gateway_version": deskgate_protocol::VERSION })
}

/// Begins with this instead of the challenge; the desktop must leave.
async fn begins_with(siege: &mut Siege, first: Value) -> anyhow::Result<Evidence> {
    let mut greeting = siege.upgraded().await?;
    greeting.send(&first).await?;
    greeting.hung_up("before the session").await
}

/// Answers the hello with this; the desktop must leave.
async fn answers_with(siege: &mut Siege, answer: Value) -> anyhow::Result<Evidence> {
    let (mut greeting, _) = siege.greeted().await?;
    greeting.send(&answer).await?;
    greeting.hung_up("before the session").await
}

/// A challenge with another member; the desktop says hello, and leaves after the welcome.
async fn with_member(siege: &mut Siege, name: &str, value: Value) -> anyhow::Result<Evidence> {
    let mut first = challenge(&siege.gateway_id);
    first[name] = value;
    let mut greeting = siege.upgraded().await?;
    greeting.send(&first).await?;
    if greeting.next().await?.is_none() {
        return Ok(Evidence::HungUp("at the challenge".to_owned()));
    }
    greeting.send(&welcome(&siege.device_id, 1)).await?;
    greeting.hung_up("after the welcome").await
}

/// Refuses; the desktop must dial again within its own bound when its owner asks.
async fn refuses(siege: &mut Siege, refused: Value) -> anyhow::Result<Evidence> {
    answers_with(siege, refused).await?;
    let said = siege.desktop_says("refused").await?;
    siege.visitor().await.context("a desktop that was refused never dials again")?;
    Ok(Evidence::Said(said))
}

/// Announces host keys in the welcome, and waits until the session works.
async fn announces(siege: &mut Siege, keys: Value) -> anyhow::Result<Evidence> {
    let (mut greeting, _) = siege.greeted().await?;
    let mut hello_back = welcome(&siege.device_id, siege.epoch);
    hello_back["host_keys"] = keys;
    greeting.send(&hello_back).await?;
    super::line::Line::after(greeting).must_stay().await
}

/// The behaviours of this family.
pub(super) fn behaviours() -> Vec<Behaviour<Siege>> {
    let mut all = challenges();
    all.extend(welcomes());
    all.extend(refusals());
    all
}

fn challenges() -> Vec<Behaviour<Siege>> {
    vec![
        Behaviour {
            name: "a challenge of version 99.0.0",
            promise: VERSIONS,
            allowed: NOTHING,
            act: |siege| Box::pin(with_member(siege, "gateway_version", "99.0.0".into())),
        },
        Behaviour {
            name: "a challenge whose version is a megabyte of escapes",
            promise: RAW,
            allowed: NOTHING,
            act: |siege| Box::pin(with_member(siege, "gateway_version", ESCAPES.repeat(20_000).into())),
        },
        Behaviour {
            name: "a challenge of protocols that nobody speaks",
            promise: VERSIONS,
            allowed: NOTHING,
            act: |siege| Box::pin(with_member(siege, "protocol", json!({ "min": 4_000_000_000_u32, "max": 1 }))),
        },
        Behaviour {
            name: "a challenge with an identifier that is none",
            promise: HANDSHAKE,
            allowed: NOTHING,
            act: |siege| Box::pin(with_member(siege, "gateway_id", "gw_../../etc/passwd".into())),
        },
        Behaviour {
            name: "a challenge with an empty nonce",
            promise: HANDSHAKE,
            allowed: NOTHING,
            act: |siege| {
                Box::pin(async move {
                    let mut first = challenge(&siege.gateway_id);
                    first["nonce"] = "".into();
                    let mut greeting = siege.upgraded().await?;
                    greeting.send(&first).await?;
                    match greeting.next().await? {
                        Some(hello) if hello["frame"] == "hello" => Ok(Evidence::Answered("a hello for it".to_owned())),
                        _ => Ok(Evidence::HungUp("at the challenge".to_owned())),
                    }
                })
            },
        },
        Behaviour {
            name: "a challenge with a nonce of three megabytes",
            promise: HANDSHAKE,
            allowed: NOTHING,
            act: |siege| {
                Box::pin(async move {
                    let mut first = challenge(&siege.gateway_id);
                    first["nonce"] = "n".repeat(3 << 20).into();
                    let mut greeting = siege.upgraded().await?;
                    greeting.send(&first).await?;
                    match greeting.next().await? {
                        Some(_) => Ok(Evidence::Answered("a hello for it".to_owned())),
                        None => Ok(Evidence::HungUp("at the challenge".to_owned())),
                    }
                })
            },
        },
        Behaviour {
            name: "a hello of this desktop, used at the real gateway",
            promise: "a hello is good for one challenge of one gateway",
            allowed: NOTHING,
            act: |siege| {
                Box::pin(async move {
                    let (_, hello) = siege.greeted().await?;
                    let (mut line, _) = deskgate_tests::raw::RawConnection::open_to_challenge(&siege.gateway).await;
                    line.send_text(hello.to_string()).await;
                    match serde_json::to_value(line.next().await)? {
                        answer if answer["frame"] == "refused" => Ok(Evidence::Answered(answer["code"].to_string())),
                        answer => Err(effect(format!("the real gateway said {answer}"))),
                    }
                })
            },
        },
        Behaviour {
            name: "a welcome instead of the challenge",
            promise: HANDSHAKE,
            allowed: NOTHING,
            act: |siege| {
                Box::pin(async move {
                    let first = welcome(&siege.device_id, 1);
                    begins_with(siege, first).await
                })
            },
        },
        Behaviour {
            name: "an offer instead of the challenge",
            promise: HANDSHAKE,
            allowed: NOTHING,
            act: |siege| {
                Box::pin(async move {
                    let first = siege.offer(&super::offers::run_id(), 1, "before the hello");
                    begins_with(siege, first).await
                })
            },
        },
        Behaviour {
            name: "nothing at all after the upgrade",
            promise: "silence ends the attempt",
            allowed: NOTHING,
            act: |siege| Box::pin(async move { siege.upgraded().await?.hung_up("after its own time").await }),
        },
        Behaviour {
            name: "nothing at all after the hello",
            promise: "silence ends the attempt",
            allowed: NOTHING,
            act: |siege| Box::pin(async move { siege.greeted().await?.0.hung_up("after its own time").await }),
        },
    ]
}

fn welcomes() -> Vec<Behaviour<Siege>> {
    vec![
        Behaviour {
            name: "an offer instead of the welcome",
            promise: HANDSHAKE,
            allowed: NOTHING,
            act: |siege| {
                Box::pin(async move {
                    let offer = siege.offer(&super::offers::run_id(), 1, "before the welcome");
                    answers_with(siege, offer).await
                })
            },
        },
        Behaviour {
            name: "a welcome to a protocol that was not agreed",
            promise: HANDSHAKE,
            allowed: NOTHING,
            act: |siege| {
                Box::pin(async move {
                    let mut other = welcome(&siege.device_id, 1);
                    other["protocol"] = 7.into();
                    answers_with(siege, other).await
                })
            },
        },
        Behaviour {
            name: "a welcome with heartbeats of zero and events of none",
            promise: "a policy is held within bounds",
            allowed: NOTHING,
            act: |siege| {
                Box::pin(async move {
                    let (mut greeting, _) = siege.greeted().await?;
                    let mut other = welcome(&siege.device_id, 1);
                    for limit in ["heartbeat_ms", "lease_ms", "offer_ms", "unacknowledged_events"] {
                        other["policy"][limit] = 0.into();
                    }
                    greeting.send(&other).await?;
                    greeting.hung_up("after a silence of its own measure").await
                })
            },
        },
        Behaviour {
            name: "a welcome with every limit at its highest",
            promise: "a policy is held within bounds",
            allowed: NOTHING,
            act: |siege| {
                Box::pin(async move {
                    let (mut greeting, _) = siege.greeted().await?;
                    let mut other = welcome(&siege.device_id, u64::MAX >> 1);
                    for limit in ["heartbeat_ms", "lease_ms", "offer_ms", "retention_s"] {
                        other["policy"][limit] = u64::MAX.into();
                    }
                    other["policy"]["unacknowledged_events"] = u32::MAX.into();
                    greeting.send(&other).await?;
                    super::line::Line::after(greeting).read_it().await
                })
            },
        },
        Behaviour {
            name: "a welcome that names a key which is not proven",
            promise: KEYS,
            allowed: NOTHING,
            act: |siege| {
                Box::pin(async move {
                    let stranger = deskgate_tests::raw::RawIdentity::new(99).public_key();
                    let signature = "AAAA".repeat(22);
                    announces(siege, json!([{ "public_key": stranger, "signature": signature }])).await?;
                    let logged = siege.device.log().line(&["announced host keys", "did not prove"]).await;
                    Ok(Evidence::Said(logged))
                })
            },
        },
        Behaviour {
            name: "a welcome that names ten thousand keys",
            promise: KEYS,
            allowed: NOTHING,
            act: |siege| {
                Box::pin(async move {
                    let stranger = deskgate_tests::raw::RawIdentity::new(98).public_key();
                    let key = json!({ "public_key": stranger, "signature": "x" });
                    announces(siege, Value::Array(vec![key; 10_000])).await
                })
            },
        },
    ]
}

fn refusals() -> Vec<Behaviour<Siege>> {
    vec![
        Behaviour {
            name: "a refusal with escapes, line breaks and right-to-left text",
            promise: RAW,
            allowed: NOTHING,
            act: |siege| Box::pin(refuses(siege, refusal("unknown_device", ESCAPES, None))),
        },
        Behaviour {
            name: "a refusal of two megabytes",
            promise: RAW,
            allowed: NOTHING,
            act: |siege| {
                Box::pin(async move { refuses(siege, refusal("unavailable", &"long ".repeat(400_000), None)).await })
            },
        },
        Behaviour {
            name: "a refusal that asks to come again in 584 thousand million years",
            promise: WAITS,
            allowed: NOTHING,
            act: |siege| {
                Box::pin(async move {
                    let evidence = refuses(siege, refusal("unavailable", "later", Some(u64::MAX))).await?;
                    holds!(!evidence.text().contains(&u64::MAX.to_string()), "the pause is shown as it was sent");
                    Ok(evidence)
                })
            },
        },
        Behaviour {
            name: "refusals that ask to come again at once",
            promise: WAITS,
            allowed: NOTHING,
            act: |siege| {
                Box::pin(async move {
                    let mut came = 0;
                    let began = std::time::Instant::now();
                    while began.elapsed() < std::time::Duration::from_secs(4) {
                        let (mut greeting, _) = siege.greeted().await?;
                        greeting.send(&refusal("unavailable", "now", Some(0))).await?;
                        greeting.hung_up("refused").await?;
                        came += 1;
                    }
                    holds!(came <= 40, "the desktop came {came} times in four seconds");
                    Ok(Evidence::Answered(format!("{came} visits in four seconds")))
                })
            },
        },
        Behaviour {
            name: "a refusal with a code that nobody knows",
            promise: HANDSHAKE,
            allowed: NOTHING,
            act: |siege| Box::pin(answers_with(siege, refusal("run_this", "unknown", None))),
        },
    ]
}
