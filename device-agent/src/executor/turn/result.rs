//! Data as the result of a run: the tool Result, whose arguments it is.
//!
//! ```text
//!  a call of Result ───────┐             ┌─ it fits ──────────► the run has succeeded
//!  a last message that is ─┴► Checking ──┤
//!  the data as JSON                      └─ it does not ──────► the model is told where; the third time the run fails
//!
//!  a last message in words ────────────────────────────────────► the model is reminded, once; then the run fails
//! ```
//!
//! One way for all models. A run with an output never succeeds without data that fits.

use std::sync::Arc;

use deskgate_assistant::{Message, NativeMessage};
use deskgate_definition::tool::{RESULT_TOOL, ToolOutput, ToolSpec};
use deskgate_protocol::control::ToolStatus;
use deskgate_protocol::run::{FinishReason, RunErrorCode};
use deskgate_schema::{DataSchema, Mismatch};
use serde_json::Value;

use super::calls::{CallQueue, CurrentCall};
use super::{Turn, TurnEffect, TurnState};
use crate::executor::outcome;

/// How often data may not fit.
const MAX_MISMATCHES: u32 = 3;

/// The data that a run's result has.
#[derive(Clone, Debug)]
pub(crate) struct ResultSchema {
    /// What it is called.
    pub(crate) name: String,
    /// The schema that it fits.
    pub(crate) schema: Arc<DataSchema>,
}

impl ResultSchema {
    /// The tool Result, as the model gets it.
    pub(super) fn tool(&self) -> ToolSpec {
        ToolSpec {
            name: RESULT_TOOL.to_owned(),
            description: format!(
                "Gives your result ({}) and ends your work: call it once, when you are done, with nothing else beside it. \
                 Its arguments are the data that the application receives. What you say before the call goes with it.",
                self.name
            ),
            parameters: self.schema.value().clone(),
        }
    }
}

/// How far the run is with its data.
pub(super) struct ResultState {
    output: ResultSchema,
    /// How often data did not fit ...
    mismatches: u32,
    /// ... and why it did not the last time.
    why: Option<String>,
    /// Whether the model was reminded of the tool.
    reminded: bool,
}

impl From<ResultSchema> for ResultState {
    fn from(output: ResultSchema) -> Self {
        Self { output, mismatches: 0, why: None, reminded: false }
    }
}

/// Data that is being checked.
pub(super) struct CheckedData {
    data: Value,
    from: DataSource,
}

enum DataSource {
    /// A call of Result, and those after it.
    Call(Box<CurrentCall>, CallQueue),
    /// The last message.
    Message { text: String, native: Option<NativeMessage> },
}

impl Turn {
    /// Has the data of a call checked, which stands alone.
    pub(super) fn check_call(&mut self, work: CallQueue, current: CurrentCall) -> Vec<TurnEffect> {
        self.usage.tool_calls += 1;
        let (started, data) = (current.started(), current.arguments.clone());
        let check = self.check(data, DataSource::Call(Box::new(current), work));
        std::iter::once(started).chain(check).collect()
    }

    /// Goes on after a last message of a run with an output: it may be the data itself.
    pub(super) fn ended_in_words(&mut self, text: String, native: Option<NativeMessage>) -> Vec<TurnEffect> {
        match object_in(&text) {
            Some(data) => self.check(data, DataSource::Message { text, native }),
            None => self.remind(text, native, None),
        }
    }

    fn check(&mut self, data: Value, from: DataSource) -> Vec<TurnEffect> {
        let Some(result) = &self.result else { return self.fail(RunErrorCode::Internal) };
        let schema = Arc::clone(&result.output.schema);
        self.state = TurnState::Checking(CheckedData { data: data.clone(), from });
        vec![TurnEffect::CheckData { schema, data }]
    }

    /// Goes on with data that was checked.
    pub(super) fn checked(
        &mut self,
        CheckedData { data, from }: CheckedData,
        fits: Result<(), Mismatch>,
    ) -> Vec<TurnEffect> {
        let why = match fits {
            Ok(()) => return self.succeed_with(data, from),
            Err(mismatch) => mismatch.to_string(),
        };
        let Some(result) = &mut self.result else { return self.fail(RunErrorCode::Internal) };
        result.mismatches += 1;
        result.why = Some(why.clone());
        let is_last = result.mismatches >= MAX_MISMATCHES;
        match from {
            DataSource::Call(current, work) => {
                let output =
                    ToolOutput::error(format!("This does not fit the schema. {why}. Call {RESULT_TOOL} again."));
                match is_last {
                    true => {
                        let told = [current.kept(&output), current.completed(ToolStatus::Error)];
                        told.into_iter().chain(self.fail_without_data()).collect()
                    }
                    false => self.completed(work, *current, output),
                }
            }
            DataSource::Message { .. } if is_last => self.fail_without_data(),
            DataSource::Message { text, native } => self.remind(text, native, Some(&why)),
        }
    }

    fn succeed_with(&mut self, data: Value, from: DataSource) -> Vec<TurnEffect> {
        let (told, text) = match from {
            DataSource::Call(current, _) => {
                let said = match self.messages.last() {
                    Some(Message::Assistant { text, .. }) => text.clone(),
                    _ => String::new(),
                };
                let output = ToolOutput::ok("The application receives it.");
                (vec![current.kept(&output), current.completed(ToolStatus::Ok)], said)
            }
            DataSource::Message { .. } => (Vec::new(), String::new()),
        };
        let outcome = outcome::succeeded_with(text, data, FinishReason::Completed, self.usage);
        told.into_iter().chain(self.finish(outcome)).collect()
    }

    /// Asks for the data once more, after a message that had none.
    fn remind(&mut self, text: String, native: Option<NativeMessage>, why: Option<&str>) -> Vec<TurnEffect> {
        let Some(result) = &mut self.result else { return self.fail(RunErrorCode::Internal) };
        if std::mem::replace(&mut result.reminded, true) {
            return self.fail_without_data();
        }
        let why = why.map(|why| format!(" It does not fit the schema. {why}.")).unwrap_or_default();
        let reminder = format!(
            "The application receives only what you give to the tool {RESULT_TOOL}, and your last message is not that.{why} \
             Call {RESULT_TOOL} now."
        );
        let messages = Arc::make_mut(&mut self.messages);
        messages.push(Message::Assistant { text, tool_calls: Vec::new(), native });
        messages.push(Message::User { text: reminder, details: None });
        self.next_turn()
    }

    fn fail_without_data(&mut self) -> Vec<TurnEffect> {
        let why = self.result.as_ref().and_then(|result| result.why.clone());
        let message = match why {
            Some(why) => format!("The answer did not fit the schema: {why}."),
            None => "The assistant ended in words, without data that fits the schema.".to_owned(),
        };
        self.fail_because(RunErrorCode::OutputMismatch, &message, true)
    }
}

/// The object that a message is, bare or as a block of code: models without tools of their own answer so.
fn object_in(text: &str) -> Option<Value> {
    let text = text.trim();
    let inner = text.strip_prefix("```").and_then(|text| text.strip_suffix("```"));
    let inner = inner.map_or(text, |block| block.strip_prefix("json").unwrap_or(block));
    serde_json::from_str(inner.trim()).ok().filter(Value::is_object)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_object_is_found_where_a_message_is_nothing_else() {
        let object = json!({ "count": 2 });
        for text in [r#"{"count":2}"#, " {\"count\": 2}\n", "```json\n{\"count\":2}\n```", "```\n{\"count\":2}```"] {
            assert_eq!(object_in(text), Some(object.clone()), "{text}");
        }
        for text in ["", "2", "[2]", "\"x\"", "Two: {\"count\":2}", "```json\n{\"count\":2}\n``` So it is.", "```"] {
            assert_eq!(object_in(text), None, "{text}");
        }
    }
}
