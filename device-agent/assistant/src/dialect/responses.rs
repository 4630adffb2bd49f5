//! OpenAI's Responses API, streaming, with nothing stored at the provider.

use std::borrow::Cow;

use deskgate_definition::tool::{Attachment, MediaType, RESULT_TOOL, ToolSpec};
use deskgate_definition::{Effort, MicroUsd, ReasoningSummaries};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    DOCUMENT_NAME, Dialect, EMPTY_TEXT, KeptBytes, ModelOptions, RequestBody, answer_text, arguments, as_object,
    closing, data_url, is_whole, owned, shown_after,
};
use crate::profile::AttachmentPlace;
use crate::refusal::{malformed_response, reported, stream_error};
use crate::sse::SseEvent;
use crate::{Message, ModelError, ModelEvent, ModelRequest, StopReason, TokenUsage, ToolCall};

/// At most this many items of one answer are kept.
const MAX_ITEMS: usize = 1024;

/// The state of one answer.
#[derive(Debug)]
pub(crate) struct Responses {
    /// The complete items, in the API's own form.
    items: Vec<Map<String, Value>>,
    /// The tool whose call has begun and is not complete.
    open_call: Option<String>,
    /// How many bytes of its arguments came.
    open_call_bytes: usize,
    shows_reasoning: bool,
    kept: KeptBytes,
}

impl Dialect for Responses {
    fn new(_: &ModelOptions) -> Self {
        Self {
            items: Vec::new(),
            open_call: None,
            open_call_bytes: 0,
            shows_reasoning: false,
            kept: KeptBytes::default(),
        }
    }

    fn body<'a>(options: &ModelOptions, request: &'a ModelRequest) -> RequestBody<'a> {
        let place = options.attachments_in(AttachmentPlace::Result);
        let mut body = json!({
            "model": options.model,
            "store": false,
            "stream": true,
        });
        if !request.system.trim().is_empty() {
            body["instructions"] = (*request.system).into();
        }
        if !request.tools.is_empty() {
            body["tools"] = request.tools.iter().map(tool).collect();
        }
        let limit = options.max_output_tokens.unwrap_or(u64::MAX);
        if let Some(most) = request.max_output_tokens {
            body["max_output_tokens"] = most.min(limit).max(MIN_OUTPUT_TOKENS).into();
        }
        body["prompt_cache_key"] = options.cache_key.as_str().into();
        if options.reasons {
            // Nothing is stored there, so the reasoning comes here, encrypted, and goes back with the next call.
            body["include"] = json!(["reasoning.encrypted_content"]);
            let effort = options.effort(request.effort).map(Effort::as_str);
            let summary = (options.reasoning.summaries != ReasoningSummaries::Off).then_some("auto");
            let members = [("effort", effort), ("summary", summary)];
            let reasoning: Map<_, _> =
                members.into_iter().filter_map(|(name, word)| Some((name.to_owned(), word?.into()))).collect();
            if !reasoning.is_empty() {
                body["reasoning"] = reasoning.into();
            }
        }
        let messages = request.messages.iter().flat_map(|message| items(message, place)).collect();
        RequestBody { members: body, messages_name: "input", messages }
    }

    fn received_bytes(&self) -> usize {
        self.kept.0 + self.open_call_bytes
    }

    fn on(&mut self, event: &SseEvent) -> Result<Vec<ModelEvent>, ModelError> {
        // Some servers end the stream as Chat Completions do.
        if event.data == "[DONE]" {
            return Ok(Vec::new());
        }
        let shown = |text: String| Ok(vec![ModelEvent::ReasoningDelta(text)]);
        let data = &event.data;
        match serde_json::from_str(data).map_err(|_| stream_error(data).unwrap_or_else(malformed_response))? {
            StreamEvent::OutputText { delta } | StreamEvent::Refusal { delta } => {
                self.kept.add(delta.len())?;
                Ok(vec![ModelEvent::TextDelta(delta)])
            }
            StreamEvent::ReasoningSummary { delta } | StreamEvent::ReasoningText { delta } => {
                self.shows_reasoning = true;
                shown(delta)
            }
            StreamEvent::ReasoningPart if self.shows_reasoning => shown("\n\n".to_owned()),
            StreamEvent::ItemAdded { item } => {
                self.open_call = (item.get("type") == Some(&"function_call".into()))
                    .then(|| item.get("name").and_then(Value::as_str).unwrap_or_default().to_owned());
                Ok(Vec::new())
            }
            StreamEvent::Arguments { delta } => {
                self.open_call_bytes += delta.len();
                Ok(Vec::new())
            }
            StreamEvent::ItemDone { item } => {
                self.open_call_bytes = 0;
                self.item_done(item)
            }
            StreamEvent::Completed { response } => Ok(self.ended(StopReason::Completed, &response)),
            StreamEvent::Incomplete { response } => {
                let why = response.incomplete_details.as_ref().and_then(|details| details.reason.as_deref());
                let reason = if why == Some("content_filter") { StopReason::Refused } else { StopReason::Length };
                Ok(self.ended(reason, &response))
            }
            StreamEvent::Failed { response } => Err(reported(&json!({ "error": response.error }))),
            StreamEvent::Error(error) => Err(reported(&Value::Object(error))),
            StreamEvent::ReasoningPart | StreamEvent::Other => Ok(Vec::new()),
        }
    }
}

/// The API refuses a smaller limit.
const MIN_OUTPUT_TOKENS: u64 = 16;

impl Responses {
    fn item_done(&mut self, item: Map<String, Value>) -> Result<Vec<ModelEvent>, ModelError> {
        self.kept.add(item.values().map(|value| value.to_string().len()).sum())?;
        if self.items.len() == MAX_ITEMS {
            return Err(malformed_response());
        }
        if item.get("type") == Some(&"function_call".into()) {
            if ["call_id", "name"].iter().any(|name| !item.get(*name).is_some_and(Value::is_string)) {
                return Err(malformed_response());
            }
            let is_cut = item.get("status") == Some(&"incomplete".into());
            if is_cut {
                // It stays the open call.
                return Ok(Vec::new());
            }
            self.open_call = None;
        }
        self.items.push(item);
        Ok(Vec::new())
    }

    fn ended(&mut self, reason: StopReason, response: &ResponseEnd) -> Vec<ModelEvent> {
        let (mut native, mut calls) = (Vec::new(), Vec::new());
        let mut cut = self.open_call.take().filter(|_| reason == StopReason::Length);
        let items = std::mem::take(&mut self.items);
        let count = items.len();
        for (at, mut item) in items.into_iter().enumerate() {
            let member = |name: &str| item.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
            if item.get("type") == Some(&"function_call".into()) {
                let (id, name, text) = (member("call_id"), member("name"), member("arguments"));
                if reason == StopReason::Length && at + 1 == count && !is_whole(&text) {
                    cut = Some(name);
                    continue;
                }
                let arguments = arguments(&text);
                item.insert("arguments".to_owned(), as_object(&arguments).to_string().into());
                calls.push(ToolCall { id, name, arguments });
            }
            native.extend(sendable(item));
        }
        // Reasoning goes back only with what it led to.
        while native.last().is_some_and(|item| item["type"] == "reasoning") {
            native.pop();
        }
        let usage = response.usage.map(|usage| ModelEvent::Usage(usage.tokens()));
        closing(native.into(), calls, cut).chain(usage).chain([ModelEvent::End(reason)]).collect()
    }
}

/// An item as it goes back. Nothing is stored there, so identifiers name nothing: calls and messages go without theirs.
/// Reasoning is bound to its own, and means nothing without its encrypted content.
fn sendable(mut item: Map<String, Value>) -> Option<Value> {
    match item.get("type").and_then(Value::as_str)? {
        "reasoning" => {
            item.get("encrypted_content").filter(|content| content.is_string())?;
            item.retain(|name, _| ["type", "id", "summary", "encrypted_content"].contains(&name.as_str()));
            item.entry("summary").or_insert_with(|| json!([]));
        }
        _ => {
            item.remove("id");
            item.retain(|_, value| !value.is_null());
        }
    }
    Some(Value::Object(item))
}

pub(super) fn tool(tool: &ToolSpec) -> Value {
    // Strict schemas forbid optional arguments, which our tools have. Of a result the vendor then holds the model to its form.
    let has_choices = tool.parameters.get("anyOf").is_some();
    let strict = tool.name == RESULT_TOOL && !has_choices && is_strict(&tool.parameters, 0);
    json!({
        "type": "function", "name": tool.name, "description": tool.description, "parameters": tool.parameters,
        "strict": strict,
    })
}

/// How deep a strict schema may be nested: what the vendor takes is more, and has changed.
const MAX_STRICT_DEPTH: u32 = 5;

/// Whether a schema is of the narrow kind that the vendor takes as strict: each part has a type, and each object is closed and
/// has no optional member. A wider one would be refused with the whole request.
fn is_strict(schema: &Value, depth: u32) -> bool {
    let Value::Object(members) = schema else { return false };
    if members.contains_key("$ref") {
        return members.len() == 1;
    }
    let has_form = members.contains_key("type") || members.contains_key("anyOf");
    if depth > MAX_STRICT_DEPTH || !has_form {
        return false;
    }
    let each = |parts: &Value| match parts {
        Value::Object(parts) => parts.values().all(|part| is_strict(part, depth + 1)),
        Value::Array(parts) => parts.iter().all(|part| is_strict(part, depth + 1)),
        _ => false,
    };
    let is_known = members.iter().all(|(name, value)| match name.as_str() {
        "title" | "description" | "type" | "enum" | "const" | "required" => true,
        "additionalProperties" => value == false,
        "properties" | "$defs" | "anyOf" => each(value),
        "items" => is_strict(value, depth + 1),
        _ => false,
    });
    let is_object = schema["type"].to_string().contains("\"object\"");
    is_known && (!is_object || is_closed(members))
}

/// Whether an object has exactly the members that it names, all of them.
fn is_closed(schema: &Map<String, Value>) -> bool {
    let names = schema.get("properties").and_then(Value::as_object).into_iter().flat_map(Map::keys);
    let required = schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let sorted = |mut names: Vec<_>| {
        names.sort_unstable();
        names
    };
    let is_same = sorted(names.map(String::as_str).collect()) == sorted(required.collect());
    is_same && schema.contains_key("additionalProperties")
}

fn items(message: &Message, place: AttachmentPlace) -> Vec<Cow<'_, Value>> {
    match message {
        Message::Assistant { native: Some(native), .. } => {
            native.0.as_array().into_iter().flatten().map(Cow::Borrowed).collect()
        }
        Message::User { text, details } => {
            let texts = [Some(text), details.as_ref()].into_iter().flatten().filter(|text| !text.is_empty());
            let mut parts: Vec<_> = texts.map(|text| json!({ "type": "input_text", "text": text })).collect();
            if parts.is_empty() {
                parts.push(json!({ "type": "input_text", "text": EMPTY_TEXT }));
            }
            owned([json!({ "role": "user", "content": parts })])
        }
        Message::Assistant { text, tool_calls, native: None } => {
            let said = (!text.is_empty()).then(|| json!({ "role": "assistant", "content": text }));
            let calls = tool_calls.iter().map(|ToolCall { id, name, arguments }| {
                let arguments = as_object(arguments).to_string();
                json!({ "type": "function_call", "call_id": id, "name": name, "arguments": arguments })
            });
            owned(said.into_iter().chain(calls))
        }
        Message::ToolResults(answers) => {
            let outputs = answers.iter().map(|answer| {
                let output: Value = match (&answer.attachments[..], place) {
                    ([], _) | (_, AttachmentPlace::User) => answer_text(answer).into(),
                    (shown, AttachmentPlace::Result) => {
                        std::iter::once(input_text(answer_text(answer))).chain(shown.iter().map(input_part)).collect()
                    }
                };
                json!({ "type": "function_call_output", "call_id": answer.call_id, "output": output })
            });
            let after = match place {
                AttachmentPlace::User => shown_after(answers, input_text, input_part),
                AttachmentPlace::Result => None,
            };
            owned(outputs.chain(after.map(|content| json!({ "role": "user", "content": content }))))
        }
    }
}

fn input_text(text: String) -> Value {
    json!({ "type": "input_text", "text": text })
}

fn input_part(attachment: &Attachment) -> Value {
    match attachment.media_type {
        MediaType::Png | MediaType::Jpeg => json!({ "type": "input_image", "image_url": data_url(attachment) }),
        MediaType::Pdf => {
            json!({ "type": "input_file", "filename": DOCUMENT_NAME, "file_data": data_url(attachment) })
        }
    }
}

/// The events of the stream. Unknown ones are ignored.
#[derive(Debug, Deserialize)]
#[serde(tag = "type")]
enum StreamEvent {
    #[serde(rename = "response.output_text.delta")]
    OutputText { delta: String },
    #[serde(rename = "response.refusal.delta")]
    Refusal { delta: String },
    #[serde(rename = "response.reasoning_summary_part.added")]
    ReasoningPart,
    #[serde(rename = "response.reasoning_summary_text.delta")]
    ReasoningSummary { delta: String },
    #[serde(rename = "response.reasoning_text.delta")]
    ReasoningText { delta: String },
    #[serde(rename = "response.output_item.added")]
    ItemAdded { item: Map<String, Value> },
    #[serde(rename = "response.function_call_arguments.delta")]
    Arguments { delta: String },
    #[serde(rename = "response.output_item.done")]
    ItemDone { item: Map<String, Value> },
    #[serde(rename = "response.completed")]
    Completed { response: ResponseEnd },
    #[serde(rename = "response.incomplete")]
    Incomplete { response: ResponseEnd },
    #[serde(rename = "response.failed")]
    Failed { response: ResponseEnd },
    #[serde(rename = "error")]
    Error(Map<String, Value>),
    #[serde(other)]
    Other,
}

#[derive(Debug, Deserialize)]
struct ResponseEnd {
    usage: Option<ResponsesUsage>,
    incomplete_details: Option<IncompleteDetails>,
    #[serde(default)]
    error: Value,
}

#[derive(Debug, Deserialize)]
struct IncompleteDetails {
    reason: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
struct ResponsesUsage {
    input_tokens: Option<u64>,
    input_tokens_details: Option<InputDetails>,
    output_tokens: Option<u64>,
    output_tokens_details: Option<OutputDetails>,
    /// xAI's price of the call.
    cost_in_usd_ticks: Option<u64>,
}

/// xAI counts in ten-billionths of a US dollar.
const TICKS_PER_MICRO_USD: u64 = 10_000;

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
struct InputDetails {
    cached_tokens: Option<u64>,
    cache_write_tokens: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
struct OutputDetails {
    reasoning_tokens: Option<u64>,
}

impl ResponsesUsage {
    fn tokens(self) -> TokenUsage {
        let read = self.input_tokens_details.unwrap_or_default();
        let written = self.output_tokens_details.unwrap_or_default();
        TokenUsage {
            input_tokens: self.input_tokens.unwrap_or_default(),
            cached_input_tokens: read.cached_tokens.unwrap_or_default(),
            cache_write_tokens: read.cache_write_tokens.unwrap_or_default(),
            output_tokens: self.output_tokens.unwrap_or_default(),
            reasoning_tokens: written.reasoning_tokens.unwrap_or_default(),
            cost: self.cost_in_usd_ticks.map(|ticks| MicroUsd(ticks.div_ceil(TICKS_PER_MICRO_USD))),
        }
    }
}
