//! The model's reply, up to the answer or the tool calls at the end of its turn.

use std::sync::Arc;
use std::time::Duration;

use deskgate_assistant::{ErrorKind, Message, ModelError, ModelEvent, StopReason, TokenUsage, ToolCall};
use deskgate_protocol::control::{DeviceEvent, MessageDelta};
use deskgate_protocol::run::{FinishReason, RunErrorCode};

use super::calls::CallQueue;
use super::{OUTPUT_LIMIT_TEXT, Turn, TurnEffect, TurnState, context};
use crate::executor::outcome;

/// The size limit of a reported message, in bytes; the protocol's own limit.
pub(super) const MAX_MESSAGE_BYTES: usize = 60_000;
/// How many bytes of one turn's text are kept: no result can be larger.
const MAX_TEXT_BYTES: usize = 1024 * 1024;
/// How many tools one turn may call. Real turns stay far below.
pub(super) const MAX_TOOL_CALLS: usize = 64;
/// How many attempts one turn may make when model calls fail temporarily.
pub(super) const MAX_MODEL_ATTEMPTS: u32 = 6;
/// How many bytes of the assistant's text a request shows.
const MAX_REASON_BYTES: usize = 4_000;
/// The pause before the second attempt; doubled for each further one.
const INITIAL_BACKOFF: Duration = Duration::from_millis(250);

/// The model's reply so far in the current call.
#[derive(Default)]
pub(super) struct ModelReply {
    pub(super) text: String,
    /// The length of the text, in characters.
    pub(super) length: u64,
    pub(super) cut: bool,
    pub(super) calls: Vec<ToolCall>,
    pub(super) tokens: TokenUsage,
}

impl ModelReply {
    /// The size of text and calls, in bytes.
    pub(super) fn written(&self) -> usize {
        self.text.len() + self.calls.iter().map(|call| call.arguments.to_string().len()).sum::<usize>()
    }
}

impl Turn {
    pub(super) fn model(&mut self, mut reply: ModelReply, event: ModelEvent) -> Vec<TurnEffect> {
        match event {
            ModelEvent::TextDelta(text) => {
                // After a cut nothing is added, not even a shorter piece that would still fit.
                if !reply.cut {
                    let piece = outcome::cut(&text, MAX_TEXT_BYTES - reply.text.len());
                    reply.cut = piece.len() < text.len();
                    let say = self.say(&reply, piece);
                    reply.text.push_str(piece);
                    reply.length += piece.chars().count() as u64;
                    self.state = TurnState::Calling(reply);
                    return say;
                }
            }
            ModelEvent::ToolCall(_) if reply.calls.len() == MAX_TOOL_CALLS => {
                self.count(&reply);
                let message = "The model asked for too many tool calls at once.";
                return self.fail_because(RunErrorCode::ModelError, message, true);
            }
            ModelEvent::ToolCall(call) => reply.calls.push(call),
            ModelEvent::Usage(tokens) => reply.tokens = tokens,
            ModelEvent::Error(error) => {
                self.count(&reply);
                return self.model_failed(&error);
            }
            ModelEvent::End(reason) => return self.model_ended(reply, reason),
        }
        self.state = TurnState::Calling(reply);
        Vec::new()
    }

    /// The part of a piece that the finished message will report too.
    fn say(&self, reply: &ModelReply, piece: &str) -> Vec<TurnEffect> {
        let text = outcome::cut(piece, MAX_MESSAGE_BYTES.saturating_sub(reply.text.len()));
        if text.is_empty() {
            return Vec::new();
        }
        let message_id = self.message_id(self.reported_messages + 1);
        vec![TurnEffect::Say(MessageDelta { message_id, offset: reply.length, text: text.to_owned() })]
    }

    pub(super) fn model_failed(&mut self, error: &ModelError) -> Vec<TurnEffect> {
        if error.kind == ErrorKind::TooLong
            && let Some(part) = self.context.refused(&self.messages)
        {
            return self.sum_up(part);
        }
        if let Some(pause) = pause(error, self.attempt) {
            self.state = TurnState::Waiting(None);
            return vec![TurnEffect::RetryIn(pause)];
        }
        let code = match error.kind {
            ErrorKind::Auth => RunErrorCode::ModelAuth,
            ErrorKind::Overloaded | ErrorKind::Model | ErrorKind::TooLong | ErrorKind::Protocol => {
                RunErrorCode::ModelError
            }
        };
        self.fail_because(code, &error.message, error.retryable)
    }

    fn model_ended(&mut self, reply: ModelReply, reason: StopReason) -> Vec<TurnEffect> {
        self.count(&reply);
        self.context.record_usage(reply.tokens, self.messages.len());
        let ModelReply { text, cut, calls, .. } = reply;
        let mut effects = Vec::new();
        if !text.is_empty() {
            self.reported_messages += 1;
            effects.push(TurnEffect::Emit(DeviceEvent::MessageCompleted {
                message_id: self.message_id(self.reported_messages),
                text: outcome::cut(&text, MAX_MESSAGE_BYTES).to_owned(),
            }));
        }
        effects.push(TurnEffect::Emit(DeviceEvent::UsageUpdated { usage: self.usage }));
        effects.extend(if reason == StopReason::Refused {
            self.fail_because(RunErrorCode::ModelError, "The model declined to answer.", false)
        } else if self.left() == Some(0) && (!calls.is_empty() || text.trim().is_empty()) {
            // The calls' results could no longer become an answer.
            self.fail_because(RunErrorCode::ModelError, OUTPUT_LIMIT_TEXT, false)
        } else if !calls.is_empty() {
            let why = match outcome::cut(&text, MAX_REASON_BYTES) {
                whole if whole.len() == text.len() => whole.to_owned(),
                beginning => format!("{beginning} [cut here]"),
            };
            let work = CallQueue::new(calls.iter().cloned().collect(), why);
            Arc::make_mut(&mut self.messages).push(Message::Assistant { text, tool_calls: calls });
            self.next_tool(work)
        } else if text.trim().is_empty() {
            self.fail_because(RunErrorCode::ModelError, "The model ended without an answer.", true)
        } else {
            let reason =
                if cut || reason == StopReason::Length { FinishReason::Length } else { FinishReason::Completed };
            self.finish(outcome::succeeded(text, reason, self.usage))
        });
        effects
    }

    pub(super) fn count(&mut self, reply: &ModelReply) {
        self.usage.input_tokens += reply.tokens.input_tokens;
        self.usage.output_tokens += reply.tokens.output_tokens;
        self.written_tokens += match reply.tokens.output_tokens {
            0 => context::tokens(reply.written()),
            told => told,
        };
    }

    fn message_id(&self, number: u32) -> String {
        format!("msg_{}_{number}", self.run_attempt)
    }
}

/// The failure of a stream that ended too early.
pub(super) fn broken_off() -> ModelError {
    ModelError::new(ErrorKind::Protocol, "The model's answer broke off before its end.").as_retryable()
}

/// The pause before the next attempt; `None`: no attempt is left. The run's own time bounds the pause that a provider
/// asks for.
pub(super) fn pause(error: &ModelError, attempts: u32) -> Option<Duration> {
    let again = error.retryable && attempts < MAX_MODEL_ATTEMPTS;
    again.then(|| (INITIAL_BACKOFF * 2_u32.pow(attempts - 1)).max(error.retry_after.unwrap_or_default()))
}
