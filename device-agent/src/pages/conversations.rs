//! Conversations: the list, one of them, and its reset.

use askama::Template;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{Redirect, Response};
use deskgate_program::visible;
use deskgate_protocol::ConversationId;
use deskgate_protocol::conversation::ConversationState;
use deskgate_protocol::management::{ListConversations, OwnConversation, ResetConversation, ShowConversation};
use serde::Deserialize;

use super::auth::Visitor;
use super::fields::FormFields;
use super::frame::{Frame, Section};
use super::labels::{Shape, TimeLabel};
use super::live::Topic;
use super::overview::{Names, RunRow, SHORT_ID_CHARS};
use super::{PageError, Pages, markdown};
use crate::local::{ErrorReply, ErrorReplyCode};

/// How many conversations one page shows.
const CONVERSATIONS_PER_PAGE: u32 = 50;

/// The filter of the list.
#[derive(Debug, Default, Deserialize)]
pub(super) struct ConversationsQuery {
    before: Option<ConversationId>,
}

#[derive(Template)]
#[template(path = "conversations.html")]
struct ConversationsPage {
    frame: Frame,
    talks: Vec<ConversationRow>,
    older: Option<ConversationId>,
    first: bool,
}

/// A conversation with its names.
struct ConversationRow {
    own: OwnConversation,
    application: String,
}

impl ConversationRow {
    fn new(own: OwnConversation, names: &Names) -> Self {
        Self { application: names.application(own.app_id), own }
    }

    fn key(&self) -> String {
        visible::line(&self.own.conversation.conversation_key)
    }

    /// The end of its identifier.
    fn short_id(&self) -> String {
        let id = self.own.conversation.conversation_id.to_string();
        id[id.len().saturating_sub(SHORT_ID_CHARS)..].to_owned()
    }

    fn subject(&self) -> String {
        visible::line(&self.own.subject)
    }

    fn state(&self) -> (Shape, &'static str) {
        match self.own.conversation.state {
            ConversationState::Idle => (Shape::Good, "Idle"),
            ConversationState::Busy => (Shape::Active, "Busy"),
            ConversationState::Resetting => (Shape::Waiting, "Resetting"),
        }
    }
}

/// `GET /conversations`
pub(super) async fn list(
    State(pages): State<Pages>,
    visitor: Visitor,
    Query(filter): Query<ConversationsQuery>,
) -> Result<Response, PageError> {
    let (frame, names) =
        tokio::join!(Frame::new(&pages, &visitor, Section::Conversations, "Conversations"), Names::new(&pages));
    let page = pages
        .handler()
        .manage(ListConversations {
            limit: CONVERSATIONS_PER_PAGE,
            before: filter.before,
            ..ListConversations::default()
        })
        .await?;
    let older = page.next;
    let talks = page.conversations.into_iter().map(|own| ConversationRow::new(own, &names)).collect();
    Ok(super::html(StatusCode::OK, &ConversationsPage { frame, talks, older, first: filter.before.is_none() }))
}

#[derive(Template)]
#[template(path = "conversation.html")]
struct ConversationPage {
    frame: Frame,
    talk: ConversationRow,
    rows: Vec<RunRow>,
}

/// A message with its answer.
struct MessageRow<'a> {
    row: &'a RunRow,
    /// The generation that it begins; `None`: the message before it is of the same one, or is not shown.
    began: Option<u32>,
}

impl ConversationPage {
    /// The messages as they were said, the oldest first.
    fn messages(&self) -> Vec<MessageRow<'_>> {
        let (mut messages, mut before) = (Vec::new(), None);
        for row in self.rows.iter().rev() {
            let generation = row.run.generation;
            let began = generation.filter(|_| before.is_some_and(|before| before != generation));
            messages.push(MessageRow { row, began });
            before = Some(generation);
        }
        messages
    }
}

/// `GET /conversations/{id}`
pub(super) async fn show(
    State(pages): State<Pages>,
    visitor: Visitor,
    Path(conversation_id): Path<ConversationId>,
) -> Result<Response, PageError> {
    let detail = pages.handler().manage(ShowConversation { conversation_id }).await?;
    let names = Names::new(&pages).await;
    let talk = ConversationRow::new(detail.conversation, &names);
    let frame = Frame::new(&pages, &visitor, Section::Conversations, talk.key()).await;
    let rows = detail.messages.into_iter().map(|run| names.listed(run)).collect();
    Ok(super::html(StatusCode::OK, &ConversationPage { frame, talk, rows }))
}

#[derive(Template)]
#[template(path = "conversation-reset.html")]
struct ResetQuestion {
    frame: Frame,
    talk: ConversationRow,
}

/// `GET /conversations/{id}/reset`: the question before it.
pub(super) async fn ask_reset(
    State(pages): State<Pages>,
    visitor: Visitor,
    Path(conversation_id): Path<ConversationId>,
) -> Result<Response, PageError> {
    let detail = pages.handler().manage(ShowConversation { conversation_id }).await?;
    let talk = ConversationRow::new(detail.conversation, &Names::new(&pages).await);
    let frame = Frame::new(&pages, &visitor, Section::Conversations, "Reset this conversation?").await;
    Ok(super::html(StatusCode::OK, &ResetQuestion { frame, talk }))
}

/// `POST /conversations/{id}/reset`, of the generation that the question was about.
pub(super) async fn reset(
    State(pages): State<Pages>,
    Path(conversation_id): Path<ConversationId>,
    fields: FormFields,
) -> Result<Redirect, PageError> {
    let expected_generation = fields.get("generation").parse().map_err(|_| {
        PageError(ErrorReply {
            code: ErrorReplyCode::Invalid,
            message: "The form does not say which generation is to end.".to_owned(),
        })
    })?;
    pages.handler().manage(ResetConversation { conversation_id, expected_generation }).await?;
    pages.live().changed(Topic::Runs);
    Ok(Redirect::to(&format!("/conversations/{conversation_id}")))
}
