//! The model's reply, up to the answer or the tool calls at the end of its turn.

use std::sync::Arc;
use std::time::Duration;

use deskgate_assistant::{ErrorKind, Message, ModelError, ModelEvent, NativeMessage, StopReason, TokenUsage, ToolCall};
use deskgate_definition::tool::RESULT_TOOL;
use deskgate_definition::{MicroUsd, ReasoningSummaries, Spending};
use deskgate_protocol::control::{DeviceEvent, MessageDelta};
use deskgate_protocol::run::{FinishReason, RunErrorCode};

use super::calls::CallQueue;
use super::{OUTPUT_LIMIT_TEXT, Turn, TurnEffect, TurnState, context};
use crate::executor::outcome;

/// The size limit of a reported message, in bytes; the protocol's own limit.
pub(super) const MAX_MESSAGE_BYTES: usize = 60_000;
/// How many bytes of one turn's text are kept: no result can be larger.
const MAX_TEXT_BYTES: usize = 1024 * 1024;
/// How many attempts one turn may make when a provider answers with what no answer looks like.
pub(super) const MAX_MALFORMED_ATTEMPTS: u32 = 6;
/// How many bytes of the assistant's text a request shows.
const MAX_REASON_BYTES: usize = 4_000;
/// The pause before the second attempt; doubled for each further one.
const INITIAL_BACKOFF: Duration = Duration::from_millis(250);
/// The longest pause, unless the provider asks for a longer one.
const MAX_BACKOFF: Duration = Duration::from_secs(60);
/// The least limit of output tokens that is asked for after an answer was cut.
const MIN_RAISED_LIMIT: u64 = 16_384;

/// The model's reply so far in the current call.
#[derive(Default)]
pub(super) struct ModelReply {
    pub(super) text: String,
    /// The length of the text, in characters.
    pub(super) length: u64,
    pub(super) cut: bool,
    /// The beginning of the reasoning, as far as the provider shows it.
    pub(super) reasoning: String,
    pub(super) reasoning_is_cut: bool,
    /// The length of all reasoning that came, in bytes.
    pub(super) reasoning_bytes: usize,
    /// How many bytes of the answer came, as far as it was said; `None`: nothing of it came.
    pub(super) received_bytes: Option<usize>,
    pub(super) calls: Vec<ToolCall>,
    /// The tool in whose arguments the answer ended.
    pub(super) cut_call: Option<String>,
    /// The message in the provider's own form.
    pub(super) native: Option<NativeMessage>,
    pub(super) tokens: TokenUsage,
    /// Whether it came to its end: what its provider counted is then all.
    pub(super) is_whole: bool,
}

impl ModelReply {
    /// Why the model calls tools, as far as it says: its text, or else its reasoning.
    fn why(&self) -> String {
        match self.text.trim().is_empty() {
            true => self.summary(),
            false => beginning(&self.text, false),
        }
    }

    /// The beginning of the reasoning; empty: none was shown.
    fn summary(&self) -> String {
        beginning(self.reasoning.trim(), self.reasoning_is_cut)
    }

    /// Whether anything of it came, so that its provider has read the request.
    fn has_begun(&self) -> bool {
        self.received_bytes.is_some() || self.tokens != TokenUsage::default() || self.all_bytes() > 0
    }

    /// The size of all that the model wrote, as far as it came, in bytes.
    fn all_bytes(&self) -> usize {
        (self.written() + self.reasoning_bytes).max(self.received_bytes.unwrap_or_default())
    }

    /// The size of text and calls, in bytes.
    pub(super) fn written(&self) -> usize {
        self.text.len() + self.calls.iter().map(|call| call.arguments.to_string().len()).sum::<usize>()
    }
}

impl Turn {
    pub(super) fn model(&mut self, reply: ModelReply, event: ModelEvent) -> Vec<TurnEffect> {
        self.end_of_outage(&event).into_iter().chain(self.model_event(reply, event)).collect()
    }

    /// The report that the model is back, with its first words after an outage.
    pub(super) fn end_of_outage(&mut self, event: &ModelEvent) -> Option<TurnEffect> {
        let says_something = !matches!(event, ModelEvent::Error(_) | ModelEvent::Progress(0));
        let is_back = says_something && self.outage.take().is_some();
        is_back.then(|| self.usage_so_far())
    }

    fn model_event(&mut self, mut reply: ModelReply, event: ModelEvent) -> Vec<TurnEffect> {
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
            ModelEvent::ReasoningDelta(text) => {
                reply.reasoning_bytes += text.len();
                if self.summaries != ReasoningSummaries::Off && !reply.reasoning_is_cut {
                    let piece = outcome::cut(&text, MAX_REASON_BYTES - reply.reasoning.len());
                    reply.reasoning_is_cut = piece.len() < text.len();
                    reply.reasoning.push_str(piece);
                }
            }
            ModelEvent::Progress(bytes) => reply.received_bytes = Some(bytes),
            ModelEvent::ToolCall(call) => reply.calls.push(call),
            ModelEvent::CutCall(tool) => reply.cut_call = Some(tool),
            ModelEvent::Native(native) => reply.native = Some(native),
            ModelEvent::Usage(tokens) => reply.tokens = tokens,
            ModelEvent::Error(error) => {
                self.count(&reply);
                return self.model_failed(&error);
            }
            ModelEvent::End(reason) => {
                reply.is_whole = true;
                return self.model_ended(reply, reason);
            }
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
        let was_away = self.outage.is_some();
        if !is_outage(error) {
            self.outage = None;
        }
        // It answered, if only with a refusal.
        let back = (was_away && self.outage.is_none()).then(|| self.usage_so_far());
        if matches!(error.kind, ErrorKind::TooLong | ErrorKind::Model)
            && let Some(cut) = self.cut.take()
        {
            // The higher limit itself was refused.
            let failed = self.fail_cut(&cut);
            return kept(error).into_iter().chain(back).chain(failed).collect();
        }
        if error.kind == ErrorKind::TooLong
            && let Some(part) = self.context.refused(&self.messages)
        {
            return back.into_iter().chain(self.sum_up(part)).collect();
        }
        if error.kind == ErrorKind::Reasoning && !std::mem::replace(&mut self.forgot_reasoning, true) {
            Arc::make_mut(&mut self.messages).iter_mut().for_each(Message::forget_reasoning);
            return back.into_iter().chain(self.call_model()).collect();
        }
        if let Some(pause) = self.pause(error, self.attempt) {
            self.state = TurnState::Waiting(None);
            return self.wait(was_away, pause);
        }
        if self.outage.is_some() {
            return self.fail_unavailable();
        }
        let code = match error.kind {
            ErrorKind::Auth => RunErrorCode::ModelAuth,
            _ => RunErrorCode::ModelError,
        };
        let failed = self.fail_because(code, &error.message, error.retryable);
        kept(error).into_iter().chain(back).chain(failed).collect()
    }

    /// The pause before the next attempt; `None`: there is none. A provider that is busy or cannot be reached is asked
    /// again for as long as the run may take; the pauses stay within that time. The pause that a provider asks for is
    /// kept.
    pub(super) fn pause(&mut self, error: &ModelError, attempts: u32) -> Option<Duration> {
        if is_outage(error) {
            self.outage = Some(error.clone());
        } else {
            self.malformed += 1;
        }
        if !error.retryable || self.malformed >= MAX_MALFORMED_ATTEMPTS {
            return None;
        }
        let left = self.left_time();
        let grown = INITIAL_BACKOFF.saturating_mul(2_u32.saturating_pow(attempts.saturating_sub(1))).min(MAX_BACKOFF);
        let pause = grown.min(left / 2).max(INITIAL_BACKOFF).max(error.retry_after.unwrap_or_default());
        (pause < left).then_some(pause)
    }

    /// Waits for the next attempt, and reports it if the model has just gone away or come back.
    pub(super) fn wait(&self, was_away: bool, pause: Duration) -> Vec<TurnEffect> {
        let differs = was_away != self.outage.is_some();
        differs.then(|| self.usage_so_far()).into_iter().chain([TurnEffect::RetryIn(pause)]).collect()
    }

    /// The report of the usage so far, and of whether the model is away.
    pub(super) fn usage_so_far(&self) -> TurnEffect {
        TurnEffect::Emit(DeviceEvent::UsageUpdated { usage: self.usage, model_unavailable: self.outage.is_some() })
    }

    fn left_time(&self) -> Duration {
        self.max_duration.saturating_sub(self.awake)
    }

    /// Ends the run: the provider cannot be used, and the run's time does not allow to wait longer.
    pub(super) fn fail_unavailable(&mut self) -> Vec<TurnEffect> {
        let Some(error) = self.outage.take() else { return self.fail(RunErrorCode::MaxDurationExceeded) };
        let then = match error.retry_after.is_some_and(|asked| asked >= self.left_time()) {
            true => "It asks to wait longer than this run may take.",
            false => "It was asked again until the run's time was over.",
        };
        let message = format!("{} {then}", error.message);
        let failed = self.fail_because(RunErrorCode::ModelError, &message, true);
        kept(&error).into_iter().chain(failed).collect()
    }

    fn model_ended(&mut self, reply: ModelReply, reason: StopReason) -> Vec<TurnEffect> {
        self.count(&reply);
        self.context.record_usage(reply.tokens, self.messages.len());
        let is_cut = reply.cut_call.is_some()
            || (reason == StopReason::Length && reply.calls.is_empty() && reply.text.trim().is_empty());
        if is_cut && reason != StopReason::Refused && self.left() != Some(0) {
            return self.answer_cut(&reply);
        }
        let why = reply.why();
        let told = (self.summaries == ReasoningSummaries::Callers).then(|| reply.summary());
        let reasoning_summary = told.filter(|summary| !summary.is_empty());
        let ModelReply { text, cut, calls, native, .. } = reply;
        let mut effects = Vec::new();
        if !text.is_empty() || reasoning_summary.is_some() {
            self.reported_messages += 1;
            effects.push(TurnEffect::Emit(DeviceEvent::MessageCompleted {
                message_id: self.message_id(self.reported_messages),
                text: outcome::cut(&text, MAX_MESSAGE_BYTES).to_owned(),
                reasoning_summary,
            }));
        }
        effects.push(self.usage_so_far());
        effects.extend(if reason == StopReason::Refused {
            self.fail_because(RunErrorCode::ModelError, "The model declined to answer.", false)
        } else if self.left() == Some(0) && !self.is_answer(&text, &calls, is_cut) {
            // The calls' results could no longer become one.
            self.fail_because(RunErrorCode::ModelError, OUTPUT_LIMIT_TEXT, false)
        } else if !calls.is_empty() {
            let work = CallQueue::new(calls.iter().cloned().collect(), why);
            Arc::make_mut(&mut self.messages).push(Message::Assistant { text, tool_calls: calls, native });
            self.next_tool(work)
        } else if self.result.is_some() {
            self.ended_in_words(text, native)
        } else if text.trim().is_empty() {
            self.fail_because(RunErrorCode::ModelError, "The model ended without an answer.", true)
        } else {
            let reason =
                if cut || reason == StopReason::Length { FinishReason::Length } else { FinishReason::Completed };
            self.finish(outcome::succeeded(text, reason, self.usage))
        });
        effects
    }

    /// Whether a reply can be the run's last: its words, or its data.
    fn is_answer(&self, text: &str, calls: &[ToolCall], is_cut: bool) -> bool {
        let gives_result = self.result.is_some() && calls.iter().any(|call| call.name == RESULT_TOOL);
        gives_result || (!is_cut && calls.is_empty() && !text.trim().is_empty())
    }

    /// An answer that ended before it said or did anything whole: it is asked for once more with a higher limit, if
    /// there is one, and never taken for an answer.
    fn answer_cut(&mut self, reply: &ModelReply) -> Vec<TurnEffect> {
        let reported = self.usage_so_far();
        let written = reply.tokens.output_tokens.max(context::tokens(reply.written()));
        let most = [self.left(), self.facts.max_output_tokens, self.context.room(&self.messages)];
        let most = most.into_iter().flatten().min().unwrap_or(u64::MAX);
        let higher = written.saturating_mul(2).max(MIN_RAISED_LIMIT).min(most);
        let held = self.raised_limit.unwrap_or(written).max(written);
        let cut = CutAnswer { tool: reply.cut_call.clone(), tokens: held };
        let effects = if self.raised_limit.is_none() && higher > written {
            (self.raised_limit, self.cut) = (Some(higher), Some(cut));
            self.call_model()
        } else {
            self.fail_cut(&cut)
        };
        std::iter::once(reported).chain(effects).collect()
    }

    fn fail_cut(&mut self, CutAnswer { tool, tokens }: &CutAnswer) -> Vec<TurnEffect> {
        let what = match tool {
            Some(tool) => format!("The assistant's call of {tool} was not whole"),
            None => "The assistant had no answer yet".to_owned(),
        };
        let message = format!(
            "{what} when it reached the limit of {tokens} output tokens for one answer, so nothing was done. Ask for less \
             at once, or ask the owner for a model that writes more."
        );
        self.fail_because(RunErrorCode::ModelError, &message, false)
    }

    pub(super) fn count(&mut self, reply: &ModelReply) {
        let tokens = reply.tokens;
        self.usage.input_tokens += tokens.input_tokens;
        self.usage.cached_input_tokens += tokens.cached_input_tokens;
        self.usage.cache_write_tokens += tokens.cache_write_tokens;
        self.usage.output_tokens += tokens.output_tokens;
        self.usage.reasoning_tokens += tokens.reasoning_tokens;
        self.written_tokens += match tokens.output_tokens {
            0 => context::tokens(reply.written()),
            told => told,
        };
        self.count_cost(reply);
    }

    /// Counts what a call used up. The provider says it at the end of its answer; for one that broke off before, and for
    /// a provider that says nothing, it is estimated, and what the run cost is then not known exactly.
    fn count_cost(&mut self, reply: &ModelReply) {
        let is_told = reply.is_whole && reply.tokens != TokenUsage::default();
        let is_estimated = self.is_counted && !is_told && reply.has_begun();
        let mut tokens = reply.tokens;
        if is_estimated {
            if tokens.input_tokens == 0 {
                tokens.input_tokens = self.asked_tokens;
            }
            tokens.output_tokens = tokens.output_tokens.max(context::tokens(reply.all_bytes()));
        }
        let TokenUsage { input_tokens, cached_input_tokens, output_tokens, .. } = tokens;
        if input_tokens + output_tokens == 0 {
            return;
        }
        let cost = tokens.cost.or_else(|| Some(self.facts.prices?.cost(&tokens)));
        self.cost = self.cost.zip(cost).filter(|_| !is_estimated).map(|(so_far, call)| so_far + call);
        self.usage.cost_usd = self.cost.filter(|_| self.shares_cost).map(MicroUsd::dollars);
        let call = Spending {
            input_tokens,
            cached_input_tokens,
            output_tokens,
            cost: cost.unwrap_or_default(),
            unpriced_calls: u64::from(cost.is_none()),
        };
        self.uncounted = self.uncounted.plus(call);
        self.spent = self.spent.plus(call);
    }

    fn message_id(&self, number: u32) -> String {
        format!("msg_{}_{number}", self.run_attempt)
    }
}

/// The beginning of a text, marked where it was cut.
fn beginning(text: &str, is_cut: bool) -> String {
    match outcome::cut(text, MAX_REASON_BYTES) {
        whole if whole.len() == text.len() && !is_cut => whole.to_owned(),
        beginning => format!("{beginning} [cut here]"),
    }
}

/// An answer that a limit cut before it was of use.
pub(super) struct CutAnswer {
    /// The tool in whose arguments it ended.
    tool: Option<String>,
    /// The limit that held, in tokens.
    tokens: u64,
}

/// Whether the provider cannot be used at the moment, and may be again.
pub(super) fn is_outage(error: &ModelError) -> bool {
    error.retryable && matches!(error.kind, ErrorKind::Overloaded | ErrorKind::Unreachable)
}

/// What the provider said is kept, if it said anything.
fn kept(error: &ModelError) -> Option<TurnEffect> {
    error.detail.is_some().then(|| TurnEffect::KeepFailure(Box::new(error.clone())))
}

/// The failure of a stream that ended too early.
pub(super) fn broken_off() -> ModelError {
    ModelError::new(ErrorKind::Unreachable, "The model's answer broke off before its end.").as_retryable()
}
