//! The machine's events and effects.

use std::sync::Arc;
use std::time::Duration;

use deskgate_assistant::{ModelError, ModelEvent, ModelRequest};
use deskgate_definition::tool::{EndedCall, Plan, PlannedCall, ToolOutput, ToolResult};
use deskgate_definition::{BudgetScope, ExpectedCall, Spending};
use deskgate_protocol::Timestamp;
use deskgate_protocol::control::{DeviceEvent, MessageDelta};
use deskgate_protocol::ids::ApprovalId;
use deskgate_protocol::run::Outcome;
use deskgate_schema::{DataSchema, Mismatch};
use serde_json::Value;

/// An input of the machine.
#[derive(Debug)]
pub(crate) enum TurnEvent {
    Started,
    Model(ModelEvent),
    /// The model's stream has ended.
    ModelClosed,
    RetryDue,
    /// The plan of the call, or the tool's error in its place.
    Planned(Result<Plan, ToolOutput>),
    /// The request is on disk.
    Asked {
        approval_id: ApprovalId,
        expires_at: Timestamp,
    },
    Answered(ApprovalAnswer),
    /// The call is in the journal: it may run.
    Begun,
    /// The journal requires a person's approval for the call. It wrote nothing.
    AsksFirst,
    ToolFinished {
        call_id: String,
        result: ToolResult,
    },
    /// The call's result is in the journal.
    Noted,
    /// A write to the journal failed.
    NotWritten,
    /// Whether the data fits its schema.
    Checked(Result<(), Mismatch>),
    /// A budget of the month does not allow the model call.
    BudgetReached(BudgetScope),
    Stop,
    Deadline,
}

/// An output of the machine, to be performed in order.
#[derive(Debug)]
pub(crate) enum TurnEffect {
    /// Call the model; an earlier call has ended.
    CallModel(ModelRequest),
    /// Send `RetryDue` after this time.
    RetryIn(Duration),
    /// Ask the tool for the plan of a call.
    Plan {
        tool: String,
        arguments: Value,
        /// Whether a person has allowed the call, and what it would do is compared with what they saw.
        again: bool,
    },
    /// Put an approval request for the desktop user on disk.
    Ask(ApprovalRequest),
    /// Wait for its answer. The run's time stands still.
    AwaitAnswer(ApprovalId),
    /// Withdraw the request, and report how it ended.
    Withdraw(ApprovalId),
    /// Keep for the owner why a call that they approved was not carried out.
    NotDone {
        approval_id: ApprovalId,
        why: String,
    },
    /// Record that a call begins, before it does.
    Begin {
        call: PlannedCall,
        basis: CallBasis,
    },
    /// Run a tool beside what is under way, and send `ToolFinished` with its identifier.
    RunTool {
        call_id: String,
        name: String,
        arguments: Value,
    },
    /// Record the result of a call that may have written.
    Note {
        call_id: String,
        ok: bool,
    },
    /// Find out whether data fits a schema, and send `Checked`.
    CheckData {
        schema: Arc<DataSchema>,
        data: Value,
    },
    /// Keep a call with its end, for the owner.
    KeepCall(Box<EndedCall>),
    Emit(DeviceEvent),
    /// A piece of the message; it has a value only now.
    Say(MessageDelta),
    /// Count what model calls used up, for the owner.
    Spent(Spending),
    /// Find out whether the budgets of the month allow the call that follows; if not, send `BudgetReached` in its place.
    Reserve(ExpectedCall),
    /// Keep why the model could not be used, for the owner.
    KeepFailure(Box<ModelError>),
    /// A summary of the conversation before this run: later runs see this exchange instead.
    Remember {
        said: String,
        answer: String,
    },
    /// The run is over: end the current activity.
    Finish(Outcome),
}

/// A call that a person is to decide about.
#[derive(Clone, Debug)]
pub(crate) struct ApprovalRequest {
    pub(crate) call: PlannedCall,
    /// The assistant's text before the call, not verified.
    pub(crate) why: String,
    /// The request by which the call was approved before; its plan has changed since.
    pub(crate) follows: Option<ApprovalId>,
}

/// The result of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ApprovalAnswer {
    Once,
    /// Approved, also for further calls of the same scope.
    ForRun,
    Denied {
        reason: Option<String>,
    },
    Expired,
}

/// Why a call may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallBasis {
    /// The owner's rules.
    Rules,
    /// A person allowed exactly this call.
    Approval(ApprovalId),
    /// A person allowed its scope for the rest of the run.
    Grant(ApprovalId),
}
