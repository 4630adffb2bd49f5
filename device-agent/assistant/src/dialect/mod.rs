//! The three formats in which models are asked: a request's body, and the events of its stream.
//!
//! | file | format |
//! |---|---|
//! | [`responses`] | OpenAI's Responses |
//! | [`chat`] | OpenAI's Chat Completions, which most other servers have too |
//! | [`messages`] | Anthropic's Messages |
//!
//! Each gives the whole message back as a [`NativeMessage`] and sends it unchanged with the next call: a model's
//! reasoning is signed or encrypted, and several vendors refuse a call without the reasoning of the one before.
//!
//! What differs between vendors of one format stands in their profiles, not here.

pub(super) mod chat;
pub(super) mod messages;
pub(super) mod responses;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use base64::Engine;
use deskgate_definition::tool::Attachment;
use deskgate_definition::{Effort, Reasoning};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use super::profile::{AttachmentPlace, ModelEntry, Profile};
use super::refusal::malformed_response;
use super::sse::SseEvent;
use super::{ModelError, ModelEvent, ModelRequest, NativeMessage, ToolAnswer, ToolCall};

/// The text of a message that would have no content: formats refuse that.
const EMPTY_TEXT: &str = "(nothing)";

/// What is the same for every call of a run.
#[derive(Clone, Debug)]
pub(super) struct ModelOptions {
    /// The model's name, as the owner wrote it.
    pub model: String,
    pub profile: &'static Profile,
    /// What the profile knows of the model.
    pub entry: Option<&'static ModelEntry>,
    /// Whether the model reasons, as far as known.
    pub reasons: bool,
    /// The limit of one answer, as far as known.
    pub max_output_tokens: Option<u64>,
    pub reasoning: Reasoning,
    /// The same for all runs of a published version, so that their common beginning is found in a cache.
    pub cache_key: String,
}

impl ModelOptions {
    /// The effort that the model is asked for: of those that it takes, the nearest to the wanted one, and of two the
    /// lower. A model that cannot be kept from reasoning is asked for as little as it can.
    fn effort(&self, wanted: Option<Effort>) -> Option<Effort> {
        let wanted = wanted.filter(|_| self.reasons)?;
        let known = self.entry.and_then(|entry| entry.efforts.as_ref()).or(self.profile.efforts.as_ref());
        let Some(known) = known else { return Some(wanted) };
        let is_near = |effort: &Effort| *effort == wanted || *effort != Effort::None;
        known.iter().copied().filter(is_near).min_by_key(|effort| ((*effort as u8).abs_diff(wanted as u8), *effort))
    }

    /// Where the model takes images and documents; `of_format`: where its format has them.
    fn attachments_in(&self, of_format: AttachmentPlace) -> AttachmentPlace {
        let of_model = self.entry.and_then(|entry| entry.attachments_in);
        of_model.or(self.profile.attachments_in).unwrap_or(of_format)
    }
}

/// One format.
pub(super) trait Dialect: Send + 'static {
    /// The reader of one answer.
    fn new(options: &ModelOptions) -> Self;

    /// The body of a request.
    fn body<'a>(options: &ModelOptions, request: &'a ModelRequest) -> RequestBody<'a>;

    /// How many bytes of the answer came so far, of calls that are not complete too.
    fn received_bytes(&self) -> usize;

    /// Takes one event of the stream.
    fn on(&mut self, event: &SseEvent) -> Result<Vec<ModelEvent>, ModelError>;

    /// The stream has ended. Returns the closing events if the answer is complete.
    fn closed(&mut self) -> Vec<ModelEvent> {
        Vec::new()
    }
}

/// A request's body. Each call sends the whole conversation again, so what the provider wrote is not copied for it.
#[derive(Debug)]
pub(super) struct RequestBody<'a> {
    /// An object with all members but the messages.
    members: Value,
    /// The name of the member with the messages.
    messages_name: &'static str,
    messages: Vec<Cow<'a, Value>>,
}

impl Serialize for RequestBody<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut body = serializer.serialize_map(None)?;
        for (name, value) in self.members.as_object().into_iter().flatten() {
            body.serialize_entry(name, value)?;
        }
        body.serialize_entry(self.messages_name, &self.messages)?;
        body.end()
    }
}

/// Messages that are made for one call.
fn owned<'a>(messages: impl IntoIterator<Item = Value>) -> Vec<Cow<'a, Value>> {
    messages.into_iter().map(Cow::Owned).collect()
}

/// The size limit of what one answer makes us keep, in bytes: as much as a request to this device may have, and as much
/// again for reasoning.
const MAX_KEPT_BYTES: usize = 8 * 1024 * 1024;

/// Content as the address that formats take it in (RFC 2397).
fn data_url(attachment: &Attachment) -> String {
    format!("data:{};base64,{}", attachment.media_type, base64(attachment))
}

fn base64(attachment: &Attachment) -> String {
    base64::engine::general_purpose::STANDARD.encode(&attachment.bytes)
}

/// The name of a document, which formats ask for.
const DOCUMENT_NAME: &str = "document.pdf";

/// The text of an answer, where the format has no member for an error.
fn answer_text(answer: &ToolAnswer) -> String {
    let failed = if answer.is_error { "Error: " } else { "" };
    format!("{failed}{}", answer.text)
}

/// What the calls showed, for a message of the user's after their results: some servers take text alone in those. Each
/// piece is content of `text` or of `part`.
fn shown_after(
    answers: &[ToolAnswer],
    text: impl Fn(String) -> Value,
    part: impl Fn(&Attachment) -> Value,
) -> Option<Vec<Value>> {
    let shown = answers.iter().flat_map(|answer| answer.attachments.iter().map(move |shown| (answer, shown)));
    let parts: Vec<_> = shown
        .flat_map(|(answer, shown)| {
            [text(format!("Shown by the call {}: {}", answer.call_id, shown.about)), part(shown)]
        })
        .collect();
    (!parts.is_empty()).then_some(parts)
}

/// Counts what is kept of one answer.
#[derive(Debug, Default)]
struct KeptBytes(usize);

impl KeptBytes {
    fn add(&mut self, bytes: usize) -> Result<(), ModelError> {
        self.0 += bytes;
        if self.0 > MAX_KEPT_BYTES { Err(malformed_response()) } else { Ok(()) }
    }
}

/// The arguments of a call from their text.
fn arguments(text: &str) -> Value {
    match text.trim() {
        "" | "null" => Value::Object(Map::new()),
        text => serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned())),
    }
}

/// Arguments as an object: others are wrapped in one, so that the model sees its mistake.
fn as_object(arguments: &Value) -> Value {
    if arguments.is_object() { arguments.clone() } else { serde_json::json!({ "malformed": arguments }) }
}

/// Whether a text is the whole of a call's arguments, where the answer may have ended inside them.
fn is_whole(text: &str) -> bool {
    serde_json::from_str::<Map<String, Value>>(text).is_ok()
}

/// The last events of an answer: the message, its calls, or the call that was cut.
fn closing(native: Value, calls: Vec<ToolCall>, cut: Option<String>) -> impl Iterator<Item = ModelEvent> {
    let native = ModelEvent::Native(NativeMessage(native.into()));
    let calls = calls.into_iter().map(ModelEvent::ToolCall);
    calls.chain(cut.map(ModelEvent::CutCall)).chain([native])
}
