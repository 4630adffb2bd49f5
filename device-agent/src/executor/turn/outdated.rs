//! Calls that would do something else by now than what a person saw and allowed.
//!
//! An approved call is planned again before it begins, and when it finds at the last moment that its file has changed. If
//! it would now do something else, the person is asked anew, with the new difference, at most [`MAX_ASKED_ANEW`] times. If
//! it cannot be planned any more, the model is told why, and the person finds at the approval that it was not carried out.

use deskgate_definition::approvals::RuleVerdict;
use deskgate_definition::tool::{Plan, PlanPreview, ToolOutput};
use deskgate_protocol::control::ToolStatus;
use deskgate_protocol::ids::ApprovalId;

use super::calls::{CallQueue, CallStep, CurrentCall};
use super::{CallBasis, Turn, TurnEffect};

/// How often a person is asked anew about one call.
pub(super) const MAX_ASKED_ANEW: u32 = 2;
const CHANGES_TOO_OFTEN_TEXT: &str = "What this call changes was itself changed by something else each time after the owner had allowed it, so \
                                      it was not run. Look at it again, or go on without it.";
const CHANGES_TOO_OFTEN_REASON: &str =
    "what it would change was changed by something else each time after you allowed it";
const DENIED_BY_RULE_REASON: &str = "it would change something else by now, which the service's rules deny";
const RUN_ENDED_REASON: &str = "the run ended before it began";

/// What a person allowed.
pub(super) struct Approved {
    /// What they saw.
    pub(super) seen: Plan,
    /// The request that they answered.
    pub(super) by: ApprovalId,
}

/// Tells the owner of an approved call that had not begun when the run ended.
pub(super) fn run_ended(approval_id: ApprovalId) -> TurnEffect {
    TurnEffect::NotDone { approval_id, why: RUN_ENDED_REASON.to_owned() }
}

fn not_done(current: &CurrentCall, why: impl Into<String>) -> Option<TurnEffect> {
    current.approved.as_ref().map(|approved| TurnEffect::NotDone { approval_id: approved.by, why: why.into() })
}

impl Turn {
    /// A new identifier of a call, unique within the run.
    pub(super) fn call_id(&mut self) -> String {
        self.calls += 1;
        format!("call_{}_{}", self.run_attempt, self.calls)
    }

    /// Plans an approved call again.
    pub(super) fn plan_again(&mut self, work: CallQueue, current: CurrentCall) -> TurnEffect {
        let plan = TurnEffect::Plan { tool: current.tool.clone(), arguments: current.arguments.clone(), again: true };
        self.go_on(work, current, CallStep::Planning);
        plan
    }

    /// The plan of an approved call, now.
    pub(super) fn planned_again(&mut self, work: CallQueue, mut current: CurrentCall, plan: Plan) -> Vec<TurnEffect> {
        if let Some(Approved { seen, by }) = current.approved.as_ref().filter(|call| call.seen.does_the_same_as(&plan))
        {
            // As it was shown: the journal has the digest of the plan that the person decided about.
            let (seen, basis) = (seen.clone(), CallBasis::Approval(*by));
            return self.begin(work, current, seen, basis);
        }
        let is_command = matches!(plan.shown, PlanPreview::Command { .. });
        if self.rules.verdict(&current.tool, plan.place.as_deref(), is_command) == RuleVerdict::Deny {
            let told = not_done(&current, DENIED_BY_RULE_REASON);
            return told.into_iter().chain(self.denied_by_rule(work, current)).collect();
        }
        current.outdated += 1;
        if current.outdated > MAX_ASKED_ANEW {
            let events = [current.started(), current.completed(ToolStatus::Error)];
            return events.into_iter().chain(self.changes_too_often(work, current)).collect();
        }
        // Also where the person allowed further calls of its kind: they were shown what this one would do.
        let call = current.planned(plan);
        self.ask(work, current, call)
    }

    /// A call that cannot be planned, or not any more.
    pub(super) fn not_planned(&mut self, work: CallQueue, current: CurrentCall, said: ToolOutput) -> Vec<TurnEffect> {
        let told = not_done(&current, said.text.clone());
        let mut effects: Vec<_> = told.into_iter().collect();
        effects.extend([current.started(), current.completed(ToolStatus::Error)]);
        effects.extend(self.answered(work, current, said));
        effects
    }

    /// An approved call that began and did nothing, because its file had changed at that moment. It is planned again as a
    /// call of its own: the journal has the end of this one.
    pub(super) fn outdated(
        &mut self,
        work: CallQueue,
        mut current: CurrentCall,
        output: &ToolOutput,
    ) -> Vec<TurnEffect> {
        let ends = [current.kept(output), current.completed(ToolStatus::Error)];
        current.outdated += 1;
        if current.outdated > MAX_ASKED_ANEW {
            return ends.into_iter().chain(self.changes_too_often(work, current)).collect();
        }
        current.call_id = self.call_id();
        let plan = self.plan_again(work, current);
        ends.into_iter().chain([plan]).collect()
    }

    fn changes_too_often(&mut self, work: CallQueue, current: CurrentCall) -> Vec<TurnEffect> {
        let mut effects: Vec<_> = not_done(&current, CHANGES_TOO_OFTEN_REASON).into_iter().collect();
        effects.extend(self.answered(work, current, ToolOutput::error(CHANGES_TOO_OFTEN_TEXT)));
        effects
    }
}
