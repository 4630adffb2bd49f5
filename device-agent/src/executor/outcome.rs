//! Outcomes in words for callers, cut to the size limit.

use deskgate_assistant::mcp::ServerUnavailable;
use deskgate_protocol::run::{Effects, FinishReason, Outcome, RunError, RunErrorCode, RunResult, Usage};
use serde_json::Value;

/// The size limit of a result as JSON, in bytes.
pub(super) const MAX_RESULT_BYTES: usize = 1024 * 1024;
/// The length limit of a failure's message, in characters.
const MAX_MESSAGE_CHARS: usize = 2_000;
/// Bytes reserved for the result's other member and its punctuation.
const RESULT_OVERHEAD_BYTES: usize = 64;

/// A failed run, with the default text of the code.
pub(super) fn failed(code: RunErrorCode, effects: Effects, usage: Usage) -> Outcome {
    failed_because(code, sentence(code), is_retryable(code), effects, usage)
}

/// A failed run, with another text, which must be fit for callers. It is cut at [`MAX_MESSAGE_CHARS`], so that a
/// provider's text cannot exceed a frame.
pub(super) fn failed_because(
    code: RunErrorCode,
    message: &str,
    retryable: bool,
    effects: Effects,
    usage: Usage,
) -> Outcome {
    let message = match message.char_indices().nth(MAX_MESSAGE_CHARS) {
        Some((end, _)) => format!("{}…", &message[..end]),
        None => message.to_owned(),
    };
    Outcome::Failed { error: RunError { code, message, retryable, effects }, usage }
}

/// An MCP server is not available. Only the owner learns which one and why.
pub(super) fn without_server(why: &ServerUnavailable, effects: Effects, usage: Usage) -> Outcome {
    let (code, message) = match why {
        ServerUnavailable::Changed { .. } => (
            RunErrorCode::DefinitionMismatch,
            "A server that this service works with offers other tools than those that were published. The owner has to \
             look at them first.",
        ),
        ServerUnavailable::Open { .. } => (
            RunErrorCode::ToolError,
            "A server that this service works with cannot be used at the moment. The owner finds the reason on the device.",
        ),
    };
    failed_because(code, message, true, effects, usage)
}

/// The outcome of a run whose service's folder is another one than it was published with.
pub(super) fn in_another_folder(effects: Effects, usage: Usage) -> Outcome {
    let message =
        "The folder that this service works in is another one than was published. The owner has to look at it first.";
    failed_because(RunErrorCode::DefinitionMismatch, message, true, effects, usage)
}

/// The outcome of a run with data or a schema that the service does not take.
pub(super) fn not_taken(why: &str, effects: Effects, usage: Usage) -> Outcome {
    let message = format!("The version of the service on the device does not take this: {why}.");
    failed_because(RunErrorCode::DefinitionMismatch, &message, false, effects, usage)
}

/// The outcome of a run whose files cannot be had.
pub(super) fn without_files(why: &str, effects: Effects, usage: Usage) -> Outcome {
    let message = format!("The files of the run could not be had by the device: {why}.");
    failed_because(RunErrorCode::FileUnavailable, &message, true, effects, usage)
}

/// The assistant's answer. A text that is too long is cut, which the finish reason shows.
pub(super) fn succeeded(text: String, finish_reason: FinishReason, usage: Usage) -> Outcome {
    let (text, finish_reason) = cut_to(text, MAX_RESULT_BYTES - RESULT_OVERHEAD_BYTES, finish_reason);
    Outcome::Succeeded { result: RunResult { text, data: None, finish_reason }, usage }
}

/// The assistant's data, and what it said with it. Data is never cut.
pub(super) fn succeeded_with(said: String, data: Value, finish_reason: FinishReason, usage: Usage) -> Outcome {
    let json = data.to_string();
    let room = MAX_RESULT_BYTES - RESULT_OVERHEAD_BYTES - json.len();
    let text = if said.trim().is_empty() { json } else { said };
    let (text, finish_reason) = cut_to(text, room, finish_reason);
    Outcome::Succeeded { result: RunResult { text, data: Some(Box::new(data)), finish_reason }, usage }
}

fn cut_to(mut text: String, room: usize, finish_reason: FinishReason) -> (String, FinishReason) {
    let end = fits(&text, room);
    let finish_reason = if end < text.len() { FinishReason::Length } else { finish_reason };
    text.truncate(end);
    (text, finish_reason)
}

/// Whether the same work may succeed later, judged by the code alone. A model error without its own text means that the
/// assistant cannot be opened: the owner has to act first.
fn is_retryable(code: RunErrorCode) -> bool {
    match code {
        RunErrorCode::ToolError
        | RunErrorCode::FileUnavailable
        | RunErrorCode::OutputMismatch
        | RunErrorCode::Internal
        | RunErrorCode::ApprovalExpired => true,
        RunErrorCode::ModelError
        | RunErrorCode::ModelAuth
        | RunErrorCode::SandboxUnavailable
        | RunErrorCode::MaxDurationExceeded
        | RunErrorCode::MaxTurnsExceeded
        | RunErrorCode::BudgetReached
        | RunErrorCode::ApprovalDenied
        | RunErrorCode::Interrupted
        | RunErrorCode::DeviceRemoved
        | RunErrorCode::DefinitionMismatch => false,
    }
}

fn sentence(code: RunErrorCode) -> &'static str {
    match code {
        RunErrorCode::ModelError => {
            "The assistant of this service could not answer. The owner finds the reason on the device."
        }
        RunErrorCode::ModelAuth => {
            "The model provider refused the owner's credential. The owner has to renew it on the device."
        }
        RunErrorCode::ToolError => {
            "The service's working directory cannot be used at the moment. The owner finds the reason on the device."
        }
        RunErrorCode::SandboxUnavailable => {
            "The sandbox that this service's commands need does not work on the device. The owner has to act there first."
        }
        RunErrorCode::MaxDurationExceeded => {
            "The run took longer than it may. Ask for less, or ask the owner for a longer limit."
        }
        RunErrorCode::MaxTurnsExceeded => {
            "The assistant took more turns than the service allows. Ask for less, or ask the owner for a higher limit."
        }
        RunErrorCode::FileUnavailable => "A file of the run could not be had by the device.",
        RunErrorCode::OutputMismatch => "The assistant gave no data that fits the schema.",
        RunErrorCode::BudgetReached => {
            "The run used up what the owner allows for it. Ask for less, or ask the owner for a higher budget."
        }
        RunErrorCode::ApprovalDenied => "The owner of the device refused something that this run needed.",
        RunErrorCode::ApprovalExpired => "Nobody at the device decided in time about something that this run needed.",
        RunErrorCode::Interrupted => "The device stopped while it executed this run, and its owner has settled it.",
        RunErrorCode::DeviceRemoved => "The device of this service was removed.",
        RunErrorCode::DefinitionMismatch => {
            "The device does not hold the version of the service that this run was accepted for."
        }
        RunErrorCode::Internal => "The agent on the device made a mistake of its own and gave the run up.",
    }
}

/// How many bytes of `text`, in whole characters, fit into `limit` bytes of JSON with its quotes.
fn fits(text: &str, limit: usize) -> usize {
    // A character needs at most six bytes.
    if text.len() <= (limit - 2) / 6 {
        return text.len();
    }
    let mut encoded = 2;
    for (index, character) in text.char_indices() {
        encoded += match character {
            '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
            '\0'..='\u{1f}' => 6,
            other => other.len_utf8(),
        };
        if encoded > limit {
            return index;
        }
    }
    text.len()
}

/// The beginning of a text of at most `limit` bytes, in whole characters.
pub(super) fn cut(text: &str, limit: usize) -> &str {
    let mut end = limit.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encoded(outcome: &Outcome) -> (usize, FinishReason, usize) {
        match outcome {
            Outcome::Succeeded { result, .. } => {
                let json = serde_json::to_string(result).expect("serialises");
                (json.len(), result.finish_reason, result.text.len())
            }
            other => panic!("not a success: {other:?}"),
        }
    }

    #[test]
    fn a_result_never_exceeds_its_limit_as_json_whatever_it_consists_of() {
        for piece in ["a", "\"", "\u{1}", "é", "😀", "\n"] {
            let outcome = succeeded(piece.repeat(MAX_RESULT_BYTES), FinishReason::Completed, Usage::default());
            let (json, reason, _) = encoded(&outcome);
            assert!(json <= MAX_RESULT_BYTES && json > MAX_RESULT_BYTES - 128, "{piece:?} makes {json} bytes");
            assert_eq!(reason, FinishReason::Length);
        }
    }

    #[test]
    fn a_failure_in_many_words_is_cut_and_fits_a_frame() {
        for (words, kept) in
            [("\u{1}".repeat(3 << 20), MAX_MESSAGE_CHARS + 1), ("é".repeat(MAX_MESSAGE_CHARS), MAX_MESSAGE_CHARS)]
        {
            let outcome = failed_because(RunErrorCode::ModelError, &words, false, Effects::None, Usage::default());
            let Outcome::Failed { error, .. } = &outcome else { panic!("{outcome:?}") };
            assert_eq!(error.message.chars().count(), kept);
            let (run_id, attempt, seq) = (deskgate_protocol::RunId::new(), 1, 1);
            let finish =
                deskgate_protocol::control::DeviceFrame::Finish { run_id, attempt, seq, outcome, receipt: None };
            assert!(deskgate_protocol::frame::encode(&finish).is_ok());
        }
    }

    #[test]
    fn a_result_that_fits_is_left_alone() {
        let outcome = succeeded("x".repeat(MAX_RESULT_BYTES - 128), FinishReason::Completed, Usage::default());
        let (_, reason, length) = encoded(&outcome);
        assert_eq!((reason, length), (FinishReason::Completed, MAX_RESULT_BYTES - 128));
    }

    proptest! {
        #[test]
        fn what_fits_is_counted_as_serde_counts_it(text: String, limit in 2usize..200) {
            let end = fits(&text, limit);
            let json = |text: &str| serde_json::to_string(text).expect("serialises").len();
            prop_assert!(json(&text[..end]) <= limit);
            if let Some(next) = text[end..].chars().next() {
                prop_assert!(json(&text[..end + next.len_utf8()]) > limit);
            }
        }
    }
}
