//! `conversation`: callers' conversations with this device's services.

use std::time::Duration;

use clap::Subcommand;
use deskgate_program::duration;
use deskgate_program::exit::Failure;
use deskgate_program::look::Cell;
use deskgate_program::output::{Output, table};
use deskgate_program::records;
use deskgate_program::records::Noun;
use deskgate_program::records::given::GivenId;
use deskgate_program::records::tones::Toned;
use deskgate_protocol::ConversationId;
use deskgate_protocol::conversation::ConversationState;
use deskgate_protocol::management::{
    ConversationDetail, ListConversations, ListedRun, OwnConversation, RecordKind, ResetConversation, ShowConversation,
};

use super::run::{asked, first_line};
use super::socket::AgentClient;
use super::{app, operation};

const CONVERSATIONS: Noun =
    Noun { singular: "conversation", plural: "conversations", list: "deskgate conversation list" };

/// `deskgate conversation …`
#[derive(Debug, Subcommand)]
pub(super) enum ConversationCommand {
    /// Conversations, newest first
    List {
        /// At most so many
        #[arg(long, default_value_t = 20)]
        limit: u32,
        /// Only conversations older than this one
        #[arg(long, value_name = "CONVERSATION")]
        before: Option<GivenId<ConversationId>>,
        /// Only in this state: idle, busy or resetting
        #[arg(long, value_name = "STATE")]
        state: Option<ConversationState>,
        /// Only of this application: its name or identifier, removed or not
        #[arg(long, value_name = "APP")]
        app: Option<String>,
    },
    /// One conversation with its newest messages
    Show {
        /// Its identifier, or the end of it as `conversation list` shows it
        conversation: GivenId<ConversationId>,
    },
    /// Begin a conversation anew; the assistant forgets what was said, files and outside effects stay
    #[command(after_help = "The messages that were sent, and their answers, can still be read at the gateway.")]
    Reset {
        /// Its identifier, or the end of it as `conversation list` shows it
        conversation: GivenId<ConversationId>,
        /// Only if it is still in this generation [default: whichever it is in now]
        #[arg(long)]
        generation: Option<u32>,
        /// Wait until it is done, at most so long, as in 60s
        #[arg(long, value_name = "TIME", value_parser = duration::parse)]
        wait: Option<Duration>,
    },
}

pub(super) async fn run(agent: AgentClient, command: ConversationCommand, out: Output) -> Result<(), Failure> {
    match command {
        ConversationCommand::List { limit, before, state, app } => {
            let app_id = app::find_given(&agent, app).await?;
            let before = match before {
                Some(before) => Some(find(&agent, before).await?),
                None => None,
            };
            let page = agent.manage(ListConversations { limit, before, app_id, state }).await?;
            out.result("conversations/1", &page, || list(&page.conversations) + &records::older(page.next));
            Ok(())
        }
        ConversationCommand::Show { conversation } => {
            let detail = agent.manage(ShowConversation { conversation_id: find(&agent, conversation).await? }).await?;
            out.result("conversation/1", &detail, || describe(&detail));
            Ok(())
        }
        ConversationCommand::Reset { conversation, generation, wait } => {
            let conversation = find(&agent, conversation).await?;
            let expected_generation = match generation {
                Some(generation) => generation,
                None => {
                    let now = agent.manage(ShowConversation { conversation_id: conversation }).await?;
                    now.conversation.conversation.generation
                }
            };
            let reset = ResetConversation { conversation_id: conversation, expected_generation };
            let operation = agent.manage(reset).await?;
            operation::follow(agent, operation, wait, out).await
        }
    }
}

/// A conversation by its identifier, or by the end of it.
async fn find(agent: &AgentClient, given: GivenId<ConversationId>) -> Result<ConversationId, Failure> {
    given.resolve(&CONVERSATIONS, async |end: &str| agent.by_end(RecordKind::Conversation, end).await).await
}

fn list(conversations: &[OwnConversation]) -> String {
    records::list(
        conversations,
        "No conversation here.",
        &["STATE", "GENERATION", "KEY", "SUBJECT", "CHANGED", "ID"],
        |OwnConversation { subject, conversation, .. }| {
            vec![
                conversation.state.cell(),
                conversation.generation.to_string().into(),
                first_line(&conversation.conversation_key).into(),
                first_line(subject).into(),
                conversation.updated_at.into(),
                Cell::id(conversation.conversation_id),
            ]
        },
    )
}

fn describe(detail: &ConversationDetail) -> String {
    let OwnConversation { app_id, subject, conversation } = &detail.conversation;
    let head = format!(
        "{}: {}, generation {}\nkey {:?} of {:?} ({app_id}) with {}\n",
        conversation.conversation_id,
        conversation.state,
        conversation.generation,
        first_line(&conversation.conversation_key),
        first_line(subject),
        conversation.endpoint_id,
    );
    if detail.messages.is_empty() {
        return head + "\nNo message yet.";
    }
    let row = |run: &ListedRun| {
        let generation = run.generation.map(|generation| generation.to_string()).unwrap_or_default();
        vec![generation.into(), run.state.cell(), run.created_at.into(), asked(run).into(), Cell::id(run.run_id)]
    };
    let messages = detail.messages.iter().map(row).collect();
    head + "\n" + &table(&["GENERATION", "STATE", "ACCEPTED", "ASKED", "RUN"], messages)
}
