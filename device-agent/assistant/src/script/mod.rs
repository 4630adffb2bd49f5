//! Scripts for the scripted assistant: a JSON file with the steps it plays.
//!
//! ```json
//! { "steps": [
//!     { "text": "I look." },
//!     { "tool": "Read", "arguments": { "file_path": "README.md" } },
//!     { "delay_ms": 50 },
//!     { "text": "It says:\n{{last_tool_result}}" }
//! ] }
//! ```
//!
//! | step | what the assistant does |
//! |---|---|
//! | `{"text": "…"}` | says it; texts that follow each other are one message, put together as they are |
//! | `{"tool": "…", "arguments": {…}}` | calls a tool; `arguments` may be left out. Any name and any JSON is allowed, so that mistakes can be played too |
//! | `{"result": {…}}` | gives data as the result of a run that asks for some, as a call of the tool Result. Any JSON is allowed here too |
//! | `{"delay_ms": n}` | waits, at most an hour |
//! | `{"error": {"kind": "…", "message": "…", "times": n}}` | fails as a model fails. Kinds: `auth`, `overloaded` and `unreachable` (which the agent tries again), `model`, `too_long`, `protocol`. `message` may be left out. With `times` it fails only so often and then plays on |
//! | `{"end": "…"}` | ends there: `completed`, `length` (as if cut at a token limit) or `cut` (as if the connection broke). Only as the last step |
//!
//! A *turn* is the model's output in one call. It ends after its last tool call: consecutive tools are called together,
//! and the step after them plays when all their results are there. The last turn has no tool call, and its text is the
//! answer; a script that ends with a tool call gives an answer that says so.
//!
//! In a text, and in every text within arguments, `{{input}}` stands for the caller's input and `{{last_tool_result}}`
//! for the text of the newest tool result (empty while there is none). In a conversation `{{earlier}}` stands for the
//! earlier messages, one line each, as `user: …` or `assistant: …`. Any other double braces are an error.

use std::path::Path;

use deskgate_definition::tool::RESULT_TOOL;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{ErrorKind, Message, ModelError, ModelEvent, StopReason, ToolCall};

/// The size limit of a script file, in bytes.
const MAX_SCRIPT_BYTES: u64 = 4 * 1024 * 1024;
/// The longest wait: as long as a run may take by default.
const MAX_DELAY_MS: u64 = 3_600_000;

/// A script that was read and checked.
#[derive(Clone, Debug)]
pub struct Script {
    steps: Vec<ScriptStep>,
}

/// Why a script cannot be played.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// The file cannot be read.
    #[error("the script file cannot be read: {0}")]
    Unreadable(std::io::Error),
    /// The file is larger than 4 MiB.
    #[error("the script file is over the limit of 4 MiB")]
    TooLarge,
    /// Not JSON, or not an object with a list of steps and nothing else.
    #[error("the script is not an object of the form {{\"steps\": […]}}: {0}")]
    Shape(serde_json::Error),
    /// There are no steps.
    #[error("the script has no steps")]
    Empty,
    /// One step is wrong.
    #[error("step {number} of the script is wrong: {problem}")]
    Step {
        /// The step, counted from 1.
        number: usize,
        /// What is wrong with the step.
        problem: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ScriptFile {
    steps: Vec<Value>,
}

#[derive(Clone, Debug)]
enum ScriptStep {
    Text(String),
    Tool { name: String, arguments: Value },
    Delay(u64),
    Error { error: ModelError, times: Option<u32> },
    End(EndKind),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TextStep {
    text: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ToolStep {
    tool: String,
    #[serde(default = "no_arguments")]
    arguments: Value,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ResultStep {
    result: Value,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DelayStep {
    delay_ms: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ErrorStep {
    error: ErrorBody,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ErrorBody {
    kind: ErrorKind,
    message: Option<String>,
    times: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EndStep {
    end: EndKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum EndKind {
    Completed,
    Length,
    Cut,
}

/// One thing to do in a turn.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ScriptAction {
    /// Wait for milliseconds.
    Wait(u64),
    /// Yield an event.
    Say(ModelEvent),
}

fn no_arguments() -> Value {
    json!({})
}

impl Script {
    /// Reads a script file. Blocks.
    ///
    /// # Errors
    /// The file cannot be read, or is no valid script.
    pub fn load(path: &Path) -> Result<Self, ScriptError> {
        use std::io::Read;
        let mut text = String::new();
        // Opening a named pipe would block until somebody writes into it.
        if !std::fs::metadata(path).map_err(ScriptError::Unreadable)?.is_file() {
            return Err(ScriptError::Unreadable(std::io::Error::other("it is not a regular file")));
        }
        let file = std::fs::File::open(path).map_err(ScriptError::Unreadable)?;
        file.take(MAX_SCRIPT_BYTES + 1).read_to_string(&mut text).map_err(ScriptError::Unreadable)?;
        if text.len() as u64 > MAX_SCRIPT_BYTES { Err(ScriptError::TooLarge) } else { Self::parse(&text) }
    }

    /// Reads a script from its text. Strict: a member that would not be played is an error.
    ///
    /// # Errors
    /// [`ScriptError::Shape`]: the text is not JSON, or not an object with `steps` and nothing else.
    /// [`ScriptError::Empty`]: there are no steps. [`ScriptError::Step`]: a step is not valid, or ends the script and
    /// is not the last one.
    pub fn parse(text: &str) -> Result<Self, ScriptError> {
        let shape: ScriptFile = serde_json::from_str(text).map_err(ScriptError::Shape)?;
        let last = shape.steps.len().checked_sub(1).ok_or(ScriptError::Empty)?;
        let mut steps = Vec::with_capacity(shape.steps.len());
        for (index, value) in shape.steps.into_iter().enumerate() {
            let step = step(value).and_then(|step| match step {
                ScriptStep::End(_) if index != last => Err("\"end\" must be the last step".to_owned()),
                ScriptStep::Error { times: None, .. } if index != last => {
                    Err("nothing after it can be played; give it \"times\" or make it the last step".to_owned())
                }
                step => Ok(step),
            });
            steps.push(step.map_err(|problem| ScriptError::Step { number: index + 1, problem })?);
        }
        Ok(Self { steps })
    }

    /// The number of steps.
    pub(super) fn steps(&self) -> usize {
        self.steps.len()
    }

    /// The next actions. The conversation shows how many turns have been played; only errors with `times` need their
    /// own count, which `played` returns and increases.
    pub(super) fn turn(&self, messages: &[Message], played: impl Fn(usize) -> u32) -> Vec<ScriptAction> {
        let (earlier, messages) = super::newest(messages);
        let turns = messages.iter().filter(|message| matches!(message, Message::Assistant { .. })).count();
        let mut actions = Vec::new();
        let mut calls = 0;
        let mut says_something = false;
        let start = self.start_of(turns);
        for (index, step) in self.steps.iter().enumerate().skip(start) {
            match step {
                ScriptStep::Tool { name, arguments } => {
                    calls += 1;
                    let id = format!("step_{}", index + 1);
                    let arguments = fill_value(arguments, earlier, messages);
                    actions.push(ScriptAction::Say(ModelEvent::ToolCall(ToolCall {
                        id,
                        name: name.clone(),
                        arguments,
                    })));
                }
                _ if calls > 0 => break,
                ScriptStep::Text(text) => {
                    says_something = true;
                    actions.push(ScriptAction::Say(ModelEvent::TextDelta(fill(text, earlier, messages))));
                }
                ScriptStep::Delay(milliseconds) => actions.push(ScriptAction::Wait(*milliseconds)),
                ScriptStep::Error { error, times } => {
                    if times.is_none_or(|times| played(index) < times) {
                        actions.push(ScriptAction::Say(ModelEvent::Error(error.clone())));
                        return actions;
                    }
                }
                ScriptStep::End(EndKind::Cut) => return actions,
                ScriptStep::End(EndKind::Length) => {
                    actions.push(ScriptAction::Say(ModelEvent::End(StopReason::Length)));
                    return actions;
                }
                ScriptStep::End(EndKind::Completed) => {}
            }
        }
        if calls == 0 && !says_something {
            let text = "The scripted assistant has played its script to the end.".to_owned();
            actions.push(ScriptAction::Say(ModelEvent::TextDelta(text)));
        }
        actions.push(ScriptAction::Say(ModelEvent::End(StopReason::Completed)));
        actions
    }

    /// Where the turn after `turns` turns begins: after that many groups of tool calls.
    fn start_of(&self, turns: usize) -> usize {
        let is_tool = |step: Option<&ScriptStep>| matches!(step, Some(ScriptStep::Tool { .. }));
        let ends = (1..=self.steps.len())
            .filter(|index| is_tool(self.steps.get(index - 1)) && !is_tool(self.steps.get(*index)));
        std::iter::once(0).chain(ends).nth(turns).unwrap_or(self.steps.len())
    }
}

fn step(value: Value) -> Result<ScriptStep, String> {
    let kind =
        ["text", "tool", "result", "delay_ms", "error", "end"].into_iter().find(|kind| value.get(kind).is_some());
    match kind {
        Some("text") => {
            let step: TextStep = shaped(value)?;
            check(&step.text)?;
            Ok(ScriptStep::Text(step.text))
        }
        Some("tool") => {
            let step: ToolStep = shaped(value)?;
            check_value(&step.arguments)?;
            Ok(ScriptStep::Tool { name: step.tool, arguments: step.arguments })
        }
        Some("result") => {
            let ResultStep { result } = shaped(value)?;
            check_value(&result)?;
            Ok(ScriptStep::Tool { name: RESULT_TOOL.to_owned(), arguments: result })
        }
        Some("delay_ms") => match shaped::<DelayStep>(value)?.delay_ms {
            delay @ 0..=MAX_DELAY_MS => Ok(ScriptStep::Delay(delay)),
            _ => Err(format!("\"delay_ms\" is at most {MAX_DELAY_MS}")),
        },
        Some("error") => {
            let ErrorBody { kind, message, times } = shaped::<ErrorStep>(value)?.error;
            let message = message.unwrap_or_else(|| "The script of the scripted assistant plays an error.".to_owned());
            let retryable = matches!(kind, ErrorKind::Overloaded | ErrorKind::Unreachable);
            Ok(ScriptStep::Error { error: ModelError { retryable, ..ModelError::new(kind, &message) }, times })
        }
        Some(_) => Ok(ScriptStep::End(shaped::<EndStep>(value)?.end)),
        None => {
            Err("a step is an object with \"text\", \"tool\", \"result\", \"delay_ms\", \"error\" or \"end\""
                .to_owned())
        }
    }
}

fn shaped<T: serde::de::DeserializeOwned>(value: Value) -> Result<T, String> {
    serde_json::from_value(value).map_err(|error| error.to_string())
}

/// A text split at its placeholders: the text before, and the placeholder's name.
fn pieces(text: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest.take()?;
        let placeholder = text.split_once("{{").and_then(|(before, after)| Some((before, after.split_once("}}")?)));
        match placeholder {
            Some((before, (name, after))) => {
                rest = Some(after);
                Some((before, Some(name)))
            }
            None => Some((text, None)),
        }
    })
}

fn check(text: &str) -> Result<(), String> {
    for (_, name) in pieces(text) {
        if let Some(name) = name.filter(|name| !matches!(*name, "input" | "last_tool_result" | "earlier")) {
            return Err(format!(
                "{{{{{name}}}}} is unknown; there are {{{{input}}}}, {{{{last_tool_result}}}} and {{{{earlier}}}}"
            ));
        }
    }
    Ok(())
}

fn check_value(value: &Value) -> Result<(), String> {
    match value {
        Value::String(text) => check(text),
        Value::Array(values) => values.iter().try_for_each(check_value),
        Value::Object(members) => members.values().try_for_each(check_value),
        _ => Ok(()),
    }
}

/// Replaces placeholders once: the inserted text is not searched again.
fn fill(text: &str, earlier: &[Message], messages: &[Message]) -> String {
    let mut filled = String::with_capacity(text.len());
    for (before, name) in pieces(text) {
        filled.push_str(before);
        match name {
            Some("input") => filled.push_str(messages.iter().find_map(said_by_caller).unwrap_or_default()),
            Some("earlier") => filled.extend(earlier.iter().filter_map(line)),
            Some(_) => filled.push_str(messages.iter().rev().find_map(last_result).unwrap_or_default()),
            None => {}
        }
    }
    filled
}

fn fill_value(value: &Value, earlier: &[Message], messages: &[Message]) -> Value {
    match value {
        Value::String(text) => fill(text, earlier, messages).into(),
        Value::Array(values) => values.iter().map(|value| fill_value(value, earlier, messages)).collect(),
        Value::Object(members) => {
            members.iter().map(|(name, value)| (name.clone(), fill_value(value, earlier, messages))).collect()
        }
        other => other.clone(),
    }
}

fn said_by_caller(message: &Message) -> Option<&str> {
    match message {
        Message::User { text, .. } => Some(text),
        _ => None,
    }
}

fn line(message: &Message) -> Option<String> {
    match message {
        Message::User { text, .. } => Some(format!("user: {text}\n")),
        Message::Assistant { text, .. } => Some(format!("assistant: {text}\n")),
        Message::ToolResults(_) => None,
    }
}

fn last_result(message: &Message) -> Option<&str> {
    match message {
        Message::ToolResults(answers) => answers.last().map(|answer| answer.text.as_str()),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
