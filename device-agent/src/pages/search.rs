//! Search: one box on every page. A certain hit is opened; otherwise all hits are listed.

use askama::Template;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use deskgate_program::visible;
use deskgate_protocol::secret::SecretKind;
use serde::Deserialize;

use super::auth::Visitor;
use super::frame::{Frame, Section};
use super::{PageError, Pages};
use crate::local::{ErrorReplyCode, Find, HitKind, SearchHit, SearchResults};

/// The search text.
#[derive(Debug, Default, Deserialize)]
pub(super) struct SearchQuery {
    #[serde(default)]
    q: String,
}

#[derive(Template)]
#[template(path = "search.html")]
struct SearchPage {
    frame: Frame,
    found: SearchResults,
    problem: Option<String>,
}

impl SearchPage {
    /// The hits, by kind.
    fn kinds(&self) -> Vec<(&'static str, Vec<&SearchHit>)> {
        let all = [
            (HitKind::Application, "Applications"),
            (HitKind::Service, "Services"),
            (HitKind::Approval, "Approvals"),
            (HitKind::Key, "Keys"),
            (HitKind::Run, "Runs"),
            (HitKind::Conversation, "Conversations"),
        ];
        let of = |kind| self.found.things.iter().filter(|thing| thing.kind == kind).collect::<Vec<_>>();
        all.into_iter().map(|(kind, word)| (word, of(kind))).filter(|(_, things)| !things.is_empty()).collect()
    }
}

/// `GET /search`
pub(super) async fn show(
    State(pages): State<Pages>,
    visitor: Visitor,
    Query(looked): Query<SearchQuery>,
) -> Result<Response, PageError> {
    let (found, problem) = match pages.handler().request(Find { text: looked.q.clone() }).await {
        Ok(found) => (found, None),
        Err(no) if no.code == ErrorReplyCode::Invalid => (SearchResults::default(), Some(no.message)),
        Err(no) => return Err(no.into()),
    };
    if let Some(thing) = found.meant() {
        return Ok(Redirect::to(&thing.page).into_response());
    }
    let search = if SecretKind::of(looked.q.trim()).is_some() { String::new() } else { looked.q };
    let mut frame = Frame::new(&pages, &visitor, Section::Help, "Search").await;
    frame.search = search;
    let status = if problem.is_some() { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::OK };
    Ok(super::html(status, &SearchPage { frame, found, problem }))
}
