//! How a run ended: the answer or the error, what it may have changed, and what it used up.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::RunState;

/// The public result of a run that succeeded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RunResult {
    /// What the assistant answered. What it said beside its data, where the run has an `output`: the data as JSON if it
    /// said nothing.
    pub text: String,
    /// Data that fits the schema of the run's `output`. Present exactly if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Box<Value>>,
    /// Why it stopped there.
    pub finish_reason: FinishReason,
}

impl RunResult {
    /// An answer in words, to its end.
    pub fn completed(text: impl Into<String>) -> Self {
        Self { text: text.into(), data: None, finish_reason: FinishReason::Completed }
    }

    /// The text, and the data behind it unless it is the text.
    pub fn whole_text(&self) -> Cow<'_, str> {
        let data = self.data.as_deref().map(Value::to_string).filter(|data| *data != self.text);
        data.map_or(Cow::Borrowed(&self.text), |data| Cow::Owned(format!("{}\n\n{data}", self.text)))
    }
}

/// Why an answer ends where it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// The assistant was done.
    Completed,
    /// The answer reached a size limit and was cut.
    Length,
}

/// Why a run failed, or was cancelled because its device was removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RunError {
    /// For programs.
    pub code: RunErrorCode,
    /// For people. Never an internal message, a path or file contents.
    pub message: String,
    /// Whether the same work may succeed when it is submitted again under a new key.
    pub retryable: bool,
    /// Whether anything outside the run may have changed.
    pub effects: Effects,
}

/// The codes of [`RunError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum RunErrorCode {
    /// The model failed or answered nonsense.
    ModelError,
    /// The provider refused the credential.
    ModelAuth,
    /// A file that the run was given could not be had by the device.
    FileUnavailable,
    /// A tool that the run depends on could not work at all.
    ToolError,
    /// The sandbox that the run's commands need does not work on the device.
    SandboxUnavailable,
    /// It ran longer than `max_duration_s` of awake time.
    MaxDurationExceeded,
    /// The assistant took more turns than the service allows.
    MaxTurnsExceeded,
    /// The assistant gave no data that fits the schema of the run's `output`.
    OutputMismatch,
    /// The next model call would exceed a budget of the device's owner.
    BudgetReached,
    /// The desktop user refused a tool call, and the service says that this ends the run.
    ApprovalDenied,
    /// Nobody decided about a tool call in time, and the service says that this ends the run.
    ApprovalExpired,
    /// The device stopped while it executed a tool call, and its owner settled what became of it.
    Interrupted,
    /// The device was removed from the gateway.
    DeviceRemoved,
    /// The device does not hold the definition this run was accepted for.
    DefinitionMismatch,
    /// A fault of ours.
    Internal,
}

/// Whether new work under a new key is safe after a run that failed or was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Effects {
    /// Nothing outside the run changed.
    None,
    /// Something may have changed.
    Possible,
    /// Something changed.
    Known,
}

/// What a run has used up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Usage {
    /// Tokens the model read, from its provider's cache or not.
    pub input_tokens: u64,
    /// Those of them that came from the provider's cache.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(required))]
    pub cached_input_tokens: u64,
    /// Those of them that were written to the provider's cache.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(required))]
    pub cache_write_tokens: u64,
    /// Tokens the model wrote, its reasoning included.
    pub output_tokens: u64,
    /// Those of them that were reasoning.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(required))]
    pub reasoning_tokens: u64,
    /// Times the model was called.
    pub model_calls: u64,
    /// Tools that were executed.
    pub tool_calls: u64,
    /// Awake seconds between start and end.
    pub active_seconds: f64,
    /// What the model calls cost in US dollars, by the device's price tables; absent if the service keeps it to its
    /// owner, or if a price is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
}

/// How a run ended. The executor makes exactly one for each started run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case", deny_unknown_fields)]
pub enum Outcome {
    /// The assistant answered.
    Succeeded {
        /// The answer.
        result: RunResult,
        /// What it used up.
        usage: Usage,
    },
    /// It ended without an answer.
    Failed {
        /// The error that ended it.
        error: RunError,
        /// What it used up.
        usage: Usage,
    },
    /// It was stopped.
    Cancelled {
        /// Whether it may have changed anything before the stop.
        effects: Effects,
        /// What it used up.
        usage: Usage,
    },
}

impl Outcome {
    /// The final state this outcome leads to.
    pub fn state(&self) -> RunState {
        match self {
            Self::Succeeded { .. } => RunState::Succeeded,
            Self::Failed { .. } => RunState::Failed,
            Self::Cancelled { .. } => RunState::Cancelled,
        }
    }
}
