//! Requests of the desktop for what is another desktop's, and with names that hide something.

use anyhow::Context;
use serde_json::{Value, json};

use super::camp::{Camp, HOSTILE_MARK, Known, publication};
use super::judge::is_honest;
use crate::behaviour::{Behaviour, Evidence, NOTHING, holds};

const OWN: &str = "a device reads and changes its own records alone";
const NAMES: &str = "a name has nothing in it that is not seen";

/// Asks for something of the honest device: the answer is an error, or has nothing of it.
async fn not_yours(camp: &mut Camp, requests: fn(&Known) -> Vec<Value>) -> anyhow::Result<Evidence> {
    let requests = requests(&camp.known);
    let line = camp.line().await?;
    let mut said = Vec::new();
    for request in requests {
        let call = request["call"].to_string();
        let reply = line.ask(request).await?.with_context(|| format!("the gateway hung up at {call}"))?;
        holds!(!is_honest(&reply), "{call} shows honest matter");
        match reply["error"]["code"].as_str() {
            Some(code) => said.push(code.to_owned()),
            None => {
                let is_empty = ["[]", "null"].contains(&reply["ok"].to_string().as_str());
                let lists = reply["ok"].as_object().is_some_and(|page| {
                    page.values().filter_map(Value::as_array).all(Vec::is_empty) && page.values().any(Value::is_array)
                });
                holds!(is_empty || lists, "{call} was answered: {}", reply["ok"]);
                said.push("nothing".to_owned());
            }
        }
    }
    Ok(Evidence::Answered(said.join(", ")))
}

/// Asks for something with a text that must be refused.
async fn refused(camp: &mut Camp, requests: Vec<Value>) -> anyhow::Result<Evidence> {
    let mut codes = Vec::new();
    for request in requests {
        let call = request["call"].to_string();
        let line = camp.line().await?;
        match line.ask(request).await? {
            Some(reply) => {
                holds!(reply["ok"].is_null(), "{call} took it: {}", reply["ok"]);
                holds!(reply["error"]["code"] != "unavailable", "{call} is blamed on the database");
                codes.push(reply["error"]["code"].to_string());
            }
            None => codes.push("hung up".to_owned()),
        }
    }
    Ok(Evidence::Answered(codes.join(", ")))
}

macro_rules! theirs {
    ($name:literal, |$known:ident| $requests:expr) => {
        Behaviour {
            name: $name,
            promise: OWN,
            allowed: NOTHING,
            act: |camp: &mut Camp| Box::pin(not_yours(camp, |$known| $requests)),
        }
    };
}

/// The behaviours of this family.
pub(super) fn behaviours() -> Vec<Behaviour<Camp>> {
    let mut all = readings();
    all.extend(changes());
    all.extend(names());
    all
}

fn readings() -> Vec<Behaviour<Camp>> {
    vec![
        theirs!("the honest device's application, shown", |k| vec![
            json!({ "call": "show_application", "app_id": k.app_id }),
            json!({ "call": "preview_disabling", "app_id": k.app_id }),
        ]),
        theirs!("the honest device's keys, listed", |k| vec![json!({ "call": "list_keys", "app_id": k.app_id })]),
        theirs!("the honest device's runs, listed and exported", |k| vec![
            json!({ "call": "list_runs", "limit": 100, "app_id": k.app_id }),
            json!({ "call": "list_runs", "limit": 100, "endpoint_id": k.endpoint_id }),
            json!({ "call": "export_runs", "app_id": k.app_id, "limit": 100 }),
        ]),
        theirs!("the honest device's runs, shown", |k| vec![
            json!({ "call": "show_run", "run_id": k.ended_run }),
            json!({ "call": "show_run", "run_id": k.running_run }),
        ]),
        theirs!("the honest device's conversation, shown", |k| vec![
            json!({ "call": "show_conversation", "conversation_id": k.conversation_id }),
            json!({ "call": "list_conversations", "limit": 100, "app_id": k.app_id }),
        ]),
        theirs!("the honest device's operation, shown", |k| vec![
            json!({ "call": "show_operation", "operation_id": k.operation_id }),
        ]),
        theirs!("the honest device's callback, deliveries and webhook, shown", |k| vec![
            json!({ "call": "show_callback", "app_id": k.app_id }),
            json!({ "call": "list_deliveries", "limit": 100, "app_id": k.app_id }),
            json!({ "call": "show_webhook", "hook_id": k.hook_id }),
            json!({ "call": "list_webhooks", "app_id": k.app_id }),
        ]),
        theirs!("the honest device's activity, listed", |k| vec![
            json!({ "call": "list_activity", "limit": 100, "app_id": k.app_id }),
        ]),
    ]
}

fn changes() -> Vec<Behaviour<Camp>> {
    vec![
        theirs!("a key for the honest device's application", |k| vec![
            json!({ "call": "create_key", "app_id": k.app_id, "name": HOSTILE_MARK, "scopes": ["runs:write"] }),
        ]),
        theirs!("the honest device's key, revoked and replaced", |k| vec![
            json!({ "call": "revoke_key", "key_id": k.key_id }),
            json!({ "call": "roll_key", "key_id": k.key_id, "overlap_s": 0 }),
        ]),
        theirs!("the honest device's application, disabled and removed", |k| vec![
            json!({ "call": "disable_application", "app_id": k.app_id }),
            json!({ "call": "complete_disabling", "app_id": k.app_id }),
            json!({ "call": "remove_application", "app_id": k.app_id }),
        ]),
        theirs!("a service in the honest device's application", |k| vec![
            publication(&k.app_id, &deskgate_protocol::EndpointId::new().to_string(), "taken", 1),
            publication(&k.app_id, &k.endpoint_id, "taken", 2),
        ]),
        Behaviour {
            name: "the honest device's service, published as its own",
            promise: OWN,
            allowed: NOTHING,
            act: |camp| {
                Box::pin(async move {
                    let (own, theirs) = (camp.own_app.clone(), camp.known.endpoint_id.clone());
                    refused(camp, (0..3).map(|version| publication(&own, &theirs, "taken", version)).collect()).await
                })
            },
        },
        theirs!("the honest device's service, tried", |k| vec![
            json!({ "call": "try_endpoint", "endpoint_id": k.endpoint_id, "input": HOSTILE_MARK }),
        ]),
        theirs!("the honest device's run, stopped", |k| vec![json!({ "call": "stop_run", "run_id": k.running_run }),]),
        theirs!("the honest device's conversation, reset", |k| vec![
            json!({ "call": "reset_conversation", "conversation_id": k.conversation_id, "expected_generation": 1 }),
        ]),
        theirs!("a callback and a listener for the honest device's events", |k| vec![
            json!({ "call": "set_callback", "app_id": k.app_id, "url": "https://evil.example/hook", "types": ["run.succeeded"] }),
            json!({ "call": "roll_callback_secret", "app_id": k.app_id, "overlap_s": 0 }),
            json!({ "call": "open_listener", "app_id": k.app_id, "types": ["run.succeeded"] }),
            json!({ "call": "trigger_delivery", "app_id": k.app_id, "kind": "run.succeeded" }),
        ]),
        theirs!("the honest device's webhook, changed and removed", |k| vec![
            json!({ "call": "enable_webhook", "hook_id": k.hook_id, "enabled": false }),
            json!({ "call": "roll_webhook_secret", "hook_id": k.hook_id, "overlap_s": 0 }),
            json!({ "call": "remove_webhook", "hook_id": k.hook_id }),
        ]),
    ]
}

fn names() -> Vec<Behaviour<Camp>> {
    vec![
        Behaviour {
            name: "applications with names that hide something",
            promise: NAMES,
            allowed: NOTHING,
            act: |camp| {
                Box::pin(async move {
                    let names = ["Bill\u{200b}ing", "\u{202e}gnilliB", "a\0b", "\u{1b}[2J", "", " own", "a\tb"];
                    let many = "x".repeat(1 << 20);
                    let names = names.iter().copied().chain([many.as_str()]);
                    refused(camp, names.map(|name| json!({ "call": "create_application", "name": name })).collect())
                        .await
                })
            },
        },
        Behaviour {
            name: "a description with NUL and escapes",
            promise: NAMES,
            allowed: NOTHING,
            act: |camp| {
                Box::pin(async move {
                    let own = camp.own_app.clone();
                    let with = |description: &str| {
                        let endpoint_id = deskgate_protocol::EndpointId::new().to_string();
                        let mut request = publication(&own, &endpoint_id, "described", 1);
                        request["description"] = description.into();
                        request
                    };
                    let requests = vec![with("a\0b"), with("\u{1b}]0;x\u{7}"), with(&"x".repeat(100_000))];
                    refused(camp, requests).await
                })
            },
        },
        Behaviour {
            name: "pages beyond all sizes",
            promise: "a list has a bound",
            allowed: NOTHING,
            act: |camp| {
                Box::pin(async move {
                    let line = camp.line().await?;
                    let reply =
                        line.ask(json!({ "call": "list_runs", "limit": u32::MAX })).await?.context("hung up")?;
                    let runs = reply["ok"]["runs"].as_array().map_or(0, Vec::len);
                    holds!(runs <= 100 && !is_honest(&reply), "the page has {runs} runs");
                    Ok(Evidence::Answered(format!("{runs} runs")))
                })
            },
        },
        Behaviour {
            name: "pages below zero, and cursors that are none",
            promise: "a request is read strictly",
            allowed: NOTHING,
            act: |camp| {
                Box::pin(async move {
                    let own = camp.own_app.clone();
                    let requests = vec![
                        json!({ "call": "list_runs", "limit": -1 }),
                        json!({ "call": "list_activity", "limit": 100, "before": "'; DROP TABLE runs; --" }),
                        json!({ "call": "poll_listener", "listener_id": own, "limit": 1 }),
                    ];
                    refused(camp, requests).await
                })
            },
        },
        Behaviour {
            name: "a request that nobody knows",
            promise: "a request is read strictly",
            allowed: NOTHING,
            act: |camp| Box::pin(refused(camp, vec![json!({ "call": "execute", "command": "id" })])),
        },
        Behaviour {
            name: "a request in the name of the administrator",
            promise: "a request is read strictly",
            allowed: NOTHING,
            act: |camp| {
                Box::pin(async move {
                    let line = camp.line().await?;
                    line.send(json!({ "frame": "request", "request_id": 1, "by": "administrator",
                        "request": { "call": "list_applications" } }))
                        .await;
                    line.must_hang_up().await
                })
            },
        },
        Behaviour {
            name: "a token of an account, at a gateway without accounts",
            promise: "a request is read strictly",
            allowed: NOTHING,
            act: |camp| {
                Box::pin(async move {
                    let line = camp.line().await?;
                    line.send(json!({ "frame": "token", "access_token": "eyJhbGciOiJub25lIn0.e30." })).await;
                    line.read_it().await
                })
            },
        },
    ]
}
