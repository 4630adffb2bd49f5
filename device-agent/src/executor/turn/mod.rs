//! Decides how a run continues: a pure machine from events to effects.
//!
//! ```text
//!            CallModel            End with calls        all answered
//!  Fresh ─────────────► Calling ─────────────────► Working ─────────► Calling …
//!                        │  ▲ RetryDue
//!       retryable error  ▼  │                  every arrow may end in Finished instead:
//!                       Waiting                an answer, a failure, a limit, a stop
//! ```
//!
//! A provider that cannot be used at the moment is asked again until the run's time is over ([`reply`]).
//!
//! Before a call, and after one that was too long for the model, a part of the conversation may be summarised
//! ([`summary`]); that is a separate call, which is retried in the same way.
//!
//! Invariants: at most one `Finish`, and no effect after it; one model call at a time, and no tool beside it; a tool that
//! may write runs alone; tools begin in the order the model called them; an event that does not fit the state is ignored.
//! [`calls`] turns a call into a running tool: never without a plan, a verdict and an entry in the journal.

//!
//! | file | part |
//! |---|---|
//! | here | the states, the start of a model turn, and the end of the run |
//! | [`events`] | the events and effects |
//! | [`reply`] | the model's reply |
//! | [`calls`] | the model's tool calls |
//! | [`result`] | data as the result of a run with an output |
//! | [`outdated`] | calls that would do something else than what a person allowed |
//! | [`context`], [`summary`] | a conversation that is too long for the model |

mod calls;
mod context;
mod events;
mod outdated;
mod reply;
mod result;
mod summary;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use deskgate_assistant::{Message, ModelError, ModelFacts, ModelRequest, TokenUsage};
use deskgate_definition::approvals::{GrantScope, Rulebook};
use deskgate_definition::tool::ToolSpec;
use deskgate_definition::{Budget, BudgetScope, Effort, ExpectedCall, MicroUsd, ReasoningSummaries, Spending};
use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::control::ToolKind;
use deskgate_protocol::ids::ApprovalId;
use deskgate_protocol::run::{Effects, Outcome, RunErrorCode, Usage};

use super::outcome;
use calls::{CallQueue, JOURNAL_FAILED_TEXT};
use context::{ContextPart, ContextWindow};
pub(super) use events::{ApprovalAnswer, ApprovalRequest, CallBasis, TurnEffect, TurnEvent};
use reply::{CutAnswer, ModelReply, broken_off};
pub(super) use result::ResultSchema;
use result::{CheckedData, ResultState};

/// The reason for ending a run whose assistant may write no more.
const OUTPUT_LIMIT_TEXT: &str = "The assistant wrote as much as the service allows before it had an answer. Ask for less, or ask \
                           the owner for a higher limit of output tokens.";

/// The start conditions of a run.
pub(super) struct Setup {
    pub(super) system: Arc<str>,
    /// The earlier messages, and the request as the last one.
    pub(super) messages: Vec<Message>,
    pub(super) tools: Vec<(ToolKind, ToolSpec)>,
    /// The data that its result has.
    pub(super) output: Option<ResultSchema>,
    pub(super) max_turns: u32,
    /// The limit of tokens that the model may write in all.
    pub(super) max_output_tokens: Option<u64>,
    /// The limit of tokens of one call, including the answer; `None`: no limit.
    pub(super) context_tokens: Option<u64>,
    /// What is known of the model.
    pub(super) facts: ModelFacts,
    /// Whether callers are told what the run cost.
    pub(super) shares_cost: bool,
    /// What the run's model calls may use up ...
    pub(super) budget: Budget,
    /// ... and what those of earlier attempts did.
    pub(super) spent: Spending,
    /// Whether its calls are counted, for budgets and for what was spent.
    pub(super) is_counted: bool,
    /// How much the model reasons; `None` leaves it to the model.
    pub(super) effort: Option<Effort>,
    /// Who reads the reasoning that a provider shows.
    pub(super) summaries: ReasoningSummaries,
    /// The limit of the run's awake time.
    pub(super) max_duration: Duration,
    /// The run's attempt. Numbers restart with each attempt; with it, identifiers are unique within the run.
    pub(super) run_attempt: u32,
    pub(super) rules: Rulebook,
    /// The changes of the run's earlier attempts ...
    pub(super) effects: Effects,
    /// ... and the digests of their writing calls whose effect is unknown.
    pub(super) uncertain: Vec<Sha256Digest>,
}

/// The state machine.
pub(super) struct Turn {
    system: Arc<str>,
    tools: Arc<[ToolSpec]>,
    kinds: Vec<(String, ToolKind)>,
    /// How far it is with its data, if its result has some.
    result: Option<ResultState>,
    messages: Arc<Vec<Message>>,
    max_turns: u32,
    max_output_tokens: Option<u64>,
    /// How many of them are written, as far as known.
    written_tokens: u64,
    context: ContextWindow,
    facts: ModelFacts,
    shares_cost: bool,
    /// What all model calls cost so far; `None`: the price of one is not known.
    cost: Option<MicroUsd>,
    /// What the newest used up and is not yet counted.
    uncounted: Spending,
    budget: Budget,
    /// What all attempts used up.
    spent: Spending,
    is_counted: bool,
    /// How many tokens the newest call reads, by our own estimate.
    asked_tokens: u64,
    effort: Option<Effort>,
    summaries: ReasoningSummaries,
    max_duration: Duration,
    /// The awake time at the newest event.
    awake: Duration,
    run_attempt: u32,
    turns: u32,
    /// The attempt of calling the model in this turn.
    attempt: u32,
    /// How many of them were answered with what no answer looks like.
    malformed: u32,
    /// Why the model cannot be used at the moment.
    outage: Option<ModelError>,
    /// The limit of this turn's answer, once one was cut.
    raised_limit: Option<u64>,
    /// Where it was cut, and inside which call.
    cut: Option<CutAnswer>,
    /// What the request came with beside its text.
    request_details: Option<String>,
    /// A summary of the work on it so far.
    work_note: Option<String>,
    /// Whether the reasoning of earlier calls was left out in this turn, because it was refused.
    forgot_reasoning: bool,
    /// The attempt of summarising in this turn.
    summing_attempt: u32,
    reported_messages: u32,
    usage: Usage,
    effects: Effects,
    /// The digests of writing calls that began and whose effect is unknown.
    uncertain: Vec<Sha256Digest>,
    rules: Rulebook,
    /// What a person allowed for the rest of the run.
    grants: Vec<(GrantScope, ApprovalId)>,
    /// How many calls were numbered.
    calls: u32,
    state: TurnState,
}

enum TurnState {
    Fresh,
    Calling(ModelReply),
    /// A part of the conversation is being summarised.
    Summing(ModelReply, ContextPart),
    /// Before the next attempt of a model call; or, with a part, of its summary.
    Waiting(Option<ContextPart>),
    Working(CallQueue),
    /// Data is being checked.
    Checking(CheckedData),
    Finished,
}

impl Turn {
    pub(super) fn new(setup: Setup) -> Self {
        let mut tools = setup.tools;
        tools.extend(setup.output.as_ref().map(|output| (ToolKind::Read, output.tool())));
        let context = ContextWindow::new(setup.context_tokens, &setup.system, &tools);
        let request_details = match setup.messages.last() {
            Some(Message::User { details, .. }) => details.clone(),
            _ => None,
        };
        let kinds = tools.iter().map(|(kind, spec)| (spec.name.clone(), *kind)).collect();
        Self {
            system: setup.system,
            tools: tools.into_iter().map(|(_, spec)| spec).collect(),
            kinds,
            result: setup.output.map(ResultState::from),
            messages: Arc::new(setup.messages),
            max_turns: setup.max_turns,
            max_output_tokens: setup.max_output_tokens,
            written_tokens: 0,
            context,
            facts: setup.facts,
            shares_cost: setup.shares_cost,
            cost: Some(MicroUsd::default()),
            uncounted: Spending::default(),
            budget: setup.budget,
            spent: setup.spent,
            is_counted: setup.is_counted,
            asked_tokens: 0,
            effort: setup.effort,
            summaries: setup.summaries,
            max_duration: setup.max_duration,
            awake: Duration::ZERO,
            run_attempt: setup.run_attempt,
            turns: 0,
            attempt: 0,
            malformed: 0,
            outage: None,
            raised_limit: None,
            cut: None,
            request_details,
            work_note: None,
            forgot_reasoning: false,
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

    /// Takes an event and returns the effects. `awake` is the awake time since the run started. What model calls used up
    /// comes first: nothing follows the end.
    pub(super) fn on(&mut self, event: TurnEvent, awake: Duration) -> Vec<TurnEffect> {
        let effects = self.effects_of(event, awake);
        match std::mem::take(&mut self.uncounted) {
            nothing if nothing == Spending::default() => effects,
            spent => std::iter::once(TurnEffect::Spent(spent)).chain(effects).collect(),
        }
    }

    fn effects_of(&mut self, event: TurnEvent, awake: Duration) -> Vec<TurnEffect> {
        self.usage.active_seconds = awake.as_secs_f64();
        self.awake = awake;
        let state = std::mem::replace(&mut self.state, TurnState::Finished);
        if let (
            TurnState::Calling(reply) | TurnState::Summing(reply, _),
            TurnEvent::Stop | TurnEvent::Deadline | TurnEvent::ModelClosed,
        ) = (&state, &event)
        {
            // The cut-off part was read and written all the same.
            self.count(reply);
        }
        match (state, event) {
            (TurnState::Finished, _) => Vec::new(),
            (state, TurnEvent::Stop) => {
                self.end_of(&state, Outcome::Cancelled { effects: self.effects, usage: self.usage })
            }
            (TurnState::Calling(_) | TurnState::Summing(..) | TurnState::Waiting(_), TurnEvent::Deadline)
                if self.outage.is_some() =>
            {
                self.fail_unavailable()
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
            (TurnState::Calling(_) | TurnState::Summing(..), TurnEvent::BudgetReached(scope)) => {
                self.month_is_spent(scope)
            }
            (TurnState::Calling(_) | TurnState::Summing(..), TurnEvent::NotWritten) => {
                self.fail_because(RunErrorCode::Internal, JOURNAL_FAILED_TEXT, true)
            }
            (TurnState::Working(work), event) => self.working(work, event),
            (TurnState::Checking(checked), TurnEvent::Checked(fits)) => self.checked(checked, fits),
            (state, _) => {
                self.state = state;
                Vec::new()
            }
        }
    }

    /// The outcome after a part of the agent panicked, in any state. Ends the turn.
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
        (self.attempt, self.summing_attempt, self.malformed) = (0, 0, 0);
        (self.raised_limit, self.cut, self.forgot_reasoning) = (None, None, false);
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
        let asked_tokens = self.context.filled(&self.messages);
        let expected = self.expected(asked_tokens);
        let Some(room) = self.budget.room(&self.spent, &expected) else {
            return self.fail(RunErrorCode::BudgetReached);
        };
        self.attempt += 1;
        self.usage.model_calls += 1;
        self.state = TurnState::Calling(ModelReply::default());
        let room = (room < u64::MAX).then_some(room);
        let call = TurnEffect::CallModel(ModelRequest {
            system: Arc::clone(&self.system),
            messages: Arc::clone(&self.messages),
            tools: Arc::clone(&self.tools),
            max_output_tokens: [self.left(), self.raised_limit, room].into_iter().flatten().min(),
            effort: self.effort,
        });
        self.reserved(expected).chain([call]).collect()
    }

    /// What a call that reads so many tokens will use up at least. A cache may have most of them.
    fn expected(&self, input_tokens: u64) -> ExpectedCall {
        let cached_input_tokens = if self.turns > 1 { input_tokens } else { 0 };
        let read = TokenUsage { input_tokens, cached_input_tokens, ..TokenUsage::default() };
        let input_cost = self.facts.prices.map(|prices| prices.cost(&read)).unwrap_or_default();
        let output_price = self.facts.prices.map(|prices| prices.of_request(input_tokens).output);
        ExpectedCall { input_tokens, input_cost, output_price }
    }

    /// The question before a model call.
    fn reserved(&mut self, expected: ExpectedCall) -> impl Iterator<Item = TurnEffect> + use<> {
        self.asked_tokens = expected.input_tokens;
        self.is_counted.then_some(TurnEffect::Reserve(expected)).into_iter()
    }

    /// Ends the run: a budget of the month does not allow its next call.
    fn month_is_spent(&mut self, scope: BudgetScope) -> Vec<TurnEffect> {
        let whose = match scope {
            BudgetScope::Device => "this device",
            BudgetScope::Application(_) => "your application",
            BudgetScope::Service(_) => "this service",
        };
        let message = format!(
            "The budget that the owner allows {whose} in a month is used up. Try again next month, or ask the owner for a \
             higher one."
        );
        self.fail_because(RunErrorCode::BudgetReached, &message, false)
    }
}

/// Ends the run. The state is `Finished` while an event is handled, so here it stays that.
impl Turn {
    fn finish(&mut self, outcome: Outcome) -> Vec<TurnEffect> {
        self.state = TurnState::Finished;
        vec![TurnEffect::Finish(outcome)]
    }

    /// Ends from outside, in any state: an open request is withdrawn first.
    fn end_of(&mut self, state: &TurnState, outcome: Outcome) -> Vec<TurnEffect> {
        let TurnState::Working(work) = state else { return self.finish(outcome) };
        let open = work.open_request().map(TurnEffect::Withdraw);
        let unused = work.approved_and_not_begun().map(outdated::run_ended);
        open.into_iter().chain(unused).chain(self.finish(outcome)).collect()
    }

    fn fail(&mut self, code: RunErrorCode) -> Vec<TurnEffect> {
        self.finish(outcome::failed(code, self.effects, self.usage))
    }

    fn fail_because(&mut self, code: RunErrorCode, message: &str, retryable: bool) -> Vec<TurnEffect> {
        self.finish(outcome::failed_because(code, message, retryable, self.effects, self.usage))
    }
}
