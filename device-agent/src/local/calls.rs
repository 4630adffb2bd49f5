//! The tool calls of runs, for their owner: what was called, what it was about, and what came of it.

use deskgate_protocol::ids::RunId;
use deskgate_protocol::receipt::CallStatus;
pub use deskgate_store::calls::CallRecord;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::approvals::PlanPreview;
use super::handler::RequestHandler;
use super::reply::{ErrorReply, ErrorReplyCode, Requester};
use super::request::TypedRequest;

/// How many bytes of a call's arguments, and of its output, a list shows.
pub const LISTED_PART_BYTES: usize = 2 * 1024;
/// How many bytes of contents one list has. The oldest calls beyond that have none in it.
const MAX_LISTED_BYTES: usize = 4 << 20;

/// Lists the tool calls of a run, in their order, with the beginnings of their arguments and outputs.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ListCalls {
    /// The run.
    pub run_id: RunId,
}

impl TypedRequest for ListCalls {
    type Response = Vec<CallRecord>;

    async fn answer(self, handler: &RequestHandler, _: Requester) -> Result<Vec<CallRecord>, ErrorReply> {
        let mut calls = handler.store.calls_of_run(self.run_id).await?;
        let mut left = MAX_LISTED_BYTES;
        for call in calls.iter_mut().rev() {
            for part in [&mut call.arguments, &mut call.output] {
                *part = part.take().map(|text| beginning(text, LISTED_PART_BYTES));
            }
            let shown = match call.plan.as_ref().map(|plan| &plan.shown) {
                Some(PlanPreview::Change { diff, .. }) => diff.len(),
                Some(PlanPreview::Command { command, .. }) => 2 * command.len(),
                Some(PlanPreview::Delivery { text, .. }) => text.as_ref().map_or(0, String::len),
                _ => 0,
            };
            left = left.saturating_sub(2 * LISTED_PART_BYTES + shown);
            if left == 0 {
                (call.arguments, call.output, call.plan) = (None, None, None);
            }
        }
        Ok(calls)
    }
}

/// Shows one tool call of a run, as it is kept.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ShowCall {
    /// The run.
    pub run_id: RunId,
    /// The call's identifier in it.
    pub call_id: String,
}

impl TypedRequest for ShowCall {
    type Response = CallRecord;

    async fn answer(self, handler: &RequestHandler, _: Requester) -> Result<CallRecord, ErrorReply> {
        let found = handler.store.call_of_run(self.run_id, self.call_id).await?;
        found.ok_or_else(|| ErrorReply {
            code: ErrorReplyCode::NotFound,
            message: "there is no such tool call; how long they are kept: deskgate settings retention".to_owned(),
        })
    }
}

/// What a call is about: its command, page, pattern, file or folder; else its arguments.
pub fn about(call: &CallRecord) -> String {
    let place = call.plan.as_ref().and_then(|plan| plan.place.as_deref());
    match call.plan.as_ref().map(|plan| &plan.shown) {
        Some(PlanPreview::Command { command, .. }) => return command.clone(),
        Some(PlanPreview::Page { url }) => return url.clone(),
        _ => {}
    }
    let arguments: Option<Value> = call.arguments.as_deref().and_then(|text| serde_json::from_str(text).ok());
    let named = |name: &str| arguments.as_ref()?.get(name)?.as_str().map(str::to_owned);
    match (named("pattern"), place) {
        (Some(pattern), Some("." | "")) | (Some(pattern), None) => pattern,
        (Some(pattern), Some(place)) => format!("{pattern} in {place}"),
        (None, Some(place)) => place.to_owned(),
        (None, None) => ["command", "url", "file_path", "path"]
            .into_iter()
            .find_map(named)
            .or_else(|| call.arguments.clone().filter(|text| text != "{}"))
            .unwrap_or_default(),
    }
}

/// Why a call failed or was not run, as the model was told.
pub fn reason(call: &CallRecord) -> Option<&str> {
    let is_bad = call.ended_at.is_some() && call.status != CallStatus::Ok;
    let output = call.output.as_deref().filter(|_| is_bad)?;
    output.lines().find(|line| !line.trim().is_empty())
}

/// At most so many bytes of a text, with a mark where more follows.
fn beginning(text: String, bytes: usize) -> String {
    if text.len() <= bytes {
        return text;
    }
    let end = text.char_indices().map(|(place, _)| place).take_while(|place| *place <= bytes).last().unwrap_or(0);
    format!("{}…", &text[..end])
}

#[cfg(test)]
mod tests {
    use deskgate_store::ledger::Plan;
    use serde_json::json;

    use super::*;

    fn call(arguments: Value, plan: Option<Plan>) -> CallRecord {
        CallRecord {
            attempt: 1,
            call_id: "call_1_1".to_owned(),
            tool: "Tool".to_owned(),
            arguments: Some(arguments.to_string()),
            plan,
            approval_id: None,
            begun_at: None,
            ended_at: None,
            status: CallStatus::Ok,
            output: None,
        }
    }

    #[test]
    fn a_call_is_about_what_a_person_would_name_first() {
        let planned = |place: Option<&str>, shown| Some(Plan { place: place.map(str::to_owned), shown });
        let plain = |place| planned(place, PlanPreview::Arguments);
        let command = PlanPreview::Command { command: "make test".to_owned(), words: Vec::new() };
        let page = PlanPreview::Page { url: "https://example.com/a".to_owned() };
        for (arguments, plan, expected) in [
            (json!({ "command": "x" }), planned(None, command), "make test"),
            (json!({}), planned(Some("example.com"), page), "https://example.com/a"),
            (json!({ "pattern": "open", "path": "in" }), plain(Some("in")), "open in in"),
            (json!({ "pattern": "**/*.md" }), plain(Some(".")), "**/*.md"),
            (json!({ "file_path": "./a.txt" }), plain(Some("a.txt")), "a.txt"),
            (json!({ "file_path": "../a.txt" }), None, "../a.txt"),
            (json!({ "id": 7 }), plain(None), r#"{"id":7}"#),
            (json!({}), plain(None), ""),
        ] {
            assert_eq!(about(&call(arguments, plan)), expected);
        }
    }

    #[test]
    fn a_reason_is_the_first_line_that_a_bad_call_gave() {
        let ended = |status, output: &str| CallRecord {
            status,
            output: Some(output.to_owned()),
            ended_at: Some(deskgate_protocol::Timestamp::now()),
            ..call(json!({}), None)
        };
        assert_eq!(reason(&ended(CallStatus::Ok, "fine")), None);
        assert_eq!(reason(&ended(CallStatus::Error, "\n no file\nlook")), Some(" no file"));
        assert_eq!(reason(&ended(CallStatus::NotRun, "denied")), Some("denied"));
        let runs = CallRecord { ended_at: None, ..ended(CallStatus::Unknown, "x") };
        assert_eq!(reason(&runs), None);
    }

    #[test]
    fn a_beginning_ends_between_characters() {
        assert_eq!(beginning("äöü".to_owned(), 6), "äöü");
        assert_eq!(beginning("äöü".to_owned(), 3), "ä…");
    }
}
