//! Several callers in one conversation: each reads, sends messages, stops and resets, by what it believes of the
//! conversation.

use std::sync::Arc;
use std::time::Duration;

use reqwest::Method;
use serde_json::json;
use tokio::time::sleep;

use super::{ApiReply, ApiRequest, Caller, CallerContext, submitter};
use crate::history::{AnswerContent, CallAction};

/// Works in the conversation with this key while the pass is open.
pub(crate) async fn work(business: Arc<CallerContext>, name: String, desktop: usize, conversation_key: String) {
    let mut caller = business.caller(&name);
    let Some(conversation) = open(&mut caller, desktop, &conversation_key).await else { return };
    let mut generation = 1;
    while business.is_open() {
        let heard = match caller.dice.below(10) {
            // As a caller does that does not know whether the conversation exists.
            0 => open(&mut caller, desktop, &conversation_key).await.map(|_| AnswerContent::Nothing),
            1..=2 => look(&mut caller, desktop, &conversation).await,
            3 => reset(&mut caller, desktop, &conversation, generation).await,
            _ => say(&mut caller, desktop, &conversation, generation).await,
        };
        match heard {
            Some(
                AnswerContent::Conversation { generation: now, .. } | AnswerContent::Generation { generation: now, .. },
            ) => {
                generation = now;
            }
            Some(AnswerContent::Operation { new_generation: Some(now), .. }) => generation = now,
            _ => {}
        }
        sleep(Duration::from_millis(caller.dice.within(20, 400))).await;
    }
}

/// Opens the conversation with a key, or finds it.
pub(crate) async fn open(caller: &mut Caller, desktop: usize, conversation_key: &str) -> Option<String> {
    let request = ApiRequest {
        name: "open",
        asked: CallAction::Open { conversation_key: conversation_key.to_owned() },
        desktop,
        method: Method::POST,
        path: "/conversations".to_owned(),
        key: Some(caller.business.fresh_job()),
        body: Some(json!({
            "endpoint_id": caller.service(desktop).endpoint_id, "conversation_key": conversation_key,
        })),
        ..ApiRequest::default()
    };
    match caller.retry(&request).await?.seen {
        AnswerContent::Conversation { conversation, .. } => Some(conversation),
        _ => None,
    }
}

/// A read of a conversation.
pub(crate) fn looks(desktop: usize, conversation: &str) -> ApiRequest {
    ApiRequest {
        name: "look",
        asked: CallAction::Look { conversation: conversation.to_owned() },
        desktop,
        method: Method::GET,
        path: format!("/conversations/{conversation}"),
        ..ApiRequest::default()
    }
}

async fn look(caller: &mut Caller, desktop: usize, conversation: &str) -> Option<AnswerContent> {
    caller.retry(&looks(desktop, conversation)).await.map(|reply| reply.seen)
}

/// A reset of a conversation, under a fresh key.
pub(crate) fn resets(caller: &Caller, desktop: usize, conversation: &str, generation: u64) -> ApiRequest {
    ApiRequest {
        name: "reset",
        asked: CallAction::Reset { conversation: conversation.to_owned(), generation },
        desktop,
        method: Method::POST,
        path: format!("/conversations/{conversation}/reset"),
        key: Some(caller.business.fresh_job()),
        body: Some(json!({ "expected_generation": generation })),
        ..ApiRequest::default()
    }
}

/// Resets the conversation, and waits until the reset is completed.
async fn reset(caller: &mut Caller, desktop: usize, conversation: &str, generation: u64) -> Option<AnswerContent> {
    let request = resets(caller, desktop, conversation, generation);
    match caller.retry(&request).await?.seen {
        AnswerContent::Operation { operation_id, .. } => {
            caller.completed(desktop, &operation_id).await.map(|reply| reply.seen)
        }
        seen => Some(seen),
    }
}

/// Sends a message, and waits for the answer or stops it.
async fn say(caller: &mut Caller, desktop: usize, conversation: &str, generation: u64) -> Option<AnswerContent> {
    let job = caller.business.fresh_job();
    let plan = if caller.dice.percent(25) { "write" } else { "say" };
    let delay = caller.dice.within(0, 500);
    let text = format!("job={job} plan={plan} delay={delay} talk={conversation} generation={generation}");
    let request = ApiRequest {
        name: "say",
        asked: CallAction::Say { job: job.clone(), conversation: conversation.to_owned(), generation },
        desktop,
        method: Method::POST,
        path: format!("/conversations/{conversation}/messages"),
        key: Some(job),
        body: Some(json!({ "expected_generation": generation, "input": { "text": text } })),
        ..ApiRequest::default()
    };
    let reply = caller.retry(&request).await?;
    if let Some(run_id) = ApiReply::run_id(&reply).filter(|_| reply.is_good()) {
        let is_stopped = caller.dice.percent(12);
        if is_stopped {
            submitter::stop(&mut caller.fork("stop"), desktop, &run_id).await;
        }
        submitter::ends(&mut caller.fork("wait"), desktop, &run_id, is_stopped).await;
    }
    Some(reply.seen)
}
