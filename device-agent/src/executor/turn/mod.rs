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
//! ([`summary`]); that is a call of its own, which is tried again in the same way.
//!
//! What holds: one `Finish` at most, and nothing after it; one model call or one tool at a time;
//! tools run in the order the model called them; an event that does not fit the state is ignored.
//! How a call becomes a tool that runs is in [`calls`]: never without a plan, a verdict and its place in the journal.

//!
//! | file | part |
//! |---|---|
//! | here | the states, and how a turn of the model begins and the run ends |
//! | [`events`] | what happens, and what is to be done about it |
//! | [`reply`] | what the model says |
//! | [`calls`] | the tools that it calls |
//! | [`context`], [`summary`] | a conversation that is too long for the model |

mod calls;
mod context;
mod events;
mod reply;
mod summary;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use deskgate_assistant::{Message, ModelRequest};
use deskgate_definition::approvals::{GrantScope, Rulebook};
use deskgate_definition::tool::ToolSpec;
use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::control::ToolKind;
use deskgate_protocol::ids::ApprovalId;
use deskgate_protocol::run::{Effects, Outcome, RunErrorCode, Usage};

use super::outcome;
use calls::CallQueue;
use context::{ContextPart, ContextWindow};
pub(super) use events::{ApprovalAnswer, ApprovalRequest, CallBasis, TurnEffect, TurnEvent};
use reply::{ModelReply, broken_off};

/// Why a run ends whose assistant may write nothing more.
const OUTPUT_LIMIT_TEXT: &str = "The assistant wrote as much as the service allows before it had an answer. Ask for less, or ask \
                           the owner for a higher limit of output tokens.";

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
    context: ContextWindow,
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
    grants: Vec<(GrantScope, ApprovalId)>,
    /// Calls that were numbered.
    calls: u32,
    state: TurnState,
}

enum TurnState {
    Fresh,
    Calling(ModelReply),
    /// A part of the conversation is being summed up.
    Summing(ModelReply, ContextPart),
    /// Before the model is called again; or, with a part, before that is to be summed up again.
    Waiting(Option<ContextPart>),
    Working(CallQueue),
    Finished,
}

impl Turn {
    pub(super) fn new(setup: Setup) -> Self {
        let context = ContextWindow::new(setup.context_tokens, &setup.system, &setup.tools);
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
            state: TurnState::Fresh,
        }
    }

    /// Takes an event and says what to do. `awake` is the time since the run started.
    pub(super) fn on(&mut self, event: TurnEvent, awake: Duration) -> Vec<TurnEffect> {
        self.usage.active_seconds = awake.as_secs_f64();
        let state = std::mem::replace(&mut self.state, TurnState::Finished);
        if let (
            TurnState::Calling(reply) | TurnState::Summing(reply, _),
            TurnEvent::Stop | TurnEvent::Deadline | TurnEvent::ModelClosed,
        ) = (&state, &event)
        {
            // What was cut off was read and written all the same.
            self.count(reply);
        }
        match (state, event) {
            (TurnState::Finished, _) => Vec::new(),
            (state, TurnEvent::Stop) => {
                self.end_of(&state, Outcome::Cancelled { effects: self.effects, usage: self.usage })
            }
            (state, TurnEvent::Deadline) => {
                self.end_of(&state, outcome::failed(RunErrorCode::MaxDurationExceeded, self.effects, self.usage))
            }
            (TurnState::Fresh, TurnEvent::Started) => self.next_turn(),
            (TurnState::Calling(reply), TurnEvent::Model(event)) => self.model(reply, event),
            (TurnState::Calling(_), TurnEvent::ModelClosed) => self.model_failed(&broken_off()),
            (TurnState::Summing(reply, part), TurnEvent::Model(event)) => self.summing(reply, part, event),
            (TurnState::Summing(_, part), TurnEvent::ModelClosed) => self.summing_failed(part, &broken_off()),
            (TurnState::Waiting(None), TurnEvent::RetryDue) => self.call_model(),
            (TurnState::Waiting(Some(part)), TurnEvent::RetryDue) => self.sum_up(part),
            (TurnState::Working(work), event) => self.working(work, event),
            (state, _) => {
                self.state = state;
                Vec::new()
            }
        }
    }

    /// The outcome after a part of the agent panicked, in whatever state that was. Ends the turn.
    pub(super) fn broken(&mut self, awake: Duration) -> Outcome {
        self.usage.active_seconds = awake.as_secs_f64();
        self.state = TurnState::Finished;
        outcome::failed(RunErrorCode::Internal, self.effects, self.usage)
    }

    fn next_turn(&mut self) -> Vec<TurnEffect> {
        if self.turns >= self.max_turns {
            return self.fail(RunErrorCode::MaxTurnsExceeded);
        }
        self.turns += 1;
        (self.attempt, self.summing_attempt) = (0, 0);
        self.context.next_turn();
        self.ask_model()
    }

    /// Calls the model, once the conversation is short enough for it.
    fn ask_model(&mut self) -> Vec<TurnEffect> {
        match self.context.too_long(&self.messages) {
            Some(part) => self.sum_up(part),
            None => self.call_model(),
        }
    }

    /// How many tokens the model may still write.
    fn left(&self) -> Option<u64> {
        self.max_output_tokens.map(|most| most.saturating_sub(self.written_tokens))
    }

    fn call_model(&mut self) -> Vec<TurnEffect> {
        if self.left() == Some(0) {
            return self.fail_because(RunErrorCode::ModelError, OUTPUT_LIMIT_TEXT, false);
        }
        self.attempt += 1;
        self.usage.model_calls += 1;
        self.state = TurnState::Calling(ModelReply::default());
        vec![TurnEffect::CallModel(ModelRequest {
            system: Arc::clone(&self.system),
            messages: Arc::clone(&self.messages),
            tools: Arc::clone(&self.tools),
            max_output_tokens: self.left(),
        })]
    }
}

/// Ends. The state is `Finished` while an event is taken, so here it only has to stay that.
impl Turn {
    fn finish(&mut self, outcome: Outcome) -> Vec<TurnEffect> {
        self.state = TurnState::Finished;
        vec![TurnEffect::Finish(outcome)]
    }

    /// Ends from outside, in whatever state: an open request is taken back first.
    fn end_of(&mut self, state: &TurnState, outcome: Outcome) -> Vec<TurnEffect> {
        let open = match state {
            TurnState::Working(work) => work.open_request(),
            _ => None,
        };
        open.map(TurnEffect::Withdraw).into_iter().chain(self.finish(outcome)).collect()
    }

    fn fail(&mut self, code: RunErrorCode) -> Vec<TurnEffect> {
        self.finish(outcome::failed(code, self.effects, self.usage))
    }

    fn fail_because(&mut self, code: RunErrorCode, message: &str, retryable: bool) -> Vec<TurnEffect> {
        self.finish(outcome::failed_because(code, message, retryable, self.effects, self.usage))
    }
}
