//! The conversations that callers hold with this device's services.

use serde::{Deserialize, Serialize};

use crate::conversation::{Conversation, ConversationState};
use crate::ids::{ApplicationId, ConversationId};
use crate::run::Run;

/// Lists conversations of the device's applications, removed ones included. Filters narrow it down together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListConversations {
    /// At most so many, 1 to 100.
    pub limit: u32,
    /// Only conversations older than this one: the `next` of the page before.
    #[serde(default)]
    pub before: Option<ConversationId>,
    /// Only conversations of this application.
    #[serde(default)]
    pub app_id: Option<ApplicationId>,
    /// Only conversations in this state.
    #[serde(default)]
    pub state: Option<ConversationState>,
}

/// A page of conversations, newest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConversationPage {
    /// The conversations. With filters that few conversations fit a page may be short, or empty, and go on all the same.
    pub conversations: Vec<OwnConversation>,
    /// Whether there may be older ones.
    pub has_more: bool,
    /// Where the page after this one begins: its `before`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<ConversationId>,
}

/// A conversation as the owner of its service sees it: with who holds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnConversation {
    /// Whose it is.
    pub app_id: ApplicationId,
    /// On whose behalf the application holds it.
    pub subject: String,
    /// As the application sees it.
    #[serde(flatten)]
    pub conversation: Conversation,
}

/// Shows one conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShowConversation {
    /// Which one.
    pub conversation_id: ConversationId,
}

/// The reply to [`ShowConversation`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConversationDetail {
    /// The conversation.
    pub conversation: OwnConversation,
    /// Its newest messages over all generations, newest first, at most 50, without inputs and results.
    pub messages: Vec<Run>,
}

/// Begins a conversation anew, on the device too: what was said before is forgotten there. The reply says how that
/// stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResetConversation {
    /// Which one.
    pub conversation_id: ConversationId,
    /// The generation that is to end. In any other one nothing is done, so a repeated request resets once.
    pub expected_generation: u32,
}
