//! Model providers behind one trait, and the scripted assistant, which needs no provider.
//!
//! | file | part |
//! |---|---|
//! | `anthropic`, `openai` | the format of one provider |
//! | `remote` | what providers share: one request, one stream |
//! | `sse`, `call_assembler` | events and tool calls that arrive in pieces |
//! | `providers` | the configured model providers |
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

use std::sync::Arc;
use std::time::Duration;

use deskgate_definition::Provider;
use deskgate_definition::tool::ToolSpec;
use deskgate_outbound::Clients;
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
    /// Calls the model. The call starts when the stream is polled; dropping the stream ends it.
    fn respond(&self, request: ModelRequest) -> BoxStream<'static, ModelEvent>;
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
    /// The limit of tokens for this answer; `None` leaves it to the provider.
    pub max_output_tokens: Option<u64>,
}

/// One entry of a conversation.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// From the caller: external content, in a provider's user role.
    User {
        /// The text of the request.
        text: String,
        /// The request's further members as JSON, for a block of its own.
        details: Option<String>,
    },
    /// From the model.
    Assistant {
        /// The text; may be empty when it calls tools.
        text: String,
        /// The calls, in order.
        tool_calls: Vec<ToolCall>,
    },
    /// The results of all calls of the message before, in the same order.
    ToolResults(Vec<ToolAnswer>),
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
    /// Whether the call failed.
    pub is_error: bool,
}

/// The model's output, piece by piece.
#[derive(Clone, Debug, PartialEq)]
pub enum ModelEvent {
    /// A further part of the text.
    TextDelta(String),
    /// A complete call.
    ToolCall(ToolCall),
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
    /// Read by the model.
    pub input_tokens: u64,
    /// Written by the model.
    pub output_tokens: u64,
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
}

impl ModelError {
    /// A permanent failure.
    pub fn new(kind: ErrorKind, message: &str) -> Self {
        Self { kind, message: message.to_owned(), retryable: false, retry_after: None }
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
    /// The model failed.
    Model,
    /// The conversation is longer than the model takes.
    TooLong,
    /// The stream was cut or cannot be parsed.
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

/// The clients that all calls share.
static CLIENTS: Clients = Clients::new(remote::settings);

/// Opens the assistant that a definition names, for one run. Reads files and so may block.
///
/// # Errors
/// The provider or its model is unknown, or its key or script cannot be read.
pub fn open(accounts: &Providers, provider: &Provider, model: &str) -> Result<Box<dyn Assistant>, AssistantError> {
    let Provider::Account(name) = provider else { return Ok(Box::new(ScriptedAssistant::open(model)?)) };
    let (kind, account) = accounts.open(name)?;
    let url = reqwest::Url::parse(&account.base_url)
        .map_err(|_| ProviderError::BaseUrl(account.base_url.clone(), "it is no URL"))?;
    let client = CLIENTS.for_url(&url).clone();
    Ok(match kind {
        ProviderKind::Anthropic => Box::new(RemoteModel::<Anthropic>::new(client, account, model)),
        ProviderKind::Openai => Box::new(RemoteModel::<OpenAi>::new(client, account, model)),
    })
}
