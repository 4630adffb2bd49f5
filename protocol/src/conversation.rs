//! Conversations: runs of one subject with one service that share a memory.

use serde::{Deserialize, Serialize};

use crate::ids::{ConversationId, EndpointId, RunId};
use crate::time::Timestamp;
use crate::words::api_words;

/// A conversation as its owner sees it (http-api, section "Records").
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Conversation {
    /// Its identifier.
    pub conversation_id: ConversationId,
    /// The service it is held with.
    pub endpoint_id: EndpointId,
    /// The caller's own name for it, unique for one subject and service.
    pub conversation_key: String,
    /// Counted from 1; raised by every completed reset. A message names the one it means.
    pub generation: u32,
    /// Whether a message would be accepted.
    pub state: ConversationState,
    /// The run that makes it busy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_run_id: Option<RunId>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When its state or generation last changed.
    pub updated_at: Timestamp,
}

api_words! {
    /// What becomes of a message to a conversation that works on another one.
    #[derive(Default)]
    pub enum OnBusy {
        /// It is refused.
        #[default]
        Reject = "reject",
        /// It waits until the messages before it have ended.
        Enqueue = "enqueue",
        /// The run that the conversation works on is stopped, and the message waits for its end, and for the messages that
        /// waited before.
        Interrupt = "interrupt",
    }
}

api_words! {
    /// Where a conversation stands.
    pub enum ConversationState {
        /// A message is accepted.
        Idle = "idle",
        /// One of its runs is not final yet.
        Busy = "busy",
        /// A reset was accepted and is not yet acknowledged by the device.
        Resetting = "resetting",
    }
}
