//! What is said to the machine, and what it says is to be done.

use std::time::Duration;

use deskgate_assistant::{ModelEvent, ModelRequest};
use deskgate_definition::tool::{Plan, PlannedCall, ToolOutput, ToolResult};
use deskgate_protocol::Timestamp;
use deskgate_protocol::control::{DeviceEvent, MessageDelta};
use deskgate_protocol::ids::ApprovalId;
use deskgate_protocol::run::Outcome;
use serde_json::Value;

/// What happened.
#[derive(Debug)]
pub(crate) enum TurnEvent {
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
    Answered(ApprovalAnswer),
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
pub(crate) enum TurnEffect {
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
    Ask(ApprovalRequest),
    /// Wait for its answer. The run's time stands still.
    AwaitAnswer(ApprovalId),
    /// Take the request back, and say how it ended.
    Withdraw(ApprovalId),
    /// Write down that a call begins, before it does.
    Begin {
        call: PlannedCall,
        basis: CallBasis,
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
pub(crate) struct ApprovalRequest {
    pub(crate) call: PlannedCall,
    /// What the assistant said before it, in its own words, which nobody verified.
    pub(crate) why: String,
    /// It was approved before, and what it would do has changed since.
    pub(crate) again: bool,
}

/// What came of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ApprovalAnswer {
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
pub(crate) enum CallBasis {
    /// The owner's rules.
    Rules,
    /// A person allowed exactly this call.
    Approval(ApprovalId),
    /// A person allowed its scope for the rest of the run.
    Grant(ApprovalId),
}
