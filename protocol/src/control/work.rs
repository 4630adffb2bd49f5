//! What a device is given to do, and why it is not taken or taken away again.

use serde::{Deserialize, Serialize};

use crate::canonical::Sha256Digest;
use crate::ids::{ConversationId, EndpointId, RunId};
use crate::run::Input;

/// One run, offered to the one device that may execute it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Offer {
    /// Which run.
    pub run_id: RunId,
    /// Which attempt.
    pub attempt: u32,
    /// The service.
    pub endpoint_id: EndpointId,
    /// Its version at acceptance.
    pub endpoint_version: u32,
    /// The digest of the definition the run was accepted for; the device compares it with its own.
    pub definition_sha256: Sha256Digest,
    /// For whom the application submitted it. It says whose request the desktop user decides about, and decides nothing;
    /// absent where an older gateway or journal does not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// What was submitted.
    pub input: Input,
    /// The conversation it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation: Option<ConversationId>,
    /// The generation of the conversation it was accepted in; present when the conversation is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u32>,
    /// How long it may execute, in awake seconds.
    pub max_duration_s: u32,
    /// The caller's trace (W3C Trace Context), to be continued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
}

impl Offer {
    /// The part of the caller's trace that logs name.
    pub fn trace_id(&self) -> Option<&str> {
        self.traceparent.as_deref().and_then(trace_id)
    }
}

/// What a control operation asks of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind")]
pub enum Order {
    /// End the run, in whatever attempt it is, and everything it started.
    #[serde(rename = "run.stop")]
    Stop {
        /// Which run.
        run_id: RunId,
    },
    /// Forget what was said in this generation.
    #[serde(rename = "conversation.reset")]
    Reset {
        /// Which conversation.
        conversation: ConversationId,
        /// The generation to close; older ones are meant too.
        generation: u32,
    },
}

/// The trace of a `traceparent` (W3C Trace Context, section 3.2).
pub fn trace_id(traceparent: &str) -> Option<&str> {
    traceparent.split('-').nth(1)
}

/// Why an offer is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefuseCode {
    /// The device does not hold this definition: the run fails.
    DefinitionMismatch,
    /// The service's own concurrency is used up, which the next `ready` says of it, or the device stops: the run stays
    /// queued.
    Busy,
}

/// Why an attempt is taken from a device.
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
