//! Control operations: stop and reset as resources, confirmed by the device.

use serde::{Deserialize, Serialize};

use crate::ids::{ConversationId, OperationId, RunId};
use crate::run::RunState;
use crate::time::Timestamp;
use crate::words::api_words;

/// A control operation as its owner sees it (http-api, section "Records").
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ControlOperation {
    /// Its identifier.
    pub operation_id: OperationId,
    /// What is asked for.
    pub kind: OperationKind,
    /// What it is about.
    pub target: OperationTarget,
    /// Where it stands.
    pub state: OperationState,
    /// What came of it, once it is completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<OperationOutcome>,
    /// Why nothing can come of it any more, once it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<OperationError>,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// When it was first handed to the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivered_at: Option<Timestamp>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<Timestamp>,
}

/// What a control operation is about: the member that belongs to its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OperationTarget {
    /// The run to stop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// The conversation to reset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation_id: Option<ConversationId>,
}

/// What came of a control operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OperationOutcome {
    /// For programs.
    pub code: OutcomeCode,
    /// The state of the run when a stop was completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_state: Option<RunState>,
    /// The generation that a reset began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_generation: Option<u32>,
}

/// Why nothing can come of a control operation any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OperationError {
    /// For programs.
    pub code: OperationErrorCode,
    /// For people.
    pub message: String,
}

/// The codes of [`OperationError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum OperationErrorCode {
    /// The device was removed from the gateway before it acknowledged.
    DeviceRemoved,
}

impl OperationErrorCode {
    /// The code with its message for people.
    pub fn error(self) -> OperationError {
        let message = match self {
            Self::DeviceRemoved => "The device was removed from the gateway before it acknowledged the operation.",
        };
        OperationError { code: self, message: message.to_owned() }
    }
}

api_words! {
    /// What a control operation asks for.
    pub enum OperationKind {
        /// End a run.
        RunStop = "run.stop",
        /// Begin a conversation anew.
        ConversationReset = "conversation.reset",
    }
}

api_words! {
    /// Where a control operation stands.
    pub enum OperationState {
        /// Durable; the device is away or was not told yet.
        Pending = "pending",
        /// Handed to the device, which has not confirmed it yet.
        Delivered = "delivered",
        /// Ended; the outcome says how.
        Completed = "completed",
        /// Ended; the error says why nothing came of it.
        Failed = "failed",
    }
}

api_words! {
    /// The codes of [`OperationOutcome`], and of the device's answer.
    pub enum OutcomeCode {
        /// The run was stopped and nothing of it works any more.
        Stopped = "stopped",
        /// The run ended by itself before the stop took hold.
        AlreadyFinal = "already_final",
        /// The device cannot say what became of the run.
        OutcomeUnknown = "outcome_unknown",
        /// The conversation began anew.
        Reset = "reset",
    }
}

api_words! {
    /// Who asked for a stop.
    pub enum RequestedBy {
        /// The application, through the API.
        Application = "application",
        /// The person at the desktop.
        DesktopUser = "desktop_user",
        /// The administrator of the gateway's server.
        Administrator = "administrator",
    }
}

/// A stop that was asked for, as the run's record shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Stop {
    /// When.
    pub requested_at: Timestamp,
    /// By whom.
    pub requested_by: RequestedBy,
    /// The operation that carries it out.
    pub operation_id: OperationId,
}
