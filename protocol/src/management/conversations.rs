//! The conversations that callers hold with this device's services.

use serde::{Deserialize, Serialize};

use crate::conversation::{Conversation, ConversationState};
use crate::ids::{ApplicationId, ConversationId};
use crate::management::ListedRun;

/// Lists conversations of the device's applications, removed ones included. All filters must match.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListConversations {
    /// The size of the page, 1 to 100.
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
    /// The conversations. With narrow filters a page may be short, or empty, although there are more.
    pub conversations: Vec<OwnConversation>,
    /// Whether there may be older ones.
    pub has_more: bool,
    /// Where the page after this one begins: its `before`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<ConversationId>,
}

/// A conversation as the owner of its service sees it, with its application and subject.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnConversation {
    /// The application's identifier.
    pub app_id: ApplicationId,
    /// The end user for whom the application holds it.
    pub subject: String,
    /// The conversation as the application sees it.
    #[serde(flatten)]
    pub conversation: Conversation,
}

/// Shows one conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShowConversation {
    /// The conversation's identifier.
    pub conversation_id: ConversationId,
}

/// Characters of a message, and of its answer, that a conversation shows.
pub const MESSAGE_TEXT_CHARS: usize = 1000;

/// The reply to [`ShowConversation`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConversationDetail {
    /// The conversation.
    pub conversation: OwnConversation,
    /// Its newest messages over all generations, newest first, at most 50, each with the first [`MESSAGE_TEXT_CHARS`] of what
    /// was asked and answered.
    pub messages: Vec<ListedRun>,
}

/// Resets a conversation, on the device too: the device forgets what was said before. The reply is the state of the
/// reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResetConversation {
    /// The conversation's identifier.
    pub conversation_id: ConversationId,
    /// The generation to end. The request does nothing in any other generation, so a repeated request resets once.
    pub expected_generation: u32,
}
