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
//! ([`summing`]); that is a call of its own, which is tried again in the same way.
//!
//! What holds: one `Finish` at most, and nothing after it; one model call or one tool at a time;
//! tools run in the order the model called them; an event that does not fit the state is ignored.
//! How a call becomes a tool that runs is in [`calls`]: never without a plan, a verdict and its place in the journal.

mod calls;

use std::sync::Arc;
use std::time::Duration;

use deskgate_protocol::Timestamp;
use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::control::{DeviceEvent, MessageDelta, ToolKind};
use deskgate_protocol::ids::ApprovalId;
use deskgate_protocol::run::{Effects, FinishReason, Outcome, RunErrorCode, Usage};
use serde_json::Value;

use super::outcome;
use crate::assistant::{ErrorKind, Message, ModelError, ModelEvent, ModelRequest, StopReason, TokenUsage, ToolCall};
use crate::services::approvals::{Rulebook, Scope};
use crate::tools::{Plan, PlannedCall, ToolOutput, ToolResult, ToolSpec};
use calls::Work;
use context::{Context, Part};

/// Bytes of a message that are reported; the protocol's own limit.
const MESSAGE_LIMIT: usize = 60_000;
/// Bytes of text kept of one turn: no result can be larger.
const TEXT_LIMIT: usize = 1024 * 1024;
/// Tool calls that one turn may ask for. No sane turn comes near it.
const CALLS_LIMIT: usize = 64;
/// Calls of the model for one turn, when it fails in a way that may pass.
const ATTEMPTS: u32 = 6;
/// Bytes of the assistant's own words that a request shows.
const WHY_LIMIT: usize = 4_000;
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
    /// What the call would do, or what the tool says instead.
    Planned(Result<Plan, ToolOutput>),
    /// The request is on disk.
    Asked {
        approval_id: ApprovalId,
        expires_at: Timestamp,
    },
    Answered(Answer),
    /// The call is in the journal: it may run.
    Begun,
    /// The journal says that only a person lets the call begin. Nothing was written.
    AsksFirst,
    ToolFinished(ToolResult),
    /// What came of the call is in the journal.
    Noted,
    /// The journal could not take what it was given.
    NotWritten,
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
    /// Ask the tool what a call would do.
    Plan {
        tool: String,
        arguments: Value,
    },
    /// Put a request to the desktop user on disk.
    Ask(Request),
    /// Wait for its answer. The run's time stands still.
    AwaitAnswer(ApprovalId),
    /// Take the request back, and say how it ended.
    Withdraw(ApprovalId),
    /// Write down that a call begins, before it does.
    Begin {
        call: PlannedCall,
        basis: Basis,
    },
    RunTool {
        name: String,
        arguments: Value,
    },
    /// Write down what came of a call that may have written.
    Note {
        call_id: String,
        ok: bool,
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

/// A call that a person is to decide about.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) call: PlannedCall,
    /// What the assistant said before it, in its own words, which nobody verified.
    pub(super) why: String,
    /// It was approved before, and what it would do has changed since.
    pub(super) again: bool,
}

/// What came of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Once,
    /// Also for further calls of the same scope.
    ForRun,
    Denied {
        reason: Option<String>,
    },
    Expired,
}

/// Why a call may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Basis {
    /// The owner's rules.
    Rules,
    /// A person allowed exactly this call.
    Approval(ApprovalId),
    /// A person allowed its scope for the rest of the run.
    Grant(ApprovalId),
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
    pub(super) rules: Rulebook,
    /// What earlier attempts of the run changed ...
    pub(super) effects: Effects,
    /// ... and the digests of their writing calls of which nobody knows what came of them.
    pub(super) uncertain: Vec<Sha256Digest>,
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
    /// Of calling the model in this turn.
    attempt: u32,
    /// Of having something summed up in this turn.
    summing_attempt: u32,
    reported_messages: u32,
    usage: Usage,
    effects: Effects,
    /// The digests of writing calls that began, and of which nobody knows what came of them.
    uncertain: Vec<Sha256Digest>,
    rules: Rulebook,
    /// What a person allowed for the rest of the run.
    grants: Vec<(Scope, ApprovalId)>,
    /// Calls that were numbered.
    calls: u32,
    state: State,
}

enum State {
    Fresh,
    Calling(Reply),
    /// A part of the conversation is being summed up.
    Summing(Reply, Part),
    /// Before the model is called again; or, with a part, before that is to be summed up again.
    Waiting(Option<Part>),
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
            summing_attempt: 0,
            reported_messages: 0,
            usage: Usage::default(),
            effects: setup.effects,
            uncertain: setup.uncertain,
            rules: setup.rules,
            grants: Vec::new(),
            calls: 0,
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
            (state, Event::Stop) => {
                self.end_of(&state, Outcome::Cancelled { effects: self.effects, usage: self.usage })
            }
            (state, Event::Deadline) => {
                self.end_of(&state, outcome::failed(RunErrorCode::MaxDurationExceeded, self.effects, self.usage))
            }
            (State::Fresh, Event::Started) => self.next_turn(),
            (State::Calling(reply), Event::Model(event)) => self.model(reply, event),
            (State::Calling(_), Event::ModelClosed) => self.model_failed(&broken_off()),
            (State::Summing(reply, part), Event::Model(event)) => self.summing(reply, part, event),
            (State::Summing(_, part), Event::ModelClosed) => self.summing_failed(part, &broken_off()),
            (State::Waiting(None), Event::RetryDue) => self.call_model(),
            (State::Waiting(Some(part)), Event::RetryDue) => self.sum_up(part),
            (State::Working(work), event) => self.working(work, event),
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
        (self.attempt, self.summing_attempt) = (0, 0);
        self.context.next_turn();
        self.ask_model()
    }

    /// Calls the model, once the conversation is short enough for it.
    fn ask_model(&mut self) -> Vec<Effect> {
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
        if let Some(pause) = pause(error, self.attempt) {
            self.state = State::Waiting(None);
            return vec![Effect::RetryIn(pause)];
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
            let why = match outcome::cut(&text, WHY_LIMIT) {
                whole if whole.len() == text.len() => whole.to_owned(),
                beginning => format!("{beginning} [cut here]"),
            };
            let work = Work::new(calls.iter().cloned().collect(), why);
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

/// The failure of a stream that is over too early.
fn broken_off() -> ModelError {
    ModelError::new(ErrorKind::Protocol, "The model's answer broke off before its end.").passing()
}

/// How long to wait before the next attempt, after so many; `None`: there is none. The run's own time bounds what a
/// provider may ask for.
fn pause(error: &ModelError, attempts: u32) -> Option<Duration> {
    let again = error.retryable && attempts < ATTEMPTS;
    again.then(|| (FIRST_PAUSE * 2_u32.pow(attempts - 1)).max(error.retry_after.unwrap_or_default()))
}

/// Ends. The state is `Finished` while an event is taken, so here it only has to stay that.
impl Turn {
    fn finish(&mut self, outcome: Outcome) -> Vec<Effect> {
        self.state = State::Finished;
        vec![Effect::Finish(outcome)]
    }

    /// Ends from outside, in whatever state: an open request is taken back first.
    fn end_of(&mut self, state: &State, outcome: Outcome) -> Vec<Effect> {
        let open = match state {
            State::Working(work) => work.open_request(),
            _ => None,
        };
        open.map(Effect::Withdraw).into_iter().chain(self.finish(outcome)).collect()
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
