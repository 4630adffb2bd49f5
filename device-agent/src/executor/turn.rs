//! Decides how a run goes on: a pure machine from events to effects.
//!
//! ```text
//!            CallModel            End with calls        all answered
//!  Fresh ─────────────► Calling ─────────────────► Working ─────────► Calling …
//!                        │  ▲ RetryDue
//!       retryable error  ▼  │                  every arrow may end in Finished instead:
//!                       Waiting                an answer, a failure, a limit, a stop
//! ```
//!
//! Before a call, and after one that was too long for the model, a part of the conversation may be summed up
//! ([`summing`]); that is a call of its own.
//!
//! What holds: one `Finish` at most, and nothing after it; one model call or one tool at a time;
//! tools run in the order the model called them; an event that does not fit the state is ignored.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use deskgate_protocol::control::{DeviceEvent, MessageDelta, ToolKind, ToolStatus};
use deskgate_protocol::run::{Effects, FinishReason, Outcome, RunErrorCode, Usage};
use serde_json::Value;

use super::outcome;
use crate::assistant::{
    ErrorKind, Message, ModelError, ModelEvent, ModelRequest, StopReason, TokenUsage, ToolAnswer, ToolCall,
};
use crate::tools::{ToolOutput, ToolResult, ToolSpec};
use context::{Context, Part};

/// Bytes of a message that are reported; the protocol's own limit.
const MESSAGE_LIMIT: usize = 60_000;
/// Bytes of text kept of one turn: no result can be larger.
const TEXT_LIMIT: usize = 1024 * 1024;
/// Tool calls that one turn may ask for. No sane turn comes near it.
const CALLS_LIMIT: usize = 64;
/// Calls of the model for one turn, when it fails in a way that may pass.
const ATTEMPTS: u32 = 6;
/// The pause before the second attempt. Each further pause is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// Why a run ends whose assistant may write nothing more.
const WRITTEN_OUT: &str = "The assistant wrote as much as the service allows before it had an answer. Ask for less, or ask \
                           the owner for a higher limit of output tokens.";

/// What happened.
#[derive(Debug)]
pub(super) enum Event {
    Started,
    Model(ModelEvent),
    /// The model's stream is over.
    ModelClosed,
    RetryDue,
    ToolFinished(ToolResult),
    Stop,
    Deadline,
}

/// What to do about it, in this order.
#[derive(Debug)]
pub(super) enum Effect {
    /// Call the model; the call before it, if any, is over.
    CallModel(ModelRequest),
    /// Say `RetryDue` after this time.
    RetryIn(Duration),
    RunTool {
        name: String,
        arguments: Value,
    },
    Emit(DeviceEvent),
    /// The message goes on; only worth something at this moment.
    Say(MessageDelta),
    /// What was said in the conversation before this run, in fewer words: later runs see this exchange instead.
    Remember {
        said: String,
        answer: String,
    },
    /// The run is over: end whatever is under way.
    Finish(Outcome),
}

/// What a run begins with.
pub(super) struct Setup {
    pub(super) system: Arc<str>,
    /// What was said before, and last the request.
    pub(super) messages: Vec<Message>,
    pub(super) tools: Vec<(ToolKind, ToolSpec)>,
    pub(super) max_turns: u32,
    /// Tokens that the model may write in all.
    pub(super) max_output_tokens: Option<u64>,
    /// Tokens that the model takes in one call, what it writes included; `None`: nobody needs to count.
    pub(super) context_tokens: Option<u64>,
    /// Which attempt of the run this is. What is numbered here is numbered anew in the next one, and its
    /// identifiers are unique within the run.
    pub(super) run_attempt: u32,
}

/// The machine.
pub(super) struct Turn {
    system: Arc<str>,
    tools: Arc<[ToolSpec]>,
    kinds: Vec<(String, ToolKind)>,
    messages: Arc<Vec<Message>>,
    max_turns: u32,
    max_output_tokens: Option<u64>,
    /// What of them is written, as far as it is known.
    written_tokens: u64,
    context: Context,
    run_attempt: u32,
    turns: u32,
    /// Of calling the model.
    attempt: u32,
    reported_messages: u32,
    usage: Usage,
    effects: Effects,
    state: State,
}

enum State {
    Fresh,
    Calling(Reply),
    /// A part of the conversation is being summed up.
    Summing(Reply, Part),
    Waiting,
    Working(Work),
    Finished,
}

/// What the model has said in the call under way.
#[derive(Default)]
struct Reply {
    text: String,
    /// Characters of the text.
    length: u64,
    cut: bool,
    calls: Vec<ToolCall>,
    tokens: TokenUsage,
}

impl Reply {
    /// Bytes of text and calls.
    fn written(&self) -> usize {
        self.text.len() + self.calls.iter().map(|call| call.arguments.to_string().len()).sum::<usize>()
    }
}

/// The calls of one turn.
struct Work {
    pending: VecDeque<ToolCall>,
    answers: Vec<ToolAnswer>,
    current: Option<Current>,
}

struct Current {
    /// The model's id for it.
    asked_as: String,
    /// Ours, unique within the run.
    call_id: String,
    tool: String,
    kind: ToolKind,
}

impl Turn {
    pub(super) fn new(setup: Setup) -> Self {
        let context = Context::new(setup.context_tokens, &setup.system, &setup.tools);
        let kinds = setup.tools.iter().map(|(kind, spec)| (spec.name.clone(), *kind)).collect();
        Self {
            system: setup.system,
            tools: setup.tools.into_iter().map(|(_, spec)| spec).collect(),
            kinds,
            messages: Arc::new(setup.messages),
            max_turns: setup.max_turns,
            max_output_tokens: setup.max_output_tokens,
            written_tokens: 0,
            context,
            run_attempt: setup.run_attempt,
            turns: 0,
            attempt: 0,
            reported_messages: 0,
            usage: Usage::default(),
            effects: Effects::None,
            state: State::Fresh,
        }
    }

    /// Takes an event and says what to do. `awake` is the time since the run started.
    pub(super) fn on(&mut self, event: Event, awake: Duration) -> Vec<Effect> {
        self.usage.active_seconds = awake.as_secs_f64();
        let state = std::mem::replace(&mut self.state, State::Finished);
        if let (State::Calling(reply) | State::Summing(reply, _), Event::Stop | Event::Deadline | Event::ModelClosed) =
            (&state, &event)
        {
            // What was cut off was read and written all the same.
            self.count(reply);
        }
        match (state, event) {
            (State::Finished, _) => Vec::new(),
            (_, Event::Stop) => self.finish(Outcome::Cancelled { effects: self.effects, usage: self.usage }),
            (_, Event::Deadline) => self.fail(RunErrorCode::MaxDurationExceeded),
            (State::Fresh, Event::Started) => self.next_turn(),
            (State::Calling(reply), Event::Model(event)) => self.model(reply, event),
            (State::Calling(_), Event::ModelClosed) => self.model_failed(
                &ModelError::new(ErrorKind::Protocol, "The model's answer broke off before its end.").passing(),
            ),
            (State::Summing(reply, part), Event::Model(event)) => self.summing(reply, part, event),
            (State::Summing(_, part), Event::ModelClosed) => self.summed_up(part, None),
            (State::Waiting, Event::RetryDue) => self.call_model(),
            (State::Working(work), Event::ToolFinished(result)) => self.tool_finished(work, result),
            (state, _) => {
                self.state = state;
                Vec::new()
            }
        }
    }

    /// The outcome after a part of the agent panicked, in whatever state that was. Ends the turn.
    pub(super) fn broken(&mut self, awake: Duration) -> Outcome {
        self.usage.active_seconds = awake.as_secs_f64();
        self.state = State::Finished;
        outcome::failed(RunErrorCode::Internal, self.effects, self.usage)
    }

    fn next_turn(&mut self) -> Vec<Effect> {
        if self.turns >= self.max_turns {
            return self.fail(RunErrorCode::MaxTurnsExceeded);
        }
        self.turns += 1;
        self.attempt = 0;
        self.context.next_turn();
        self.go_on()
    }

    /// Calls the model, once the conversation is short enough for it.
    fn go_on(&mut self) -> Vec<Effect> {
        match self.context.too_long(&self.messages) {
            Some(part) => self.sum_up(part),
            None => self.call_model(),
        }
    }

    /// How many tokens the model may still write.
    fn left(&self) -> Option<u64> {
        self.max_output_tokens.map(|most| most.saturating_sub(self.written_tokens))
    }

    fn call_model(&mut self) -> Vec<Effect> {
        if self.left() == Some(0) {
            return self.fail_because(RunErrorCode::ModelError, WRITTEN_OUT, false);
        }
        self.attempt += 1;
        self.usage.model_calls += 1;
        self.state = State::Calling(Reply::default());
        vec![Effect::CallModel(ModelRequest {
            system: Arc::clone(&self.system),
            messages: Arc::clone(&self.messages),
            tools: Arc::clone(&self.tools),
            max_output_tokens: self.left(),
        })]
    }

    fn model(&mut self, mut reply: Reply, event: ModelEvent) -> Vec<Effect> {
        match event {
            ModelEvent::TextDelta(text) => {
                // After a cut nothing is added, not even a shorter piece that would still fit.
                if !reply.cut {
                    let piece = outcome::cut(&text, TEXT_LIMIT - reply.text.len());
                    reply.cut = piece.len() < text.len();
                    let say = self.say(&reply, piece);
                    reply.text.push_str(piece);
                    reply.length += piece.chars().count() as u64;
                    self.state = State::Calling(reply);
                    return say;
                }
            }
            ModelEvent::ToolCall(_) if reply.calls.len() == CALLS_LIMIT => {
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
        self.state = State::Calling(reply);
        Vec::new()
    }

    /// As much of a piece as the finished message will report.
    fn say(&self, reply: &Reply, piece: &str) -> Vec<Effect> {
        let text = outcome::cut(piece, MESSAGE_LIMIT.saturating_sub(reply.text.len()));
        if text.is_empty() {
            return Vec::new();
        }
        let message_id = self.message_id(self.reported_messages + 1);
        vec![Effect::Say(MessageDelta { message_id, offset: reply.length, text: text.to_owned() })]
    }

    fn model_failed(&mut self, error: &ModelError) -> Vec<Effect> {
        if error.kind == ErrorKind::TooLong
            && let Some(part) = self.context.refused(&self.messages)
        {
            return self.sum_up(part);
        }
        if error.retryable && self.attempt < ATTEMPTS {
            self.state = State::Waiting;
            let pause = FIRST_PAUSE * 2_u32.pow(self.attempt - 1);
            // The run's own time bounds what a provider may ask for.
            return vec![Effect::RetryIn(pause.max(error.retry_after.unwrap_or_default()))];
        }
        let code = match error.kind {
            ErrorKind::Auth => RunErrorCode::ModelAuth,
            ErrorKind::Overloaded | ErrorKind::Model | ErrorKind::TooLong | ErrorKind::Protocol => {
                RunErrorCode::ModelError
            }
        };
        self.fail_because(code, &error.message, error.retryable)
    }

    fn model_ended(&mut self, reply: Reply, reason: StopReason) -> Vec<Effect> {
        self.count(&reply);
        self.context.counted(reply.tokens, self.messages.len());
        let Reply { text, cut, calls, .. } = reply;
        let mut effects = Vec::new();
        if !text.is_empty() {
            self.reported_messages += 1;
            effects.push(Effect::Emit(DeviceEvent::MessageCompleted {
                message_id: self.message_id(self.reported_messages),
                text: outcome::cut(&text, MESSAGE_LIMIT).to_owned(),
            }));
        }
        effects.push(Effect::Emit(DeviceEvent::UsageUpdated { usage: self.usage }));
        effects.extend(if reason == StopReason::Refused {
            self.fail_because(RunErrorCode::ModelError, "The model declined to answer.", false)
        } else if self.left() == Some(0) && (!calls.is_empty() || text.trim().is_empty()) {
            // Whatever the calls would do, nobody could make an answer of it any more.
            self.fail_because(RunErrorCode::ModelError, WRITTEN_OUT, false)
        } else if !calls.is_empty() {
            let pending = calls.iter().cloned().collect();
            Arc::make_mut(&mut self.messages).push(Message::Assistant { text, tool_calls: calls });
            self.next_tool(Work { pending, answers: Vec::new(), current: None })
        } else if text.trim().is_empty() {
            self.fail_because(RunErrorCode::ModelError, "The model ended without an answer.", true)
        } else {
            let reason =
                if cut || reason == StopReason::Length { FinishReason::Length } else { FinishReason::Completed };
            self.finish(outcome::succeeded(text, reason, self.usage))
        });
        effects
    }

    fn count(&mut self, reply: &Reply) {
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

/// Working through the calls of a turn.
impl Turn {
    fn next_tool(&mut self, mut work: Work) -> Vec<Effect> {
        while let Some(call) = work.pending.pop_front() {
            let Some(kind) = self.kinds.iter().find(|(name, _)| *name == call.name).map(|(_, kind)| *kind) else {
                let text = self.no_such_tool();
                work.answers.push(ToolAnswer { call_id: call.id, text, is_error: true });
                continue;
            };
            self.usage.tool_calls += 1;
            if kind == ToolKind::Write {
                self.effects = Effects::Possible;
            }
            let call_id = format!("call_{}_{}", self.run_attempt, self.usage.tool_calls);
            let started = DeviceEvent::ToolStarted { call_id: call_id.clone(), tool: call.name.clone(), kind };
            work.current = Some(Current { asked_as: call.id, call_id, tool: call.name.clone(), kind });
            self.state = State::Working(work);
            return vec![Effect::Emit(started), Effect::RunTool { name: call.name, arguments: call.arguments }];
        }
        Arc::make_mut(&mut self.messages).push(Message::ToolResults(work.answers));
        self.next_turn()
    }

    fn no_such_tool(&self) -> String {
        let tools: Vec<_> = self.kinds.iter().map(|(name, _)| name.as_str()).collect();
        match &tools[..] {
            [] => "This service has no tools. Answer without them.".to_owned(),
            _ => format!("There is no such tool in this service. Its tools are: {}.", tools.join(", ")),
        }
    }

    fn tool_finished(&mut self, mut work: Work, result: ToolResult) -> Vec<Effect> {
        let Some(Current { asked_as, call_id, tool, kind }) = work.current.take() else {
            self.state = State::Working(work);
            return Vec::new();
        };
        let status = match &result {
            Ok(ToolOutput { is_error: false, .. }) => ToolStatus::Ok,
            _ => ToolStatus::Error,
        };
        let mut effects = vec![Effect::Emit(DeviceEvent::ToolCompleted { call_id, tool, kind, status })];
        effects.extend(match result {
            Ok(ToolOutput { text, is_error }) => {
                work.answers.push(ToolAnswer { call_id: asked_as, text, is_error });
                self.next_tool(work)
            }
            Err(_) => self.fail(RunErrorCode::ToolError),
        });
        effects
    }
}

/// Ends. The state is `Finished` while an event is taken, so here it only has to stay that.
impl Turn {
    fn finish(&mut self, outcome: Outcome) -> Vec<Effect> {
        self.state = State::Finished;
        vec![Effect::Finish(outcome)]
    }

    fn fail(&mut self, code: RunErrorCode) -> Vec<Effect> {
        self.finish(outcome::failed(code, self.effects, self.usage))
    }

    fn fail_because(&mut self, code: RunErrorCode, message: &str, retryable: bool) -> Vec<Effect> {
        self.finish(outcome::failed_because(code, message, retryable, self.effects, self.usage))
    }
}

mod context;
mod summing;
#[cfg(test)]
mod tests;
