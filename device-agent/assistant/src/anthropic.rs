//! Anthropic's Messages API, streaming (version 2023-06-01).

use deskgate_secrets::Secret;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;
use serde_json::{Value, json};

use super::remote::{self, Dialect, ProviderErrorBody, malformed_response};
use super::{Message, ModelError, ModelEvent, ModelRequest, StopReason, TokenUsage, ToolCall, call_assembler, sse};

/// The API requires a limit, and refuses one above the model's; every model offered today supports this one.
const DEFAULT_MAX_TOKENS: u64 = 8192;

/// The state of one answer.
#[derive(Debug, Default)]
pub(super) struct Anthropic {
    usage: TokenUsage,
    calls: call_assembler::CallAssembler,
    stop: Option<StopReason>,
}

impl Dialect for Anthropic {
    const URL_PATH: &'static str = "/v1/messages";

    fn headers(key: Option<&Secret>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(HeaderName::from_static("anthropic-version"), HeaderValue::from_static("2023-06-01"));
        if let Some(key) = key.and_then(remote::header) {
            headers.insert(HeaderName::from_static("x-api-key"), key);
        }
        headers
    }

    fn body(model: &str, request: &ModelRequest) -> Value {
        let tools: Vec<_> = request
            .tools
            .iter()
            .map(|tool| json!({ "name": tool.name, "description": tool.description, "input_schema": tool.parameters }))
            .collect();
        let messages: Vec<_> = request.messages.iter().map(message).collect();
        let mut body = json!({
            "model": model,
            "max_tokens": request.max_output_tokens.map_or(DEFAULT_MAX_TOKENS, |most| most.min(DEFAULT_MAX_TOKENS)),
            "system": *request.system,
            "messages": messages,
            "stream": true,
        });
        if !tools.is_empty() {
            body["tools"] = tools.into();
        }
        body
    }

    fn on(&mut self, event: &sse::SseEvent) -> Result<Vec<ModelEvent>, ModelError> {
        match serde_json::from_str(&event.data).map_err(|_| malformed_response())? {
            StreamEvent::MessageStart { message } => {
                self.usage = message.usage.tokens();
                // For a stopped call no further event follows. The text is complete up to there.
                return Ok(vec![ModelEvent::Usage(TokenUsage { output_tokens: 0, ..self.usage })]);
            }
            StreamEvent::ContentBlockStart { index, content_block: ContentBlock::ToolUse { id, name } } => {
                self.calls.begin(index, id, name)?;
            }
            StreamEvent::ContentBlockStart { content_block: ContentBlock::Text { text }, .. } if !text.is_empty() => {
                return Ok(vec![ModelEvent::TextDelta(text)]);
            }
            StreamEvent::ContentBlockDelta { delta: Delta::Text { text }, .. } => {
                return Ok(vec![ModelEvent::TextDelta(text)]);
            }
            StreamEvent::ContentBlockDelta { index, delta: Delta::InputJson { partial_json } } => {
                self.calls.go_on(index, &partial_json)?;
            }
            StreamEvent::ContentBlockStop { index } => self.calls.end(index),
            StreamEvent::MessageDelta { delta, usage } => {
                self.usage.output_tokens = usage.output_tokens.unwrap_or(self.usage.output_tokens);
                self.stop = delta.stop_reason.as_deref().map(stop_reason).or(self.stop);
            }
            StreamEvent::MessageStop => {
                let reason = self.stop.ok_or_else(malformed_response)?;
                let calls = self.calls.take_ended().into_iter().map(ModelEvent::ToolCall);
                let ends = [ModelEvent::Usage(self.usage), ModelEvent::End(reason)];
                return Ok(calls.chain(ends).collect());
            }
            StreamEvent::Error(complaint) => return Err(complaint.meaning().unwrap_or_else(malformed_response)),
            StreamEvent::ContentBlockStart { .. } | StreamEvent::ContentBlockDelta { .. } | StreamEvent::Other => {}
        }
        Ok(Vec::new())
    }
}

fn stop_reason(word: &str) -> StopReason {
    match word {
        "max_tokens" | "model_context_window_exceeded" => StopReason::Length,
        "refusal" => StopReason::Refused,
        _ => StopReason::Completed,
    }
}

fn message(message: &Message) -> Value {
    match message {
        Message::User { text, details } => {
            let blocks = [Some(text), details.as_ref()].into_iter().flatten().filter_map(|text| text_block(text));
            json!({ "role": "user", "content": something(blocks.collect()) })
        }
        Message::Assistant { text, tool_calls } => {
            let calls = tool_calls.iter().map(|ToolCall { id, name, arguments }| {
                json!({ "type": "tool_use", "id": id, "name": name, "input": input(arguments) })
            });
            json!({ "role": "assistant", "content": something(text_block(text).into_iter().chain(calls).collect()) })
        }
        Message::ToolResults(answers) => {
            let blocks: Vec<_> = answers
                .iter()
                .map(|answer| {
                    json!({
                        "type": "tool_result", "tool_use_id": answer.call_id,
                        "content": answer.text, "is_error": answer.is_error,
                    })
                })
                .collect();
            json!({ "role": "user", "content": blocks })
        }
    }
}

/// The API refuses text that is only white space.
fn text_block(text: &str) -> Option<Value> {
    (!text.trim().is_empty()).then(|| json!({ "type": "text", "text": text }))
}

/// The API refuses a message without a block.
fn something(blocks: Vec<Value>) -> Vec<Value> {
    if blocks.is_empty() { vec![json!({ "type": "text", "text": "(nothing)" })] } else { blocks }
}

/// Arguments that are no JSON object are wrapped in one, so that the model sees them.
fn input(arguments: &Value) -> Value {
    if arguments.is_object() { arguments.clone() } else { json!({ "malformed": arguments }) }
}

/// The events of the stream. Unknown ones are ignored.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum StreamEvent {
    MessageStart {
        message: MessageHead,
    },
    ContentBlockStart {
        index: u64,
        content_block: ContentBlock,
    },
    ContentBlockDelta {
        index: u64,
        delta: Delta,
    },
    ContentBlockStop {
        index: u64,
    },
    MessageDelta {
        delta: MessageEnd,
        #[serde(default)]
        usage: AnthropicUsage,
    },
    MessageStop,
    Error(ProviderErrorBody),
    #[serde(other)]
    Other,
}

#[derive(Debug, Deserialize)]
struct MessageHead {
    #[serde(default)]
    usage: AnthropicUsage,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ContentBlock {
    Text {
        #[serde(default)]
        text: String,
    },
    ToolUse {
        id: String,
        name: String,
    },
    #[serde(other)]
    Other,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type")]
enum Delta {
    #[serde(rename = "text_delta")]
    Text { text: String },
    #[serde(rename = "input_json_delta")]
    InputJson { partial_json: String },
    #[serde(other)]
    Other,
}

#[derive(Debug, Deserialize)]
struct MessageEnd {
    stop_reason: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct AnthropicUsage {
    input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    output_tokens: Option<u64>,
}

impl AnthropicUsage {
    /// Tokens read from or written to a cache were read by the model too.
    fn tokens(&self) -> TokenUsage {
        let read = [self.input_tokens, self.cache_creation_input_tokens, self.cache_read_input_tokens];
        TokenUsage {
            input_tokens: read.into_iter().flatten().sum(),
            output_tokens: self.output_tokens.unwrap_or_default(),
        }
    }
}
