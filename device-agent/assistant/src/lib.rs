//! Model providers behind one trait, and the scripted assistant, which needs no provider.
//!
//! | file | part |
//! |---|---|
//! | `providers` | the configured model providers |
//! | `profile` | what differs between vendors, as data: addresses, headers, members, models, prices |
//! | `dialect` | the three formats: Responses, Chat Completions, Messages |
//! | `remote` | what providers share: one request, one stream |
//! | `refusal` | a provider's error, for callers and for the owner |
//! | `listing` | the models that a key can use |
//! | `prices` | what model calls cost |
//! | `sse` | events that arrive in pieces |
//! | `scripted`, `script`, `folder` | the assistant without a model |
//!
//! A provider turns a conversation into a stream of [`ModelEvent`]s and keeps no state between two calls. Its stream
//! has one of three ends:
//!
//! | last event | meaning |
//! |---|---|
//! | [`ModelEvent::End`] | the turn is complete; only now its tool calls count |
//! | [`ModelEvent::Error`] | the turn failed; the events before it do not count |
//! | anything else | the connection was cut: a failure, never a short answer |

mod dialect;
mod folder;
pub mod listing;
pub mod mcp;
pub mod prices;
pub mod profile;
pub mod providers;
mod refusal;
mod remote;
mod script;
mod scripted;
mod sse;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use deskgate_definition::tool::{Attachment, ToolSpec};
use deskgate_definition::{Definition, Effort, MicroUsd, ModelReads, Provider, ProviderErrorDetail};
use futures_util::stream::BoxStream;
use serde::Deserialize;
use serde_json::Value;

use providers::{ProviderError, Providers};
use remote::RemoteModel;
pub use script::{Script, ScriptError};
pub use scripted::ScriptedAssistant;

/// One model provider, opened for one run.
pub trait Assistant: Send + Sync {
    /// Calls the model. The call starts when the stream is polled; dropping the stream ends it.
    fn respond(&self, request: ModelRequest) -> BoxStream<'static, ModelEvent>;

    /// What is known of the model.
    fn facts(&self) -> ModelFacts {
        ModelFacts::default()
    }
}

/// What is known of a model. `None`: unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ModelFacts {
    /// The tokens of one call, its answer included.
    pub context_tokens: Option<u64>,
    /// The tokens of one answer.
    pub max_output_tokens: Option<u64>,
    /// Reasoning goes back only with everything that stood before it: if something is left out, so is all reasoning.
    pub reasoning_is_bound: bool,
    /// What it reads beside text.
    pub reads: ModelReads,
    /// What it costs.
    pub prices: Option<prices::Prices>,
}

/// One call of a model. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ModelRequest {
    /// The system prompt.
    pub system: Arc<str>,
    /// The conversation so far. The last user message begins this run; earlier messages belong to earlier runs.
    pub messages: Arc<Vec<Message>>,
    /// The tools it may call.
    pub tools: Arc<[ToolSpec]>,
    /// The limit of tokens for this answer, reasoning included; `None` leaves it to the model.
    pub max_output_tokens: Option<u64>,
    /// How much the model reasons before it answers; `None` leaves it to the model.
    pub effort: Option<Effort>,
}

/// One entry of a conversation.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// From the caller: external content, in a provider's user role.
    User {
        /// The text of the request.
        text: String,
        /// Further content, for a block of its own: the request's members as JSON, or a summary of the work on it.
        details: Option<String>,
    },
    /// From the model.
    Assistant {
        /// The text; may be empty when it calls tools.
        text: String,
        /// The calls, in order.
        tool_calls: Vec<ToolCall>,
        /// The message as the provider wrote it, with its reasoning, which goes back to it unchanged. `None` for a
        /// message of an earlier run.
        native: Option<NativeMessage>,
    },
    /// The results of all calls of the message before, in the same order.
    ToolResults(Vec<ToolAnswer>),
}

/// A model's message in its provider's own form: JSON that only its dialect reads. Cheap to clone.
#[derive(Clone, Debug, PartialEq)]
pub struct NativeMessage(Arc<Value>);

impl Message {
    /// The same message without its provider's own form, and so without reasoning.
    pub fn forget_reasoning(&mut self) {
        if let Self::Assistant { native, .. } = self {
            *native = None;
        }
    }

    /// A message of the model with these parts.
    pub fn assistant(text: impl Into<String>, tool_calls: Vec<ToolCall>) -> Self {
        Self::Assistant { text: text.into(), tool_calls, native: None }
    }
}

/// A conversation in two parts: the messages before the newest request, and those since.
fn newest(messages: &[Message]) -> (&[Message], &[Message]) {
    let request = messages.iter().rposition(|message| matches!(message, Message::User { .. }));
    messages.split_at(request.unwrap_or(0))
}

/// A model's request to call a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCall {
    /// The provider's identifier of the call; repeated with the result.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// The arguments. Text that is no JSON is passed on as a JSON string: the tool refuses it, and the model sees its
    /// mistake.
    pub arguments: Value,
}

/// The result of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolAnswer {
    /// As in [`ToolCall::id`].
    pub call_id: String,
    /// The text of the result.
    pub text: String,
    /// Images and documents that the call shows.
    pub attachments: Vec<Attachment>,
    /// Whether the call failed.
    pub is_error: bool,
}

impl ToolAnswer {
    /// The answer of a call that shows nothing beside text.
    pub fn text(call_id: impl Into<String>, text: impl Into<String>, is_error: bool) -> Self {
        Self { call_id: call_id.into(), text: text.into(), attachments: Vec::new(), is_error }
    }
}

/// The model's output, piece by piece.
#[derive(Clone, Debug, PartialEq)]
pub enum ModelEvent {
    /// The answer has come so far that it has this many bytes, calls that are not complete included. Comes first with 0,
    /// and then where no other event shows that the answer goes on.
    Progress(usize),
    /// A further part of the text.
    TextDelta(String),
    /// A further part of the reasoning, as far as the provider shows it.
    ReasoningDelta(String),
    /// A complete call.
    ToolCall(ToolCall),
    /// The answer ended inside this tool's arguments: the call cannot be made.
    CutCall(String),
    /// The whole message in the provider's own form, for the next call.
    Native(NativeMessage),
    /// The tokens of this call so far; the last event counts. Absent if the provider does not report them.
    Usage(TokenUsage),
    /// The turn is complete.
    End(StopReason),
    /// The turn failed.
    Error(ModelError),
}

/// Tokens of one call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenUsage {
    /// Read by the model, from a cache or not.
    pub input_tokens: u64,
    /// Those of them that came from the provider's cache.
    pub cached_input_tokens: u64,
    /// Those of them that were written to the provider's cache.
    pub cache_write_tokens: u64,
    /// Written by the model, its reasoning included.
    pub output_tokens: u64,
    /// Those of them that were reasoning.
    pub reasoning_tokens: u64,
    /// What the call cost, if the provider says so.
    pub cost: Option<MicroUsd>,
}

/// Why a model stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// It is done, or waits for the results of its calls.
    Completed,
    /// It reached its limit of tokens.
    Length,
    /// It declined to answer.
    Refused,
}

/// Why a call of a model failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ModelError {
    /// The kind of failure, which decides what to do.
    pub kind: ErrorKind,
    /// The message for people, callers among them: written by this program, never copied from the other side, whose
    /// text may repeat a key or a prompt.
    pub message: String,
    /// Whether the same call may succeed a moment later. The executor then tries again.
    pub retryable: bool,
    /// How long to wait before that, as the provider asks.
    pub retry_after: Option<Duration>,
    /// The provider's own error, for the owner of the device alone.
    pub detail: Option<Box<ProviderErrorDetail>>,
}

impl ModelError {
    /// A permanent failure.
    pub fn new(kind: ErrorKind, message: &str) -> Self {
        Self { kind, message: message.to_owned(), retryable: false, retry_after: None, detail: None }
    }

    /// The message with the provider's own words, for the owner of the device alone.
    pub fn for_owner(&self) -> String {
        let Some(detail) = &self.detail else { return self.message.clone() };
        match (detail.to_string(), detail.status) {
            (text, _) if text.is_empty() => self.message.clone(),
            // Nobody answered: it is this computer that says why.
            (text, None) => format!("{} ({text})", self.message),
            (text, Some(_)) => format!("{} The provider says: {text}", self.message),
        }
    }

    /// The same, as a temporary failure.
    pub fn as_retryable(self) -> Self {
        Self { retryable: true, ..self }
    }
}

/// The kinds of [`ModelError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// The credential was refused.
    Auth,
    /// Too many requests, or a failure inside the provider.
    Overloaded,
    /// The provider cannot be reached, or the connection to it broke.
    Unreachable,
    /// The model failed.
    Model,
    /// The conversation is longer than the model takes.
    TooLong,
    /// The reasoning that goes back is not taken. The same call may succeed without it.
    Reasoning,
    /// The answer cannot be parsed.
    Protocol,
}

/// Why an assistant cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum AssistantError {
    /// The provider has no such model.
    #[error(
        "the scripted assistant knows the models `folder` and `script:` with a path, such as `script:/srv/play.json`; not {0:?}"
    )]
    UnknownModel(String),
    /// The script cannot be played.
    #[error(transparent)]
    Script(#[from] ScriptError),
    /// The provider cannot be used.
    #[error(transparent)]
    Account(#[from] ProviderError),
}

/// Opens the assistant that a definition names, for one run. Reads files and so may block.
///
/// # Errors
/// The provider or its model is unknown, or its key or script cannot be read.
pub fn open(accounts: &Providers, definition: &Definition) -> Result<Box<dyn Assistant>, AssistantError> {
    match &definition.provider {
        Provider::Scripted => Ok(Box::new(ScriptedAssistant::open(&definition.model)?)),
        Provider::Account(name) => Ok(Box::new(RemoteModel::open(accounts.open(name)?, definition)?)),
    }
}
