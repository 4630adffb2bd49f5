//! What a gateway offers or orders, and why an attempt is refused or revoked.

use serde::{Deserialize, Serialize};

use crate::canonical::Sha256Digest;
use crate::ids::{ConversationId, EndpointId, RunId};
use crate::run::{Input, Output};

/// One run, offered to the one device that may execute it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Offer {
    /// The run's identifier.
    pub run_id: RunId,
    /// The attempt's number: no other offer of this run ever has it.
    pub attempt: u32,
    /// The service.
    pub endpoint_id: EndpointId,
    /// Its version at acceptance.
    pub endpoint_version: u32,
    /// The digest of the definition the run was accepted for; the device compares it with its own.
    pub definition_sha256: Sha256Digest,
    /// The subject that the application submitted it for. It is shown to the desktop user with an approval, and affects
    /// no decision. Absent if an older gateway or journal does not have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// What was submitted.
    pub input: Input,
    /// The data that its result must have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Box<Output>>,
    /// The conversation it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation: Option<ConversationId>,
    /// The conversation's generation at acceptance; present when the conversation is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u32>,
    /// How long it may execute, in awake seconds.
    pub max_duration_s: u32,
    /// The caller's trace to continue (W3C Trace Context).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// How many assistants that call each other stand before it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub depth: u8,
}

fn is_zero(depth: &u8) -> bool {
    *depth == 0
}

impl Offer {
    /// The trace identifier of the caller's trace, as logs name it.
    pub fn trace_id(&self) -> Option<&str> {
        self.traceparent.as_deref().and_then(trace_id)
    }
}

/// Places for runs of one service at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServicePlaces {
    /// The service.
    pub endpoint_id: EndpointId,
    /// How many; 0 says only that it has no more than it was given.
    pub places: u32,
}

/// What a control operation orders the device to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind")]
pub enum Order {
    /// End the run in any attempt, with everything that it started.
    #[serde(rename = "run.stop")]
    Stop {
        /// The run's identifier.
        run_id: RunId,
    },
    /// Forget what was said in this generation.
    #[serde(rename = "conversation.reset")]
    Reset {
        /// The conversation's identifier.
        conversation: ConversationId,
        /// The generation to close, with all older ones.
        generation: u32,
    },
}

/// The trace identifier of a `traceparent` (W3C Trace Context, section 3.2).
pub fn trace_id(traceparent: &str) -> Option<&str> {
    traceparent.split('-').nth(1)
}

/// Why a device refuses an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefuseCode {
    /// The device does not hold this definition: the run fails.
    DefinitionMismatch,
    /// The service has no free place, which the next `ready` reports too, or the device is stopping. The run stays
    /// queued, and did not begin.
    Busy,
}

/// Why an attempt is revoked from a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RevokeCode {
    /// The run has another attempt, or belongs to a newer session.
    StaleAttempt,
    /// The run is final.
    AlreadyFinal,
    /// This gateway does not know the run, or it is another device's.
    UnknownRun,
}
