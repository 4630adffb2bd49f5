//! How full the model's window is, and which part of the conversation gives way when it is too full.
//!
//! ```text
//! said before this run │ the newest request │ older calls and results │ the last calls and results
//!      gives way first │              stays │        gives way second │ stay
//! ```

use std::ops::Range;

use deskgate_assistant::{Message, TokenUsage};
use deskgate_definition::tool::ToolSpec;
use deskgate_protocol::control::ToolKind;

/// Bytes that stand for one token where nobody counted. Texts in Latin letters have about so many.
const BYTES_PER_TOKEN: usize = 4;

/// About how many tokens so many bytes are.
pub(super) fn tokens(bytes: usize) -> u64 {
    (bytes / BYTES_PER_TOKEN) as u64
}

/// A part of the conversation that may give way to a summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContextPart {
    /// What was said in earlier runs.
    Earlier,
    /// What this run did before its last calls.
    Work,
}

/// What is known of the model's window.
pub(super) struct ContextWindow {
    window: Option<u64>,
    /// Tokens of the system prompt and the tools.
    fixed: u64,
    /// What the provider counted in the newest call, and how many messages that were.
    counted: Option<(u64, usize)>,
    /// What was said before this run is in its shortest form.
    earlier_is_short: bool,
    /// In this turn the model has refused a conversation as too long.
    refused: bool,
}

impl ContextWindow {
    pub(super) fn new(window: Option<u64>, system: &str, tools: &[(ToolKind, ToolSpec)]) -> Self {
        let of_tool = |spec: &ToolSpec| spec.name.len() + spec.description.len() + spec.parameters.to_string().len();
        let tool_bytes: usize = tools.iter().map(|(_, spec)| of_tool(spec)).sum();
        let fixed = tokens(system.len() + tool_bytes);
        Self { window, fixed, counted: None, earlier_is_short: false, refused: false }
    }

    pub(super) fn next_turn(&mut self) {
        self.refused = false;
    }

    /// A call of the model is over: what it read and wrote are its messages so far and one more.
    pub(super) fn record_usage(&mut self, usage: TokenUsage, messages: usize) {
        if usage.input_tokens > 0 {
            self.counted = Some((usage.input_tokens + usage.output_tokens, messages + 1));
        }
    }

    /// The part gave way.
    pub(super) fn record_summary(&mut self, part: ContextPart) {
        self.counted = None;
        self.earlier_is_short |= part == ContextPart::Earlier;
    }

    /// What the next call would have the model read.
    fn filled(&self, messages: &[Message]) -> u64 {
        let (counted, from) = self.counted.unwrap_or((self.fixed, 0));
        counted + tokens(messages[from.min(messages.len())..].iter().map(bytes).sum())
    }

    /// The part that is to give way before the next call. A quarter of the window is for the answer, and for what
    /// the estimate is wrong by.
    pub(super) fn too_long(&self, messages: &[Message]) -> Option<ContextPart> {
        let window = self.window?;
        if self.filled(messages) > window - window / 4 { self.part(messages) } else { None }
    }

    /// The model refused the conversation as too long. The part that gives way, once in a turn; and the window is
    /// no larger than this, whatever anybody said.
    pub(super) fn refused(&mut self, messages: &[Message]) -> Option<ContextPart> {
        if std::mem::replace(&mut self.refused, true) {
            return None;
        }
        let filled = self.filled(messages);
        self.window = Some(self.window.map_or(filled, |window| window.min(filled)));
        self.part(messages)
    }

    fn part(&self, messages: &[Message]) -> Option<ContextPart> {
        let parts =
            if self.earlier_is_short { &[ContextPart::Work][..] } else { &[ContextPart::Earlier, ContextPart::Work] };
        parts.iter().copied().find(|part| !part.of(messages).is_empty())
    }

    /// Tokens that a summary may have.
    pub(super) fn summary_tokens(&self) -> u64 {
        self.window.map_or(MAX_SUMMARY_TOKENS, |window| (window / 8).clamp(64, MAX_SUMMARY_TOKENS))
    }

    /// Bytes of what stands in a summary's place where none could be had.
    pub(super) fn summary_bytes(&self) -> usize {
        self.summary_tokens() as usize * BYTES_PER_TOKEN
    }

    /// Bytes of a conversation that one call may sum up: half of the window.
    pub(super) fn summable_bytes(&self) -> usize {
        let tokens = self.window.map_or(MAX_SUMMARIZED_TOKENS, |window| (window / 2).min(MAX_SUMMARIZED_TOKENS));
        tokens as usize * BYTES_PER_TOKEN
    }
}

/// The most tokens of a summary: some pages.
const MAX_SUMMARY_TOKENS: u64 = 4096;
/// The most tokens that are summed up at once.
const MAX_SUMMARIZED_TOKENS: u64 = 128 * 1024;

impl ContextPart {
    /// Where it stands.
    pub(super) fn of(self, messages: &[Message]) -> Range<usize> {
        let request = messages.iter().rposition(|message| matches!(message, Message::User { .. })).unwrap_or(0);
        match self {
            Self::Earlier => 0..request,
            // The last calls and their results are the last two.
            Self::Work => request + 1..messages.len().saturating_sub(2).max(request + 1),
        }
    }
}

fn bytes(message: &Message) -> usize {
    match message {
        Message::User { text, details } => text.len() + details.as_ref().map_or(0, String::len),
        Message::Assistant { text, tool_calls } => {
            let of_calls = tool_calls.iter().map(|call| call.name.len() + call.arguments.to_string().len());
            text.len() + of_calls.sum::<usize>()
        }
        Message::ToolResults(answers) => answers.iter().map(|answer| answer.text.len()).sum(),
    }
}
