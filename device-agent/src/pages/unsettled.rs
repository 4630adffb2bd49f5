//! Runs that wait for their owner's decision, and the end of all that this device knows nothing of.

use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{Redirect, Response};

use super::auth::Visitor;
use super::frame::{Frame, Section};
use super::labels::TimeLabel;
use super::live::Topic;
use super::overview::{Names, RunRow};
use super::{PageError, Pages};
use crate::local::{EndUnknownRuns, ListUnsettled};

#[derive(Template)]
#[template(path = "unsettled.html")]
struct UnsettledPage {
    frame: Frame,
    held: Vec<RunRow>,
    unknown: Vec<RunRow>,
    has_more: bool,
}

/// `GET /unsettled`
pub(super) async fn show(State(pages): State<Pages>, visitor: Visitor) -> Result<Response, PageError> {
    let title = "Runs that need your decision";
    let (frame, names) = tokio::join!(Frame::new(&pages, &visitor, Section::Runs, title), Names::new(&pages));
    let runs = pages.handler().request(ListUnsettled {}).await?;
    let rows = |runs: Vec<_>| runs.into_iter().map(|run| names.listed(run)).collect();
    let (held, unknown) = (rows(runs.held), rows(runs.unknown));
    Ok(super::html(StatusCode::OK, &UnsettledPage { frame, held, unknown, has_more: runs.has_more }))
}

/// `POST /unsettled`: ends all that this device knows nothing of.
pub(super) async fn end_unknown(State(pages): State<Pages>) -> Result<Redirect, PageError> {
    pages.handler().request(EndUnknownRuns {}).await?;
    pages.live().changed(Topic::Runs);
    Ok(Redirect::to("/unsettled"))
}
