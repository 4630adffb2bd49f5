//! From a model's tool calls to the runs of the tools, and to their answers in the order of the calls.
//!
//! ```text
//!                                                               ┌─ reads: runs beside the next calls
//!  Planning ── allowed ─────────────────────────────► Beginning ┴─► Running ─► Noting ─► the next call
//!   ▲   │           ┌── only a person lets it ────────────┘ ▲
//!   │   │           ▼                                       │
//!   │   └ asks ─► Held ─► Asking ─► Deciding ── yes, and the plan is still the same
//!   │                                   │ yes
//!   └───────────────────────────────────┘      a no, or a deny: the model is told, or the run ends
//! ```
//!
//! An approved call is planned once more before it runs; what follows if its plan has changed is in `outdated`. Calls are prepared one after the other. Those that only read run beside each other; a call that may
//! write, and a question to a person, wait until they have ended.

use std::collections::VecDeque;

use deskgate_assistant::{Message, ToolAnswer, ToolCall};
use deskgate_definition::approvals::{GrantScope, OnDenial, RuleVerdict};
use deskgate_definition::tool::{
    EndedCall, Plan, PlanPreview, PlannedCall, RESULT_TOOL, ToolFailure, ToolOutput, ToolResult,
};
use deskgate_protocol::canonical::Sha256Digest;
use deskgate_protocol::control::{ApprovalResolution, DeviceEvent, ToolKind, ToolStatus};
use deskgate_protocol::ids::ApprovalId;
use deskgate_protocol::run::{Effects, RunErrorCode};
use serde_json::Value;

use super::outdated::Approved;
use super::{ApprovalAnswer, ApprovalRequest, CallBasis, Turn, TurnEffect, TurnEvent, TurnState, context};

/// How many tools one turn may call. Real turns stay far below.
pub(super) const MAX_TOOL_CALLS: usize = 64;
/// The result for the model of a call beyond that.
const TOO_MANY_CALLS_TEXT: &str =
    "Not run: 64 calls at once are the limit. Call it again in your next message if you still need it.";
/// How many calls that only read run beside each other.
pub(super) const MAX_READING_CALLS: usize = 8;
/// The result for the model when a rule denies a call.
const DENIED_BY_RULE_TEXT: &str = "The owner's rules for this service do not allow this call. Go on without it.";
/// The result for the model when a request expires.
const UNANSWERED_TEXT: &str = "Nobody decided about this call in time, so it was not run. Go on without it.";
/// The reason for ending a run whose journal cannot be written.
pub(super) const JOURNAL_FAILED_TEXT: &str =
    "The device could not write its journal and ran nothing further. The owner finds the reason there.";

/// The calls of one turn.
pub(super) struct CallQueue {
    pending: VecDeque<ToolCall>,
    /// The answers so far, in the order of the calls.
    answers: Vec<Option<ToolAnswer>>,
    /// The model's text before its calls.
    why: String,
    /// The call that is prepared, or that may write and runs.
    current: Option<Box<CurrentCall>>,
    /// The calls that only read and run.
    reading: Vec<CurrentCall>,
}

/// A call under way.
pub(super) struct CurrentCall {
    /// Its place among the calls of the turn.
    index: usize,
    /// The model's identifier of the call.
    asked_as: String,
    /// The run's own identifier of the call, unique within the run.
    pub(super) call_id: String,
    pub(super) tool: String,
    kind: ToolKind,
    pub(super) arguments: Value,
    /// The digest of the call as it begins.
    digest: Option<Sha256Digest>,
    /// By what a person allowed it, if one was asked.
    pub(super) approved: Option<Approved>,
    /// How often what it would do had changed after a person allowed it.
    pub(super) outdated: u32,
    /// Whether the rules or a person did not allow it.
    is_refused: bool,
    step: CallStep,
}

/// The step that the call has reached.
pub(super) enum CallStep {
    Planning,
    /// A person is to be asked, once no call runs any more: the run's time stands still then.
    Held(ApprovalRequest),
    Asking(PlannedCall),
    Deciding(PlannedCall, ApprovalId),
    Beginning(PlannedCall),
    Running,
    Noting(ToolOutput),
}

impl CallQueue {
    pub(super) fn new(pending: VecDeque<ToolCall>, why: String) -> Self {
        Self { pending, answers: Vec::new(), why, current: None, reading: Vec::new() }
    }

    /// Whether the next call has to wait for those that run.
    fn is_busy_for(&self, kind: ToolKind) -> bool {
        match kind {
            ToolKind::Read => self.reading.len() >= MAX_READING_CALLS,
            ToolKind::Write => !self.reading.is_empty(),
        }
    }

    /// The call that runs longest.
    #[cfg(test)]
    pub(super) fn oldest_running(&self) -> Option<&str> {
        let alone = self.current.as_deref().filter(|call| matches!(call.step, CallStep::Running));
        self.reading.first().or(alone).map(|call| call.call_id.as_str())
    }

    /// Takes the reading call that has ended.
    fn end_of_reading(&mut self, call_id: &str) -> Option<CurrentCall> {
        let place = self.reading.iter().position(|call| call.call_id == call_id)?;
        Some(self.reading.remove(place))
    }

    /// Answers a call without running it.
    fn answer_at_once(&mut self, call_id: String, text: String) {
        self.answers.push(Some(ToolAnswer::text(call_id, text, true)));
    }

    /// The request that waits for a person.
    pub(super) fn open_request(&self) -> Option<ApprovalId> {
        match self.current.as_ref()?.step {
            CallStep::Deciding(_, approval_id) => Some(approval_id),
            _ => None,
        }
    }

    /// The approval whose call is about to begin.
    pub(super) fn approved_and_not_begun(&self) -> Option<ApprovalId> {
        let current = self.current.as_ref().filter(|call| matches!(call.step, CallStep::Planning))?;
        current.approved.as_ref().map(|approved| approved.by)
    }
}

impl CurrentCall {
    pub(super) fn planned(&self, plan: Plan) -> PlannedCall {
        let Self { call_id, tool, kind, arguments, .. } = self;
        PlannedCall { call_id: call_id.clone(), tool: tool.clone(), kind: *kind, arguments: arguments.clone(), plan }
    }

    fn run(&self) -> TurnEffect {
        let Self { call_id, tool, arguments, .. } = self;
        TurnEffect::RunTool { call_id: call_id.clone(), name: tool.clone(), arguments: arguments.clone() }
    }

    pub(super) fn started(&self) -> TurnEffect {
        let Self { call_id, tool, kind, .. } = self;
        TurnEffect::Emit(DeviceEvent::ToolStarted { call_id: call_id.clone(), tool: tool.clone(), kind: *kind })
    }

    /// Keeps the call with its end, for the owner.
    pub(super) fn kept(&self, output: &ToolOutput) -> TurnEffect {
        let Self { call_id, tool, arguments, .. } = self;
        TurnEffect::KeepCall(Box::new(EndedCall {
            call_id: call_id.clone(),
            tool: tool.clone(),
            arguments: arguments.clone(),
            output: output.text.clone(),
            is_refused: self.is_refused,
            is_error: output.is_error,
            is_unknown: output.is_unknown,
        }))
    }

    pub(super) fn completed(&self, status: ToolStatus) -> TurnEffect {
        let Self { call_id, tool, kind, .. } = self;
        TurnEffect::Emit(DeviceEvent::ToolCompleted {
            call_id: call_id.clone(),
            tool: tool.clone(),
            kind: *kind,
            status,
        })
    }
}

impl Turn {
    /// Prepares the next call that the service has a tool for, unless it waits for others; or returns the results to
    /// the model.
    pub(super) fn next_tool(&mut self, mut work: CallQueue) -> Vec<TurnEffect> {
        while let Some(call) = work.pending.pop_front() {
            if work.answers.len() >= MAX_TOOL_CALLS {
                work.answer_at_once(call.id, TOO_MANY_CALLS_TEXT.to_owned());
                continue;
            }
            let Some(kind) = self.kinds.iter().find(|(name, _)| *name == call.name).map(|(_, kind)| *kind) else {
                work.answer_at_once(call.id, self.no_such_tool());
                continue;
            };
            let gives_result = self.result.is_some() && call.name == RESULT_TOOL;
            // What the result is made from has ended before.
            if work.is_busy_for(if gives_result { ToolKind::Write } else { kind }) {
                work.pending.push_front(call);
                break;
            }
            let current = CurrentCall {
                index: work.answers.len(),
                asked_as: call.id,
                call_id: self.call_id(),
                tool: call.name,
                kind,
                arguments: call.arguments,
                digest: None,
                approved: None,
                outdated: 0,
                is_refused: false,
                step: CallStep::Planning,
            };
            work.answers.push(None);
            if gives_result {
                return self.check_call(work, current);
            }
            let (tool, arguments) = (current.tool.clone(), current.arguments.clone());
            self.go_on(work, current, CallStep::Planning);
            return vec![TurnEffect::Plan { tool, arguments, again: false }];
        }
        if !work.reading.is_empty() {
            self.state = TurnState::Working(work);
            return Vec::new();
        }
        let mut answers: Vec<_> = work.answers.into_iter().flatten().collect();
        context::leave_out_attachments(&self.messages, &mut answers);
        std::sync::Arc::make_mut(&mut self.messages).push(Message::ToolResults(answers));
        self.next_turn()
    }

    fn no_such_tool(&self) -> String {
        let tools: Vec<_> = self.kinds.iter().map(|(name, _)| name.as_str()).collect();
        match &tools[..] {
            [] => "This service has no tools. Answer without them.".to_owned(),
            _ => format!("There is no such tool in this service. Its tools are: {}.", tools.join(", ")),
        }
    }

    /// Handles an event of a call under way.
    pub(super) fn working(&mut self, mut work: CallQueue, event: TurnEvent) -> Vec<TurnEffect> {
        let event = match event {
            TurnEvent::ToolFinished { call_id, result } => match work.end_of_reading(&call_id) {
                Some(call) => return self.tool_finished(work, call, result),
                None => TurnEvent::ToolFinished { call_id, result },
            },
            event => event,
        };
        let Some(mut current) = work.current.take().map(|current| *current) else {
            self.state = TurnState::Working(work);
            return Vec::new();
        };
        match (std::mem::replace(&mut current.step, CallStep::Running), event) {
            (CallStep::Planning, TurnEvent::Planned(Ok(plan))) => self.planned(work, current, plan),
            (CallStep::Planning, TurnEvent::Planned(Err(said))) => self.not_planned(work, current, said),
            (CallStep::Asking(call), TurnEvent::Asked { approval_id, expires_at }) => {
                let held = DeviceEvent::ApprovalRequested {
                    approval_id,
                    call_id: call.call_id.clone(),
                    tool: call.tool.clone(),
                    kind: call.kind,
                    expires_at,
                };
                self.go_on(work, current, CallStep::Deciding(call, approval_id));
                vec![TurnEffect::Emit(held), TurnEffect::AwaitAnswer(approval_id)]
            }
            (CallStep::Deciding(call, approval_id), TurnEvent::Answered(answer)) => {
                self.decided(work, current, call, approval_id, answer)
            }
            (CallStep::Beginning(call), TurnEvent::AsksFirst) => self.ask(work, current, call),
            (CallStep::Beginning(_), TurnEvent::Begun) => {
                self.usage.tool_calls += 1;
                if current.kind == ToolKind::Write {
                    self.effects = self.effects.max(Effects::Possible);
                }
                let mut effects = vec![current.started(), current.run()];
                match current.kind {
                    ToolKind::Write => self.go_on(work, current, CallStep::Running),
                    ToolKind::Read => {
                        work.reading.push(current);
                        effects.extend(self.next_tool(work));
                    }
                }
                effects
            }
            (CallStep::Running, TurnEvent::ToolFinished { call_id, result }) if call_id == current.call_id => {
                self.tool_finished(work, current, result)
            }
            (CallStep::Noting(output), TurnEvent::Noted) => match output.is_outdated && current.approved.is_some() {
                true => self.outdated(work, current, &output),
                false => self.completed(work, current, output),
            },
            (CallStep::Deciding(_, approval_id), TurnEvent::NotWritten) => {
                let ended = self.fail_because(RunErrorCode::Internal, JOURNAL_FAILED_TEXT, true);
                std::iter::once(TurnEffect::Withdraw(approval_id)).chain(ended).collect()
            }
            (CallStep::Asking(_) | CallStep::Beginning(_) | CallStep::Noting(_), TurnEvent::NotWritten) => {
                self.fail_because(RunErrorCode::Internal, JOURNAL_FAILED_TEXT, true)
            }
            (step, _) => {
                self.go_on(work, current, step);
                Vec::new()
            }
        }
    }

    pub(super) fn go_on(&mut self, mut work: CallQueue, mut current: CurrentCall, step: CallStep) {
        current.step = step;
        work.current = Some(Box::new(current));
        self.state = TurnState::Working(work);
    }

    fn planned(&mut self, work: CallQueue, current: CurrentCall, plan: Plan) -> Vec<TurnEffect> {
        if current.approved.is_some() {
            return self.planned_again(work, current, plan);
        }
        let is_command = matches!(plan.shown, PlanPreview::Command { .. });
        let repeats = self.may_have_happened(&current, &plan);
        match self.rules.verdict(&current.tool, plan.place.as_deref(), is_command) {
            RuleVerdict::Allow if !repeats => self.begin(work, current, plan, CallBasis::Rules),
            RuleVerdict::Deny => self.denied_by_rule(work, current),
            RuleVerdict::Allow | RuleVerdict::Ask => {
                let scope = GrantScope::of(&current.tool, plan.place.as_deref());
                if let Some((_, approval_id)) = self.grants.iter().find(|(granted, _)| *granted == scope && !repeats) {
                    let basis = CallBasis::Grant(*approval_id);
                    return self.begin(work, current, plan, basis);
                }
                let call = current.planned(plan);
                self.ask(work, current, call)
            }
        }
    }

    pub(super) fn denied_by_rule(&mut self, work: CallQueue, current: CurrentCall) -> Vec<TurnEffect> {
        self.refused(work, current, DENIED_BY_RULE_TEXT.to_owned(), RunErrorCode::ApprovalDenied)
    }

    pub(super) fn ask(&mut self, work: CallQueue, current: CurrentCall, call: PlannedCall) -> Vec<TurnEffect> {
        let follows = current.approved.as_ref().map(|approved| approved.by);
        let request = ApprovalRequest { call, why: work.why.clone(), follows };
        self.go_on(work, current, CallStep::Held(request));
        self.ask_if_held()
    }

    /// Asks about the call that is held, once no other runs.
    fn ask_if_held(&mut self) -> Vec<TurnEffect> {
        let TurnState::Working(CallQueue { current: Some(current), reading, .. }) = &mut self.state else {
            return Vec::new();
        };
        match &current.step {
            CallStep::Held(request) if reading.is_empty() => {
                let request = request.clone();
                current.step = CallStep::Asking(request.call.clone());
                vec![TurnEffect::Ask(request)]
            }
            _ => Vec::new(),
        }
    }

    /// Whether an equal call began before and its effect is unknown: only a person can allow it again.
    fn may_have_happened(&self, current: &CurrentCall, plan: &Plan) -> bool {
        !self.uncertain.is_empty() && self.uncertain.contains(&current.planned(plan.clone()).digest())
    }

    pub(super) fn begin(
        &mut self,
        work: CallQueue,
        mut current: CurrentCall,
        plan: Plan,
        basis: CallBasis,
    ) -> Vec<TurnEffect> {
        let call = current.planned(plan);
        current.digest = Some(call.digest());
        self.go_on(work, current, CallStep::Beginning(call.clone()));
        vec![TurnEffect::Begin { call, basis }]
    }

    fn decided(
        &mut self,
        work: CallQueue,
        mut current: CurrentCall,
        call: PlannedCall,
        approval_id: ApprovalId,
        answer: ApprovalAnswer,
    ) -> Vec<TurnEffect> {
        let resolution = match &answer {
            ApprovalAnswer::Once | ApprovalAnswer::ForRun => ApprovalResolution::Approved,
            ApprovalAnswer::Denied { .. } => ApprovalResolution::Denied,
            ApprovalAnswer::Expired => ApprovalResolution::Expired,
        };
        let mut effects = vec![TurnEffect::Emit(DeviceEvent::ApprovalResolved { approval_id, resolution })];
        if answer == ApprovalAnswer::ForRun {
            self.grants.push((GrantScope::of(&call.tool, call.plan.place.as_deref()), approval_id));
        }
        effects.extend(match answer {
            ApprovalAnswer::Once | ApprovalAnswer::ForRun => {
                current.arguments = call.arguments.clone();
                current.approved = Some(Approved { seen: call.plan, by: approval_id });
                vec![self.plan_again(work, current)]
            }
            ApprovalAnswer::Denied { reason } => {
                self.refused(work, current, by_a_person(reason), RunErrorCode::ApprovalDenied)
            }
            ApprovalAnswer::Expired => {
                self.refused(work, current, UNANSWERED_TEXT.to_owned(), RunErrorCode::ApprovalExpired)
            }
        });
        effects
    }

    /// Refuses the call: the model gets the reason, unless the service ends the run on a denial.
    fn refused(
        &mut self,
        work: CallQueue,
        mut current: CurrentCall,
        said: String,
        code: RunErrorCode,
    ) -> Vec<TurnEffect> {
        current.is_refused = true;
        match self.rules.on_denial {
            OnDenial::TellAssistant => self.answered(work, current, ToolOutput::error(said)),
            OnDenial::EndRun => {
                let kept = current.kept(&ToolOutput::error(said));
                std::iter::once(kept).chain(self.fail(code)).collect()
            }
        }
    }

    fn tool_finished(&mut self, work: CallQueue, current: CurrentCall, result: ToolResult) -> Vec<TurnEffect> {
        let writes = current.kind == ToolKind::Write;
        match result {
            // Its intent stays without a result.
            Ok(output) if writes && output.is_unknown => {
                self.uncertain.extend(current.digest);
                self.completed(work, current, output)
            }
            Ok(output) if writes => {
                if !output.is_error {
                    self.effects = Effects::Known;
                }
                let note = TurnEffect::Note { call_id: current.call_id.clone(), ok: !output.is_error };
                self.go_on(work, current, CallStep::Noting(output));
                vec![note]
            }
            Ok(output) => self.completed(work, current, output),
            Err(gone) => {
                let output = ToolOutput { is_unknown: writes, ..ToolOutput::error(gone.to_string()) };
                let mut effects = vec![current.kept(&output), current.completed(ToolStatus::Error)];
                effects.extend(self.fail(match gone {
                    ToolFailure::WorkspaceGone => RunErrorCode::ToolError,
                    ToolFailure::SandboxUnavailable => RunErrorCode::SandboxUnavailable,
                }));
                effects
            }
        }
    }

    pub(super) fn completed(&mut self, work: CallQueue, current: CurrentCall, output: ToolOutput) -> Vec<TurnEffect> {
        let mut effects = vec![current.completed(if output.is_error { ToolStatus::Error } else { ToolStatus::Ok })];
        effects.extend(self.answered(work, current, output));
        effects
    }

    pub(super) fn answered(
        &mut self,
        mut work: CallQueue,
        current: CurrentCall,
        output: ToolOutput,
    ) -> Vec<TurnEffect> {
        let kept = current.kept(&output);
        let ToolOutput { text, attachments, is_error, .. } = output;
        work.answers[current.index] = Some(ToolAnswer { call_id: current.asked_as, text, attachments, is_error });
        let next = if work.current.is_none() {
            self.next_tool(work)
        } else {
            self.state = TurnState::Working(work);
            self.ask_if_held()
        };
        std::iter::once(kept).chain(next).collect()
    }
}

/// The result for the model when a person denies a call. The reason is in the owner's words.
fn by_a_person(reason: Option<String>) -> String {
    match reason {
        None => "The owner did not allow this call. Go on without it.".to_owned(),
        Some(reason) => format!("The owner did not allow this call, and says: {reason}"),
    }
}
