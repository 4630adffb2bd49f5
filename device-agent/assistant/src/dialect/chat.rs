//! OpenAI's Chat Completions API, streaming, which many servers implement, each a little differently.

use std::borrow::Cow;

use deskgate_definition::tool::{Attachment, MediaType, ToolSpec};
use deskgate_definition::{Effort, MicroUsd};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    DOCUMENT_NAME, Dialect, KeptBytes, ModelOptions, RequestBody, answer_text, arguments, closing, data_url, is_whole,
    owned, shown_after,
};
use crate::profile::{AttachmentPlace, ChatOptions};
use crate::refusal::{malformed_response, overloaded, stream_error};
use crate::sse::SseEvent;
use crate::{Message, ModelError, ModelEvent, ModelRequest, StopReason, TokenUsage, ToolCall};

/// At most this many calls of one answer are kept; the turn refuses earlier.
const MAX_CALLS: usize = 256;
/// At most this many pieces of a list that is passed back are kept.
const MAX_PASSED_BACK: usize = 4096;
/// The members in which servers show reasoning.
const REASONING_MEMBERS: [&str; 2] = ["reasoning_content", "reasoning"];
/// The members of a list's entry that grow piece by piece.
const GROWING_MEMBERS: [&str; 3] = ["text", "summary", "thinking"];
/// The members of a call that go back with it: signatures of reasoning.
const CALL_MEMBERS: [&str; 2] = ["extra_content", "provider_specific_fields"];

/// The state of one answer.
#[derive(Debug)]
pub(crate) struct Chat {
    options: &'static ChatOptions,
    usage: Option<TokenUsage>,
    text: String,
    /// What is passed back with the message, by its member.
    passed_back: Map<String, Value>,
    calls: Vec<PartialCall>,
    stop: Option<StopReason>,
    kept: KeptBytes,
}

/// A call, as far as it has arrived.
#[derive(Debug)]
struct PartialCall {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
    /// Further members of the call, which are passed back with it.
    extra: Map<String, Value>,
}

impl Dialect for Chat {
    fn new(options: &ModelOptions) -> Self {
        Self {
            options: &options.profile.chat,
            usage: None,
            text: String::new(),
            passed_back: Map::new(),
            calls: Vec::new(),
            stop: None,
            kept: KeptBytes::default(),
        }
    }

    fn body<'a>(options: &ModelOptions, request: &'a ModelRequest) -> RequestBody<'a> {
        let chat = &options.profile.chat;
        let system = (!request.system.trim().is_empty())
            .then(|| Cow::Owned(json!({ "role": "system", "content": *request.system })));
        let place = options.attachments_in(AttachmentPlace::User);
        let said = request.messages.iter().flat_map(|message| messages(message, place));
        let mut messages: Vec<_> = system.into_iter().chain(said).collect();
        if chat.cache_marks.iter().any(|beginning| options.model.starts_with(beginning)) {
            mark_for_cache(&mut messages);
        }
        let mut body = json!({ "model": options.model, "stream": true });
        if chat.stream_options {
            body["stream_options"] = json!({ "include_usage": true });
        }
        if !request.tools.is_empty() {
            body["tools"] = request.tools.iter().map(|spec| tool(chat, spec)).collect();
        }
        if let Some(most) = request.max_output_tokens {
            body[&chat.output_limit] = most.min(options.max_output_tokens.unwrap_or(u64::MAX)).into();
        }
        let asks_for_none = request.effort == Some(Effort::None) && options.reasons && !chat.effort_none.is_empty();
        match (options.effort(request.effort), &chat.effort) {
            (Some(effort), Some(place)) if !asks_for_none => match place.split_once('.') {
                Some((outer, inner)) => body[outer] = json!({ inner: effort.as_str() }),
                None => body[place] = effort.as_str().into(),
            },
            _ => {}
        }
        if let Some(member) = &chat.cache_key {
            body[member] = options.cache_key.as_str().into();
        }
        let none = chat.effort_none.iter().filter(|_| asks_for_none);
        for (member, value) in chat.extra.iter().chain(none) {
            body[member] = serde_json::to_value(value).unwrap_or_default();
        }
        RequestBody { members: body, messages_name: "messages", messages }
    }

    fn received_bytes(&self) -> usize {
        self.kept.0
    }

    fn on(&mut self, event: &SseEvent) -> Result<Vec<ModelEvent>, ModelError> {
        if event.data == "[DONE]" {
            return if self.stop.is_some() { Ok(self.closed()) } else { Err(malformed_response()) };
        }
        let chunk = serde_json::from_str::<Chunk>(&event.data).ok();
        let chunk = chunk.filter(|chunk| chunk.error.is_none() && chunk.object.as_deref() != Some("error"));
        let chunk = chunk.ok_or_else(|| stream_error(&event.data).unwrap_or_else(malformed_response))?;
        if let Some(usage) = chunk.usage {
            self.usage = Some(usage.tokens());
        }
        // One choice was requested.
        let choice = chunk.choices.unwrap_or_default().into_iter().next();
        let Some(Choice { delta, finish_reason }) = choice else { return Ok(Vec::new()) };
        let delta = delta.unwrap_or_default();
        let mut events = self.reasoning(&delta)?;
        for call in delta.tool_calls.unwrap_or_default() {
            self.call(call)?;
        }
        if let Some(word) = finish_reason.filter(|word| !word.is_empty()) {
            // Some servers send an empty one with every piece.
            self.stop = Some(stop_reason(&word)?);
        }
        let content = delta.content.as_ref().map(texts).unwrap_or_default();
        for text in content.into_iter().chain(delta.refusal).filter(|text| !text.is_empty()) {
            self.kept.add(text.len())?;
            self.text.push_str(&text);
            events.push(ModelEvent::TextDelta(text));
        }
        Ok(events)
    }

    /// Some servers close the stream after the reason, without a final event.
    fn closed(&mut self) -> Vec<ModelEvent> {
        let Some(reason) = self.stop.take() else { return Vec::new() };
        let (native, calls, cut) = self.take_message(reason);
        let usage = self.usage.map(ModelEvent::Usage);
        closing(native, calls, cut).chain(usage).chain([ModelEvent::End(reason)]).collect()
    }
}

impl Chat {
    /// Keeps what goes back with the message, and returns the reasoning that it shows.
    fn reasoning(&mut self, delta: &Delta) -> Result<Vec<ModelEvent>, ModelError> {
        for member in &self.options.pass_back {
            let piece = if member == "content" { delta.content.as_ref() } else { delta.more.get(member) };
            match piece {
                None | Some(Value::Null) => {}
                Some(Value::Array(pieces)) => {
                    self.kept.add(pieces.iter().map(|piece| piece.to_string().len()).sum())?;
                    let kept = self.passed_back.entry(member.clone()).or_insert_with(|| json!([]));
                    let Value::Array(kept) = kept else { return Err(malformed_response()) };
                    for piece in pieces {
                        append(kept, piece);
                    }
                    if kept.len() > MAX_PASSED_BACK {
                        return Err(malformed_response());
                    }
                }
                Some(Value::String(text)) if member != "content" => {
                    self.kept.add(text.len())?;
                    match self.passed_back.entry(member.clone()).or_insert_with(|| "".into()) {
                        Value::String(kept) => kept.push_str(text),
                        _ => return Err(malformed_response()),
                    }
                }
                Some(Value::String(text)) => {
                    // Content in pieces may go on as plain text.
                    if let Some(Value::Array(kept)) = self.passed_back.get_mut(member) {
                        append(kept, &json!({ "type": "text", "text": text }));
                    }
                }
                Some(other) => {
                    self.kept.add(other.to_string().len())?;
                    self.passed_back.insert(member.clone(), other.clone());
                }
            }
        }
        let shown = REASONING_MEMBERS.iter().find_map(|member| delta.more.get(*member)?.as_str());
        let thought = delta.content.as_ref().map(thoughts).unwrap_or_default();
        let shown = shown.map(str::to_owned).into_iter().chain(thought).filter(|text| !text.is_empty());
        Ok(shown.map(ModelEvent::ReasoningDelta).collect())
    }

    /// A piece of a call. The first has its name. Some servers number every call 0, or none, but give each its own
    /// identifier; a piece without either belongs to the newest call.
    fn call(&mut self, piece: ToolCallDelta) -> Result<(), ModelError> {
        let ToolCallDelta { index, id, function, mut extra } = piece;
        let function = function.unwrap_or_default();
        extra.retain(|member, value| CALL_MEMBERS.contains(&member.as_str()) && !value.is_null());
        let id = id.filter(|id| !id.is_empty());
        let name = function.name.filter(|name| !name.is_empty());
        let known = self.calls.iter().rposition(|call| match (index, &id) {
            (Some(index), None) => call.index == Some(index),
            (Some(index), Some(id)) => call.index == Some(index) && call.id == *id,
            (None, Some(id)) => call.id == *id,
            (None, None) => name.is_none(),
        });
        let at = match known {
            Some(at) => at,
            None => {
                let name = name.ok_or_else(malformed_response)?;
                if self.calls.len() == MAX_CALLS {
                    return Err(malformed_response());
                }
                // Nine letters and digits: one vendor accepts nothing else.
                let id = id.unwrap_or_else(|| format!("call{:05}", self.calls.len()));
                self.kept.add(id.len() + name.len())?;
                self.calls.push(PartialCall { index, id, name, arguments: String::new(), extra: Map::new() });
                self.calls.len() - 1
            }
        };
        let piece = match function.arguments {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text,
            // Whole arguments, which are no text.
            Some(other) => other.to_string(),
        };
        self.kept.add(piece.len() + extra.values().map(|value| value.to_string().len()).sum::<usize>())?;
        self.calls[at].arguments.push_str(&piece);
        self.calls[at].extra.extend(extra);
        Ok(())
    }

    /// The message in the API's own form, its calls, and the call that was cut.
    fn take_message(&mut self, reason: StopReason) -> (Value, Vec<ToolCall>, Option<String>) {
        let mut partial = std::mem::take(&mut self.calls);
        let was_cut = |call: &PartialCall| reason == StopReason::Length && !is_whole(&call.arguments);
        let cut = if partial.last().is_some_and(was_cut) { partial.pop().map(|call| call.name) } else { None };
        let text = std::mem::take(&mut self.text);
        let mut native = json!({ "role": "assistant", "content": (!text.is_empty()).then_some(text) });
        let mut calls = Vec::new();
        let mut written = Vec::new();
        for PartialCall { id, name, arguments: text, extra, .. } in partial {
            let arguments = arguments(&text);
            let function = json!({ "name": name, "arguments": arguments_text(&arguments) });
            let mut call = json!({ "id": id, "type": "function", "function": function });
            for (member, value) in extra {
                call[member] = value;
            }
            written.push(call);
            calls.push(ToolCall { id, name, arguments });
        }
        if !written.is_empty() {
            native["tool_calls"] = written.into();
        }
        for (member, mut value) in std::mem::take(&mut self.passed_back) {
            if let Value::Array(entries) = &mut value {
                entries.retain(is_sendable);
            }
            native[member] = value;
        }
        for member in &self.options.pass_back_always {
            if native.get(member).is_none() {
                native[member] = "".into();
            }
        }
        (native, calls, cut)
    }
}

/// Adds a piece to a list: it belongs to the last entry if that is of the same kind and number. Encrypted entries are
/// whole.
fn append(kept: &mut Vec<Value>, piece: &Value) {
    let same = |last: &&mut Value| {
        last.is_object()
            && piece.get("data").is_none()
            && ["type", "index"].iter().all(|name| last.get(*name) == piece.get(*name))
    };
    let (Some(last), Some(members)) = (kept.last_mut().filter(same), piece.as_object()) else {
        kept.push(piece.clone());
        return;
    };
    for (name, value) in members {
        match (last.get_mut(name), value) {
            (_, Value::Null) => {}
            (Some(Value::String(text)), Value::String(more)) if GROWING_MEMBERS.contains(&name.as_str()) => {
                text.push_str(more);
            }
            (Some(Value::Array(entries)), Value::Array(more)) => more.iter().for_each(|piece| append(entries, piece)),
            _ => last[name.as_str()] = value.clone(),
        }
    }
}

/// Whether an entry of reasoning may go back: text that its vendor signs is refused without the signature.
fn is_sendable(entry: &Value) -> bool {
    let is_signed = ["anthropic-claude-v1", "google-gemini-v1"].iter().any(|format| entry["format"] == *format);
    !(is_signed && entry["type"] == "reasoning.text" && !entry["signature"].is_string())
}

/// The texts of a content, which may be a list of parts.
fn texts(content: &Value) -> Vec<String> {
    match content {
        Value::String(text) => vec![text.clone()],
        Value::Array(parts) => {
            let texts = parts.iter().filter(|part| part["type"] == "text");
            texts.filter_map(|part| part["text"].as_str().map(str::to_owned)).collect()
        }
        _ => Vec::new(),
    }
}

/// The reasoning in a content that is a list of parts.
fn thoughts(content: &Value) -> Vec<String> {
    let parts = content.as_array().map(Vec::as_slice).unwrap_or_default();
    parts.iter().filter(|part| part["type"] == "thinking").flat_map(|part| texts(&part["thinking"])).collect()
}

fn stop_reason(word: &str) -> Result<StopReason, ModelError> {
    Ok(match word {
        "length" | "max_tokens" | "model_length" => StopReason::Length,
        "content_filter" | "refusal" => StopReason::Refused,
        // Failures of the server, which said it in no other way.
        "error" => return Err(malformed_response()),
        "insufficient_system_resource" => return Err(overloaded()),
        _ => StopReason::Completed,
    })
}

pub(super) fn tool(options: &ChatOptions, tool: &ToolSpec) -> Value {
    let refused = &options.refused_schema_members;
    let mut parameters = match refused.iter().any(|member| member == "$ref") {
        true => inlined(&tool.parameters, &tool.parameters, 0, &mut { MAX_INLINED_PARTS }),
        false => tool.parameters.clone(),
    };
    without(&mut parameters, refused);
    let function = json!({ "name": tool.name, "description": tool.description, "parameters": parameters });
    json!({ "type": "function", "function": function })
}

/// How many references stand inside each other before any value is said to be taken.
const MAX_INLINED_REFERENCES: u32 = 6;
/// How many parts are looked at before no reference is followed any more: parts that lead to each other multiply.
const MAX_INLINED_PARTS: u32 = 2_000;

/// A part of a schema with what its references lead to in their place, as long as parts are `left`.
fn inlined(root: &Value, part: &Value, references: u32, left: &mut u32) -> Value {
    *left = left.saturating_sub(1);
    match part {
        Value::Object(members) => {
            let target = members.get("$ref").and_then(|to| root.pointer(to.as_str()?.strip_prefix('#')?));
            let target = target.filter(|_| references < MAX_INLINED_REFERENCES && *left > 0);
            let mut inlined = match target.map(|target| self::inlined(root, target, references + 1, left)) {
                Some(Value::Object(members)) => members,
                _ => Map::new(),
            };
            let own = members.iter().filter(|(name, _)| !matches!(name.as_str(), "$ref" | "$defs" | "definitions"));
            for (name, value) in own {
                let (name, value) = match value {
                    // The only text is one of a list, where the vendor knows lists alone.
                    Value::String(_) if name == "const" => ("enum", json!([value])),
                    // They may have any name.
                    Value::Object(properties) if name == "properties" => {
                        let part = |(name, part): (&String, &Value)| {
                            (name.clone(), self::inlined(root, part, references, left))
                        };
                        (name.as_str(), Value::Object(properties.iter().map(part).collect()))
                    }
                    value => (name.as_str(), self::inlined(root, value, references, left)),
                };
                inlined.insert(name.to_owned(), value);
            }
            Value::Object(inlined)
        }
        Value::Array(list) => list.iter().map(|part| inlined(root, part, references, left)).collect(),
        other => other.clone(),
    }
}

/// Takes members out of a schema that the vendor does not know. Properties may have any name.
fn without(schema: &mut Value, members: &[String]) {
    match schema {
        Value::Object(object) if !members.is_empty() => {
            object.retain(|name, _| !members.contains(name));
            for (name, value) in object.iter_mut() {
                match value {
                    Value::Object(properties) if name == "properties" => {
                        properties.values_mut().for_each(|schema| without(schema, members));
                    }
                    value => without(value, members),
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(|schema| without(schema, members)),
        _ => {}
    }
}

/// Arguments as this format has them: JSON in a text. A text that was no JSON is an object, which servers demand.
fn arguments_text(arguments: &Value) -> String {
    super::as_object(arguments).to_string()
}

fn messages(message: &Message, place: AttachmentPlace) -> Vec<Cow<'_, Value>> {
    match message {
        Message::Assistant { native: Some(native), .. } => vec![Cow::Borrowed(&*native.0)],
        // One text: some servers take no parts.
        Message::User { text, details } => {
            let texts = [Some(text), details.as_ref()].into_iter().flatten().filter(|text| !text.is_empty());
            let text = texts.map(String::as_str).collect::<Vec<_>>().join("\n\n");
            owned([json!({ "role": "user", "content": text })])
        }
        Message::Assistant { text, tool_calls, native: None } if tool_calls.is_empty() => {
            owned([json!({ "role": "assistant", "content": text })])
        }
        Message::Assistant { text, tool_calls, native: None } => {
            let calls: Vec<_> = tool_calls
                .iter()
                .map(|ToolCall { id, name, arguments }| {
                    let function = json!({ "name": name, "arguments": arguments_text(arguments) });
                    json!({ "id": id, "type": "function", "function": function })
                })
                .collect();
            let content = (!text.is_empty()).then_some(text);
            owned([json!({ "role": "assistant", "content": content, "tool_calls": calls })])
        }
        Message::ToolResults(answers) => {
            let results = answers.iter().map(|answer| {
                let content: Value = match (&answer.attachments[..], place) {
                    ([], _) | (_, AttachmentPlace::User) => answer_text(answer).into(),
                    (shown, AttachmentPlace::Result) => {
                        std::iter::once(text_part(answer_text(answer))).chain(shown.iter().map(content_part)).collect()
                    }
                };
                json!({ "role": "tool", "tool_call_id": answer.call_id, "content": content })
            });
            let after = match place {
                AttachmentPlace::User => shown_after(answers, text_part, content_part),
                AttachmentPlace::Result => None,
            };
            owned(results.chain(after.map(|content| json!({ "role": "user", "content": content }))))
        }
    }
}

fn text_part(text: String) -> Value {
    json!({ "type": "text", "text": text })
}

fn content_part(attachment: &Attachment) -> Value {
    let url = data_url(attachment);
    match attachment.media_type {
        MediaType::Png | MediaType::Jpeg => json!({ "type": "image_url", "image_url": { "url": url } }),
        MediaType::Pdf => json!({ "type": "file", "file": { "filename": DOCUMENT_NAME, "file_data": url } }),
    }
}

/// Marks the system prompt and the newest message for a cache, in the form that Anthropic's models need behind a
/// router.
fn mark_for_cache(messages: &mut [Cow<'_, Value>]) {
    let last = messages.len().saturating_sub(1);
    for at in [0, last] {
        let Some(content) = messages.get_mut(at).map(|message| &mut message.to_mut()["content"]) else { continue };
        if let Value::String(text) = content
            && !text.trim().is_empty()
        {
            *content = json!([{ "type": "text", "text": text }]);
        }
        if let Some(part) = content.as_array_mut().and_then(|parts| parts.last_mut()) {
            part["cache_control"] = json!({ "type": "ephemeral" });
        }
    }
}

#[derive(Debug, Deserialize)]
struct Chunk {
    object: Option<String>,
    choices: Option<Vec<Choice>>,
    usage: Option<ChatUsage>,
    error: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct Choice {
    delta: Option<Delta>,
    finish_reason: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
struct Delta {
    content: Option<Value>,
    refusal: Option<String>,
    tool_calls: Option<Vec<ToolCallDelta>>,
    #[serde(flatten)]
    more: Map<String, Value>,
}

#[derive(Debug, Deserialize)]
struct ToolCallDelta {
    index: Option<u64>,
    id: Option<String>,
    function: Option<Function>,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

#[derive(Debug, Default, Deserialize)]
struct Function {
    name: Option<String>,
    arguments: Option<Value>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
struct ChatUsage {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    total_tokens: Option<u64>,
    prompt_tokens_details: Option<PromptDetails>,
    completion_tokens_details: Option<CompletionDetails>,
    /// DeepSeek's name for what came from the cache.
    prompt_cache_hit_tokens: Option<u64>,
    /// A router's price of the call, in US dollars.
    cost: Option<f64>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
struct PromptDetails {
    cached_tokens: Option<u64>,
    cache_write_tokens: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
struct CompletionDetails {
    reasoning_tokens: Option<u64>,
}

impl ChatUsage {
    /// Some vendors count reasoning in the total alone.
    fn tokens(self) -> TokenUsage {
        let prompt = self.prompt_tokens_details.unwrap_or_default();
        let read = self.prompt_tokens.unwrap_or_default();
        let shown = self.completion_tokens.unwrap_or_default();
        let written = shown.max(self.total_tokens.unwrap_or_default().saturating_sub(read));
        let reasoning = self.completion_tokens_details.and_then(|details| details.reasoning_tokens);
        TokenUsage {
            input_tokens: read,
            cached_input_tokens: prompt.cached_tokens.or(self.prompt_cache_hit_tokens).unwrap_or_default(),
            cache_write_tokens: prompt.cache_write_tokens.unwrap_or_default(),
            output_tokens: written,
            reasoning_tokens: reasoning.unwrap_or(written - shown),
            cost: self.cost.map(MicroUsd::of_dollars),
        }
    }
}
