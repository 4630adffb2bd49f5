//! Model providers behind one trait, and the scripted assistant that needs no account.
//!
//! | file | part |
//! |---|---|
//! | `anthropic`, `openai` | what one provider says differently |
//! | `remote` | what they share: one request, one stream |
//! | `sse`, `pieces` | events and tool calls that arrive in pieces |
//! | `accounts` | which providers the desktop user configured |
//! | `scripted`, `script`, `folder` | the assistant without a model |
//!
//! A provider turns a conversation into a stream of [`ModelEvent`]s and keeps nothing between two
//! calls that the conversation does not say. Its stream has one of three ends:
//!
//! | last event | meaning |
//! |---|---|
//! | [`ModelEvent::End`] | the turn is whole; only now are its tool calls real |
//! | [`ModelEvent::Error`] | the turn failed; whatever came before it does not count |
//! | anything else, then nothing | the connection was cut: a failure, and never a short answer |

mod anthropic;
mod call_assembler;
mod folder;
pub mod mcp;
mod openai;
pub mod providers;
mod remote;
mod script;
mod scripted;
mod sse;
#[cfg(test)]
mod tests;

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use deskgate_definition::Provider;
use deskgate_definition::tool::ToolSpec;
use futures_util::stream::BoxStream;
use serde::Deserialize;
use serde_json::Value;

use anthropic::Anthropic;
use openai::OpenAi;
use providers::{ProviderError, ProviderKind, Providers};
use remote::RemoteModel;
pub use script::{Script, ScriptError};
pub use scripted::ScriptedAssistant;

/// One model provider, opened for one run.
pub trait Assistant: Send + Sync {
    /// Calls the model. Nothing happens before the stream is polled; dropping it ends the call.
    fn respond(&self, request: ModelRequest) -> BoxStream<'static, ModelEvent>;
}

/// One call of a model. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ModelRequest {
    /// What the model is told before the conversation.
    pub system: Arc<str>,
    /// The conversation so far. The last message of the caller begins this run; whatever stands before it was
    /// said in earlier runs.
    pub messages: Arc<Vec<Message>>,
    /// What it may call.
    pub tools: Arc<[ToolSpec]>,
    /// The most tokens it may write in this call; `None` leaves it to the provider.
    pub max_output_tokens: Option<u64>,
}

/// One entry of a conversation.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// From the caller: content from outside, in a provider's user role.
    User {
        /// The text of the request.
        text: String,
        /// The request's further members as JSON, for a block of its own.
        details: Option<String>,
    },
    /// From the model.
    Assistant {
        /// What it said; may be empty when it calls tools.
        text: String,
        /// What it called, in this order.
        tool_calls: Vec<ToolCall>,
    },
    /// The results of all calls of the message before, in the same order.
    ToolResults(Vec<ToolAnswer>),
}

/// A conversation in two parts: what was said before the newest request, and what belongs to it.
fn newest(messages: &[Message]) -> (&[Message], &[Message]) {
    let request = messages.iter().rposition(|message| matches!(message, Message::User { .. }));
    messages.split_at(request.unwrap_or(0))
}

/// A model's wish to call a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCall {
    /// The provider's own name for the call; repeated with the result.
    pub id: String,
    /// Which tool.
    pub name: String,
    /// The arguments. Text that is no JSON is handed on as a JSON string: the tool refuses it, and
    /// the model learns of its mistake.
    pub arguments: Value,
}

/// What a call came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolAnswer {
    /// As in [`ToolCall::id`].
    pub call_id: String,
    /// What the tool said.
    pub text: String,
    /// Whether it could not do what was asked.
    pub is_error: bool,
}

/// What a model does, piece by piece.
#[derive(Clone, Debug, PartialEq)]
pub enum ModelEvent {
    /// More of its text.
    TextDelta(String),
    /// A whole call, never a part of one.
    ToolCall(ToolCall),
    /// What this call has used so far; the last one counts. A provider that does not know says nothing.
    Usage(TokenUsage),
    /// The turn is whole.
    End(StopReason),
    /// The turn failed.
    Error(ModelError),
}

/// Tokens of one call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenUsage {
    /// Read by the model.
    pub input_tokens: u64,
    /// Written by the model.
    pub output_tokens: u64,
}

/// Why a model stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// It was done, or waits for the results of its calls.
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
    /// What to do about it.
    pub kind: ErrorKind,
    /// For people, callers among them: written by the provider's module here, never copied from
    /// what the other side sent, which may repeat a key or a prompt.
    pub message: String,
    /// Whether the same call may succeed a moment later. The executor then tries again by itself.
    pub retryable: bool,
    /// How long the provider wants to be left alone before that.
    pub retry_after: Option<Duration>,
}

impl ModelError {
    /// A failure that stays.
    pub fn new(kind: ErrorKind, message: &str) -> Self {
        Self { kind, message: message.to_owned(), retryable: false, retry_after: None }
    }

    /// The same, as one that may pass.
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
    /// Too many requests, or the provider has trouble of its own.
    Overloaded,
    /// The model failed.
    Model,
    /// The conversation is longer than the model takes.
    TooLong,
    /// The stream was cut or made no sense.
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
    /// The account cannot be used.
    #[error(transparent)]
    Account(#[from] ProviderError),
}

/// All calls share connections: those to this computer, and those elsewhere.
static LOOPBACK_CLIENT: LazyLock<reqwest::Client> = LazyLock::new(|| remote::client(true));
static REMOTE_CLIENT: LazyLock<reqwest::Client> = LazyLock::new(|| remote::client(false));

/// Opens the assistant that a definition names, for one run. Reads files and so may block.
pub fn open(accounts: &Providers, provider: &Provider, model: &str) -> Result<Box<dyn Assistant>, AssistantError> {
    let Provider::Account(name) = provider else { return Ok(Box::new(ScriptedAssistant::open(model)?)) };
    let (kind, account) = accounts.open(name)?;
    // Plain HTTP is spoken with this computer only.
    let client = if account.base_url.starts_with("http://") { LOOPBACK_CLIENT.clone() } else { REMOTE_CLIENT.clone() };
    Ok(match kind {
        ProviderKind::Anthropic => Box::new(RemoteModel::<Anthropic>::new(client, account, model)),
        ProviderKind::Openai => Box::new(RemoteModel::<OpenAi>::new(client, account, model)),
    })
}
