//! Why a run is where it is, for programs and for people.

use serde::{Deserialize, Serialize};

/// Why a run is where it is, when that is not obvious from its state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StateReason {
    /// For programs.
    pub code: StateReasonCode,
    /// For people.
    pub message: String,
}

/// The codes of [`StateReason`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum StateReasonCode {
    /// The device is not connected.
    DeviceOffline,
    /// The device announced that it sleeps.
    DeviceAsleep,
    /// The desktop user paused external access.
    DevicePaused,
    /// The device was refused because of its version.
    DeviceIncompatible,
    /// The device works on other runs.
    DeviceBusy,
    /// The conversation works on the messages before it.
    ConversationBusy,
    /// A tool call waits for the desktop user.
    ApprovalPending,
    /// The model cannot be used at the moment, and is asked again.
    ModelUnavailable,
    /// Nobody knows yet how the run ended.
    OutcomeUnknown,
    /// A stop was asked for.
    StopRequested,
}

impl StateReasonCode {
    /// The code with its message for people.
    pub fn reason(self) -> StateReason {
        let message = match self {
            Self::DeviceOffline => {
                "The device that executes this service is not connected. The run starts when it is back."
            }
            Self::DeviceAsleep => "The device is asleep. The run starts after it wakes.",
            Self::DevicePaused => {
                "The desktop user has paused external access. The run starts after it is enabled again."
            }
            Self::DeviceIncompatible => {
                "The device's version does not match the gateway's. One of them has to be upgraded first."
            }
            Self::DeviceBusy => "The device is connected and starts this run as soon as it has room.",
            Self::ConversationBusy => {
                "The conversation works on the messages before this one. The run starts after them."
            }
            Self::ApprovalPending => "A tool call waits for the desktop user's decision.",
            Self::ModelUnavailable => {
                "The model cannot be used at the moment. The device asks it again until the run's time is over."
            }
            Self::OutcomeUnknown => {
                "The device was lost after this run may have had an effect. Its journal or its user settles the outcome."
            }
            Self::StopRequested => "A stop was accepted and waits for the device to confirm it.",
        };
        StateReason { code: self, message: message.to_owned() }
    }
}
