//! A run as a response of the Responses API.

use deskgate_protocol::RunId;
use deskgate_protocol::run::{EventType, FinishReason, Phase, Run, RunEvent, RunState, Usage};
use serde_json::{Value, json};

use super::error::of_run;
use super::{message_id, response_id};
use crate::domain::events::MAX_PAGE_EVENTS;
use crate::domain::refusal::Refusal;
use crate::http::Api;

/// What a response says of the request that made it. Of a response that is read later, less is known.
#[derive(Clone, Debug, Default)]
pub(super) struct RequestEcho {
    pub(super) background: Option<bool>,
    pub(super) previous_response_id: Option<String>,
    pub(super) store: Option<bool>,
}

/// The texts of the messages that a run has completed, oldest first.
pub(super) async fn messages(api: &Api, run: &Run) -> Result<Vec<String>, Refusal> {
    let (mut texts, mut after) = (Vec::new(), 0);
    // Of a run with data only the data is told: whoever reads it expects nothing else.
    if run.attempt == 0 || run.output.is_some() {
        return Ok(texts);
    }
    loop {
        let events = api.store.events_after(run.run_id, after, MAX_PAGE_EVENTS.into()).await?;
        texts.extend(events.iter().filter_map(message_text));
        match events.last() {
            Some(last) if events.len() == MAX_PAGE_EVENTS as usize => after = last.sequence,
            _ => return Ok(texts),
        }
    }
}

/// The text of a message that an event says is complete.
pub(super) fn message_text(event: &RunEvent) -> Option<String> {
    let text = (event.kind == EventType::MessageCompleted).then(|| event.data["text"].as_str()).flatten();
    // One that only thinks is none.
    text.filter(|text| !text.is_empty()).map(str::to_owned)
}

/// The text that the end of a run adds to its messages: its data, or what its last message lacks of the answer. A long
/// message is told only in part.
pub(super) fn last_text(run: &Run, last_message: Option<&str>) -> Option<String> {
    let result = run.result.as_ref()?;
    if let Some(data) = &result.data {
        return Some(data.to_string());
    }
    let last = last_message.unwrap_or_default();
    // An answer that is another text than the last message follows it.
    let rest = result.text.strip_prefix(last).unwrap_or(&result.text);
    (!rest.is_empty()).then(|| rest.to_owned())
}

/// A complete message of a response's output.
pub(super) fn message(run_id: RunId, place: usize, text: &str) -> Value {
    json!({
        "id": message_id(run_id, place),
        "type": "message",
        "status": "completed",
        "role": "assistant",
        "content": [text_part(text)],
    })
}

/// A text in a message.
pub(super) fn text_part(text: &str) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] })
}

/// All messages of a run's output: the last one is the answer, once it has succeeded.
fn output(run: &Run, mut messages: Vec<String>) -> Vec<Value> {
    messages.extend(last_text(run, messages.last().map(String::as_str)));
    let last = messages.len().checked_sub(1).filter(|_| run.state == RunState::Succeeded);
    let item = |(place, text): (usize, &String)| {
        let mut item = message(run.run_id, place, text);
        item["phase"] = json!(if Some(place) == last { "final_answer" } else { "commentary" });
        item
    };
    messages.iter().enumerate().map(item).collect()
}

/// The run as a response with these completed messages.
pub(super) fn response(run: &Run, messages: Vec<String>, echo: &RequestEcho) -> Value {
    let instructions = run.input.as_ref().and_then(|input| input.more.get("caller_instructions"));
    let format = match &run.output {
        Some(output) => json!({ "type": "json_schema", "name": output.name, "schema": output.schema, "strict": true }),
        None => json!({ "type": "text" }),
    };
    let status = status(run);
    json!({
        "id": response_id(run.run_id),
        "object": "response",
        "created_at": run.created_at.0.as_second(),
        "completed_at": run.finished_at.filter(|_| status == "completed").map(|moment| moment.0.as_second()),
        "status": status,
        "background": echo.background,
        "model": run.endpoint_id,
        "output": output(run, messages),
        "error": of_run(run.state, run.error.as_ref()),
        "incomplete_details": (status == "incomplete").then(|| json!({ "reason": "max_output_tokens" })),
        "instructions": instructions,
        "metadata": run.metadata,
        "parallel_tool_calls": false,
        "temperature": null,
        "tool_choice": "none",
        "tools": [],
        "top_p": null,
        "previous_response_id": echo.previous_response_id,
        "conversation": run.conversation_id.map(|id| json!({ "id": id })),
        "store": echo.store,
        "text": { "format": format },
        "usage": run.usage.as_ref().filter(|_| run.phase == Phase::Final).map(usage),
    })
}

/// The status of a response, for every state of a run.
pub(super) fn status(run: &Run) -> &'static str {
    match run.state {
        RunState::Queued | RunState::WaitingForDevice => "queued",
        RunState::Running | RunState::AwaitingApproval | RunState::AwaitingReconciliation | RunState::Cancelling => {
            "in_progress"
        }
        RunState::Succeeded => match run.result.as_ref().map(|result| result.finish_reason) {
            Some(FinishReason::Length) => "incomplete",
            Some(FinishReason::Completed) | None => "completed",
        },
        RunState::Failed | RunState::Expired => "failed",
        RunState::Cancelled => "cancelled",
    }
}

fn usage(usage: &Usage) -> Value {
    json!({
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cached_input_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
        },
        "output_tokens": usage.output_tokens,
        "output_tokens_details": { "reasoning_tokens": usage.reasoning_tokens },
        "total_tokens": usage.input_tokens.saturating_add(usage.output_tokens),
    })
}
