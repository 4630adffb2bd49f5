//! A call with its end: what its owner can read later.

use serde_json::Value;

/// A call that has its result, or that was refused before it began.
#[derive(Clone, Debug, PartialEq)]
pub struct EndedCall {
    /// Unique within the run.
    pub call_id: String,
    /// The tool's name.
    pub tool: String,
    /// The exact arguments for the tool.
    pub arguments: Value,
    /// What the model is told of it.
    pub output: String,
    /// Whether it was refused, by the rules or by a person, before it began.
    pub is_refused: bool,
    /// Whether it failed.
    pub is_error: bool,
    /// Whether nobody knows what it did.
    pub is_unknown: bool,
}
