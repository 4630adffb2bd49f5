//! The colours of states, the same in every list of both programs.

use deskgate_protocol::conversation::ConversationState;
use deskgate_protocol::delivery::DeliveryState;
use deskgate_protocol::management::ApplicationState;
use deskgate_protocol::run::RunState;

use crate::look::{Cell, Tone};

/// A state as a cell of a list.
pub trait Toned: std::fmt::Display {
    /// Its colour.
    fn tone(&self) -> Tone;

    /// The cell.
    fn cell(&self) -> Cell {
        Cell::toned(self, self.tone())
    }
}

impl Toned for RunState {
    fn tone(&self) -> Tone {
        match self {
            Self::Succeeded => Tone::Good,
            Self::Queued | Self::WaitingForDevice | Self::Running | Self::Cancelling => Tone::Waiting,
            Self::AwaitingApproval | Self::AwaitingReconciliation => Tone::Attention,
            Self::Failed | Self::Expired => Tone::Failed,
            Self::Cancelled => Tone::Quiet,
        }
    }
}

impl Toned for DeliveryState {
    fn tone(&self) -> Tone {
        match self {
            Self::Delivered => Tone::Good,
            Self::Pending => Tone::Waiting,
            Self::Exhausted => Tone::Failed,
            Self::Discarded => Tone::Quiet,
        }
    }
}

impl Toned for ConversationState {
    fn tone(&self) -> Tone {
        match self {
            Self::Idle => Tone::Quiet,
            Self::Busy | Self::Resetting => Tone::Waiting,
        }
    }
}

impl Toned for ApplicationState {
    fn tone(&self) -> Tone {
        match self {
            Self::Active => Tone::Good,
            Self::Disabling => Tone::Attention,
            Self::Disabled | Self::Removed => Tone::Quiet,
        }
    }
}
