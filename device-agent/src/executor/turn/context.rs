//! How full the model's context window is, and which part of the conversation is summarised when it is too full.
//!
//! ```text
//! said before this run │ the newest request │ older calls and results │ the last calls and results
//!      gives way first │              stays │        gives way second │ stay
//! ```

use std::ops::Range;

use deskgate_assistant::{Message, TokenUsage, ToolAnswer};
use deskgate_definition::tool::ToolSpec;
use deskgate_protocol::control::ToolKind;

/// How many bytes count as one token in an estimate. About right for texts in Latin letters.
const BYTES_PER_TOKEN: usize = 4;
/// How many characters count as one token in an estimate that is hardly too high in any language: a provider that counts
/// less is not believed.
const MAX_CHARS_PER_TOKEN: usize = 6;

/// An estimate of the tokens in so many bytes.
pub(super) fn tokens(bytes: usize) -> u64 {
    (bytes / BYTES_PER_TOKEN) as u64
}

/// A part of the conversation that a summary may replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContextPart {
    /// The messages of earlier runs.
    Earlier,
    /// This run's calls and results before the last ones.
    Work,
}

/// The state of the model's context window.
pub(super) struct ContextWindow {
    window: Option<u64>,
    /// Tokens of the system prompt and the tools.
    fixed: u64,
    /// The provider's token count of the newest call, and its number of messages.
    counted: Option<(u64, usize)>,
    /// How many characters the first messages have together, and how many messages those are.
    measured: (usize, usize),
    /// Whether the earlier messages are in their shortest form.
    earlier_is_short: bool,
    /// Whether the model refused a conversation as too long in this turn.
    refused: bool,
}

impl ContextWindow {
    pub(super) fn new(window: Option<u64>, system: &str, tools: &[(ToolKind, ToolSpec)]) -> Self {
        let of_tool = |spec: &ToolSpec| spec.name.len() + spec.description.len() + spec.parameters.to_string().len();
        let tool_bytes: usize = tools.iter().map(|(_, spec)| of_tool(spec)).sum();
        let fixed = tokens(system.len() + tool_bytes);
        Self { window, fixed, counted: None, measured: (0, 0), earlier_is_short: false, refused: false }
    }

    pub(super) fn next_turn(&mut self) {
        self.refused = false;
    }

    /// Records a completed model call: its tokens cover the messages so far and one more.
    pub(super) fn record_usage(&mut self, usage: TokenUsage, messages: usize) {
        if usage.input_tokens > 0 {
            self.counted = Some((usage.input_tokens + usage.output_tokens, messages + 1));
        }
    }

    /// Records that a part was summarised.
    pub(super) fn record_summary(&mut self, part: ContextPart) {
        self.counted = None;
        self.measured = (0, 0);
        self.earlier_is_short |= part == ContextPart::Earlier;
    }

    /// How many tokens the next call would send. Between summaries, messages are only added.
    pub(super) fn filled(&mut self, messages: &[Message]) -> u64 {
        let (counted, from) = self.counted.unwrap_or((self.fixed, 0));
        let counted = counted + tokens(messages[from.min(messages.len())..].iter().map(bytes).sum());
        let (before, known) = self.measured;
        let measured = before + messages[known.min(messages.len())..].iter().map(chars).sum::<usize>();
        self.measured = (measured, messages.len());
        let least = self.fixed as usize * BYTES_PER_TOKEN + measured;
        counted.max((least / MAX_CHARS_PER_TOKEN) as u64)
    }

    /// How many tokens the window has left for an answer; `None`: no limit.
    pub(super) fn room(&mut self, messages: &[Message]) -> Option<u64> {
        self.window.map(|window| window.saturating_sub(self.filled(messages)))
    }

    /// The part to summarise before the next call. A quarter of the window is reserved for the answer and for
    /// estimation errors.
    pub(super) fn too_long(&mut self, messages: &[Message]) -> Option<ContextPart> {
        let window = self.window?;
        if self.filled(messages) > window - window / 4 { self.part(messages) } else { None }
    }

    /// Records that the model refused the conversation as too long, and limits the window to this size. Returns the
    /// part to summarise, once in a turn.
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

    /// The token limit of a summary.
    pub(super) fn summary_tokens(&self) -> u64 {
        self.window.map_or(MAX_SUMMARY_TOKENS, |window| (window / 8).clamp(64, MAX_SUMMARY_TOKENS))
    }

    /// The size limit of the text that replaces a failed summary, in bytes.
    pub(super) fn summary_bytes(&self) -> usize {
        self.summary_tokens() as usize * BYTES_PER_TOKEN
    }

    /// The size limit of the conversation that one call summarises, in bytes: half of the window.
    pub(super) fn summable_bytes(&self) -> usize {
        let tokens = self.window.map_or(MAX_SUMMARIZED_TOKENS, |window| (window / 2).min(MAX_SUMMARIZED_TOKENS));
        tokens as usize * BYTES_PER_TOKEN
    }
}

/// The token limit of a summary: some pages.
const MAX_SUMMARY_TOKENS: u64 = 4096;
/// The limit of tokens that are summarised at once.
const MAX_SUMMARIZED_TOKENS: u64 = 128 * 1024;

impl ContextPart {
    /// The messages of the part.
    pub(super) fn of(self, messages: &[Message]) -> Range<usize> {
        let request = messages.iter().rposition(|message| matches!(message, Message::User { .. })).unwrap_or(0);
        match self {
            Self::Earlier => 0..request,
            // The last calls and their results are the last two messages.
            Self::Work => request + 1..messages.len().saturating_sub(2).max(request + 1),
        }
    }
}

/// The limit of what all images and documents of a conversation have together, in bytes: in base64, two thirds of what
/// the strictest vendor takes in one request.
const MAX_ATTACHED_BYTES: usize = 15 * 1024 * 1024;
/// The limit of their pages, an image being one: what the strictest vendors take in one request.
const MAX_ATTACHED_PAGES: u32 = 100;

/// Leaves images and documents out of new answers that are too many for one request, and says so to the model.
pub(super) fn leave_out_attachments(messages: &[Message], answers: &mut [ToolAnswer]) {
    let size = |answer: &ToolAnswer| {
        let shown = answer.attachments.iter();
        shown.fold((0, 0), |(bytes, pages), shown| (bytes + shown.bytes.len(), pages + shown.pages))
    };
    let before = messages.iter().flat_map(|message| match message {
        Message::ToolResults(answers) => answers.as_slice(),
        _ => &[],
    });
    let (mut bytes, mut pages) = before.map(size).fold((0, 0), |sum, more| (sum.0 + more.0, sum.1 + more.1));
    for answer in answers.iter_mut().filter(|answer| !answer.attachments.is_empty()) {
        let more = size(answer);
        if bytes + more.0 > MAX_ATTACHED_BYTES || pages + more.1 > MAX_ATTACHED_PAGES {
            answer.attachments.clear();
            answer.text += " It is not shown: this conversation has as many images and documents as one request takes.";
        } else {
            (bytes, pages) = (bytes + more.0, pages + more.1);
        }
    }
}

fn bytes(message: &Message) -> usize {
    measured(message, str::len)
}

fn chars(message: &Message) -> usize {
    measured(message, |text| text.chars().count())
}

fn measured(message: &Message, length: fn(&str) -> usize) -> usize {
    match message {
        Message::User { text, details } => length(text) + details.as_deref().map_or(0, length),
        Message::Assistant { text, tool_calls, .. } => {
            let of_calls = tool_calls.iter().map(|call| call.name.len() + length(&call.arguments.to_string()));
            length(text) + of_calls.sum::<usize>()
        }
        Message::ToolResults(answers) => answers.iter().map(|answer| length(&answer.text) + attached(answer)).sum(),
    }
}

/// What an answer shows beside text, as if it were a text that costs as much.
fn attached(answer: &ToolAnswer) -> usize {
    answer.attachments.iter().map(|shown| shown.tokens as usize * BYTES_PER_TOKEN).sum()
}
