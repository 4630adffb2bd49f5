//! Anthropic's Messages API, streaming (version 2023-06-01).

use std::borrow::Cow;
use std::collections::BTreeMap;

use deskgate_definition::tool::{Attachment, MediaType, ToolSpec};
use deskgate_definition::{Effort, ReasoningSummaries};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    Dialect, EMPTY_TEXT, KeptBytes, ModelOptions, RequestBody, arguments, as_object, base64, closing, is_whole,
};
use crate::profile::Thinking;
use crate::refusal::{malformed_response, reported, stream_error};
use crate::sse::SseEvent;
use crate::{Message, ModelError, ModelEvent, ModelRequest, StopReason, TokenUsage, ToolCall};

/// The API requires a limit, and refuses one above the model's: the limit for a model that the profile does not know.
/// Every model offered today supports it.
pub(crate) const DEFAULT_MAX_TOKENS: u64 = 32_000;
/// The least tokens of a thinking budget.
const MIN_THINKING_TOKENS: u64 = 1024;
/// At most this many blocks of one answer are kept.
const MAX_BLOCKS: usize = 1024;

/// The state of one answer.
#[derive(Debug)]
pub(crate) struct Messages {
    usage: AnthropicUsage,
    /// The blocks by index; `None`: one that is not sent back.
    blocks: BTreeMap<u64, Block>,
    stop: Option<StopReason>,
    kept: KeptBytes,
}

/// A block of the answer, as far as it has arrived.
#[derive(Debug)]
struct Block {
    /// As it began.
    value: Map<String, Value>,
    /// The arguments of a call.
    input: String,
}

impl Dialect for Messages {
    fn new(_: &ModelOptions) -> Self {
        Self { usage: AnthropicUsage::default(), blocks: BTreeMap::new(), stop: None, kept: KeptBytes::default() }
    }

    fn body<'a>(options: &ModelOptions, request: &'a ModelRequest) -> RequestBody<'a> {
        let most = options.entry.and_then(|entry| entry.max_output_tokens).unwrap_or(DEFAULT_MAX_TOKENS);
        let max_tokens = request.max_output_tokens.map_or(most, |wanted| wanted.min(most));
        let mut messages: Vec<_> = request.messages.iter().map(message).collect();
        // The newest message, and the one that was the newest before: a cache looks back for a limited number of
        // blocks, which many calls in one turn would exceed.
        let of_user = messages.iter_mut().rev().filter(|message| message["role"] == "user");
        of_user.take(2).filter_map(|message| message.to_mut()["content"].as_array_mut()?.last_mut()).for_each(mark);
        let mut body = json!({ "model": options.model, "max_tokens": max_tokens, "stream": true });
        if !request.system.trim().is_empty() {
            let mut system = json!({ "type": "text", "text": *request.system });
            mark(&mut system);
            body["system"] = json!([system]);
        }
        if !request.tools.is_empty() {
            let mut tools: Vec<_> = request.tools.iter().map(tool).collect();
            tools.last_mut().into_iter().for_each(mark);
            body["tools"] = tools.into();
        }
        think(&mut body, options, request.effort, max_tokens);
        RequestBody { members: body, messages_name: "messages", messages }
    }

    fn received_bytes(&self) -> usize {
        self.kept.0
    }

    fn on(&mut self, event: &SseEvent) -> Result<Vec<ModelEvent>, ModelError> {
        let data = &event.data;
        match serde_json::from_str(data).map_err(|_| stream_error(data).unwrap_or_else(malformed_response))? {
            StreamEvent::MessageStart { message } => {
                self.usage = message.usage.unwrap_or_default();
                // For a stopped call no further event follows. The text is complete up to there.
                let read = TokenUsage { output_tokens: 0, ..self.usage.tokens() };
                return Ok(vec![ModelEvent::Usage(read)]);
            }
            StreamEvent::ContentBlockStart { index, content_block } => return self.begin(index, content_block),
            StreamEvent::ContentBlockDelta { index, delta } => return self.go_on(index, delta),
            StreamEvent::MessageDelta { delta, usage } => {
                self.usage.update(usage.unwrap_or_default());
                self.stop = delta.stop_reason.as_deref().map(stop_reason).or(self.stop);
            }
            StreamEvent::MessageStop => {
                let reason = self.stop.ok_or_else(malformed_response)?;
                let (native, calls, cut) = self.take_message(reason);
                let ends = [ModelEvent::Usage(self.usage.tokens()), ModelEvent::End(reason)];
                return Ok(closing(native, calls, cut).chain(ends).collect());
            }
            StreamEvent::Error(body) => return Err(reported(&json!({ "error": body.error }))),
            StreamEvent::Other => {}
        }
        Ok(Vec::new())
    }
}

impl Messages {
    fn begin(&mut self, index: u64, value: Map<String, Value>) -> Result<Vec<ModelEvent>, ModelError> {
        if self.blocks.len() == MAX_BLOCKS || !value.get("type").is_some_and(Value::is_string) {
            return Err(malformed_response());
        }
        self.kept.add(value.values().map(|value| value.to_string().len()).sum())?;
        let began = |member: &str| value.get(member).and_then(Value::as_str).filter(|text| !text.is_empty());
        let text = began("text").map(|text| ModelEvent::TextDelta(text.to_owned()));
        self.blocks.insert(index, Block { value, input: String::new() });
        Ok(text.into_iter().collect())
    }

    fn go_on(&mut self, index: u64, delta: Delta) -> Result<Vec<ModelEvent>, ModelError> {
        let block = self.blocks.get_mut(&index).ok_or_else(malformed_response)?;
        let (member, piece, event) = match delta {
            Delta::Text { text } => ("text", text.clone(), Some(ModelEvent::TextDelta(text))),
            Delta::Thinking { thinking } => ("thinking", thinking.clone(), Some(ModelEvent::ReasoningDelta(thinking))),
            Delta::Signature { signature } => ("signature", signature, None),
            Delta::InputJson { partial_json } => {
                self.kept.add(partial_json.len())?;
                block.input.push_str(&partial_json);
                return Ok(Vec::new());
            }
            Delta::Other => return Ok(Vec::new()),
        };
        self.kept.add(piece.len())?;
        match block.value.entry(member).or_insert_with(|| Value::String(String::new())) {
            Value::String(text) => text.push_str(&piece),
            _ => return Err(malformed_response()),
        }
        Ok(event.into_iter().collect())
    }

    /// The message in the API's own form, its calls, and the call that was cut.
    fn take_message(&mut self, reason: StopReason) -> (Value, Vec<ToolCall>, Option<String>) {
        let blocks = std::mem::take(&mut self.blocks);
        let last = blocks.keys().last().copied();
        let (mut native, mut calls, mut cut) = (Vec::new(), Vec::new(), None);
        for (index, Block { mut value, input }) in blocks {
            let kind = value.get("type").and_then(Value::as_str).unwrap_or_default();
            let member = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
            match kind {
                "text" if member("text").trim().is_empty() => continue,
                "tool_use" => {
                    let (id, name) = (member("id"), member("name"));
                    if reason == StopReason::Length && Some(index) == last && !is_whole(&input) {
                        cut = Some(name);
                        continue;
                    }
                    // A call without a stream of arguments has them from its beginning.
                    let arguments = match value.get("input").filter(|_| input.is_empty()) {
                        Some(input) => input.clone(),
                        None => arguments(&input),
                    };
                    value.insert("input".to_owned(), as_object(&arguments));
                    calls.push(ToolCall { id, name, arguments });
                }
                _ => {}
            }
            native.push(Value::Object(value));
        }
        // The API refuses a message that ends with thinking.
        while native.last().is_some_and(|block| block["type"].as_str().is_some_and(|kind| kind.ends_with("thinking"))) {
            native.pop();
        }
        (json!({ "role": "assistant", "content": something(native) }), calls, cut)
    }
}

/// Asks for thinking, as the model takes it. Without an effort it is left to the model; only what it shows is said.
fn think(body: &mut Value, options: &ModelOptions, effort: Option<Effort>, max_tokens: u64) {
    let form = options.entry.and_then(|entry| entry.thinking).unwrap_or(Thinking::Adaptive);
    let thinks = options.entry.is_some_and(|entry| entry.thinks_by_default);
    let display = match options.reasoning.summaries {
        ReasoningSummaries::Off => "omitted",
        ReasoningSummaries::Owner | ReasoningSummaries::Callers => "summarized",
    };
    match (form, effort) {
        (_, None) if !thinks => {}
        (Thinking::None, _) => {}
        (_, Some(Effort::None)) => {
            match options.entry.and_then(|entry| entry.thinking_off.as_deref()).unwrap_or("disabled") {
                // It cannot be kept from thinking: as little as it can.
                "" => {
                    body["thinking"] = json!({ "type": "adaptive", "display": display });
                    let least = options.effort(Some(Effort::Minimal)).unwrap_or(Effort::Low);
                    body["output_config"] = json!({ "effort": least.as_str() });
                }
                off => body["thinking"] = json!({ "type": off }),
            }
        }
        (Thinking::Adaptive, effort) => {
            body["thinking"] = json!({ "type": "adaptive", "display": display });
            if let Some(effort) = options.effort(effort) {
                body["output_config"] = json!({ "effort": effort.as_str() });
            }
        }
        (Thinking::Budget, effort) => {
            let wanted = match effort {
                None | Some(Effort::None | Effort::Minimal) => MIN_THINKING_TOKENS,
                Some(Effort::Low) => 4_096,
                Some(Effort::Medium) => 8_192,
                Some(Effort::High) => 16_384,
                Some(Effort::Xhigh | Effort::Max) => 32_000,
            };
            // The budget is part of the limit, and the answer needs its own.
            let budget = wanted.min(max_tokens / 2);
            if budget >= MIN_THINKING_TOKENS {
                body["thinking"] = json!({ "type": "enabled", "budget_tokens": budget, "display": display });
            }
        }
    }
}

/// Marks the end of a part that the cache keeps.
fn mark(block: &mut Value) {
    block["cache_control"] = json!({ "type": "ephemeral" });
}

fn tool(tool: &ToolSpec) -> Value {
    let mut schema = tool.parameters.clone();
    if let Value::Object(members) = &mut schema {
        // At the root they are refused, which no documentation says. Whoever is called checks the arguments anyway.
        members.retain(|name, _| !matches!(name.as_str(), "oneOf" | "anyOf" | "allOf"));
    }
    json!({ "name": tool.name, "description": tool.description, "input_schema": schema })
}

fn stop_reason(word: &str) -> StopReason {
    match word {
        "max_tokens" | "model_context_window_exceeded" => StopReason::Length,
        "refusal" => StopReason::Refused,
        _ => StopReason::Completed,
    }
}

fn message(message: &Message) -> Cow<'_, Value> {
    Cow::Owned(match message {
        Message::Assistant { native: Some(native), .. } => return Cow::Borrowed(&*native.0),
        Message::User { text, details } => {
            let blocks = [Some(text), details.as_ref()].into_iter().flatten().filter_map(|text| text_block(text));
            json!({ "role": "user", "content": something(blocks.collect()) })
        }
        Message::Assistant { text, tool_calls, native: None } => {
            let calls = tool_calls.iter().map(|ToolCall { id, name, arguments }| {
                json!({ "type": "tool_use", "id": id, "name": name, "input": as_object(arguments) })
            });
            json!({ "role": "assistant", "content": something(text_block(text).into_iter().chain(calls).collect()) })
        }
        Message::ToolResults(answers) => {
            let blocks: Vec<_> = answers
                .iter()
                .map(|answer| {
                    let content = match &answer.attachments[..] {
                        [] => answer.text.as_str().into(),
                        shown => {
                            Value::Array(text_block(&answer.text).into_iter().chain(shown.iter().map(source)).collect())
                        }
                    };
                    json!({
                        "type": "tool_result", "tool_use_id": answer.call_id,
                        "content": content, "is_error": answer.is_error,
                    })
                })
                .collect();
            json!({ "role": "user", "content": blocks })
        }
    })
}

/// An image or a document.
fn source(attachment: &Attachment) -> Value {
    let kind = match attachment.media_type {
        MediaType::Png | MediaType::Jpeg => "image",
        MediaType::Pdf => "document",
    };
    let media_type = attachment.media_type.as_str();
    json!({ "type": kind, "source": { "type": "base64", "media_type": media_type, "data": base64(attachment) } })
}

/// The API refuses text that is only white space.
fn text_block(text: &str) -> Option<Value> {
    (!text.trim().is_empty()).then(|| json!({ "type": "text", "text": text }))
}

/// The API refuses a message without a block.
fn something(blocks: Vec<Value>) -> Vec<Value> {
    if blocks.is_empty() { vec![json!({ "type": "text", "text": EMPTY_TEXT })] } else { blocks }
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
        content_block: Map<String, Value>,
    },
    ContentBlockDelta {
        index: u64,
        delta: Delta,
    },
    MessageDelta {
        delta: MessageEnd,
        usage: Option<AnthropicUsage>,
    },
    MessageStop,
    Error(StreamError),
    #[serde(other)]
    Other,
}

#[derive(Debug, Deserialize)]
struct StreamError {
    #[serde(default)]
    error: Value,
}

#[derive(Debug, Deserialize)]
struct MessageHead {
    usage: Option<AnthropicUsage>,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type")]
enum Delta {
    #[serde(rename = "text_delta")]
    Text { text: String },
    #[serde(rename = "thinking_delta")]
    Thinking { thinking: String },
    #[serde(rename = "signature_delta")]
    Signature { signature: String },
    #[serde(rename = "input_json_delta")]
    InputJson { partial_json: String },
    #[serde(other)]
    Other,
}

#[derive(Debug, Deserialize)]
struct MessageEnd {
    stop_reason: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
struct AnthropicUsage {
    input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    output_tokens_details: Option<OutputTokensDetails>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
struct OutputTokensDetails {
    thinking_tokens: Option<u64>,
}

impl AnthropicUsage {
    /// Takes the newer counts: they are totals.
    fn update(&mut self, newer: Self) {
        self.input_tokens = newer.input_tokens.or(self.input_tokens);
        self.cache_creation_input_tokens = newer.cache_creation_input_tokens.or(self.cache_creation_input_tokens);
        self.cache_read_input_tokens = newer.cache_read_input_tokens.or(self.cache_read_input_tokens);
        self.output_tokens = newer.output_tokens.or(self.output_tokens);
        self.output_tokens_details = newer.output_tokens_details.or(self.output_tokens_details);
    }

    /// Tokens read from or written to a cache were read by the model too.
    fn tokens(&self) -> TokenUsage {
        let read = [self.input_tokens, self.cache_creation_input_tokens, self.cache_read_input_tokens];
        TokenUsage {
            input_tokens: read.into_iter().flatten().sum(),
            cached_input_tokens: self.cache_read_input_tokens.unwrap_or_default(),
            cache_write_tokens: self.cache_creation_input_tokens.unwrap_or_default(),
            output_tokens: self.output_tokens.unwrap_or_default(),
            reasoning_tokens: self
                .output_tokens_details
                .and_then(|details| details.thinking_tokens)
                .unwrap_or_default(),
            cost: None,
        }
    }
}
