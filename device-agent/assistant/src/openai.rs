//! OpenAI's Chat Completions API, streaming, which many servers implement.

use deskgate_secrets::Secret;
use reqwest::header::{AUTHORIZATION, HeaderMap};
use serde::Deserialize;
use serde_json::{Value, json};

use super::remote::{self, Dialect, ProviderErrorBody, malformed_response};
use super::{Message, ModelError, ModelEvent, ModelRequest, StopReason, TokenUsage, ToolCall, call_assembler, sse};

/// The state of one answer.
#[derive(Debug, Default)]
pub(super) struct OpenAi {
    usage: Option<TokenUsage>,
    calls: call_assembler::CallAssembler,
    stop: Option<StopReason>,
}

impl Dialect for OpenAi {
    const URL_PATH: &'static str = "/chat/completions";

    fn headers(key: Option<&Secret>) -> HeaderMap {
        key.and_then(remote::bearer).map(|bearer| (AUTHORIZATION, bearer)).into_iter().collect()
    }

    fn body(model: &str, request: &ModelRequest) -> Value {
        let system = json!({ "role": "system", "content": *request.system });
        let messages: Vec<_> = std::iter::once(system).chain(request.messages.iter().flat_map(messages)).collect();
        let mut body = json!({
            "model": model,
            "messages": messages,
            "stream": true,
            "stream_options": { "include_usage": true },
        });
        if !request.tools.is_empty() {
            let function = |tool: &deskgate_definition::tool::ToolSpec| json!({ "name": tool.name, "description": tool.description, "parameters": tool.parameters });
            let tools = request.tools.iter().map(|tool| json!({ "type": "function", "function": function(tool) }));
            body["tools"] = tools.collect();
        }
        if let Some(most) = request.max_output_tokens {
            // Newer OpenAI models accept only the newer name; other servers accept both, or the older.
            body["max_completion_tokens"] = most.into();
        }
        body
    }

    fn on(&mut self, event: &sse::SseEvent) -> Result<Vec<ModelEvent>, ModelError> {
        if event.data == "[DONE]" {
            return if self.stop.is_some() { Ok(self.closed()) } else { Err(malformed_response()) };
        }
        let chunk: Chunk = serde_json::from_str(&event.data).map_err(|_| malformed_response())?;
        if chunk.error.is_some() {
            let complaint: ProviderErrorBody = serde_json::from_str(&event.data).unwrap_or_default();
            return Err(complaint.meaning().unwrap_or_else(malformed_response));
        }
        if let Some(OpenAiUsage { prompt_tokens, completion_tokens }) = chunk.usage {
            self.usage = Some(TokenUsage { input_tokens: prompt_tokens, output_tokens: completion_tokens });
        }
        // One choice was requested.
        let Some(Choice { delta, finish_reason }) = chunk.choices.into_iter().next() else { return Ok(Vec::new()) };
        for call in delta.tool_calls.unwrap_or_default() {
            self.call(call)?;
        }
        // Some servers send an empty one with every piece.
        if let Some(word) = finish_reason.filter(|word| !word.is_empty()) {
            self.stop = Some(stop_reason(&word));
            if self.stop != Some(StopReason::Length) {
                self.calls.end_all();
            }
        }
        let text = delta.content.into_iter().chain(delta.refusal).filter(|text| !text.is_empty());
        Ok(text.map(ModelEvent::TextDelta).collect())
    }

    /// Some servers close the stream after the reason, without a final event.
    fn closed(&mut self) -> Vec<ModelEvent> {
        let Some(reason) = self.stop.take() else { return Vec::new() };
        let calls = self.calls.take_ended().into_iter().map(ModelEvent::ToolCall);
        calls.chain(self.usage.map(ModelEvent::Usage)).chain([ModelEvent::End(reason)]).collect()
    }
}

impl OpenAi {
    /// A piece of a call. The first has its name; some servers number every call 0, but give each its own identifier.
    fn call(&mut self, piece: ToolCallDelta) -> Result<(), ModelError> {
        let ToolCallDelta { index, id, function } = piece;
        let id = id.filter(|id| !id.is_empty());
        let is_known = match (self.calls.id_at(index), &id) {
            (Some(known), Some(id)) => known == id,
            (Some(_), None) => true,
            (None, _) => false,
        };
        if !is_known {
            let name = function.name.ok_or_else(malformed_response)?;
            let id = id.unwrap_or_else(|| format!("call_{index}"));
            self.calls.begin(index, id, name)?;
        }
        self.calls.go_on(index, &function.arguments.unwrap_or_default())
    }
}

fn stop_reason(word: &str) -> StopReason {
    match word {
        "length" => StopReason::Length,
        "content_filter" => StopReason::Refused,
        _ => StopReason::Completed,
    }
}

fn messages(message: &Message) -> Vec<Value> {
    match message {
        Message::User { text, details: None } => vec![json!({ "role": "user", "content": text })],
        Message::User { text, details: Some(details) } => {
            let part = |text: &str| json!({ "type": "text", "text": text });
            vec![json!({ "role": "user", "content": [part(text), part(details)] })]
        }
        Message::Assistant { text, tool_calls } if tool_calls.is_empty() => {
            vec![json!({ "role": "assistant", "content": text })]
        }
        Message::Assistant { text, tool_calls } => {
            let calls: Vec<_> = tool_calls
                .iter()
                .map(|ToolCall { id, name, arguments }| {
                    let function = json!({ "name": name, "arguments": arguments.to_string() });
                    json!({ "id": id, "type": "function", "function": function })
                })
                .collect();
            let content = (!text.is_empty()).then_some(text);
            vec![json!({ "role": "assistant", "content": content, "tool_calls": calls })]
        }
        Message::ToolResults(answers) => answers
            .iter()
            .map(|answer| {
                // This format has no field for an error.
                let failed = if answer.is_error { "Error: " } else { "" };
                let content = format!("{failed}{}", answer.text);
                json!({ "role": "tool", "tool_call_id": answer.call_id, "content": content })
            })
            .collect(),
    }
}

#[derive(Debug, Deserialize)]
struct Chunk {
    #[serde(default)]
    choices: Vec<Choice>,
    usage: Option<OpenAiUsage>,
    error: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct Choice {
    #[serde(default)]
    delta: Delta,
    finish_reason: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
struct Delta {
    content: Option<String>,
    refusal: Option<String>,
    tool_calls: Option<Vec<ToolCallDelta>>,
}

#[derive(Debug, Deserialize)]
struct ToolCallDelta {
    #[serde(default)]
    index: u64,
    id: Option<String>,
    #[serde(default)]
    function: Function,
}

#[derive(Debug, Default, Deserialize)]
struct Function {
    name: Option<String>,
    arguments: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
struct OpenAiUsage {
    #[serde(default)]
    prompt_tokens: u64,
    #[serde(default)]
    completion_tokens: u64,
}
