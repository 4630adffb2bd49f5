//! Messages in conversations that belong to another service, another subject or another generation.

use anyhow::bail;
use serde_json::{Value, json};

use super::offers::{revoke, run_id, start, taken, until_finished};
use super::siege::{SECRET, Service, Siege, offer, say};
use crate::behaviour::{Allowed, Behaviour, Evidence, holds};

const BOUND: &str = "a conversation belongs to one service and one subject";
const GENERATION: &str = "a generation sees no other one";

/// A message that may be answered, without anything of another's.
const ONE_ANSWER: Allowed = Allowed { questions: 1, ledger_lines: 0 };

/// Sends a message in a conversation as somebody, and says how it ended.
async fn message(
    siege: &mut Siege,
    service: Service,
    conversation: &str,
    more: &[(&str, Value)],
) -> anyhow::Result<Evidence> {
    siege.model.then(vec![say("done")]);
    let id = run_id();
    let mut offer = offer(&service, &id, 1, "what was said before?");
    offer["conversation"] = conversation.into();
    offer["generation"] = 1.into();
    for (name, value) in more {
        offer[*name] = value.clone();
    }
    let line = siege.line().await?;
    taken(line, &offer).await?;
    line.send(start(&id, 1)).await;
    let end = until_finished(line, &id).await?;
    let told = siege.model.asked().last().is_some_and(|asked| asked.to_string().contains(SECRET));
    siege.model.forget_moves();
    let state = end["outcome"]["state"].clone();
    holds!(!told || state != "succeeded", "the model was told what was said before");
    Ok(Evidence::Answered(state.to_string()))
}

/// The behaviours of this family.
pub(super) fn behaviours() -> Vec<Behaviour<Siege>> {
    vec![
        Behaviour {
            name: "a message in a conversation of another service",
            promise: BOUND,
            allowed: ONE_ANSWER,
            act: |siege| {
                Box::pin(async move {
                    let (service, conversation) = (siege.accounts.clone(), siege.conversation.clone());
                    message(siege, service, &conversation, &[]).await
                })
            },
        },
        Behaviour {
            name: "a message in a conversation of another subject",
            promise: BOUND,
            allowed: ONE_ANSWER,
            act: |siege| {
                Box::pin(async move {
                    let (service, conversation) = (siege.orders.clone(), siege.conversation.clone());
                    message(siege, service, &conversation, &[("subject", "customer-2".into())]).await
                })
            },
        },
        Behaviour {
            name: "a message in a conversation of nobody",
            promise: BOUND,
            allowed: ONE_ANSWER,
            act: |siege| {
                Box::pin(async move {
                    let (service, conversation) = (siege.orders.clone(), siege.conversation.clone());
                    message(siege, service, &conversation, &[("subject", Value::Null)]).await
                })
            },
        },
        Behaviour {
            name: "a message of another service and another subject",
            promise: BOUND,
            allowed: ONE_ANSWER,
            act: |siege| {
                Box::pin(async move {
                    let (service, conversation) = (siege.accounts.clone(), siege.conversation.clone());
                    message(siege, service, &conversation, &[("subject", "customer-2".into())]).await
                })
            },
        },
        Behaviour {
            name: "a message in generation 2 before any reset",
            promise: GENERATION,
            allowed: ONE_ANSWER,
            act: |siege| {
                Box::pin(async move {
                    let (service, conversation) = (siege.orders.clone(), siege.conversation.clone());
                    message(siege, service, &conversation, &[("generation", 2.into())]).await
                })
            },
        },
        Behaviour {
            name: "a message in generation 0, and in the highest",
            promise: GENERATION,
            allowed: Allowed { questions: 2, ledger_lines: 0 },
            act: |siege| {
                Box::pin(async move {
                    let (service, conversation) = (siege.orders.clone(), siege.conversation.clone());
                    message(siege, service.clone(), &conversation, &[("generation", 0.into())]).await?;
                    message(siege, service, &conversation, &[("generation", u32::MAX.into())]).await
                })
            },
        },
        Behaviour {
            name: "a message in a conversation, without a generation",
            promise: GENERATION,
            allowed: ONE_ANSWER,
            act: |siege| {
                Box::pin(async move {
                    let (service, conversation) = (siege.orders.clone(), siege.conversation.clone());
                    message(siege, service, &conversation, &[("generation", Value::Null)]).await
                })
            },
        },
        Behaviour {
            name: "a message in a conversation that nobody began",
            promise: BOUND,
            allowed: ONE_ANSWER,
            act: |siege| {
                Box::pin(async move {
                    let conversation = deskgate_protocol::ConversationId::new().to_string();
                    let service = siege.orders.clone();
                    message(siege, service, &conversation, &[]).await
                })
            },
        },
        Behaviour {
            name: "a conversation that is closed to the real one by a message of another",
            promise: BOUND,
            allowed: ONE_ANSWER,
            act: |siege| {
                Box::pin(async move {
                    // The other service speaks first in a new conversation; then the first one joins it.
                    let conversation = deskgate_protocol::ConversationId::new().to_string();
                    let (first, id) = (siege.accounts.clone(), run_id());
                    let mut taken_only = offer(&first, &id, 1, "x");
                    taken_only["conversation"] = conversation.as_str().into();
                    taken_only["generation"] = 1.into();
                    let line = siege.line().await?;
                    taken(line, &taken_only).await?;
                    line.send(revoke(&id, 1)).await;
                    let service = siege.orders.clone();
                    message(siege, service, &conversation, &[]).await
                })
            },
        },
        Behaviour {
            name: "resets of a conversation of the real gateway, generations that never were",
            promise: GENERATION,
            allowed: Allowed { questions: 0, ledger_lines: 0 },
            act: |siege| {
                Box::pin(async move {
                    let conversation = siege.conversation.clone();
                    let operation_id = deskgate_protocol::OperationId::new();
                    let line = siege.line().await?;
                    line.send(json!({ "frame": "control", "operation_id": operation_id,
                        "kind": "conversation.reset", "conversation": conversation, "generation": 0 }))
                        .await;
                    match line.awaited(|frame| frame["frame"] == "control_done").await? {
                        Some(done) => Ok(Evidence::Answered(done["outcome"].to_string())),
                        None => bail!("the desktop hung up"),
                    }
                })
            },
        },
    ]
}
